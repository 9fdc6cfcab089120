"""Checkpoints converted, tensor by tensor: safetensors files whose dense matrices become factors."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import torch
from torch import Tensor, nn

from kronsparse.chains import Chain
from kronsparse.torch.conversion import Progress, _is_head, _predicted, convert, set_chain
from kronsparse.torch.conversion_report import ConversionReport, LayerReport
from kronsparse.torch.dense_layers import fit
from kronsparse.torch.files import FORMAT, FORMAT_VERSION, ORDER
from kronsparse.torch.linear import KSLinear
from kronsparse.torch.rules import Candidate, Rule, Rules, as_rules, check_all_match, choose
from kronsparse.whole_file import whole_file

_DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_EMBEDDINGS = ("wte", "wpe", "shared")
_SUFFIX = ".weight"


class _Entry(NamedTuple):
    """A tensor of the file that is written."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    source: str
    """the tensor of the file that is read, which it is or is made of"""
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

    One matrix is in memory at a time. The target appears when it is whole, or not at all. Embeddings and
    heads stay dense unless they are named exactly. `transposed` is a regular expression of names whose
    matrices are in_features x out_features, as those of GPT-2 are. An error of more than a rule's `max_error`
    ends it, since names and sizes come first in such a file. The header says the chains; `load_converted`
    reads the file into a model.

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
    given = as_rules(rules)
    with _opened(source) as file:
        names = list(file.keys())
        slices = {name: file.get_slice(name) for name in names}
        layers = {}
        for name in names:
            layer = _candidate(name, slices[name], transposed)
            if layer is not None:
                layers[name] = layer
        if transposed is not None and not any(
            re.fullmatch(transposed, name.removesuffix(_SUFFIX)) for name in layers
        ):
            raise ValueError(
                f"transposed: {transposed!r} given, must match a matrix of {os.fspath(source)!r}"
            )
        check_all_match(given, list(layers.values()))
        report = ConversionReport(batch=batch, device=device)
        entries: list[_Entry] = []
        ways: dict[str, tuple[LayerReport, Rule]] = {}
        for name in names:
            dtype, shape = slices[name].get_dtype(), tuple(slices[name].get_shape())
            line, rule = _line_of(layers.get(name), given, dtype, device, batch)
            if line is not None:
                report.layers.append(line)
            if line is None or rule is None or line.chain is None:
                entries.append(_Entry(name, dtype, shape, name))
                continue
            ways[name] = line, rule
            stem = name.removesuffix("weight")
            entries += [
                _Entry(f"{stem}factor{index}", dtype, tuple(pattern), name, line.chain, index)
                for index, pattern in enumerate(line.chain)
            ]
        if not ways:
            reasons = "; ".join(sorted({line.reason for line in report.layers}))
            raise ValueError(f"rules: none converts a matrix of {os.fspath(source)!r}: {reasons}")
        taken = [entry.name for entry in entries]
        if len(set(taken)) < len(taken):
            raise ValueError(f"source: {os.fspath(source)!r} has factors under the names of new ones")
        metadata = _metadata(file.metadata() or {}, report, layers, transposed)

        done = 0
        made: list[Tensor] = []

        def tensor_of(entry: _Entry) -> Tensor:
            nonlocal made, done
            if entry.chain is None:
                return file.get_tensor(entry.source)  # type: ignore[no-any-return]
            if entry.factor == 0:
                line, rule = ways[entry.source]
                if progress is not None:
                    progress(done, len(ways), line.name)
                matrix = file.get_tensor(entry.source)
                if _is_transposed(line.name, transposed):
                    matrix = matrix.t()
                made = _factors(matrix, entry.chain, rule.values or values, polish, device, line)
                done += 1
                if rule.max_error is not None and line.error > rule.max_error:
                    raise ValueError(
                        f"rules: {rule} allows an error of {rule.max_error:g}, but {line.name!r} has "
                        f"{line.error:.3g}; leave it out"
                    )
            return made[entry.factor].to(_DTYPES[entry.dtype])

        _write(Path(target), entries, metadata, tensor_of)
    if progress is not None:
        progress(len(ways), len(ways), "")
    return report


