"""NumPy: products and gradients."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kronsparse import _native
from kronsparse.chains import Pattern, checked
from kronsparse.checks import LAYOUTS, check_option

Array = NDArray[Any]

ACTIVATIONS = ("none", "relu", "gelu", "gelu_tanh", "silu")
OPERATIONS = ("multiply", "transposed", "adjoint")
DTYPES = ("float16", "float32", "float64", "complex64", "complex128")


def multiply(
    x: ArrayLike,
    values: ArrayLike | Sequence[Array],
    bias: ArrayLike | None = None,
    activation: str | None = None,
    layout: str = "batch_first",
    operation: str = "multiply",
    device: str = "cpu",
) -> Array:
    """activation(K x + bias), or K^T x ("transposed"), or K^H x ("adjoint"), for values (a, b, c, d).

    A list of such arrays stands for the product of their matrices, left factor first, in one call.
    x is (..., features) in batch_first and (features, ...) in batch_last, and has the dtype of the values.
    Rows may lie apart. An array that one row stride does not describe, or of another byte order or alignment,
    is copied. On another device than "cpu" ("opencl:0", "cuda:0") the arrays are copied there, and the result
    back.

    >>> multiply(np.ones((5, 40)), np.ones((2, 3, 4, 5))).shape
    (5, 30)
    >>> multiply(np.ones((30, 7)), np.ones((2, 3, 4, 5)), layout="batch_last", operation="transposed").shape
    (40, 7)
    >>> multiply(np.ones((5, 8)), [np.ones((1, 3, 2, 2)), np.ones((2, 2, 4, 1))]).shape
    (5, 6)
    """
    check_option("layout", layout, LAYOUTS)
    check_option("activation", activation or "none", ACTIVATIONS)
    check_option("operation", operation, OPERATIONS)
    x, factors = _array("x", x), [np.ascontiguousarray(_array("values", one)) for one in _factors(values)]
    for one in factors:
        if x.dtype != one.dtype:
            raise ValueError(f"x: dtype {x.dtype} given, must be that of the values, {one.dtype}")
    chain = checked(Pattern.of(one.shape) for one in factors)
    features = chain[0].rows if operation == "multiply" else chain[-1].cols
    batch = _batch_shape(x, layout)
    rows = int(np.prod(batch, dtype=np.int64))
    y = np.empty((rows, features) if layout == "batch_first" else (features, rows), x.dtype)
    dense_bias = None if bias is None else np.ascontiguousarray(_array("bias", bias))
    options = (activation or "none", layout, operation, device)
    _native.multiply_into(y, _matrix(x, layout), factors, dense_bias, *options)
    return y.reshape((*batch, features) if layout == "batch_first" else (features, *batch))


def gradient(
    x: ArrayLike,
    g: ArrayLike,
    pattern: Iterable[SupportsIndex],
    layout: str = "batch_first",
    device: str = "cpu",
) -> Array:
    """The gradient with respect to values (a, b, c, d), where g is the gradient with respect to K x.

    Devices are those of `multiply`.

    >>> gradient(np.ones((5, 40)), np.ones((5, 30)), (2, 3, 4, 5))[0, 0, 0, 0]
    np.float64(5.0)
    """
    check_option("layout", layout, LAYOUTS)
    x, g = _array("x", x), _array("g", g)
    grad_values = np.empty(Pattern.of(pattern), x.dtype)
    _native.gradient_into(grad_values, _matrix(x, layout), _matrix(g, layout), layout, device)
    return grad_values


def _factors(values: ArrayLike | Sequence[Array]) -> list[ArrayLike]:
    """Arrays of a list; what is no list of arrays with four dimensions is one array."""
    if isinstance(values, list | tuple) and values:
        arrays = [one for one in values if isinstance(one, np.ndarray) and one.ndim == 4]
        if len(arrays) == len(values):
            return list(arrays)
    return [cast(ArrayLike, values)]


def _array(argument: str, given: ArrayLike) -> Array:
    """An array as the library reads it but for its strides: of this machine's byte order, aligned."""
    array = np.asarray(given)
    if array.dtype.name not in DTYPES:
        raise ValueError(f"{argument}: dtype {array.dtype} given, must be one of {', '.join(DTYPES)}")
    if array.ndim == 0:
        raise ValueError(f"{argument}: a scalar given, must have at least one dimension")
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    return native if native.flags.aligned else native.copy()


def _batch_shape(x: Array, layout: str) -> tuple[int, ...]:
    return x.shape[:-1] if layout == "batch_first" else x.shape[1:]


def _matrix(x: Array, layout: str) -> Array:
    """x with its batch dimensions as one."""
    if layout == "batch_first":
        matrix = x.reshape(-1, x.shape[-1]) if x.size else x.reshape(0, x.shape[-1])
    else:
        matrix = x.reshape(x.shape[0], -1) if x.size else x.reshape(x.shape[0], 0)
    step = matrix.itemsize
    rows_are_dense = matrix.shape[1] <= 1 or matrix.strides[1] == step
    # Complex numbers are aligned as their parts: in a record, rows may lie half an element off.
    row_step = matrix.strides[0]
    rows_are_apart = matrix.shape[0] <= 1 or (row_step >= matrix.shape[1] * step and row_step % step == 0)
    return matrix if rows_are_dense and rows_are_apart else np.ascontiguousarray(matrix)
