"""Operators from lazylinop and to it: its values, which are the same arrays, and its files."""

from __future__ import annotations

import importlib
import json
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kronsparse.operators import KSOperator, in_dtype
from kronsparse.transforms import Transform
from kronsparse.whole_file import whole_file

Array = NDArray[Any]


def from_lazylinop(op: Any) -> KSOperator | Transform:
    """The operator of lazylinop's `ksm`, `ksd` or `dft`: one with the same factors, and, where there is one,
    the permutation of its inputs.

    >>> class Ksm:
    ...     ks_values, bitrev_perm = [np.ones((1, 2, 2, 1))], False
    >>> from_lazylinop(Ksm())
    KSOperator(1x2x2x1, float64)
    """
    if not hasattr(op, "ks_values"):
        raise ValueError(f"op: {type(op).__name__} given, must be an operator of lazylinop with ks_values")
    values = op.ks_values if isinstance(op.ks_values, list | tuple) else [op.ks_values]
    return _operator([np.asarray(one) for one in values], bool(getattr(op, "bitrev_perm", False)))


def to_lazylinop(op: KSOperator | Transform) -> Any:
    """lazylinop's operator with the same factors; needs lazylinop. A transform's inputs must be in order, or
    in that of reversed bits, which lazylinop has, too."""
    reverses_bits = _reverses_bits(op)
    butterfly = importlib.import_module("lazylinop.butterfly")
    return butterfly.KsmLazyLinOp(list(op.factors), "xp", None, bitrev_perm=reverses_bits)


def load_lazylinop(path: str | os.PathLike[str]) -> KSOperator | Transform:
    """The operator in a file that lazylinop's `save` has written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_lazylinop(KSOperator([np.ones((1, 2, 2, 1))]), folder + "/ones.json")
    ...     load_lazylinop(folder + "/ones.json")
    KSOperator(1x2x2x1, float64)
    """
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except (json.JSONDecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(
            f"path: {os.fspath(path)} is no file of lazylinop, or not all of one: {error}"
        ) from None
    factors = []
    try:
        for index in range(sum(key.startswith("factor") for key in data)):
            one = data[f"factor{index}"]
            values = np.asarray(one["ks_values_real"], np.float64)
            if "ks_values_imag" in one:
                values = values + 1j * np.asarray(one["ks_values_imag"], np.float64)
            factors.extend(in_dtype([values], one["dtype"]))
        return _operator(factors, bool(data["bitrev_perm"]))
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise ValueError(f"path: {os.fspath(path)} is no file of lazylinop: {error}") from None


def save_lazylinop(op: KSOperator | Transform, path: str | os.PathLike[str]) -> None:
    """Writes a file that lazylinop's `load` reads; it wants a name that ends with .json. The file is whole or
    not there: it gets its name when all is written."""
    path = os.fspath(path)
    if not path.endswith(".json"):
        raise ValueError(f"path: {path!r} given, must end with .json, or lazylinop does not find it")
    data: dict[str, Any] = {"params": None, "backend": "xp", "bitrev_perm": _reverses_bits(op)}
    for index, values in enumerate(op.factors):
        one = {"package": "numpy", "device": "cpu", "ks_values_real": values.real.tolist()}
        if np.iscomplexobj(values):
            one["ks_values_imag"] = values.imag.tolist()
        data[f"factor{index}"] = {**one, "dtype": str(values.dtype)}
    with whole_file(path) as file:
        json.dump(data, file)


def _operator(factors: list[Array], reverses_bits: bool) -> KSOperator | Transform:
    op = KSOperator(factors)
    return Transform(factors, _reversed_bits(op.shape[1])) if reverses_bits else op


def _reverses_bits(op: KSOperator | Transform) -> bool:
    """Whether inputs go through that permutation; others are an error, since lazylinop has none."""
    if isinstance(op, KSOperator):
        return False
    if not isinstance(op, Transform):
        raise ValueError(f"op: {type(op).__name__} given, must be a KSOperator or a Transform")
    rows, cols = op.operator.shape
    if op.shape == (rows, cols) and np.array_equal(op.outputs, np.arange(rows)):
        if np.array_equal(op.inputs, np.arange(cols)):
            return False
        if cols & (cols - 1) == 0 and np.array_equal(op.inputs, _reversed_bits(cols)):
            return True
    raise ValueError(
        f"op: {op} given, must have its outputs in order, and its inputs in order or in that of reversed "
        "bits; a Fourier transform has the latter where all its radices are 2"
    )


def _reversed_bits(size: int) -> NDArray[np.intp]:
    if size & (size - 1):
        raise ValueError(f"bitrev_perm: given for {size} inputs, must be a power of two of them")
    order = np.zeros(1, np.intp)
    while len(order) < size:
        order = np.concatenate([2 * order, 2 * order + 1])
    return order
