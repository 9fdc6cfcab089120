"""NumPy: products, gradients, and a linear operator for a chain of factors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex, cast, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kronsparse import _native
from kronsparse.chains import Chain, Pattern, chain_text, checked
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
    Rows may lie apart; what no stride describes, or is of another byte order or alignment, is copied.
    On another device than "cpu" ("opencl:0", "cuda:0") the arrays are copied there, and the result back.

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
    """The gradient with respect to values (a, b, c, d), g being that with respect to K x; devices as above.

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


class KSOperator:
    """The product of Kronecker-sparse factors (a, b, c, d), left factor first, as a linear operator.

    It has what SciPy's LinearOperator has: `scipy.sparse.linalg.aslinearoperator(op)` takes it. Products have
    the dtype that NumPy's would have; that of two operators is an operator. Factors of integers or booleans
    become float64: there are no kernels for them. Products are computed on `device`, "cpu" or as "opencl:0".

    >>> op = KSOperator([np.ones((1, 3, 2, 2)), np.ones((2, 2, 4, 1))])
    >>> op.shape
    (6, 8)
    >>> op @ np.ones(8)
    array([8., 8., 8., 8., 8., 8.])
    >>> (op.T @ np.ones((6, 3))).shape
    (8, 3)
    >>> (np.ones((3, 6)) @ op).shape
    (3, 8)
    >>> op @ op.T
    KSOperator(1x3x2x2*2x2x4x1*2x4x2x1*1x2x3x2, float64)
    """

    __array_ufunc__ = None  # has NumPy leave array @ operator to us

    def __init__(self, factors: Sequence[Array], device: str = "cpu") -> None:
        self.device = device
        self.factors = [np.ascontiguousarray(values) for values in factors]
        self.chain: Chain = checked(Pattern.of(values.shape) for values in self.factors)
        self.shape = (self.chain[0].rows, self.chain[-1].cols)
        dtype = np.result_type(*self.factors)
        self.dtype = np.dtype(np.float64) if dtype.kind in "biu" else dtype
        self.factors = [values.astype(self.dtype, copy=False) for values in self.factors]

    def matvec(self, x: ArrayLike) -> Array:
        """W x, for a vector or a matrix of one column."""
        return self._product(self._vector(x, self.shape[1]))

    def matmat(self, x: ArrayLike) -> Array:
        """W x, for a matrix with a vector in each column."""
        return self._product(self._columns(x))

    def rmatvec(self, x: ArrayLike) -> Array:
        """W^H x, for a vector."""
        return self._product(self._vector(x, self.shape[0]), "adjoint")

    def rmatmat(self, x: ArrayLike) -> Array:
        """W^H x, for a matrix with a vector in each column."""
        return self._product(self._columns(x), "adjoint")

    @staticmethod
    def _vector(x: ArrayLike, size: int) -> Array:
        x = np.asarray(x)
        if x.shape not in ((size,), (size, 1)):
            raise ValueError(f"x: sizes {x.shape} given, must be ({size},) or ({size}, 1)")
        return x

    @staticmethod
    def _columns(x: ArrayLike) -> Array:
        x = np.asarray(x)
        if x.ndim != 2:
            raise ValueError(f"x: {x.ndim} dimensions given, must be 2")
        return x

    @overload
    def __matmul__(self, x: KSOperator) -> KSOperator: ...
    @overload
    def __matmul__(self, x: ArrayLike) -> Array: ...
    def __matmul__(self, x: ArrayLike | KSOperator) -> Array | KSOperator:
        """W x, for x (in_features, ...), or the operator W X."""
        if isinstance(x, KSOperator):
            return KSOperator([*self.factors, *x.factors], self.device)
        return self._product(np.asarray(x))

    def __rmatmul__(self, x: ArrayLike) -> Array:
        """x W, for x (..., out_features)."""
        x = np.asarray(x)
        if x.ndim == 0 or x.shape[-1] != self.shape[0]:
            raise ValueError(f"x: sizes {x.shape} given, the last must be {self.shape[0]}")
        return self._apply(x, "transposed", "batch_first")

    def _product(self, x: Array, operation: str = "multiply") -> Array:
        size = self.shape[1] if operation == "multiply" else self.shape[0]
        if x.ndim == 0 or x.shape[0] != size:
            raise ValueError(f"x: sizes {x.shape} given, the first must be {size}")
        return self._apply(x, operation, "batch_last")

    def _apply(self, x: Array, operation: str, layout: str) -> Array:
        """All factors in one call of the library."""
        if np.iscomplexobj(x) and not np.iscomplexobj(self.factors[0]):
            parts = [self._apply(part, operation, layout) for part in (x.real, x.imag)]
            return np.asarray(parts[0] + 1j * parts[1])
        dtype = np.result_type(self.dtype, x.dtype)
        factors = [values.astype(dtype, copy=False) for values in self.factors]
        given = x.astype(dtype, copy=False)
        return multiply(given, factors, layout=layout, operation=operation, device=self.device)

    @property
    def T(self) -> KSOperator:  # noqa: N802 (NumPy's name)
        """The transposed operator."""
        return KSOperator([values.transpose(0, 2, 1, 3) for values in reversed(self.factors)], self.device)

    @property
    def H(self) -> KSOperator:  # noqa: N802 (SciPy's name)
        """The adjoint operator."""
        factors = [values.conj().transpose(0, 2, 1, 3) for values in reversed(self.factors)]
        return KSOperator(factors, self.device)

    def to_dense(self) -> Array:
        """The matrix.

        >>> KSOperator([np.full((2, 1, 1, 1), 3.0)]).to_dense()
        array([[3., 0.],
               [0., 3.]])
        """
        return self @ np.eye(self.shape[1], dtype=self.dtype)

    def __repr__(self) -> str:
        return f"KSOperator({chain_text(self.chain)}, {self.dtype})"
