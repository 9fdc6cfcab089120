#!/usr/bin/env python3
"""kronsparse against PyTorch on the same CPU cores.

Every answer is checked against float64 before it is timed; every time is set against the floor,
max(flops / PyTorch's SGEMM rate, bytes / copy rate), measured in the same run. Raw rows go to a
.jsonl file under results/, which report.py summarises and plot.py draws.
"""

from __future__ import annotations

import argparse
import math
import platform
import random
import re
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import process
from command import Results, default_path, minutes, words

DTYPES = ("f32", "f16", "bf16")
BUSY_LOAD = 0.5  # running threads of others that no benchmark should stand
STEADY = 1.1  # a larger change of the SGEMM rate during the run spoils it
LAYOUTS = ("batch_first", "batch_last")
PATTERNS = [
    (a, b, c, d) for a in (1, 4) for b, c in ((48, 48), (64, 256), (256, 64), (192, 192)) for d in (1, 4, 32)
]


@dataclass(frozen=True)
class Options:
    dtypes: list[str]
    layouts: list[str]
    threads: int
    rounds: int
    filter: re.Pattern[str]
    target_s: float
    memory: float  # bytes
    budget_s: float
    implementation: str | None
    shared_library: str | None
    output: Path | None


def parse_options(arguments: list[str]) -> Options:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "--dtype",
        type=words(DTYPES),
        default=["f32"],
        metavar="LIST",
        help="f32 is timed against PyTorch; f16 and bf16 against our own f32 (default f32)",
    )
    add(
        "--layouts",
        type=words(LAYOUTS),
        default=list(LAYOUTS),
        metavar="LIST",
        help="batch_first,batch_last (default both)",
    )
    add("--filter", default="", metavar="REGEX", help="only problems whose 'layout axbxcxd' matches")
    add("--threads", type=int, default=2, help="threads, and physical cores, for both sides (default 2)")
    add("--quick", action="store_true", help="3 timed runs instead of 9")
    add(
        "--budget",
        type=float,
        default=math.inf,
        metavar="SECONDS",
        help="stop after about this long; the order makes any part representative",
    )
    add("--impl", metavar="NAME", help="force an implementation of kronsparse")
    add(
        "--library",
        dest="shared_library",
        metavar="PATH",
        help="the shared library (else $KRONSPARSE_LIBRARY, else the best under build/)",
    )
    add("--target-ms", type=float, default=20.0, help="the floor to choose the batch for (default 20)")
    add("--memory-gb", type=float, default=2.0, help="limit on the tensors of a problem (default 2)")
    add(
        "--output",
        type=Path,
        metavar="FILE",
        help="append the rows to this file (default: a new one under results/)",
    )
    given = parser.parse_args(arguments)
    return Options(
        dtypes=given.dtype,
        layouts=given.layouts,
        threads=given.threads,
        rounds=3 if given.quick else 9,
        filter=re.compile(given.filter),
        target_s=given.target_ms * 1e-3,
        memory=given.memory_gb * 1e9,
        budget_s=given.budget,
        implementation=given.impl,
        shared_library=given.shared_library,
        output=given.output,
    )


def select_problems(options: Options) -> list[tuple[str, tuple[int, int, int, int]]]:
    """Layout and pattern of each, in an order of which every beginning is a fair sample."""
    every = [(layout, pattern) for layout in LAYOUTS for pattern in PATTERNS]
    random.Random(2024).shuffle(every)
    return [
        (layout, pattern)
        for layout, pattern in every
        if layout in options.layouts and options.filter.search(f"{layout} {'x'.join(map(str, pattern))}")
    ]


def run(options: Options) -> None:
    # Here, not above: PyTorch must not be loaded before the process has been prepared.
    import report
    import torch
    from contest import Arena, hold_contest
    from kronsparse_c import Library, find_library
    from measure import Rates

    torch.set_num_threads(options.threads)
    library = Library(find_library(options.shared_library))
    problems = select_problems(options)
    if not problems:
        raise ValueError(f"no problem matches --filter {options.filter.pattern!r}")

    machine = process.describe_machine()
    load = process.load()
    rates = Rates.measure(runs=5)
    results = Results(options.output or default_path("cpu_vs_torch", str(machine["cpu"])))
    results.add(
        "run",
        machine=machine,
        load=load,
        threads=options.threads,
        versions={
            "kronsparse": library.version,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        commit=process.commit(),
        rates=asdict(rates),
        rounds=options.rounds,
        target_s=options.target_s,
    )
    print(f"{report.machine_line(results.rows)}\nrows to {results.path}")
    if load > BUSY_LOAD:
        print(f"load {load:.1f} in the last minute: if other work goes on, the numbers will be worthless")
    print(f"\n{'':8}{report.heading()}")

    arena = Arena.prepare(problems, rates, options.target_s, options.memory, options.dtypes)
    start = time.monotonic()
    for done, (layout, pattern) in enumerate(problems):
        spent = time.monotonic() - start
        if done and spent + spent / done > options.budget_s:
            print(f"budget spent: {len(problems) - done} problems left out")
            break
        rows = hold_contest(arena, library, layout, pattern, options.rounds, options.implementation)
        for row in rows:
            results.add("row", **row)
        left = (time.monotonic() - start) / (done + 1) * (len(problems) - done - 1)
        (one,) = report.compare([{"record": "row", **row} for row in rows])
        print(f"[{done + 1:2}/{len(problems)}] {report.one_line(one)}left {minutes(left)}", flush=True)
        print("".join(f"{'':8}{failure}\n" for failure in one.failures), end="")

    again = Rates.measure(runs=3)
    results.add("end", rates=asdict(again), seconds=time.monotonic() - start)
    comparisons = sorted(report.compare(results.rows), key=lambda one: one.order)
    print("\n".join(["", *report.table(comparisons), "", *report.summarise(comparisons)]))
    print(f"rates at the end: {again}")
    drift = max(again.sgemm_flops / rates.sgemm_flops, rates.sgemm_flops / again.sgemm_flops)
    if drift > STEADY:
        print(f"the machine was not steady (SGEMM changed by {drift:.2f}x): do not trust these numbers")


def main() -> None:
    options = parse_options(sys.argv[1:])
    try:
        process.restart_prepared(options.threads)
        run(options)
    except (OSError, ModuleNotFoundError, ValueError) as error:
        sys.exit(f"cpu_vs_torch: {error}")


if __name__ == "__main__":
    main()
