"""Times suites of problems: kronsparse through its C API beside PyTorch, on the same tensors.

Every answer is checked against float64 before it is timed. Rows go to a results file, one JSON object a
line; started again with the same --output, a run goes on where it was stopped. `kronsparse-bench report`
shows them.

  kronsparse-bench run --suite sample                                 64 patterns, the usual rivals
  kronsparse-bench run --suite paper-time --output grid.jsonl --budget 8m
  kronsparse-bench run --suite sample --dtypes f16 --competitors ours,compiled,bsr --limit 16
  kronsparse-bench run --suite problems.txt --device cpu              one's own file
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

from kronsparse.bench import machine
from kronsparse.bench.options import count, duration, words
from kronsparse.bench.problems import DTYPES, MODES
from kronsparse.bench.suites import SUITES, find_suite
from kronsparse.checks import LAYOUTS

KINDS = ("time", "small", "energy")
COMPETITORS = (
    *("ours", "bmm", "einsum", "dense", "blocks", "strided", "transposing", "bsr", "sparse"),
    *("compiled", "compiled-einsum", "ksmm"),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `run`."""
    add = parser.add_argument
    add("--suite", default="sample", help=f"{', '.join(SUITES)}, a file, or patterns (default sample)")
    add("--device", help="cuda:N, opencl:N or cpu (default: the GPU if there is one)")
    add("--dtypes", type=words(DTYPES), metavar="LIST", help="of f32,f16,bf16 (default: the suite's)")
    add("--modes", type=words(MODES), default=["fp32"], metavar="LIST", help="of f32: fp32,ieee,tf32")
    add("--layouts", type=words(LAYOUTS), metavar="LIST", help="of batch_first,batch_last (default: both)")
    add("--batch", type=count, metavar="N", help="default: the suite's; on a CPU one of a few milliseconds")
    add(
        "--competitors",
        type=words(COMPETITORS),
        metavar="LIST",
        help=f"of {','.join(COMPETITORS)} (default: the suite's)",
    )
    add("--limit", type=count, metavar="N", help="only N of the patterns, spread over all")
    add("--budget", type=duration, metavar="TIME", help="as much as fits, as in 90s or 8m")
    add(
        "--kind",
        choices=KINDS,
        help="time; small: small batches, from a graph; energy (default: the suite's)",
    )
    add("--windows", type=count, default=1, metavar="N", help="windows of energy per contender (default 1)")
    add("--impl", metavar="NAME", help="force an implementation of kronsparse")
    add(
        "--library",
        dest="shared_library",
        metavar="PATH",
        help="libkronsparse (else $KRONSPARSE_LIBRARY, else what is found)",
    )
    add(
        "--threads",
        type=count,
        metavar="N",
        help="on a CPU: threads, one a core (default: every physical core; cpu-targets: 2)",
    )
    add("--output", type=Path, metavar="FILE", help="appended to; default: a new file under results/")


def main(options: argparse.Namespace) -> int:
    """Prepares the process, then measures; 0 also where a budget ended it."""
    options.begun = time.monotonic()
    options.suite_found = find_suite(options.suite).of_kind(options.kind)
    if options.device is None:
        options.device = machine.default_device()
    if options.budget is None:
        options.budget = options.suite_found.cpu_budget_s if options.device == "cpu" else math.inf
    if options.device == "cpu":
        options.threads = options.threads or options.suite_found.cpu_threads or machine.physical_cores()
        machine.restart_prepared(options.threads)
    # Here, not above: PyTorch must not be loaded before the process has been prepared.
    from kronsparse.bench.sweep import sweep

    return sweep(options)
