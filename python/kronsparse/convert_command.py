"""Converts a safetensors file: dense matrices become the factors of chains where rules say so.

Rules are tables [[rule]] of a TOML file, with the conditions name, pattern, shape, min_size and max_size, and
a chain, a number of parameters, a share of them (0.25), or "advise(25%)". Without a chain layers stay dense.
The file is written whole or not at all; one matrix is in memory at a time.

  python -m kronsparse convert model.safetensors --rules rules.toml smaller.safetensors
  python -m kronsparse convert gpt2.safetensors --rules rules.toml out.safetensors --transposed '.*c_[a-z]+'
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `convert`."""
    add = parser.add_argument
    add("source", type=Path, help="safetensors file to read")
    add("--rules", type=Path, required=True, metavar="FILE.toml", help="rules")
    add("target", type=Path, help="safetensors file to write")
    add("--transposed", metavar="REGEX", help="names of matrices that are in_features x out_features")
    add(
        "--values",
        choices=("factorize", "fresh"),
        default="factorize",
        help="values of the factors (default factorize)",
    )
    add("--polish", type=int, default=0, metavar="N", help="sweeps of least squares (default 0)")
    add("--device", default="cpu", help="torch's device for the factorisation (default cpu)")
    add("--report", type=Path, metavar="FILE.html", help="page to write the report to")


def main(options: argparse.Namespace) -> int:
    """Converts, and prints the report; 0."""
    from kronsparse.torch import convert_file, rules_from_toml

    try:
        rules = rules_from_toml(options.rules.read_text(encoding="utf-8"))
    except ValueError as error:  # of the TOML, too
        raise ValueError(f"{options.rules}: {error}") from None
    report = convert_file(
        options.source,
        rules,
        options.target,
        transposed=options.transposed,
        values=options.values,
        polish=options.polish,
        device=options.device,
        progress=_tell,
    )
    if options.report is not None:
        options.report.write_text(report.html(), encoding="utf-8")
    print(report)
    return 0


def _tell(done: int, total: int, name: str) -> None:
    print(f"convert: {done} of {total}{f', {name}' if name else ''}", file=sys.stderr, flush=True)
