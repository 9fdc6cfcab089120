"""Times suites of problems: kronsparse through its C API beside PyTorch, on the same tensors.

Every answer is checked against float64 before it is timed. Rows go to a results file, one JSON object a
line. A run that was stopped goes on when it is started again with the same --output. `kronsparse-bench
report` makes a page of the file.

  kronsparse-bench run --suite sample                                 64 patterns, the usual rivals
  kronsparse-bench run --suite paper-time --output grid.jsonl --budget 8m
  kronsparse-bench run --suite random --seed 7 --dtypes f16 --competitors ours
  kronsparse-bench run --suite sample --dtypes f16 --competitors ours,compiled,bsr --limit 16
  kronsparse-bench run --suite problems.txt --device cpu              your own file
"""

from __future__ import annotations

import argparse
import math
import time

from kronsparse.bench.measuring import machine
from kronsparse.bench.options import DEVICE_HELP, add_library, add_output, count, duration, seed, words
from kronsparse.bench.problems.problem import DTYPES, MODES
from kronsparse.bench.problems.suites import SUITES, find_suite
from kronsparse.bench.results.rows import OURS
from kronsparse.checks import LAYOUTS

KINDS = ("time", "small", "energy")
COMPETITORS = (
    *("ours", "bmm", "einsum", "dense", "blocks", "strided", "transposing", "bsr", "sparse"),
    *("triton", "cutensor", "compiled", "compiled-einsum", "ksmm"),
)
ALL = "all"  # of those, as many as there are, but not what is compiled: --compiled adds that
COMPILED = ("compiled", "compiled-einsum")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `run`."""
    add = parser.add_argument
    suites = f"problems to run: {', '.join(SUITES)} (see --list), a file, or patterns (default sample)"
    add("--suite", default="sample", help=suites)
    add("--list", action="store_true", help="list the suites, and measure nothing")
    dry = "print what would be measured and about how long it takes; --device may be a GPU that is not here"
    add("--dry-run", action="store_true", help=dry)
    add("--seed", type=seed, metavar="N", help="with --suite random: the seed of its problems")
    add("--count", type=count, metavar="N", help="with --suite random: take the first N of its problems")
    add("--device", help=DEVICE_HELP)
    dtypes = "dtypes to run, of f32,f16,bf16 (default: the suite's)"
    add("--dtypes", type=words(DTYPES), metavar="LIST", help=dtypes)
    modes = "modes of f32 to run, of fp32,ieee,tf32 (default fp32)"
    add("--modes", type=words(MODES), default=["fp32"], metavar="LIST", help=modes)
    layouts = "layouts to run, of batch_first,batch_last (default: both)"
    add("--layouts", type=words(LAYOUTS), metavar="LIST", help=layouts)
    batch = "number of samples (default: the suite's; on a CPU one that takes a few milliseconds)"
    add("--batch", type=count, metavar="N", help=batch)
    competitors = f"who takes part, of {', '.join(COMPETITORS)}; all: whoever is there (default: the suite's)"
    add("--competitors", type=words((*COMPETITORS, ALL)), metavar="LIST", help=competitors)
    compiled = "add torch.compile of bmm and of einsum, which take seconds a problem"
    add("--compiled", action="store_true", help=compiled)
    add("--limit", type=count, metavar="N", help="run N of the patterns, spread over all of them")
    add("--budget", type=duration, metavar="TIME", help="time after which to stop, such as 90s or 8m")
    kind = "what to measure: time, small (time of small batches, from a CUDA graph) or energy"
    add("--kind", choices=KINDS, help=f"{kind} (default: the suite's)")
    windows = "number of windows in which a contender's energy is measured (default 1)"
    add("--windows", type=count, default=1, metavar="N", help=windows)
    add("--impl", metavar="NAME", help="implementation or family of kronsparse to use for every problem")
    add_library(parser)
    threads = "threads of a CPU, one a core (default: every physical core; cpu-targets: 2)"
    add("--threads", type=count, metavar="N", help=threads)
    add_output(parser)


def listed_suites() -> list[str]:
    """A line for each suite: what it holds, what it is timed in, and beside whom.

    >>> listed_suites()[0].split(":")[0]
    'paper-time'
    """
    lines = []
    for name, suite in SUITES.items():
        rivals = [one for one in suite.contenders if one != OURS]
        ours = ["ours"] if OURS in suite.contenders else []
        lines.append(f"{name}: {suite.told} ({', '.join(suite.dtypes)}; {', '.join([*ours, *rivals])})")
    return lines


def main(options: argparse.Namespace) -> int:
    """Prepares the process, then measures. Returns 0, also where a budget ended the run."""
    options.begun = time.monotonic()
    if options.list:
        print("\n".join(listed_suites()))
        return 0
    options.suite_found = find_suite(options.suite).of_kind(options.kind).seeded(options.seed, options.count)
    if options.device is None:
        options.device = machine.default_device()
    if options.budget is None:
        options.budget = options.suite_found.cpu_budget_s if options.device == "cpu" else math.inf
    if options.dry_run:
        from kronsparse.bench.measuring.prediction import dry_run

        return dry_run(options)
    if options.device == "cpu":
        options.threads = options.threads or options.suite_found.cpu_threads or machine.physical_cores()
        machine.restart_prepared(options.threads)
    # Here, not above: PyTorch must not be loaded before the process has been prepared.
    from kronsparse.bench.measuring.sweep import sweep

    return sweep(options)
