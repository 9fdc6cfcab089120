"""One problem on a device: ours through the C API beside PyTorch's spellings, on the same tensors.

Everyone's answer is checked before it is timed; what is wrong is recorded as wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from itertools import cycle
from typing import Any

import torch
from torch import Tensor

from kronsparse.bench.measuring.answers import SHORT_SUM, Checker, Errors, is_right, is_sound
from kronsparse.bench.measuring.arena import Arena, draw_values
from kronsparse.bench.measuring.c_api import KronsparseError, Library, Plan
from kronsparse.bench.measuring.ceilings import Ceilings, Probe, tf32_allowed
from kronsparse.bench.measuring.devices import CpuDevice, Device, Rotation, bound_call
from kronsparse.bench.measuring.timing import Effort, Timing, interleaved, ratio_by_turns
from kronsparse.bench.problems.problem import DTYPES, Problem
from kronsparse.bench.results.rows import OURS, Row
from kronsparse.bench.rivals.spellings import Product, Spelling, spellings_for

DENSE_BYTES = 4e9  # larger weights, zeros among them, are not tried
# Generic families know nothing of the structure: they are left out when they would take this many floors. A
# spelling that takes so many times the best of its family is called once; one that is near it is timed.
GENERIC_FAMILIES = {"bsr", "sparse", "dense", "blocks"}
HOPELESS_FLOORS = 50.0
CLEARLY_BEATEN = 3.0
IN_THE_RUNNING = 1.3
ESTIMATE_FRACTION, HARMLESS_S = 32, 5e-3  # of the batch, to estimate from
TRIAL_S, MOST_TRIED = 0.2e-3, 20
# Whoever takes this many times the fastest of all is not timed to the last percent.
SLOW, SLOW_RUNS = 10.0, 2
PROBE_RUNS = 5  # of a problem's own ceilings
F32_ROUNDS = 15  # of halves by turns with f32


@dataclass
class Contender:
    """Someone who takes part in one contest, and how it went."""

    family: str
    spelling: str
    mode: str = ""
    implementation: str = ""
    call: Callable[[], Tensor] | None = None
    status: str = "ok"  # or skipped, unavailable, wrong
    reason: str = ""
    errors: Errors | None = None
    predicted_s: float | None = None
    tuned: bool | None = None  # of ours: whether a remembered time stands for it, instead of a prediction
    trial_s: float = math.inf
    timing: Timing | None = None

    @property
    def was_right(self) -> bool:
        """Whether it ran, with the right answer."""
        return self.status == "ok"

    def drop(self, status: str, reason: str) -> None:
        """From here on it does not take part."""
        self.status, self.reason, self.call = status, reason, None

    def fields(self) -> dict[str, Any]:
        """Its part of a row of the results file."""
        error, worst = (self.errors.norm, self.errors.worst) if self.errors else (None, None)
        return {
            "contender": self.family,
            "spelling": self.spelling,
            "implementation": self.implementation,
            "status": self.status,
            "reason": self.reason,
            "error": error if error is not None and math.isfinite(error) else None,
            "error_worst": worst if worst is not None and math.isfinite(worst) else None,
            "predicted_s": self.predicted_s,
            **({} if self.tuned is None else {"tuned": self.tuned}),
            **(asdict(self.timing) if self.timing else {}),
        }


def first_line(error: Exception) -> str:
    """The part of an error's message that fits in a row."""
    return str(error).split("\n")[0][:160]


def make_plan(
    library: Library, device: Device, problem: str, values: Tensor, implementation: str | None
) -> Plan:
    """A plan of ours for values that torch has just made."""
    device.synchronize()  # the values must be there: a plan reads them on a stream of its own
    return library.plan(problem, device.address(values), implementation, device.name)


def judged_beside_torch(
    problem: Problem, mode: str, device: Device, checker: Checker
) -> tuple[Errors, Callable[[Errors], bool]]:
    """PyTorch's own errors, and who says whether ours, in this mode, are small enough beside them."""
    with tf32_allowed(mode == "tf32"):
        of_torch = checker.errors_of_torch()
    precision = "tf32" if mode == "tf32" else problem.dtype
    # On a CPU, and where tensor cores have no part, sums are made term by term.
    plain = mode == "ieee" or problem.dtype not in DTYPES or isinstance(device, CpuDevice)
    terms = problem.pattern.c * (2 if "complex" in problem.dtype else 1) if plain else 1
    short = problem.dtype == "f32" and mode == "fp32" and not plain and problem.pattern.c < SHORT_SUM
    return of_torch, lambda mine: is_right(mine, of_torch, precision, terms, short)


@dataclass
class Table:
    """The things that every contest of a run needs."""

    arena: Arena
    ceilings: Ceilings
    c_api: Library
    implementation: str | None = None  # forced
    effort: Effort | None = None  # other than the device's own
    probe: Probe | None = None  # of the ceilings, where each problem has its own

    @property
    def device(self) -> Device:
        return self.arena.device


