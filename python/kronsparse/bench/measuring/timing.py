"""Timing of calls by turns, and how often to repeat them."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

# Calls that take so long are timed less often: a few hundred milliseconds do not vary much.
LONG_CALL_S, LONG_CALL_RUNS = 0.2, 3


def seconds_of(call: Callable[[], object], calls: int = 1) -> float:
    """Per call, by the host's clock."""
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls


@dataclass(frozen=True)
class Timing:
    """Medians and quartiles over runs of several calls each."""

    runs: int
    calls: int  # in each run
    median_s: float  # these are per call
    q1_s: float
    q3_s: float
    min_s: float

    @staticmethod
    def of(seconds: list[float], calls: int = 1) -> Timing:
        """From the seconds of each run."""
        if len(seconds) > 1:
            q1, median, q3 = statistics.quantiles(seconds, n=4, method="inclusive")
        else:
            q1 = median = q3 = seconds[0]
        return Timing(len(seconds), calls, median, q1, q3, min(seconds))


@dataclass(frozen=True)
class Effort:
    """Runs of at least `run_s`, for about `total_s`, but neither fewer nor more than this."""

    run_s: float
    total_s: float
    fewest: int
    most: int

    def schedule(self, estimate_s: float) -> tuple[int, int]:
        """How often to repeat a call that takes about this long in a run, and the number of runs.

        >>> Effort(1e-3, 30e-3, 10, 20).schedule(0.1e-3)
        (10, 20)
        >>> Effort(1e-3, 30e-3, 10, 20).schedule(0.1)
        (1, 10)
        """
        repeats = max(1, math.ceil(self.run_s / estimate_s))
        if estimate_s > LONG_CALL_S:
            return repeats, min(self.fewest, LONG_CALL_RUNS)
        wanted = round(self.total_s / (estimate_s * repeats))
        return repeats, max(self.fewest, min(self.most, wanted))


def interleaved(
    calls: Sequence[Callable[[], object]],
    schedules: Sequence[tuple[int, int]],
    clock: Callable[[Callable[[], object], int], float] = seconds_of,
) -> list[Timing]:
    """Times the calls by turns, so that a slow spell of the machine hits them all.

    A schedule is (calls in a run, runs).
    """
    seconds: list[list[float]] = [[] for _ in calls]
    for done in range(max((runs for _, runs in schedules), default=0)):
        for call, (repeats, runs), mine in zip(calls, schedules, seconds, strict=True):
            if done < runs:
                mine.append(clock(call, repeats))
    return [Timing.of(mine, repeats) for mine, (repeats, _) in zip(seconds, schedules, strict=True)]


def ratio_by_turns(
    call: Callable[[], object],
    other: Callable[[], object],
    rounds: int,
    clock: Callable[[Callable[[], object], int], float] = seconds_of,
) -> float:
    """How many times as long as the other a call takes: the median over pairs that follow each other.

    On a machine whose speed changes within seconds both of a pair see the same one; two medians may not.

    >>> ticks = iter([3.0, 2.0, 30.0, 15.0, 20.0, 10.0])
    >>> ratio_by_turns(print, len, 3, lambda call, repeats: next(ticks))
    1.5
    """
    ratios = []
    for done in range(rounds):
        if done % 2 == 0:
            mine, others = clock(call, 1), clock(other, 1)
        else:
            others, mine = clock(other, 1), clock(call, 1)
        ratios.append(mine / others)
    return statistics.median(ratios)
