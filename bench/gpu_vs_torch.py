#!/usr/bin/env python3
"""kronsparse against PyTorch on one GPU, through the C API, on the same tensors.

Every answer is checked against float64 before it is timed; every time is set against the floor,
max(flops / PyTorch's GEMM rate in the dtype, bytes / copy rate), measured in the same run. Raw rows
go to a .jsonl file under results/, which gpu_report.py summarises.

  python3 bench/gpu_vs_torch.py                             64 patterns, f16, bf16, f32, both layouts
  python3 bench/gpu_vs_torch.py --dtypes f16 --limit 16     a first look
  python3 bench/gpu_vs_torch.py --small-batch               batches of 1, 8, 64 from a CUDA graph
  python3 bench/gpu_vs_torch.py --device cpu --limit 2 --batch 64     a dry run without a GPU
"""

from __future__ import annotations

import argparse
import math
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import gpu_report
import process
import suites
import torch
from command import Results, Row, default_path, minutes, words
from contest import OURS, first_line
from devices import Ceilings, machine, open_device
from gpu_contest import Arena, Unit, hold_device_contest
from kronsparse_c import Library, find_library
from small_batch import BATCHES, hold_small_contest

DTYPES = ("f16", "bf16", "f32")
LAYOUTS = ("batch_first", "batch_last")
MODES = ("fp32", "ieee", "tf32")
COMPETITORS = ("bmm", "einsum", "dense", "blocks", "strided", "transposing")
COMPILED_PATTERNS = 16
PAPER_BATCH = 25088


def parse_options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--device", default="cuda:0", help="cuda:N, or cpu for a dry run (default cuda:0)")
    add("--dtypes", type=words(DTYPES), metavar="LIST", help="default f16,bf16,f32; small batches: f16")
    add("--layouts", type=words(LAYOUTS), metavar="LIST", help="default both; small batches: batch_first")
    add("--modes", type=words(MODES), default=["fp32"], metavar="LIST", help="of f32: fp32,ieee,tf32")
    add("--patterns", metavar="WHICH", help="a suite (sample, small-batch), a file, or a list of axbxcxd")
    add("--batch", type=int, metavar="N", help=f"default {PAPER_BATCH}; small batches: 1, 8 and 64")
    add("--limit", type=int, metavar="N", help="only N of the patterns, spread over all")
    add(
        "--competitors",
        type=words(COMPETITORS),
        default=list(COMPETITORS),
        metavar="LIST",
        help=f"default {','.join(COMPETITORS)}",
    )
    add("--ours-only", action="store_true", help="no competitors")
    add(
        "--compiled",
        type=int,
        nargs="?",
        const=COMPILED_PATTERNS,
        default=0,
        metavar="N",
        help=f"torch.compile of bmm as well, on N of the patterns ({COMPILED_PATTERNS}): takes seconds each",
    )
    add("--small-batch", action="store_true", help="the suite of small batches instead")
    add("--budget", type=float, default=math.inf, metavar="SECONDS", help="stop after about this long")
    add("--impl", metavar="NAME", help="force an implementation of kronsparse")
    add(
        "--library",
        dest="shared_library",
        metavar="PATH",
        help="else $KRONSPARSE_LIBRARY, else the best under build/",
    )
    add("--output", type=Path, metavar="FILE", help="default: a new file under results/")
    add("--resume", type=Path, metavar="FILE", help="go on where this file ends, and append to it")
    given = parser.parse_args(arguments)
    if given.ours_only:
        given.competitors, given.compiled = [], 0
    if given.output and given.resume:
        parser.error("--output and --resume are both given: a run that is resumed goes on in its own file")
    return given


def plan_sweep(given: argparse.Namespace) -> list[tuple[Unit, list[str]]]:
    """The contests in order, each with the families of PyTorch that take part."""
    small = given.small_batch
    patterns = suites.parse_patterns(given.patterns or ("small-batch" if small else "sample"))
    dtypes = given.dtypes or (["f16"] if small else DTYPES)
    layouts = given.layouts or (["batch_first"] if small else LAYOUTS)
    batches = [given.batch] if given.batch else BATCHES if small else [PAPER_BATCH]

    def families(place: int) -> list[str]:
        if small:
            return [name for name in given.competitors if name == "bmm"]
        return [*given.competitors, *(["compiled"] if place < given.compiled else [])]

    # Patterns outermost: whatever part gets done is spread over all dtypes and layouts.
    return [
        (
            Unit(dtype, layout, dims, batch, tuple(given.modes) if dtype == "f32" else ("",)),
            families(place),
        )
        for place, dims in enumerate(suites.representative(patterns)[: given.limit])
        for dtype in dtypes
        for layout in layouts
        for batch in batches
    ]


