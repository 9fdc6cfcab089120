"""Converts a safetensors file: dense matrices become the factors of chains where rules say so.

Rules are tables [[rule]] of a TOML file, with the conditions name, pattern, shape, min_size and max_size, and
a chain, a number of parameters, a share of them (0.25), or "advise(25%)". Without a chain layers stay dense.
The file is written whole or not at all; one matrix is in memory at a time.

  python -m kronsparse convert model.safetensors --rules rules.toml smaller.safetensors
  python -m kronsparse convert gpt2.safetensors --rules rules.toml out.safetensors --transposed '.*c_[a-z]+'
  python -m kronsparse convert dense/model.safetensors --config dense/config.json --rules rules.toml \\
    small/model.safetensors
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any


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
    add(
        "--config",
        type=Path,
        metavar="config.json",
        help="configuration of transformers; a copy that says the chains is written beside the target",
    )
    add("--report", type=Path, metavar="FILE.html", help="page to write the report to")


def main(options: argparse.Namespace) -> int:
    """Converts, and prints the report; 0."""
    from kronsparse.torch import convert_file, rules_from_toml
    from kronsparse.torch.hugging_face import METHOD

    try:
        rules = rules_from_toml(options.rules.read_text(encoding="utf-8"))
    except ValueError as error:  # of the TOML, too
        raise ValueError(f"{options.rules}: {error}") from None
    settings = _read_config(options.config, options.target)
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
    if settings is not None:
        chains = {"quant_method": METHOD, "version": 1, "chains": report.chains}
        text = json.dumps({**settings, "quantization_config": chains}, indent=2) + "\n"
        (options.target.parent / "config.json").write_text(text, encoding="utf-8")
    if options.report is not None:
        options.report.write_text(report.html(), encoding="utf-8")
    print(report)
    return 0


def _read_config(path: Path | None, target: Path) -> dict[str, Any] | None:
    """The configuration, checked before anything is written."""
    if path is None:
        return None
    if path.absolute().parent == target.absolute().parent:
        raise ValueError(
            f"--config: {path} lies beside the target, which would overwrite it; choose another folder"
        )
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"--config: {path} is no JSON: {error}") from None
    if not isinstance(settings, dict) or "quantization_config" in settings:
        raise ValueError(f"--config: {path} given, must be that of a dense model that is not quantized")
    return settings


def _tell(done: int, total: int, name: str) -> None:
    print(f"convert: {done} of {total}{f', {name}' if name else ''}", file=sys.stderr, flush=True)
