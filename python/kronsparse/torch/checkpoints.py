"""Checkpoints converted, tensor by tensor: safetensors files whose dense matrices become factors."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from kronsparse.chains import Chain
from kronsparse.checks import check_option, check_size
from kronsparse.torch.conversion import Progress, _is_head, _predicted, convert, set_chain
from kronsparse.torch.conversion_report import ConversionReport, LayerReport
from kronsparse.torch.dense_layers import fit
from kronsparse.torch.files import FORMAT, FORMAT_VERSION, ORDER
from kronsparse.torch.linear import KSLinear
from kronsparse.torch.rules import VALUES, Candidate, Rule, Rules, as_rules, check_all_match, choose
from kronsparse.torch.shards import Checkpoint, Entry, check_target, opened, write

_DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_EMBEDDINGS = ("wte", "wpe", "shared", "relative_attention_bias")
_SUFFIX = ".weight"


class _Source(NamedTuple):
    """The tensor that one is, or is made of."""

    name: str
    chain: Chain | None = None
    factor: int = 0


def convert_file(
    source: str | os.PathLike[str],
    rules: Rules,
    target: str | os.PathLike[str],
    *,
    transposed: str | None = None,
    values: str = "factorize",
    polish: int = 0,
    device: str = "cpu",
    batch: int = 4096,
    progress: Progress | None = None,
) -> ConversionReport:
    """Writes a copy of a safetensors file in which matrices "NAME.weight" are "NAME.factor0", "NAME.factor1",
    ..., where rules say so. Names of rules are those without ".weight"; types are unknown to a file.

    One matrix is in memory at a time. The target appears when it is whole, or not at all. A `source` in
    several files is given by its index, model.safetensors.index.json, and so is the target, in another
    folder. Embeddings and heads stay dense unless they are named exactly. `transposed` is a regular
    expression of names whose matrices are in_features x out_features, as those of GPT-2 are. An error of more
    than a rule's `max_error` ends it, since names and sizes come first in such a file. The header says the
    chains; `load_converted` reads the file into a model.

    >>> import tempfile
    >>> from safetensors.torch import save_file
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> save_file({"up.weight": torch.randn(64, 16), "up.bias": torch.zeros(64)}, f"{folder}/a.safetensors")
    >>> report = convert_file(f"{folder}/a.safetensors", "monarch", f"{folder}/b.safetensors")
    >>> report.chains
    {'up': '1x16x4x4*4x4x4x1'}
    >>> load_converted(nn.ModuleDict({"up": nn.Linear(16, 64)}), f"{folder}/b.safetensors")["up"]
    KSLinear(in_features=16, out_features=64, chain=1x16x4x4*4x4x4x1, bias=True)
    """
    check_option("values", values, VALUES)
    check_size("batch", batch)
    given = as_rules(rules)
    turned = _compiled(transposed)
    with opened(source) as checkpoint:
        check_target(source, Path(target), checkpoint.index is not None)
        names = checkpoint.names
        slices = {name: checkpoint.slice(name) for name in names}
        layers = {}
        for name in names:
            layer = _candidate(name, slices[name], turned)
            if layer is not None:
                layers[name] = layer
        if turned is not None and not any(turned.fullmatch(name.removesuffix(_SUFFIX)) for name in layers):
            raise ValueError(
                f"transposed: {transposed!r} given, must match a matrix of {os.fspath(source)!r}"
            )
        check_all_match(given, list(layers.values()))
        report = ConversionReport(batch=batch, device=device)
        files: dict[str, list[Entry]] = {}
        sources: dict[str, list[_Source]] = {}
        ways: dict[str, tuple[LayerReport, Rule]] = {}
        for file, reader in checkpoint.files.items():
            entries, of = files.setdefault(file, []), sources.setdefault(file, [])
            for name in reader.keys():  # noqa: SIM118 (it is no mapping)
                dtype, shape = slices[name].get_dtype(), tuple(slices[name].get_shape())
                line, rule = _line_of(layers.get(name), given, dtype, device, batch)
                if line is not None:
                    report.layers.append(line)
                if line is None or rule is None or line.chain is None:
                    entries.append(Entry(name, dtype, shape))
                    of.append(_Source(name))
                    continue
                ways[name] = line, rule
                stem = name.removesuffix("weight")
                for index, pattern in enumerate(line.chain):
                    entries.append(Entry(f"{stem}factor{index}", dtype, tuple(pattern)))
                    of.append(_Source(name, line.chain, index))
        if not ways:
            reasons = "; ".join(sorted({line.reason for line in report.layers}))
            raise ValueError(f"rules: none converts a matrix of {os.fspath(source)!r}: {reasons}")
        taken = [entry.name for entries in files.values() for entry in entries]
        if len(set(taken)) < len(taken):
            raise ValueError(f"source: {os.fspath(source)!r} has factors under the names of new ones")
        metadata = {file: _metadata(checkpoint.metadata(file), report, turned) for file in files}

        done = 0
        made: list[Tensor] = []

        def tensor_of(file: str, number: int) -> Tensor:
            nonlocal made, done
            wanted = sources[file][number]
            if wanted.chain is None:
                return checkpoint.tensor(wanted.name)
            if wanted.factor == 0:
                line, rule = ways[wanted.name]
                if progress is not None:
                    progress(done, len(ways), line.name)
                matrix = checkpoint.tensor(wanted.name)
                if _is_transposed(line.name, turned):
                    matrix = matrix.t()
                made = _factors(matrix, wanted.chain, rule.values or values, polish, device, line)
                done += 1
                if rule.max_error is not None and line.error > rule.max_error:
                    raise ValueError(
                        f"rules: {rule} allows an error of {rule.max_error:g}, but {line.name!r} has "
                        f"{line.error:.3g}; leave it out"
                    )
            return made[wanted.factor].to(_DTYPES[files[file][number].dtype])

        write(Path(target), files, metadata, checkpoint.index, tensor_of)
    if progress is not None:
        progress(len(ways), len(ways), "")
    return report


def load_converted(model: nn.Module, path: str | os.PathLike[str]) -> nn.Module:
    """Loads a file of `convert_file`, or an index, into a dense model, whose layers become the chains that
    the file says, in place. Returns the model."""
    with opened(path, "path") as checkpoint:
        headers = [checkpoint.metadata(file).get(FORMAT) for file in checkpoint.files]
        try:
            chains = json.loads(headers[0] or "{}").get("chains")
        except (ValueError, AttributeError):
            chains = None
        if not isinstance(chains, dict):
            raise ValueError(
                f"path: {os.fspath(path)!r} has no chains in its header: convert_file did not write it"
            )
        missing = {
            name: chain for name, chain in chains.items() if not isinstance(_submodule(model, name), KSLinear)
        }
        if missing:
            model = convert(model, missing, values="fresh", inplace=True)
        _load(model, checkpoint, os.fspath(path))
    return model


def _load(model: nn.Module, checkpoint: Checkpoint, path: str) -> None:
    """Loads all tensors, file by file. One that shares its memory with another may be there once."""
    unexpected: list[str] = []
    for reader in checkpoint.files.values():
        found = model.load_state_dict({name: reader.get_tensor(name) for name in reader.keys()}, strict=False)  # noqa: SIM118
        unexpected += found.unexpected_keys
    state = model.state_dict(keep_vars=True)
    loaded = {id(state[name]) for name in checkpoint.names if name in state}
    missing = [name for name, value in state.items() if id(value) not in loaded]
    if missing or unexpected:
        told = "; ".join(
            f"{what} {', '.join(names[:4])}{', ...' * (len(names) > 4)}"
            for what, names in (("lacks", missing), ("has, and the model has not,", unexpected))
            if names
        )
        raise ValueError(f"path: {path!r} {told}")


def _submodule(model: nn.Module, name: str) -> nn.Module | None:
    try:
        return model.get_submodule(name)
    except AttributeError:
        return None


def _compiled(pattern: str | None) -> re.Pattern[str] | None:
    try:
        return None if pattern is None else re.compile(pattern)
    except (re.error, TypeError) as error:
        raise ValueError(f"transposed: {pattern!r} given, is no regular expression: {error}") from None


def _is_transposed(name: str, turned: re.Pattern[str] | None) -> bool:
    return turned is not None and turned.fullmatch(name) is not None


def _candidate(name: str, tensor: Any, turned: re.Pattern[str] | None) -> Candidate | None:
    """A matrix that rules may be about."""
    shape = tensor.get_shape()
    if not name.endswith(_SUFFIX) or len(shape) != 2 or tensor.get_dtype() not in _DTYPES:
        return None
    layer = name.removesuffix(_SUFFIX)
    rows, cols = reversed(shape) if _is_transposed(layer, turned) else shape
    return Candidate(layer, int(rows), int(cols))


def _line_of(
    layer: Candidate | None, rules: Sequence[Rule], dtype: str, device: str, batch: int
) -> tuple[LayerReport | None, Rule | None]:
    if layer is None:
        return None, None
    whole = layer.rows * layer.cols
    line = LayerReport(layer.name, layer.rows, layer.cols, parameters=whole)
    rule = choose(rules, layer)
    last = layer.name.split(".")[-1]
    if rule is None or rule.chain is None:
        line.reason = "no rule" if rule is None else f"skipped by {rule}"
    elif rule.name is None and (_is_head(layer.name) or "embed" in last or last in _EMBEDDINGS):
        line.reason = "an embedding or a head: they stay dense unless named exactly"
    else:
        like = torch.empty(0, dtype=_DTYPES[dtype], device=torch.device(device))
        if not set_chain(line, rule, lambda chain: _predicted(chain, like, batch, False)):
            return line, None
        line.predicted_s = _predicted(line.chain, like, batch, False)
        line.dense_predicted_s = _predicted(None, like, batch, False, (layer.rows, layer.cols))
        return line, rule
    return line, None


def _factors(
    matrix: Tensor, chain: Chain, values: str, polish: int, device: str, line: LayerReport
) -> list[Tensor]:
    if values == "fresh":
        fresh = KSLinear(chain.cols, chain.rows, chain, bias=False)
        return [factor.detach() for factor in fresh.factors]
    try:
        factors, line.error, line.lower_bound = fit(matrix.to(device), chain, None, polish)
    except ValueError as error:
        raise ValueError(f"{line.name}{_SUFFIX}: {error}") from None
    return [factor.cpu() for factor in factors]


def _metadata(
    old: dict[str, str], report: ConversionReport, turned: re.Pattern[str] | None
) -> dict[str, str]:
    chains = report.chains
    was_turned = [name for name in chains if _is_transposed(name, turned)]
    with contextlib.suppress(ValueError, AttributeError):
        chains = {**json.loads(old.get(FORMAT, "{}")).get("chains", {}), **chains}
    header = {"version": FORMAT_VERSION, "order": ORDER, "chains": chains, "transposed": was_turned}
    return {**old, FORMAT: json.dumps(header)}
