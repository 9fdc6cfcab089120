"""Small batches, where the weights are the traffic: many plans with weights of their own, run one
after the other, round after round, from one CUDA graph, so that each finds its weights out of the cache."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import torch
from torch import Tensor

from kronsparse.bench.measuring.answers import TORCH_DTYPES, Checker, Errors, is_sound
from kronsparse.bench.measuring.arena import draw_values
from kronsparse.bench.measuring.c_api import KronsparseError, Library, Plan
from kronsparse.bench.measuring.ceilings import Ceilings
from kronsparse.bench.measuring.contest import Contender, first_line, judged_beside_torch, make_plan
from kronsparse.bench.measuring.devices import Device, Rotation
from kronsparse.bench.measuring.timing import Timing
from kronsparse.bench.problems.problem import Problem
from kronsparse.bench.results.rows import OURS, Row
from kronsparse.bench.results.targets import small_batch_bound
from kronsparse.bench.rivals.spellings import Product, spellings_for

FEWEST_PLANS = 20
CACHES_TO_EXCEED = 2.2
RUN_S, RUNS = 1e-3, 15

Call = Callable[[], Tensor]


class SmallContest:
    """One problem with as many sets of weights as it takes to fill the cache twice."""

    def __init__(self, device: Device, ceilings: Ceilings, problem: Problem) -> None:
        self.device, self.problem = device, problem
        torch.manual_seed(1)
        sets = math.ceil(CACHES_TO_EXCEED * device.cache_bytes / problem.weight_bytes)
        self.values = [draw_values(problem, device) for _ in range(max(FEWEST_PLANS, sets))]
        x_shape, y_shape = problem.shapes
        dtype = TORCH_DTYPES[problem.dtype]
        self.x = torch.randn(x_shape, device=device.torch).to(dtype)
        self.y = torch.empty(y_shape, device=device.torch, dtype=dtype)
        self.weights_s = problem.weight_bytes / ceilings.copy_bytes
        self.floor_s, self.floor_bound = ceilings.floor(problem)
        # The first and the last weights are checked, and the last again after a replay.
        self.checkers = [Checker(problem, self.x, self.values[at]) for at in (0, -1)]

    def _answer(self, call: Call, checker: Checker) -> Errors:
        self.y.fill_(math.nan)
        return checker.errors(call())

    def contest(self, contender: Contender, calls: Sequence[Call], right: Callable[[Errors], bool]) -> None:
        """Checks, then times a graph of all the calls, in as many rounds as it takes."""
        ends = zip((calls[0], calls[-1]), self.checkers, strict=True)
        found = [self._answer(call, checker) for call, checker in ends]
        last: list[Tensor] = []

        def keeping() -> Tensor:
            last[:] = [calls[-1]()]
            return last[0]

        rounds = math.ceil(self.device.replayed_calls / len(calls))
        in_graph = [*(list(calls) * rounds)[:-1], keeping]
        replay = Rotation([self.device.replayable(in_graph)])  # type: ignore[list-item]

        def replayed() -> Tensor:
            replay()
            return last[0]

        found.append(self._answer(replayed, self.checkers[1]))
        contender.errors = max(found, key=lambda one: one.norm if math.isfinite(one.norm) else math.inf)
        if not all(map(right, found)):
            told = ", ".join(f"{one.norm:.3g}" for one in found)
            contender.drop("wrong", f"errors {told} (first weights, last, last in a graph)")
            return
        estimate = self.device.seconds_of(replay)
        repeats = max(1, math.ceil(RUN_S / estimate))
        seconds = [self.device.seconds_of(replay, repeats) / len(in_graph) for _ in range(RUNS)]
        contender.timing = Timing.of(seconds, repeats * len(in_graph))

    def row(self, contender: Contender) -> Row:
        """The fields of a contender in the results file."""
        return {
            "record": "small",
            **self.problem.fields(contender.mode),
            **contender.fields(),
            "weights_s": self.weights_s,
            "bound_s": small_batch_bound(self.weights_s),
            "floor_s": self.floor_s,
            "floor_bound": self.floor_bound,
            "plans": len(self.values),
        }


def ours_of(
    contest: SmallContest, library: Library, mode: str, implementation: str | None, plans: ExitStack
) -> Contender:
    """Ours, checked and timed: as a plan chooses, or by this implementation. The plans go to the stack."""
    problem, device = contest.problem, contest.device
    contender = Contender(OURS, OURS, mode)

    def call_of(plan: Plan) -> Call:
        def call() -> Tensor:
            plan.run(contest.x.data_ptr(), contest.y.data_ptr(), device.stream())
            return contest.y

        return call

    try:
        calls = []
        for values in contest.values:
            plan = plans.enter_context(make_plan(library, device, problem.text(mode), values, implementation))
            calls.append(call_of(plan))
        contender.implementation = plan.implementation
        contender.predicted_s = library.predict(problem.text(mode), implementation, device.name)
        contender.tuned = library.was_tuned(problem.text(mode), contender.implementation, device.name)
        _, right = judged_beside_torch(problem, mode, device, contest.checkers[0])
        contest.contest(contender, calls, right)
    except KronsparseError as error:
        contender.drop("unavailable", first_line(error))
    return contender


def _call_of(product: Product, x: Tensor, y: Tensor) -> Call:
    return lambda: product(x, y)


def hold_small_contest(
    device: Device,
    ceilings: Ceilings,
    library: Library,
    implementation: str | None,
    problem: Problem,
    families: Sequence[str],
) -> list[Row]:
    """Rows of one problem."""
    contest = SmallContest(device, ceilings, problem)
    contenders = []
    for mode in problem.modes if OURS in families else ():
        with ExitStack() as plans:
            contenders.append(ours_of(contest, library, mode, implementation, plans))
            device.synchronize()  # before the plans go
    for spelling in spellings_for(problem.layout, problem.pattern, families):
        if spelling.per_block:
            continue
        contender = Contender(spelling.family, spelling.name)
        contenders.append(contender)
        try:
            products = [spelling.prepare(values) for values in contest.values]
            calls = [_call_of(product, contest.x, contest.y) for product in products]
            contest.contest(contender, calls, lambda theirs: is_sound(theirs, problem))
        except Exception as error:  # as in a contest
            contender.drop("unavailable", first_line(error))
    return [contest.row(contender) for contender in contenders]
