"""Small batches, where the weights are the traffic: many plans with weights of their own, run one
after the other from one CUDA graph, so that each finds its weights out of the cache."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import torch
from answers import TORCH_DTYPES, Checker, Errors, shapes
from contest import OURS, Contender, first_line
from devices import Ceilings, Device, Rotation
from gpu_contest import Unit, draw_values, is_right, is_sound, make_plan
from gpu_report import LAUNCH_S, WEIGHT_FACTOR
from kronsparse_c import KronsparseError, Library, Plan
from measure import Timing
from suites import pattern_text
from torch import Tensor
from torch_contenders import Product, spellings_for

BATCHES = (1, 8, 64)
FEWEST_PLANS = 20
CACHES_TO_EXCEED = 2.2
RUN_S, RUNS = 1e-3, 15
SAMPLES_CHECKED = 64

Call = Callable[[], Tensor]


class SmallContest:
    """One problem with as many sets of weights as it takes to fill the cache twice."""

    def __init__(self, device: Device, ceilings: Ceilings, unit: Unit) -> None:
        self.device, self.unit = device, unit
        torch.manual_seed(1)
        weight_bytes = math.prod(unit.dims) * TORCH_DTYPES[unit.dtype].itemsize
        count = max(FEWEST_PLANS, math.ceil(CACHES_TO_EXCEED * device.cache_bytes / weight_bytes))
        self.values = [draw_values(unit, device) for _ in range(count)]
        x_shape, y_shape = shapes(unit.layout, unit.dims, unit.batch)
        self.x = torch.randn(x_shape, device=device.torch).to(TORCH_DTYPES[unit.dtype])
        self.y = torch.empty(y_shape, device=device.torch, dtype=TORCH_DTYPES[unit.dtype])
        self.weights_s = weight_bytes / ceilings.copy_bytes
        self.bound_s = LAUNCH_S + WEIGHT_FACTOR * self.weights_s
        self.floor_s, self.floor_bound = ceilings.floor(unit.dtype, *unit.work)
        # The first and the last weights are checked, and the last again after a replay.
        self.checkers = [
            Checker(unit.layout, unit.dims, self.x, values, SAMPLES_CHECKED)
            for values in (self.values[0], self.values[-1])
        ]

    def _answer(self, call: Call, checker: Checker) -> Errors:
        self.y.fill_(math.nan)
        return checker.errors(call())

    def contest(self, contender: Contender, calls: Sequence[Call], right: Callable[[Errors], bool]) -> None:
        ends = zip((calls[0], calls[-1]), self.checkers, strict=True)
        found = [self._answer(call, checker) for call, checker in ends]
        last: list[Tensor] = []

        def keeping() -> Tensor:
            last[:] = [calls[-1]()]
            return last[0]

        replay = Rotation([self.device.replayable([*calls[:-1], keeping])])  # type: ignore[list-item]

        def replayed() -> Tensor:
            replay()
            return last[0]

        found.append(self._answer(replayed, self.checkers[1]))
        contender.error = max((one.norm for one in found if math.isfinite(one.norm)), default=None)
        if not all(map(right, found)):
            told = ", ".join(f"{one.norm:.3g}" for one in found)
            contender.drop("wrong", f"errors {told} (first weights, last, last in a graph)")
            return
        estimate = self.device.seconds_of(replay)
        repeats = max(1, math.ceil(RUN_S / estimate))
        seconds = [self.device.seconds_of(replay, repeats) / len(calls) for _ in range(RUNS)]
        contender.timing = Timing.of(seconds, repeats * len(calls))

    def row(self, contender: Contender) -> dict[str, object]:
        return {
            "record": "small",
            "problem": self.unit.problem(),
            "layout": self.unit.layout,
            "pattern": pattern_text(self.unit.dims),
            "batch": self.unit.batch,
            **contender.fields(),
            "weights_s": self.weights_s,
            "bound_s": self.bound_s,
            "floor_s": self.floor_s,
            "floor_bound": self.floor_bound,
            "plans": len(self.values),
        }


def _ours(contest: SmallContest, library: Library, implementation: str | None, plans: ExitStack) -> Contender:
    unit, device = contest.unit, contest.device
    contender = Contender(OURS, OURS, unit.dtype)

    def call_of(plan: Plan) -> Call:
        def call() -> Tensor:
            plan.run(contest.x.data_ptr(), contest.y.data_ptr(), device.stream())
            return contest.y

        return call

    try:
        calls = []
        for values in contest.values:
            plan = plans.enter_context(make_plan(library, device, unit.problem(), values, implementation))
            calls.append(call_of(plan))
        contender.implementation = plan.implementation
        allowed = contest.checkers[0].errors_of_torch()
        contest.contest(contender, calls, lambda mine: is_right(mine, allowed, unit.dtype))
    except KronsparseError as error:
        contender.drop("unavailable", first_line(error))
    return contender


def _call_of(product: Product, x: Tensor, y: Tensor) -> Call:
    return lambda: product(x, y)


def hold_small_contest(
    device: Device,
    ceilings: Ceilings,
    library: Library,
    unit: Unit,
    families: Sequence[str],
    implementation: str | None,
) -> list[dict[str, object]]:
    contest = SmallContest(device, ceilings, unit)
    contenders = []
    with ExitStack() as plans:
        contenders.append(_ours(contest, library, implementation, plans))
        device.synchronize()  # before the plans go
    for spelling in spellings_for(unit.layout, unit.dims, families):
        contender = Contender(spelling.family, spelling.name, unit.dtype)
        contenders.append(contender)
        try:
            products = [spelling.prepare(values) for values in contest.values]
            calls = [_call_of(product, contest.x, contest.y) for product in products]
            contest.contest(contender, calls, lambda theirs: is_sound(theirs, unit))
        except RuntimeError as error:
            contender.drop("unavailable", first_line(error))
    return [contest.row(contender) for contender in contenders]
