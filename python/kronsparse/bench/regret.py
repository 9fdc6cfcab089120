"""Times every candidate of a problem, and says how much slower the one that a plan takes is than the best.

Regret is the time of the choice over that of the fastest candidate: 1 where the choice was right. Candidates
that the cost model takes to be many times slower than its choice are not timed. Rows go to a results file; a
run that was stopped goes on with the same --output. On a GPU that nobody has measured yet the file tells how
well the cost model does there.

  kronsparse-bench regret --seed 7                                 a sample of the grid, random, small batches
  kronsparse-bench regret --suites random --seed 7 --count 30 --dtypes f16
  kronsparse-bench regret --suites problems.txt --device cpu
  kronsparse-bench regret --suites problems.txt --kind small     timed from CUDA graphs, as small batches are
"""

from __future__ import annotations

import argparse
import math
import time

from kronsparse.bench.measuring import machine
from kronsparse.bench.options import DEVICE_HELP, add_library, add_output, count, duration, seed, words
from kronsparse.bench.problems.problem import DTYPES
from kronsparse.bench.problems.suites import SUITES, Suite, find_suite
from kronsparse.checks import LAYOUTS

USUAL = "sample,random,small-batch"
KINDS = ("time", "small")
RANDOM_PROBLEMS = 50
WITHIN = 8.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `regret`."""
    add = parser.add_argument
    suites = f"suites, or files of problems, with commas between them (default {USUAL})"
    add("--suites", default=USUAL, metavar="LIST", help=suites)
    add("--seed", type=seed, metavar="N", help="the seed of the suite random")
    told = f"the first N problems of the suite random (default {RANDOM_PROBLEMS})"
    add("--count", type=count, default=RANDOM_PROBLEMS, metavar="N", help=told)
    add("--limit", type=count, metavar="N", help="run N of the patterns of any other suite")
    add("--device", help=DEVICE_HELP)
    add("--dtypes", type=words(DTYPES), metavar="LIST", help="dtypes to run (default: the suites')")
    add("--layouts", type=words(LAYOUTS), metavar="LIST", help="layouts to run (default: the suites')")
    add("--batch", type=count, metavar="N", help="number of samples (default: the suites')")
    kind = "how to time: time, or small (small batches, from a CUDA graph; default: as the suite says)"
    add("--kind", choices=KINDS, help=kind)
    within = f"time candidates predicted to take up to N times as long as the choice (default {WITHIN:g})"
    add("--within", type=float, default=WITHIN, metavar="N", help=within)
    add("--budget", type=duration, default=math.inf, metavar="TIME", help="time after which to stop")
    add_library(parser)
    add("--threads", type=count, metavar="N", help="threads of a CPU (default: every physical core)")
    add_output(parser)


def chosen_suites(options: argparse.Namespace) -> dict[str, Suite]:
    """By name, in the order given; refuses what has no time to regret."""
    found = {}
    for name in options.suites.split(","):
        suite = find_suite(name).of_kind(options.kind)
        if suite.kind == "energy":
            timed = ", ".join(one for one, suite in SUITES.items() if suite.kind != "energy")
            raise ValueError(f"--suites {name}: measures joules; must be one of {timed}, or a file")
        found[name] = suite.seeded(options.seed, options.count) if suite.is_random else suite
    if options.seed is not None and not any(suite.is_random for suite in found.values()):
        raise ValueError(f"--seed {options.seed} given, allowed where --suites has random")
    return found


def main(options: argparse.Namespace) -> int:
    """Prepares the process, then measures; 0, also where a budget ended the run."""
    options.begun = time.monotonic()
    if not options.within >= 1:
        raise ValueError(f"--within {options.within:g} given, must be at least 1")
    options.chosen = chosen_suites(options)
    if options.device is None:
        options.device = machine.default_device()
    if options.device == "cpu":
        options.threads = options.threads or machine.physical_cores()
        machine.restart_prepared(options.threads)
    # Here, not above: PyTorch must not be loaded before the process has been prepared.
    from kronsparse.bench.measuring.regret_sweep import sweep

    return sweep(options)
