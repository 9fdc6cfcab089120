"""Operators from lazylinop and to it: its values, which are the same arrays, and its files."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import tempfile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kronsparse.operators import KSOperator
from kronsparse.transforms import Transform

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


def to_lazylinop(op: KSOperator) -> Any:
    """lazylinop's operator with the same factors; needs lazylinop."""
    butterfly = importlib.import_module("lazylinop.butterfly")
    return butterfly.ksm(list(op.factors))


def load_lazylinop(path: str | os.PathLike[str]) -> KSOperator | Transform:
    """The operator in a file that lazylinop's `save` has written.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_lazylinop(KSOperator([np.ones((1, 2, 2, 1))]), folder + "/ones.json")
    ...     load_lazylinop(folder + "/ones.json")
    KSOperator(1x2x2x1, float64)
    """
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
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
            factors.append(values.astype(one["dtype"]))
        return _operator(factors, bool(data["bitrev_perm"]))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"path: {os.fspath(path)} is no file of lazylinop: {error}") from None


def save_lazylinop(op: KSOperator, path: str | os.PathLike[str]) -> None:
    """Writes a file that lazylinop's `load` reads; it wants a name that ends with .json. The file is whole or
    not there: it gets its name when all is written."""
    path = os.fspath(path)
    if not path.endswith(".json"):
        raise ValueError(f"path: {path!r} given, must end with .json, or lazylinop does not find it")
    data: dict[str, Any] = {}
    for index, values in enumerate(op.factors):
        one = {"package": "numpy", "device": "cpu", "ks_values_real": values.real.tolist()}
        if np.iscomplexobj(values):
            one["ks_values_imag"] = values.imag.tolist()
        data[f"factor{index}"] = {**one, "dtype": str(values.dtype)}
    data |= {"params": None, "backend": "xp", "bitrev_perm": False}
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", dir=os.path.dirname(path) or ".", delete=False
    ) as file:
        try:
            json.dump(data, file)
            file.close()
            os.replace(file.name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(file.name)
            raise


def _operator(factors: list[Array], reverses_bits: bool) -> KSOperator | Transform:
    op = KSOperator(factors)
    if not reverses_bits:
        return op
    bits = op.shape[1].bit_length() - 1
    if op.shape[1] != 1 << bits:
        raise ValueError(f"bitrev_perm: given for {op.shape[1]} inputs, must be a power of two of them")
    order = np.zeros(1, np.intp)
    for _ in range(bits):
        order = np.concatenate([2 * order, 2 * order + 1])
    return Transform(factors, order)
