"""One problem on a device: ours through the C API against PyTorch's spellings, on the same tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import torch
from answers import ROUNDING, TORCH_DTYPES, Checker, Errors, shapes, summation_limit
from contest import CLEARLY_BEATEN, IN_THE_RUNNING, OURS, Contender, first_line, refusal
from devices import Ceilings, Device, Rotation, tf32_allowed
from kronsparse_c import KronsparseError, Library, Plan
from measure import SLOW, Timing, interleaved
from suites import pattern_text
from torch import Tensor
from torch_contenders import Dimensions, Product, Spelling, spellings_for

SAMPLES_CHECKED = 64
DENSE_BYTES = 4e9  # larger weights are not tried
# Buffers are rotated until together they are this many times the last cache.
CACHES_TO_EXCEED = 4
MOST_SETS = 16
# One measurement: runs of at least this long, for about this long, but never fewer runs than that.
RUN_S, MEASUREMENT_S, FEWEST_RUNS, MOST_RUNS = 0.3e-3, 30e-3, 10, 30
LONG_CALL_S, LONG_CALL_RUNS, SLOW_CALL_S, SLOW_RUNS = 20e-3, 5, 200e-3, 3
# Ours may be this many times as far from float64 as PyTorch's own product in the same dtype.
ERROR_RATIO = 2.0


@dataclass(frozen=True)
class Unit:
    """What is contested at once: a problem in all of its modes."""

    dtype: str
    layout: str
    dims: Dimensions
    batch: int
    modes: tuple[str, ...] = ("",)  # "" where the dtype has none

    def problem(self, mode: str = "") -> str:
        words = [self.dtype, mode if mode != "fp32" else "", self.layout]
        return " ".join([*filter(None, words), f"B={self.batch}", pattern_text(self.dims)])

    @property
    def operand_bytes(self) -> tuple[int, int]:
        size = TORCH_DTYPES[self.dtype].itemsize
        x_shape, y_shape = shapes(self.layout, self.dims, self.batch)
        return math.prod(x_shape) * size, math.prod(y_shape) * size

    @property
    def work(self) -> tuple[float, float]:
        """Flops, and bytes of x, y and the values."""
        weights = math.prod(self.dims)
        moved = sum(self.operand_bytes) + weights * TORCH_DTYPES[self.dtype].itemsize
        return 2.0 * self.batch * weights, float(moved)


def draw_values(unit: Unit, device: Device) -> Tensor:
    """Uniform within 1/sqrt(c), the paper's."""
    values = (torch.rand(unit.dims, device=device.torch) * 2 - 1) / math.sqrt(unit.dims[2])
    return values.to(TORCH_DTYPES[unit.dtype])


def make_plan(
    library: Library, device: Device, problem: str, values: Tensor, implementation: str | None
) -> Plan:
    device.synchronize()  # the values must be there: a plan reads them on a stream of its own
    return library.plan(problem, values.data_ptr(), implementation, device.name)


def is_right(ours: Errors, library: Errors, dtype: str, plain_terms: int = 1) -> bool:
    """Ours against PyTorch's error, or against one rounding where PyTorch is luckier than that.

    A plain sum of so many terms, one after the other, is off by that times the root of their number.
    """
    least = ROUNDING[dtype] * math.sqrt(plain_terms)
    norm_ok = ours.norm <= max(ERROR_RATIO * library.norm, least)
    return ours.finite and norm_ok and ours.worst <= max(ERROR_RATIO * library.worst, least)


def is_sound(theirs: Errors, unit: Unit) -> bool:
    """PyTorch may add up pieces of a sum in half precision: a setting, which it has on."""
    limit = summation_limit(unit.dims[2], unit.dtype) + 3 * ROUNDING[unit.dtype]
    return theirs.finite and theirs.worst <= limit


