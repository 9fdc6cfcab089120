"""Factors in files: safetensors with a header that says in what order they are; and ksmm's layers."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence

from torch import Tensor

from kronsparse.chains import Pattern, chain_text, checked
from kronsparse.checks import LAYOUTS, check_option
from kronsparse.torch.linear import KSLinear

FORMAT = "kronsparse"
FORMAT_VERSION = 1
ORDER = "left factor first"


def save_factors(layer: KSLinear, path: str | os.PathLike[str]) -> None:
    """Writes a layer to a safetensors file: tensors factor0, factor1, ..., and bias if there is one.

    The header's `kronsparse` entry states the version of the format, the chain, its order (left factor
    first), the layout and the activation, so that a reader of another library needs no convention of ours.
    Factors that are computed (parametrized, pruned) are written as they are now, without how they came about.

    >>> import tempfile
    >>> import torch
    >>> layer = KSLinear(8, 8, "butterfly")
    >>> with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
    ...     save_factors(layer, file.name)
    ...     torch.equal(load_factors(file.name).factor2, layer.factor2)
    True
    """
    from safetensors.torch import save_file

    header = {
        "version": FORMAT_VERSION,
        "chain": chain_text(layer.chain),
        "order": ORDER,
        "layout": layer.layout,
        "activation": layer.activation,
    }
    named = {f"factor{index}": values for index, values in enumerate(layer.factors)}
    if layer.bias is not None:
        named["bias"] = layer.bias
    try:
        save_file(_apart(named), path, {FORMAT: json.dumps(header)})
    except KeyError:  # in its table of dtypes; before anything is written
        dtype = named["factor0"].dtype
        raise ValueError(
            f"layer: dtype {dtype} given, must be one that safetensors can hold; complex128 is none"
        ) from None


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Each as a file has it: without gaps, and in memory that no other uses, as tied parameters do."""
    found: dict[str, Tensor] = {}
    taken: set[int] = set()
    for name, tensor in tensors.items():
        dense = tensor.detach().resolve_conj().contiguous()
        address = dense.untyped_storage().data_ptr()
        found[name] = dense.clone() if address in taken else dense
        taken.add(address)
    return found


def load_factors(path: str | os.PathLike[str], device: str = "cpu", backend: str = "auto") -> KSLinear:
    """Reads what `save_factors` wrote. A ValueError says where a file contradicts itself."""
    from safetensors import safe_open

    with safe_open(path, "pt", device) as file:
        metadata = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no mapping)
    try:
        layer = _layer_of(metadata, tensors)
    except ValueError as error:
        raise ValueError(f"path: {os.fspath(path)!r} cannot be read: {error}") from None
    layer.backend = backend
    return layer


def _layer_of(metadata: Mapping[str, str], tensors: Mapping[str, Tensor]) -> KSLinear:
    if FORMAT not in metadata:
        raise ValueError(f"it has no {FORMAT!r} entry in its header: not written by us")
    header = json.loads(metadata[FORMAT])  # what it raises is a ValueError
    if not isinstance(header, dict):
        raise ValueError(f"header: {header!r} given, must be an object of JSON")
    version = header.get("version")
    if not isinstance(version, int) or not 1 <= version <= FORMAT_VERSION:
        raise ValueError(f"version: {version!r} given, must be a number up to {FORMAT_VERSION}")
    check_option("order", header.get("order"), (ORDER,))
    check_option("layout", header.get("layout"), LAYOUTS)
    factors = [tensors[name] for name in _factor_names(tensors)]
    chain = chain_text(checked(Pattern.of(values.shape) for values in factors))
    if header.get("chain") != chain:
        raise ValueError(f"chain: {header.get('chain')!r} given, must be that of the factors, {chain!r}")
    return KSLinear.from_factors(
        factors, tensors.get("bias"), header["layout"], activation=header.get("activation")
    )


def _factor_names(tensors: Mapping[str, Tensor]) -> list[str]:
    given = tensors.keys() - {"bias"}
    names = [f"factor{index}" for index in range(len(given))]
    if given != set(names):
        raise ValueError(
            f"tensors: {', '.join(sorted(tensors))} given, must be factor0, factor1, ... without a gap, and "
            "bias or not"
        )
    return names


def from_ksmm(
    state: Mapping[str, Tensor],
    patterns: Sequence[Sequence[int]],
    algo: str,
    bs_last: bool = False,
    backend: str = "auto",
) -> KSLinear:
    """A layer with the weights of ksmm's KSLinear: its state_dict(), patterns, algo and bs_last.

    ksmm lists patterns and factors right-most first, and stores each factor as its `algo` likes it; here they
    are left factor first, as (a, b, c, d).

    >>> import torch
    >>> state = {"factors.0": torch.ones(2 * 1, 2, 4), "factors.1": torch.ones(1 * 2, 3, 2)}
    >>> from_ksmm(state, [(2, 2, 4, 1), (1, 3, 2, 2)], algo="bmm")
    KSLinear(in_features=8, out_features=6, chain=1x3x2x2*2x2x4x1, bias=False)
    """
    check_option("algo", algo, ("einsum", "bmm", "kernel", "dense", "sparse", "bsr"))
    names = [f"factors.{index}" for index in range(len(patterns))]
    given = {name for name in state if name.startswith("factors.")}
    if given != set(names):
        raise ValueError(
            f"state: {', '.join(sorted(given)) or 'no factors'} given, must have one for each of the "
            f"{len(patterns)} patterns, {', '.join(names) or 'of which there must be one'}"
        )
    factors = [
        _values_of_ksmm(name, state[name].detach(), Pattern.of(pattern), algo)
        for name, pattern in zip(names, patterns, strict=True)
    ]
    bias = state.get("bias")
    layout = "batch_last" if bs_last else "batch_first"
    return KSLinear.from_factors(
        factors[::-1], None if bias is None else bias.detach().flatten(), layout, backend
    )


def _values_of_ksmm(name: str, factor: Tensor, pattern: Pattern, algo: str) -> Tensor:
    """(a, b, c, d) from what ksmm's layers of this algo store."""
    a, b, c, d = pattern
    shapes = {"einsum": (a, b, c, d), "bmm": (a * d, b, c), "kernel": (a * d * c, b)}
    shape = shapes.get(algo, (pattern.rows, pattern.cols))
    if tuple(factor.shape) != shape:
        raise ValueError(
            f"{name}: sizes {tuple(factor.shape)} given, must be those of {pattern} in algo {algo!r}, {shape}"
        )
    if algo == "einsum":
        return factor.reshape(a, b, c, d)
    if algo == "kernel":
        return factor.reshape(a, d, c, b).permute(0, 3, 2, 1)
    if algo == "bsr":  # the blocks on the diagonal of a matrix of a·d by a·d of them
        blocks = factor.to_dense().reshape(a * d, b, a * d, c).diagonal(dim1=0, dim2=2)  # b, c, a·d
        factor = blocks.permute(2, 0, 1)
    if algo in ("bmm", "bsr"):
        return factor.reshape(a, d, b, c).permute(0, 2, 3, 1)
    dense = factor.to_dense().reshape(a, b, d, a, c, d)
    return dense.diagonal(dim1=2, dim2=5).diagonal(dim1=0, dim2=2).permute(3, 0, 1, 2)