@dataclass
class Contest:
    """The state of one problem while it is contested; a context that holds on to plans."""

    table: Table
    problem: Problem
    contenders: list[Contender] = field(default_factory=list)
    own_ceilings: Ceilings | None = None
    over_f32: float | None = None  # ours in half precision over ours in f32
    _plans: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Contest:
        self.table.device.tidy()
        torch.manual_seed(1)
        self._plans.enter_context(tf32_allowed(False))
        self.operands = self.table.arena.operands(self.problem)
        sets = self.table.arena.value_sets(self.problem)
        if sets > 1:
            self.operands = self.operands[:sets]
        self.value_sets = [draw_values(self.problem, self.table.device) for _ in range(sets)]
        self.values = self.value_sets[0]
        self.checker = Checker(self.problem, self.operands[0][0], self.values)
        self.floor_s, self.floor_bound = self.table.ceilings.floor(self.problem)
        return self

    def __exit__(self, *_: object) -> None:
        self.table.device.synchronize()  # before the plans go
        self._plans.close()

    def enter(self, families: Sequence[str]) -> None:
        """Everyone of these families: checked, and with a trial time."""
        if OURS in families:
            for mode in self.problem.modes:
                self.enter_ours(mode, self.table.implementation)
        for spelling in spellings_for(self.problem.layout, self.problem.pattern, families):
            if not spelling.per_block or isinstance(self.table.device, CpuDevice):
                self._enter_torch(spelling)

    def best(self, family: str) -> float:
        """Trial time of the fastest of a family."""
        return min((one.trial_s for one in self.contenders if one.family == family), default=math.inf)

    def _fastest(self) -> float:
        return min((one.trial_s for one in self.contenders), default=math.inf)

    def _to_beat(self, family: str) -> float:
        """The time a spelling is measured against: the best of its family; on a CPU, where time is short, the
        best of PyTorch."""
        if not isinstance(self.table.device, CpuDevice):
            return self.best(family)
        return min((one.trial_s for one in self.contenders if one.family != OURS), default=math.inf)

    def _admit(
        self, contender: Contender, calls: Sequence[Callable[[], Tensor]], right: Callable[[Errors], bool]
    ) -> None:
        device, (_, y) = self.table.device, self.operands[0]
        y.fill_(math.nan)
        result = calls[0]()
        if contender.family == OURS:
            device.fetch(y)
        contender.errors = self.checker.errors(result)
        if not right(contender.errors):
            contender.drop("wrong", contender.errors.describe())
            return
        rotation = Rotation(calls)
        contender.call = rotation
        contender.trial_s = device.seconds_of(rotation)
        beaten = CLEARLY_BEATEN * self._to_beat(contender.family), SLOW * self._fastest()
        if contender.trial_s < min(beaten):
            # Warm, where the first may have been cold, and long enough to tell spellings apart.
            calls_tried = max(1, min(MOST_TRIED, int(TRIAL_S / contender.trial_s)))
            contender.trial_s = device.seconds_of(rotation, calls_tried)
        contender.timing = Timing.of([contender.trial_s])

    def enter_ours(self, mode: str, implementation: str | None) -> None:
        """Ours in a mode: as a plan chooses, or by this implementation."""
        table, text = self.table, self.problem.text(mode)
        contender = Contender(OURS, OURS, mode)
        self.contenders.append(contender)
        try:
            plans = [
                self._plans.enter_context(make_plan(table.c_api, table.device, text, values, implementation))
                for values in self.value_sets
            ]
            contender.implementation = plans[0].implementation
            contender.predicted_s = table.c_api.predict(text, implementation, table.device.name)
            contender.tuned = table.c_api.was_tuned(text, contender.implementation, table.device.name)
            _, right = judged_beside_torch(self.problem, mode, table.device, self.checker)
            calls = [
                bound_call(table.device, plan, x, y)
                for plan, (x, y) in zip(cycle(plans), self.operands, strict=False)
            ]
            self._admit(contender, calls, right)
        except KronsparseError as error:
            contender.drop("unavailable", first_line(error))

    def _enter_torch(self, spelling: Spelling) -> None:
        contender = Contender(spelling.family, spelling.name)
        self.contenders.append(contender)
        reason = self._refusal(spelling)
        if reason:
            contender.drop("skipped", reason)
            return
        try:
            product = spelling.prepare(self.values)
            # On a CPU, PyTorch may have no fast product of halves at all.
            if spelling.family in GENERIC_FAMILIES or isinstance(self.table.device, CpuDevice):
                floors = self._estimate(product) / self.floor_s
                if floors > HOPELESS_FLOORS:
                    contender.drop("skipped", f"estimated at {floors:.0f} floors from a part of the batch")
                    return
            products = [product, *(spelling.prepare(values) for values in self.value_sets[1:])]
            calls = [
                _with_operands(product, x, y)
                for product, (x, y) in zip(cycle(products), self.operands, strict=False)
            ]
            self._admit(contender, calls, lambda theirs: is_sound(theirs, self.problem))
        except Exception as error:  # out of memory, or not supported here; compilers throw anything
            contender.drop("unavailable", first_line(error))

    def _refusal(self, spelling: Spelling) -> str:
        """Why a method with so many weights is not even tried; or nothing."""
        weights = spelling.weights(self.problem.pattern)
        weight_bytes = weights * self.values.element_size()
        has_zeros = weights > self.problem.pattern.nnz
        if weight_bytes * len(self.value_sets) > min(
            DENSE_BYTES if has_zeros else math.inf, self.table.device.memory_bytes / 16
        ):
            return f"its weights would take {weight_bytes / 1e9:.1f} GB"
        least_s = 2.0 * self.problem.batch * weights / self.table.ceilings.gemm_rate(self.problem.dtype)
        if least_s > HOPELESS_FLOORS * self.floor_s:
            return f"its flops alone would take {least_s / self.floor_s:.0f} floors"
        return ""

    def _estimate(self, product: Product) -> float:
        """Seconds of the whole batch, from a part of it; 0 where they cannot be many."""
        problem = self.problem
        part = max(16, problem.batch // ESTIMATE_FRACTION)
        if part >= problem.batch:
            return 0.0
        smaller = Problem(problem.dtype, problem.layout, problem.pattern, part)
        x, y = (
            whole.flatten()[: math.prod(shape)].view(shape)
            for whole, shape in zip(self.operands[0], smaller.shapes, strict=True)
        )
        product(x, y)
        part_s = self.table.device.seconds_of(lambda: product(x, y))
        # So short a call is mostly overhead, which does not grow with the batch; and the whole is no risk.
        return part_s * problem.batch / part if part_s > HARMLESS_S else 0.0

    def finalists(self) -> list[Contender]:
        """Ours, and whichever spellings may turn out the best; the others keep the time of their trial."""
        for one in self.contenders:
            if one.family != OURS and one.trial_s > IN_THE_RUNNING * self._to_beat(one.family):
                one.call = None  # frees its weights
        return [one for one in self.contenders if one.call is not None]

    def _over_f32(self) -> float | None:
        """Ours on a problem of halves over ours in f32: on a CPU halves must be no slower, which two times of
        different minutes do not show."""
        ours = next((one.call for one in self.contenders if one.family == OURS), None)
        problem = replace(self.problem, dtype="f32", modes=("fp32",))
        table = self.table
        if not table.probe or self.problem.dtype == "f32" or ours is None or not table.arena.holds(problem):
            return None
        values = draw_values(problem, table.device)
        made = make_plan(table.c_api, table.device, problem.text("fp32"), values, None)
        plan = self._plans.enter_context(made)
        call = Rotation([bound_call(self.table.device, plan, x, y) for x, y in table.arena.operands(problem)])
        call()
        return ratio_by_turns(ours, call, F32_ROUNDS, table.device.seconds_of)

    def time(self) -> list[Row]:
        """Times the finalists by turns; a row for everyone."""
        finalists, device = self.finalists(), self.table.device
        effort = self.table.effort or device.effort
        schedules = []
        for one in finalists:
            repeats, runs = effort.schedule(one.trial_s)
            schedules.append(
                (repeats, min(runs, SLOW_RUNS) if one.trial_s > SLOW * self._fastest() else runs)
            )
        calls: list[Callable[[], object]] = [one.call for one in finalists if one.call is not None]
        probe = self.table.probe
        if probe:
            calls += probe.calls
            schedules += [(1, PROBE_RUNS)] * len(probe.calls)
        timings = interleaved(calls, schedules, device.seconds_of)
        self.over_f32 = self._over_f32()
        of_contenders, of_probe = timings[: len(finalists)], timings[len(finalists) :]
        for one, timing in zip(finalists, of_contenders, strict=True):
            one.timing = timing
        if probe:
            self.own_ceilings = probe.ceilings(*(timing.median_s for timing in of_probe))
            self.floor_s, self.floor_bound = self.own_ceilings.floor(self.problem)
        return [self.row(one) for one in self.contenders]

    def row(self, contender: Contender, record: str = "row") -> Row:
        """The fields of a contender in the results file."""
        return {
            "record": record,
            **self.problem.fields(contender.mode),
            **contender.fields(),
            "floor_s": self.floor_s,
            "floor_bound": self.floor_bound,
            **({"ceilings": asdict(self.own_ceilings)} if self.own_ceilings else {}),
            **({"over_f32": self.over_f32} if self.over_f32 and contender.family == OURS else {}),
        }


def _with_operands(product: Product, x: Tensor, y: Tensor) -> Callable[[], Tensor]:
    return lambda: product(x, y)


def hold_contest(table: Table, problem: Problem, families: Sequence[str]) -> list[Row]:
    """Rows of one problem: ours in each of its modes, and the families of PyTorch."""
    with Contest(table, problem) as contest:
        contest.enter(families)
        return contest.time()
