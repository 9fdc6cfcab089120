"""The measurements of a run and their time, before it begins: also for a GPU that is not here."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kronsparse.bench.measuring.ceilings import Ceilings
from kronsparse.bench.measuring.devices import open_device
from kronsparse.bench.measuring.sweep import plan_problems, present_families
from kronsparse.bench.options import clock
from kronsparse.bench.problems.problem import Problem
from kronsparse.bench.problems.suites import Suite
from kronsparse.bench.results.rows import OURS, Results
from kronsparse.bench.rivals.spellings import spellings_for

# Seconds of one spelling on one problem, the preparation, the check and the trial among them, as runs on an
# H200 took them: paper-time, sample, small-batch and paper-energy in results/. Those of triton, which tries
# six tiles, and cutensor, which tries all algorithms, are assumed.
SECONDS = {"time": 0.05, "small": 0.15, "energy": 1.7}
COMPILED_S, TRIED_S = 0.65, 0.5
_COMPILED, _TRIED = ("compiled", "compiled-einsum"), ("triton", "cutensor")
SHOWN = 3
_NO_RATES = Ceilings(1.0, {"f32": 1.0})  # of a GPU, whose batches do not depend on them


@dataclass(frozen=True)
class Absent:
    """A GPU by its name alone."""

    name: str
    memory_bytes: float = float("inf")


def seconds_of(problem: Problem, families: Sequence[str], kind: str) -> float:
    """The seconds of one problem on a GPU.

    >>> round(seconds_of(Problem.parse("f16 batch_last B=64 1x8x8x1"), ["kronsparse", "triton"], "time"), 2)
    0.6
    """
    total = SECONDS[kind] * len(problem.modes) if OURS in families else 0.0
    for spelling in spellings_for(problem.layout, problem.pattern, families):
        if not spelling.per_block:
            total += SECONDS[kind]
            total += COMPILED_S if spelling.family in _COMPILED else 0.0
            total += TRIED_S if spelling.family in _TRIED else 0.0
    return total


def dry_run(options: argparse.Namespace) -> int:
    """Prints what `run` would measure, in its order, and on a GPU about how long that takes."""
    suite: Suite = options.suite_found
    is_cpu = options.device == "cpu"
    device = open_device("cpu") if is_cpu else Absent(options.device)
    ceilings = Ceilings.measure(open_device("cpu"), runs=1) if is_cpu else _NO_RATES
    usual = suite.cpu_contenders if is_cpu and suite.cpu_contenders else suite.contenders
    is_absent = not is_cpu and not torch.cuda.is_available()
    families = present_families(options, usual, device, is_absent)
    problems = plan_problems(options, suite, device, ceilings)
    print(f"{options.suite}: {len(problems)} problems; {', '.join(families)}")
    if is_absent:
        print("the GPU is not here: whoever may be installed there is counted")
    if options.output and options.output.exists():
        done = Results(options.output).done(" ".join(filter(None, (suite.kind, options.impl))))
        wanted = len(problems)
        problems = [
            one
            for one in problems
            if any((one.text(mode), name) not in done for mode in one.modes for name in families)
        ]
        print(f"{wanted - len(problems)} of them were done before")
    for problem in problems[:SHOWN]:
        print(f"  {problem.text(problem.modes[0])}")
    if len(problems) > SHOWN:
        print(f"  and {len(problems) - SHOWN} more")
    if not is_cpu:
        whole = sum(seconds_of(one, families, suite.kind) for one in problems)
        print(f"about {clock(whole)} (minutes:seconds) on an H200")
    return 0