def load_converted(model: nn.Module, path: str | os.PathLike[str]) -> nn.Module:
    """Loads a file of `convert_file` into a dense model, whose layers become the chains that the file says,
    in place. Returns the model."""
    from safetensors.torch import load_model

    with _opened(path) as file:
        header = (file.metadata() or {}).get(FORMAT)
    try:
        chains = json.loads(header or "{}").get("chains")
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
    load_model(model, path)
    return model


def _submodule(model: nn.Module, name: str) -> nn.Module | None:
    try:
        return model.get_submodule(name)
    except AttributeError:
        return None


@contextlib.contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[Any]:
    from safetensors import SafetensorError, safe_open

    text = os.fspath(path)
    with open(text, "rb") as file:  # says what is wrong with a path
        begin = file.read(4)
    try:
        opened = safe_open(text, "pt")
    except (SafetensorError, OSError) as error:
        is_pickled = begin[:2] in (b"PK", b"\x80\x02")
        hint = (
            "; it looks like one of torch.save, which safetensors.torch.save_file turns into one" * is_pickled
        )
        raise ValueError(f"source: {text!r} is no safetensors file, or is damaged: {error}{hint}") from None
    with opened as found:
        yield found


def _is_transposed(name: str, pattern: str | None) -> bool:
    return pattern is not None and re.fullmatch(pattern, name) is not None


def _candidate(name: str, tensor: Any, transposed: str | None) -> Candidate | None:
    """A matrix that rules may be about."""
    shape = tensor.get_shape()
    if not name.endswith(_SUFFIX) or len(shape) != 2 or tensor.get_dtype() not in _DTYPES:
        return None
    layer = name.removesuffix(_SUFFIX)
    rows, cols = reversed(shape) if _is_transposed(layer, transposed) else shape
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
    old: dict[str, str], report: ConversionReport, layers: dict[str, Candidate], transposed: str | None
) -> dict[str, str]:
    chains = report.chains
    turned = [name for name in chains if _is_transposed(name, transposed)]
    with contextlib.suppress(ValueError, AttributeError):
        chains = {**json.loads(old.get(FORMAT, "{}")).get("chains", {}), **chains}
    header = {"version": FORMAT_VERSION, "order": ORDER, "chains": chains, "transposed": turned}
    return {**old, FORMAT: json.dumps(header)}


def _write(
    target: Path, entries: Sequence[_Entry], metadata: dict[str, str], tensor_of: Callable[[_Entry], Tensor]
) -> None:
    """The file beside its place, and put there when it is whole."""
    header: dict[str, Any] = {"__metadata__": metadata}
    at = 0
    for entry in entries:
        size = math.prod(entry.shape) * _bits(entry.dtype) // 8
        header[entry.name] = {"dtype": entry.dtype, "shape": entry.shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with whole_file(target, "wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for entry in entries:
            _write_tensor(file, entry, tensor_of(entry))


def _write_tensor(file: IO[bytes], entry: _Entry, tensor: Tensor) -> None:
    data = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    if data.nbytes != math.prod(entry.shape) * _bits(entry.dtype) // 8:
        raise ValueError(f"{entry.name}: {data.nbytes} bytes read, which is not what its header says")
    file.write(data.data)


def _bits(dtype: str) -> int:
    """As many as the name of a dtype says: F32, BF16, F8_E4M3, BOOL.

    >>> [_bits(name) for name in ("F64", "BF16", "F8_E4M3", "BOOL", "C64")]
    [64, 16, 8, 8, 64]
    """
    if dtype == "BOOL":
        return 8
    return int("".join(letter for letter in dtype.split("_")[0] if letter.isdigit()))
