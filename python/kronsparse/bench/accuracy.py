"""Measures how far ours is from float64 (f64 and complex128: from long double), beside PyTorch's product in
the same dtype. Sums have up to 4096 terms, of normal data and of positive data, where truncation shows.

Prints a table of the largest errors in norm, and exits with 1 where ours is more than twice as far off as
PyTorch (or than one rounding, times the root of the number of terms where they are added one by one).

  kronsparse-bench accuracy
  kronsparse-bench accuracy --device cpu --dtypes f32,f64 --modes fp32,ieee
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from kronsparse.bench.measuring import machine
from kronsparse.bench.measuring.answers import TORCH_DTYPES, Checker
from kronsparse.bench.measuring.c_api import Library, find_library
from kronsparse.bench.measuring.ceilings import tf32_allowed
from kronsparse.bench.measuring.contest import judged_beside_torch, make_plan
from kronsparse.bench.measuring.devices import Device, open_device
from kronsparse.bench.options import DEVICE_HELP, add_library, words
from kronsparse.bench.problems.problem import MODES, Problem
from kronsparse.chains import Pattern
from kronsparse.checks import LAYOUTS

DTYPES = tuple(TORCH_DTYPES)
TERMS = (64, 256, 1024, 4096)
DATA = ("normal", "positive")
# Many samples and few have different kernels, and so have patterns with neighbouring j and without.
BATCHES = (1000, 8)
SHAPES = ((2, 48, 1), (1, 24, 4), (1, 10, 16))  # a, b, d


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `accuracy`."""
    add = parser.add_argument
    add("--device", help=DEVICE_HELP)
    add(
        "--dtypes",
        type=words(DTYPES),
        default=list(DTYPES),
        metavar="LIST",
        help="dtypes to run (default: all)",
    )
    add(
        "--modes",
        type=words(MODES),
        default=list(MODES),
        metavar="LIST",
        help="modes of f32 to run (default: all)",
    )
    add_library(parser)


@dataclass
class Line:
    """The largest errors of a dtype and mode, of one kind of data and length of sums."""

    ours: float = 0.0
    of_torch: float = 0.0
    kernels: set[str] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)


def problems_of(dtype: str, terms: int) -> Iterator[Problem]:
    """Both layouts, every shape and batch."""
    for layout in LAYOUTS:
        for a, b, d in SHAPES:
            for batch in BATCHES:
                yield Problem(dtype, layout, Pattern(a, b, terms, d), batch)


def drawn(shape: Sequence[int], dtype: str, device: Device, data: str) -> Tensor:
    """Normal numbers, or their absolute values; of complex ones, of both parts."""
    exact = torch.complex128 if TORCH_DTYPES[dtype].is_complex else torch.float64
    numbers = torch.randn(*shape, dtype=exact, device=device.torch)
    if data == "positive":
        (torch.view_as_real(numbers) if exact.is_complex else numbers).abs_()
    return numbers


def measure(device: Device, library: Library, problem: Problem, mode: str, data: str, line: Line) -> None:
    """Takes one product into account."""
    torch.manual_seed(1)
    x_shape, y_shape = problem.shapes
    dtype = TORCH_DTYPES[problem.dtype]
    values = drawn(problem.pattern, problem.dtype, device, data).div_(math.sqrt(problem.pattern.c)).to(dtype)
    x = drawn(x_shape, problem.dtype, device, data).to(dtype)
    y = torch.full(y_shape, math.nan, device=device.torch, dtype=dtype)
    checker = Checker(problem, x, values)
    with make_plan(library, device, problem.text(mode), values, None) as plan:
        plan.run(x.data_ptr(), y.data_ptr(), device.stream())
        device.synchronize()
        line.kernels.add(plan.implementation)
    of_torch, is_right = judged_beside_torch(problem, mode, device, checker)
    ours = checker.errors(y)
    # Not max(): what is no number must show.
    line.ours = ours.norm if not ours.norm <= line.ours else line.ours
    line.of_torch = max(line.of_torch, of_torch.norm)
    if not is_right(ours):
        line.wrong.append(f"{problem.text(mode)}, {data}: {ours.describe()}, PyTorch {of_torch.norm:.3g}")


def main(options: argparse.Namespace) -> int:
    """Prints the table. Returns 1 where anything is beyond its bound."""
    device = open_device(options.device or machine.default_device())
    library = Library(find_library(options.shared_library))
    print(f"# Errors in norm, {device.describe().get('gpu', device.name)}\n")
    print("| | data | terms | ours | PyTorch | ours / PyTorch | kernels |\n|---|---|---|---|---|---|---|")
    wrong = []
    for dtype in options.dtypes:
        for mode in options.modes if dtype == "f32" else [""]:
            for data in DATA:
                for terms in TERMS:
                    line = Line()
                    with tf32_allowed(False):
                        for problem in problems_of(dtype, terms):
                            measure(device, library, problem, mode, data, line)
                    ratio = line.ours / line.of_torch
                    print(
                        f"| {dtype} {mode}".rstrip() + f" | {data} | {terms} | {line.ours:.1e}"
                        f" | {line.of_torch:.1e} | {ratio:.2f} | {', '.join(sorted(line.kernels))} |",
                        flush=True,
                    )
                    wrong += line.wrong
    print(f"\n{len(wrong)} beyond the bound" if wrong else "\nAll within the bound.")
    for one in wrong:
        print(f"- {one}")
    return 1 if wrong else 0
