"""Rates of the machine, the floor they give, and timing of calls."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

SGEMM_SIZE = 3072
COPY_BYTES = 512 << 20
SHORTEST_RUN_S = 0.020
# Whoever takes this many times the fastest is not timed to the last percent.
SLOW = 10.0
RUNS_WHEN_SLOW = 2


def seconds_of(call: Callable[[], object], calls: int = 1) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls


def floor_of(by_flops: float, by_bytes: float) -> tuple[float, str]:
    return (by_flops, "flops") if by_flops >= by_bytes else (by_bytes, "bytes")


@dataclass(frozen=True)
class Rates:
    """What PyTorch reaches on these threads: the ceilings everyone is measured against."""

    sgemm_flops: float  # per second
    copy_bytes: float  # per second, reads and writes both counted

    @staticmethod
    def measure(runs: int) -> Rates:
        left, right, product = (torch.rand(SGEMM_SIZE, SGEMM_SIZE) for _ in range(3))
        source, target = torch.ones(2, COPY_BYTES // 4).unbind()
        multiply_s = min(seconds_of(lambda: torch.mm(left, right, out=product)) for _ in range(runs))
        copy_s = min(seconds_of(lambda: target.copy_(source)) for _ in range(3 * runs))
        return Rates(2 * SGEMM_SIZE**3 / multiply_s, 2 * COPY_BYTES / copy_s)

    def __str__(self) -> str:
        return f"SGEMM {self.sgemm_flops / 1e9:.0f} GFLOP/s, copy {self.copy_bytes / 1e9:.1f} GB/s"

    def floor(self, flops: float, moved_bytes: float) -> tuple[float, str]:
        """The least seconds for this much work, and which of the two it is bound by."""
        return floor_of(flops / self.sgemm_flops, moved_bytes / self.copy_bytes)


@dataclass(frozen=True)
class Timing:
    runs: int
    calls: int  # in each run
    median_s: float  # these are per call
    q1_s: float
    q3_s: float
    min_s: float

    @staticmethod
    def of(seconds: list[float], calls: int = 1) -> Timing:
        if len(seconds) > 1:
            q1, median, q3 = statistics.quantiles(seconds, n=4, method="inclusive")
        else:
            q1 = median = q3 = seconds[0]
        return Timing(len(seconds), calls, median, q1, q3, min(seconds))


def schedule(estimates: Sequence[float], rounds: int) -> tuple[list[int], list[int]]:
    """Of calls that take about this many seconds: how often to repeat each in a run that is long
    enough, and how many runs to make."""
    repeats = [max(1, math.ceil(SHORTEST_RUN_S / estimate)) for estimate in estimates]
    fastest = min(estimates, default=0.0)
    runs = [rounds if estimate < SLOW * fastest else min(rounds, RUNS_WHEN_SLOW) for estimate in estimates]
    return repeats, runs


def interleaved(
    calls: Sequence[Callable[[], object]],
    repeats: Sequence[int],
    runs: Sequence[int],
    clock: Callable[[Callable[[], object], int], float] = seconds_of,
) -> list[Timing]:
    """Times the calls by turns, so that a slow spell of the machine hits them all."""
    seconds: list[list[float]] = [[] for _ in calls]
    for done in range(max(runs, default=0)):
        for call, repeat, wanted, mine in zip(calls, repeats, runs, seconds, strict=True):
            if done < wanted:
                mine.append(clock(call, repeat))
    return [Timing.of(mine, repeat) for mine, repeat in zip(seconds, repeats, strict=True)]