class Sweep:
    """The work to be done, one contest after the other, with the rows to the results file."""

    def __init__(self, given: argparse.Namespace, results: Results) -> None:
        self.given, self.results = given, results
        self.units = plan_sweep(given)

    def key(self, unit: Unit, families: Sequence[str]) -> str:
        """What a resumed run knows a contest by."""
        suite = "small " if self.given.small_batch else ""
        return f"{suite}{unit} {','.join(families)} {self.given.impl or ''}"

    def run(self, hold: Callable[[Unit, Sequence[str]], list[Row]]) -> None:
        done_before = {row["key"] for row in self.results.rows if row["record"] == "done"}
        left = [one for one in self.units if self.key(*one) not in done_before]
        if len(left) < len(self.units):
            say(f"{len(self.units) - len(left)} problems were done before")
        start = time.monotonic()
        for done, (unit, families) in enumerate(left):
            spent = time.monotonic() - start
            if done and spent + spent / done > self.given.budget:
                say(f"budget spent: {len(left) - done} of {len(left)} problems left out")
                break
            try:
                rows = hold(unit, families)
            except torch.OutOfMemoryError as error:
                self.results.add("left_out", problem=unit.problem(), reason=first_line(error))
                say(f"left out: {unit.problem()}: {first_line(error)}")
                continue
            self.results.add_rows([*rows, {"record": "done", "key": self.key(unit, families)}])
            remaining = (time.monotonic() - start) / (done + 1) * (len(left) - done - 1)
            say(f"[{done + 1:3}/{len(left)}] {progress(rows)}  left {minutes(remaining)}")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def progress(rows: Sequence[Row]) -> str:
    """One contest in a line: the best of each side, in floors."""
    timed = [row for row in rows if row["status"] == "ok"]
    ours = [row for row in timed if row["contender"] == OURS]
    theirs = sorted((row for row in timed if row["contender"] != OURS), key=lambda row: row["median_s"])
    parts = [f"{rows[0]['problem']:<44} floor {rows[0]['floor_s'] * 1e3:8.4f} ms"]
    for row in ours:
        how = " ".join(filter(None, (row["implementation"], row.get("mode"))))
        parts.append(f"ours {row['median_s'] / row['floor_s']:6.2f} ({how})")
    parts += [f"torch {row['median_s'] / row['floor_s']:6.2f} ({row['spelling']})" for row in theirs[:1]]
    bad = [
        row
        for row in rows
        if row["status"] == "wrong" or (row["status"] != "ok" and row["contender"] == OURS)
    ]
    parts += [f"{row['status'].upper()} {row['spelling']}: {row['reason']}" for row in bad]
    return "  ".join(parts)


def run(given: argparse.Namespace) -> None:
    device = open_device(given.device)
    library = Library(find_library(given.shared_library))
    ceilings = Ceilings.measure(device)
    described = machine(device)
    hardware = str(described["cpu" if given.device == "cpu" else "gpu"])
    results = Results(given.resume or given.output or default_path("gpu_vs_torch", hardware))
    sweep = Sweep(given, results)
    versions = {
        "kronsparse": library.version,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
    }
    results.add(
        "run",
        machine=described,
        versions=versions,
        commit=process.commit(),
        ceilings=asdict(ceilings),
        options=sys.argv[1:],
    )
    say(f"{gpu_report.machine_line(results.rows)}\nrows to {results.path}")

    start = time.monotonic()
    if given.small_batch:
        sweep.run(
            lambda unit, families: hold_small_contest(device, ceilings, library, unit, families, given.impl)
        )
    else:
        for unit, _ in sweep.units:
            if not Arena.fits(device, unit):
                say(f"left out, too large for this device: {unit.problem()}")
        sweep.units = [one for one in sweep.units if Arena.fits(device, one[0])]
        arena = Arena(device, ceilings, [unit for unit, _ in sweep.units])
        sweep.run(lambda unit, families: hold_device_contest(arena, library, unit, families, given.impl))
    again = Ceilings.measure(device)
    results.add("end", ceilings=asdict(again), seconds=time.monotonic() - start)
    say(f"ceilings at the end: {again}")
    print("\n".join(gpu_report.summary(results.rows)))


def main() -> None:
    try:
        run(parse_options(sys.argv[1:]))
    except (OSError, ValueError) as error:
        sys.exit(f"gpu_vs_torch: {error}")


if __name__ == "__main__":
    main()
