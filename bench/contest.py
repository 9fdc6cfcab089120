"""One problem: who takes part, whose answer is right, how long each takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field

import torch
from answers import TORCH_DTYPES, Checker, shapes, summation_limit
from kronsparse_c import KronsparseError, Library
from measure import Rates, Timing, interleaved, schedule, seconds_of
from torch import Tensor
from torch_contenders import FAMILIES, Dimensions, Product, Spelling, spellings_for

OURS = "kronsparse"
SAMPLES_CHECKED = 16
BATCH_MULTIPLE = 16
# What knows nothing of the structure is left out when it would take this many floors. Who takes this
# many times PyTorch's best so far is called once and no more; who is this near to it is timed in earnest.
GENERIC_FAMILIES = {"bsr", "csr", "dense", "blocks"}
HOPELESS_FLOORS = 50.0
CLEARLY_BEATEN = 6.0
IN_THE_RUNNING = 1.3
ESTIMATE_FRACTION = 32  # of the batch, to estimate from


@dataclass
class Arena:
    """Buffers all problems share, touched long before anyone is timed, and the machine's rates."""

    rates: Rates
    target_s: float
    memory: float
    with_torch: bool
    x: dict[str, Tensor]  # flat, by dtype
    y: Tensor  # flat f32

    @staticmethod
    def prepare(
        problems: Iterable[tuple[str, Dimensions]],
        rates: Rates,
        target_s: float,
        memory: float,
        dtypes: Sequence[str],
    ) -> Arena:
        arena = Arena(rates, target_s, memory, "f32" in dtypes, {}, torch.empty(0))
        extents = [(arena.batch(dims), dims) for _, dims in problems]
        x_elements = max(batch * a * c * d for batch, (a, _, c, d) in extents)
        y_elements = max(batch * a * b * d for batch, (a, b, _, d) in extents)
        torch.manual_seed(1)
        arena.x["f32"] = torch.randn(x_elements)
        for dtype in dtypes:
            arena.x[dtype] = arena.x["f32"].to(TORCH_DTYPES[dtype])
        arena.y = torch.zeros(y_elements)
        return arena

    def work(self, dims: Dimensions, batch: int, dtype: str = "f32") -> tuple[float, float]:
        """Flops, and bytes of x, y and the values."""
        a, b, c, d = dims
        elements = batch * a * (b + c) * d + math.prod(dims)
        return 2.0 * batch * math.prod(dims), float(elements * TORCH_DTYPES[dtype].itemsize)

    def batch(self, dims: Dimensions) -> int:
        """The least batch whose f32 floor is the target, unless x, y and a permuted copy of each
        would not fit in the memory allowed."""
        a, b, c, d = dims
        large = 1 << 20
        floor_s, _ = self.rates.floor(2.0 * large * math.prod(dims), 4.0 * large * a * (b + c) * d)
        wanted = math.ceil(self.target_s / (floor_s / large) / BATCH_MULTIPLE)
        allowed = int(self.memory / (2 * 4 * a * (b + c) * d) / BATCH_MULTIPLE)
        return BATCH_MULTIPLE * max(1, min(wanted, allowed))


@dataclass
class Contender:
    family: str
    spelling: str
    dtype: str
    implementation: str = ""
    call: Callable[[], Tensor] | None = None
    status: str = "ok"  # or skipped, unavailable, wrong
    reason: str = ""
    error: float | None = None
    trial_s: float = math.inf
    timing: Timing | None = None

    def drop(self, status: str, reason: str) -> None:
        self.status, self.reason, self.call = status, reason, None

    def fields(self) -> dict[str, object]:
        """Its part of a row of the results file."""
        return {
            "dtype": self.dtype,
            "contender": self.family,
            "spelling": self.spelling,
            "implementation": self.implementation,
            "status": self.status,
            "reason": self.reason,
            "error": self.error,
            **(asdict(self.timing) if self.timing else {}),
        }


@dataclass
class Contest:
    """The state of one problem while it is being contested."""

    arena: Arena
    layout: str
    dims: Dimensions
    batch: int
    floor_s: float
    contenders: list[Contender] = field(default_factory=list)

    def problem(self, dtype: str) -> str:
        return f"{dtype} {self.layout} B={self.batch} {'x'.join(map(str, self.dims))}"

    def operands(self, dtype: str, batch: int) -> tuple[Tensor, Tensor]:
        x_shape, y_shape = shapes(self.layout, self.dims, batch)
        x = self.arena.x[dtype][: math.prod(x_shape)].view(x_shape)
        y = self.arena.y.view(TORCH_DTYPES[dtype])[: math.prod(y_shape)].view(y_shape)
        return x, y

    def best_of_torch(self) -> float:
        return min((one.trial_s for one in self.contenders if one.family != OURS), default=math.inf)

    def admit(self, contender: Contender, y: Tensor, checker: Checker) -> None:
        """The first full calls: the answer is checked, and a trial time taken."""
        self.contenders.append(contender)
        if contender.call is None:
            return
        y.fill_(math.nan)
        answers: list[Tensor] = []
        call = contender.call
        first_s = seconds_of(lambda: answers.append(call()))
        errors = checker.errors(answers.pop())
        contender.error = errors.worst
        if not (errors.finite and errors.worst <= summation_limit(self.dims[2], contender.dtype)):
            contender.drop("wrong", f"error {contender.error:.3g} against float64")
            return
        contender.trial_s = first_s
        if first_s < CLEARLY_BEATEN * self.best_of_torch():
            contender.trial_s = seconds_of(call)  # warm, where the first may have been cold
        contender.timing = Timing.of([contender.trial_s])

    def row(self, contender: Contender) -> dict[str, object]:
        floor_s, bound = self.arena.rates.floor(*self.arena.work(self.dims, self.batch, contender.dtype))
        return {
            "problem": self.problem(contender.dtype),
            "layout": self.layout,
            "pattern": "x".join(map(str, self.dims)),
            "batch": self.batch,
            **contender.fields(),
            "floor_s": floor_s,
            "floor_bound": bound,
        }