class Arena:
    """The device, its ceilings, and buffers that all units share."""

    def __init__(self, device: Device, ceilings: Ceilings, units: Iterable[Unit]) -> None:
        self.device, self.ceilings = device, ceilings
        sizes = [(self.sets(unit), *unit.operand_bytes) for unit in units]
        self._x = self._pool(max((sets * self._rounded(x) for sets, x, _ in sizes), default=0))
        self._y = self._pool(max((sets * self._rounded(y) for sets, _, y in sizes), default=0))

    def _pool(self, size: int) -> Tensor:
        return torch.empty(size, dtype=torch.uint8, device=self.device.torch)

    @staticmethod
    def _rounded(size: int) -> int:
        return -(-size // 512) * 512

    @staticmethod
    def fits(device: Device, unit: Unit) -> bool:
        # x and y, a permuted copy of each, and as much again for whatever else is around
        return 3 * sum(unit.operand_bytes) < 0.9 * device.memory_bytes

    def sets(self, unit: Unit) -> int:
        wanted = CACHES_TO_EXCEED * self.device.cache_bytes / max(1, sum(unit.operand_bytes))
        return max(1, min(MOST_SETS, math.ceil(wanted)))

    def operands(self, unit: Unit) -> list[tuple[Tensor, Tensor]]:
        """As many pairs x, y as are rotated; x standard normal."""
        dtype = TORCH_DTYPES[unit.dtype]
        pairs = []
        for turn in range(self.sets(unit)):
            views = []
            for pool, size, shape in zip(
                (self._x, self._y),
                unit.operand_bytes,
                shapes(unit.layout, unit.dims, unit.batch),
                strict=True,
            ):
                begin = turn * self._rounded(size)
                views.append(pool[begin : begin + size].view(dtype).view(shape))
            views[0].normal_()
            pairs.append((views[0], views[1]))
        return pairs


@dataclass
class DeviceContest:
    """The state of one unit while it is being contested."""

    arena: Arena
    unit: Unit
    operands: list[tuple[Tensor, Tensor]]
    values: Tensor
    checker: Checker
    contenders: list[tuple[str, Contender, Errors | None]] = field(default_factory=list)  # mode first

    @property
    def floor(self) -> tuple[float, str]:
        return self.arena.ceilings.floor(self.unit.dtype, *self.unit.work)

    def best(self, family: str | None = None) -> float:
        """Trial time of the fastest of the family, or of all of PyTorch."""
        return min(
            (
                one.trial_s
                for _, one, _ in self.contenders
                if (one.family == family if family else one.family != OURS)
            ),
            default=math.inf,
        )

    def admit(
        self, contender: Contender, calls: Sequence[Callable[[], Tensor]], right: Callable[[Errors], bool]
    ) -> Errors:
        """The first calls: the answer is checked, and a trial time taken."""
        device, (_, y) = self.arena.device, self.operands[0]
        y.fill_(math.nan)
        errors = self.checker.errors(calls[0]())
        contender.error = errors.norm if math.isfinite(errors.norm) else None
        if not right(errors):
            left = "" if errors.finite else ", and elements nobody wrote or that are not finite"
            contender.drop("wrong", f"error {errors.norm:.3g} (worst {errors.worst:.3g}){left}")
            return errors
        rotation = Rotation(calls)
        contender.call = rotation
        contender.trial_s = device.seconds_of(rotation)
        if contender.trial_s < CLEARLY_BEATEN * self.best(contender.family):
            contender.trial_s = device.seconds_of(rotation, 2)  # warm, where the first may have been cold
        contender.timing = Timing.of([contender.trial_s])
        return errors

    def row(self, mode: str, contender: Contender, errors: Errors | None) -> dict[str, object]:
        floor_s, bound = self.floor
        flops, moved_bytes = self.unit.work
        return {
            "record": "row",
            "problem": self.unit.problem(mode),
            "layout": self.unit.layout,
            "pattern": pattern_text(self.unit.dims),
            "batch": self.unit.batch,
            "mode": mode,
            **contender.fields(),
            "error_worst": errors.worst if errors and math.isfinite(errors.worst) else None,
            "floor_s": floor_s,
            "floor_bound": bound,
            "flops": flops,
            "bytes": moved_bytes,
        }


def _enter_ours(
    contest: DeviceContest, library: Library, mode: str, implementation: str | None, plans: ExitStack
) -> None:
    unit, device = contest.unit, contest.arena.device
    contender = Contender(OURS, OURS, unit.dtype)
    precision = "tf32" if mode == "tf32" else unit.dtype
    plain_terms = unit.dims[2] if mode == "ieee" else 1  # the mode promises IEEE sums, in any order
    errors = None
    try:
        plan = make_plan(library, device, unit.problem(mode), contest.values, implementation)
        plans.enter_context(plan)
        contender.implementation = plan.implementation

        def bound(x: Tensor, y: Tensor) -> Callable[[], Tensor]:
            run = plan.bind(x.data_ptr(), y.data_ptr(), device.stream())

            def call() -> Tensor:
                run()
                return y

            return call

        with tf32_allowed(mode == "tf32"):
            torch_errors = contest.checker.errors_of_torch()
        calls = [bound(x, y) for x, y in contest.operands]
        errors = contest.admit(
            contender, calls, lambda mine: is_right(mine, torch_errors, precision, plain_terms)
        )
    except KronsparseError as error:
        contender.drop("unavailable", first_line(error))
    contest.contenders.append((mode, contender, errors))


def _enter_torch(contest: DeviceContest, spelling: Spelling) -> None:
    unit = contest.unit
    contender = Contender(spelling.family, spelling.name, unit.dtype)
    weights = spelling.weights(unit.dims)
    least_s = 2.0 * unit.batch * weights / contest.arena.ceilings.gemm_flops[unit.dtype]
    reason = refusal(weights * contest.values.element_size(), DENSE_BYTES, least_s, contest.floor[0])
    if reason:
        contender.drop("skipped", reason)
        contest.contenders.append(("", contender, None))
        return
    errors = None
    try:
        product = spelling.prepare(contest.values)
        calls = [_with_operands(product, x, y) for x, y in contest.operands]
        errors = contest.admit(contender, calls, lambda theirs: is_sound(theirs, unit))
    except RuntimeError as error:  # out of memory, or not supported on this device
        contender.drop("unavailable", first_line(error))
    contest.contenders.append(("", contender, errors))


def _with_operands(product: Product, x: Tensor, y: Tensor) -> Callable[[], Tensor]:
    return lambda: product(x, y)


def _finalists(contest: DeviceContest) -> list[Contender]:
    """Ours, and whichever spellings may turn out the best of their family."""
    finalists = []
    for _, one, _ in contest.contenders:
        if one.family == OURS or one.trial_s <= IN_THE_RUNNING * contest.best(one.family):
            finalists += [one] if one.call is not None else []
        else:
            one.call = None  # frees its weights
    return finalists


def _schedule(estimates: Sequence[float], best_torch: float) -> tuple[list[int], list[int]]:
    """How often to repeat each in a run, and how many runs to make: fewer of what takes long."""
    repeats = [max(1, math.ceil(RUN_S / estimate)) for estimate in estimates]
    runs = []
    for estimate, repeat in zip(estimates, repeats, strict=True):
        if estimate > min(SLOW_CALL_S, max(LONG_CALL_S, SLOW * best_torch)):
            runs.append(SLOW_RUNS)
        elif estimate > LONG_CALL_S:
            runs.append(LONG_CALL_RUNS)
        else:
            runs.append(max(FEWEST_RUNS, min(MOST_RUNS, round(MEASUREMENT_S / (estimate * repeat)))))
    return repeats, runs


def hold_device_contest(
    arena: Arena, library: Library, unit: Unit, families: Sequence[str], implementation: str | None
) -> list[dict[str, object]]:
    """Rows of one unit: ours in each of its modes, and the families of PyTorch."""
    arena.device.tidy()
    torch.manual_seed(1)
    operands = arena.operands(unit)
    values = draw_values(unit, arena.device)
    checker = Checker(unit.layout, unit.dims, operands[0][0], values, SAMPLES_CHECKED)
    contest = DeviceContest(arena, unit, operands, values, checker)
    with ExitStack() as plans, tf32_allowed(False):
        for mode in unit.modes:
            _enter_ours(contest, library, mode, implementation, plans)
        for spelling in spellings_for(unit.layout, unit.dims, families):
            if not spelling.per_block:
                _enter_torch(contest, spelling)
        finalists = _finalists(contest)
        repeats, runs = _schedule([one.trial_s for one in finalists], contest.best())
        calls = [one.call for one in finalists if one.call is not None]
        timings = interleaved(calls, repeats, runs, arena.device.seconds_of)
        for one, timing in zip(finalists, timings, strict=True):
            one.timing = timing
        arena.device.synchronize()  # before the plans go
    return [contest.row(*entry) for entry in contest.contenders]