def refusal(weight_bytes: float, memory: float, least_s: float, floor_s: float) -> str:
    """Why a method with these weights, whose flops alone take least_s, is not even tried; or nothing."""
    if weight_bytes > memory:
        return f"its weights would take {weight_bytes / 1e9:.1f} GB"
    if least_s > HOPELESS_FLOORS * floor_s:
        return f"its flops alone would take {least_s / floor_s:.0f} floors"
    return ""


def first_line(error: Exception) -> str:
    return str(error).split("\n")[0][:160]


def _estimate(contest: Contest, product: Product) -> float:
    batch = max(BATCH_MULTIPLE, contest.batch // ESTIMATE_FRACTION)
    x, y = contest.operands("f32", batch)
    product(x, y)
    return seconds_of(lambda: product(x, y)) * contest.batch / batch


def _enter_torch(contest: Contest, spelling: Spelling, values: Tensor) -> Contender:
    contender = Contender(spelling.family, spelling.name, "f32")
    weights = spelling.weights(contest.dims)
    least_s = 2.0 * contest.batch * weights / contest.arena.rates.sgemm_flops
    reason = refusal(weights * 4, contest.arena.memory, least_s, contest.floor_s)
    if reason:
        contender.drop("skipped", reason)
        return contender
    try:
        product = spelling.prepare(values)
        expected_s = _estimate(contest, product)
    except RuntimeError as error:
        contender.drop("unavailable", first_line(error))
        return contender
    if spelling.family in GENERIC_FAMILIES and expected_s > HOPELESS_FLOORS * contest.floor_s:
        contender.drop(
            "skipped", f"estimated at {expected_s / contest.floor_s:.0f} floors from a part of the batch"
        )
        return contender
    x, y = contest.operands("f32", contest.batch)
    contender.call = lambda: product(x, y)
    return contender


def _enter_ours(
    contest: Contest,
    library: Library,
    dtype: str,
    values: Tensor,
    implementation: str | None,
    plans: ExitStack,
) -> Contender:
    contender = Contender(OURS, OURS, dtype)
    x, y = contest.operands(dtype, contest.batch)
    try:
        plan = plans.enter_context(library.plan(contest.problem(dtype), values.data_ptr(), implementation))
    except KronsparseError as error:
        contender.drop("unavailable", str(error))
        return contender
    contender.implementation = plan.implementation
    x_address, y_address = x.data_ptr(), y.data_ptr()

    def call() -> Tensor:
        plan.run(x_address, y_address)
        return y

    contender.call = call
    return contender


def _finalists(contest: Contest) -> list[Contender]:
    """Ours in every dtype, and whichever spellings of PyTorch may turn out its best."""
    ready = [one for one in contest.contenders if one.call is not None]
    limit_s = IN_THE_RUNNING * contest.best_of_torch()
    return [one for one in ready if one.family == OURS or one.trial_s <= limit_s]


def hold_contest(
    arena: Arena, library: Library, layout: str, dims: Dimensions, rounds: int, implementation: str | None
) -> list[dict[str, object]]:
    """Rows of one problem: all of PyTorch and ours in f32, ours in the other dtypes. PyTorch is
    left out where only other dtypes were asked for."""
    batch = arena.batch(dims)
    floor_s, _ = arena.rates.floor(*arena.work(dims, batch))
    contest = Contest(arena, layout, dims, batch, floor_s)
    values = (torch.rand(dims) * 2 - 1) / math.sqrt(dims[2])
    with ExitStack() as plans:
        for dtype in arena.x:
            mine = values.to(TORCH_DTYPES[dtype])
            x, y = contest.operands(dtype, batch)
            contender = _enter_ours(contest, library, dtype, mine, implementation, plans)
            contest.admit(contender, y, Checker(layout, dims, x, mine, SAMPLES_CHECKED))
        x, y = contest.operands("f32", batch)
        checker = Checker(layout, dims, x, values, SAMPLES_CHECKED)
        for spelling in spellings_for(layout, dims, FAMILIES) if arena.with_torch else []:
            contest.admit(_enter_torch(contest, spelling, values), y, checker)

        finalists = _finalists(contest)
        calls = [one.call for one in finalists if one.call is not None]
        timings = interleaved(calls, *schedule([one.trial_s for one in finalists], rounds))
        for one, timing in zip(finalists, timings, strict=True):
            one.timing = timing
    return [contest.row(one) for one in contest.contenders]
