"""The base of operators on arrays: SciPy's LinearOperator, with products that mean what NumPy's do.

SciPy is not needed: without it, operators are no LinearOperators, and all else works.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

try:
    from scipy.sparse import issparse  # type: ignore[import-untyped]
    from scipy.sparse.linalg import LinearOperator  # type: ignore[import-untyped]
except ImportError:

    class LinearOperator:  # type: ignore[no-redef]
        """Stands in for SciPy's."""

        def dot(self, x: object) -> object:
            raise TypeError("operators: products and sums of these need SciPy, which is not installed")

        _rdot = __rmul__ = __add__ = dot

    def issparse(x: object) -> bool:
        return False


Array = NDArray[Any]


class ArrayOperator(LinearOperator):  # type: ignore[misc]
    """A matrix that is known by its products. A subclass has `_apply`, `_transpose` and `_adjoint`."""

    __array_ufunc__ = None  # has NumPy leave array @ operator to us
    ndim = 2

    def __init__(self, shape: tuple[int, int], dtype: np.dtype[Any]) -> None:
        self.shape = shape
        self.dtype = dtype

    def _apply(self, x: Array, operation: str, layout: str) -> Array:
        """The product, its transpose or its adjoint with vectors along the last dimension of x (batch_first)
        or the first (batch_last)."""
        raise NotImplementedError

    def _transpose(self) -> ArrayOperator:
        raise NotImplementedError

    def _adjoint(self) -> ArrayOperator:
        raise NotImplementedError

    @property
    def T(self) -> Any:  # noqa: N802 (NumPy's name)
        """The transposed operator."""
        return self._transpose()

    @property
    def H(self) -> Any:  # noqa: N802 (SciPy's name)
        """The adjoint operator."""
        return self._adjoint()

    def transpose(self) -> Any:
        return self._transpose()

    def adjoint(self) -> Any:
        return self._adjoint()

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

    # SciPy looks for these.
    _matvec, _matmat, _rmatvec, _rmatmat = matvec, matmat, rmatvec, rmatmat

    @staticmethod
    def _vector(x: ArrayLike, size: int) -> Array:
        x = _as_array(x)
        if x.shape not in ((size,), (size, 1)):
            raise ValueError(f"x: sizes {x.shape} given, must be ({size},) or ({size}, 1)")
        return x

    @staticmethod
    def _columns(x: ArrayLike) -> Array:
        x = _as_array(x)
        if x.ndim != 2:
            raise ValueError(f"x: {x.ndim} dimensions given, must be 2")
        return x

    def __matmul__(self, x: Any) -> Any:
        """W x as NumPy has it: a vector, a matrix of columns, or matrices in the last two dimensions; an
        operator gives an operator."""
        if isinstance(x, LinearOperator):
            return super().dot(x)
        if is_foreign(x):
            return self._product_elsewhere(x)
        return self._product(_as_array(x))

    def __rmatmul__(self, x: Any) -> Any:
        """x W, for x (..., rows)."""
        if isinstance(x, LinearOperator):
            return super()._rdot(x)
        x = _as_array(x)
        if x.ndim == 0 or x.shape[-1] != self.shape[0]:
            raise ValueError(f"x: sizes {x.shape} given, the last must be {self.shape[0]}")
        return self._apply(x, "transposed", "batch_first")

    def dot(self, x: Any) -> Any:
        """W x, or W times a number."""
        return self * x

    def __call__(self, x: Any) -> Any:
        return self @ x

    def __mul__(self, x: Any) -> Any:
        return self._scaled(x) if np.isscalar(x) else self @ x

    def __rmul__(self, x: Any) -> Any:
        return self._scaled(x) if np.isscalar(x) else x @ self

    def __truediv__(self, x: Any) -> Any:
        if not np.isscalar(x):
            raise ValueError(f"x: {type(x).__name__} given, must be a number to divide by")
        return self._scaled(1 / x)  # type: ignore[operator]

    def __neg__(self) -> Any:
        return self._scaled(-1)

    def __sub__(self, x: Any) -> Any:
        return self + (-x)

    def _scaled(self, number: Any) -> Any:
        return super().__rmul__(number)

    def _product(self, x: Array, operation: str = "multiply") -> Array:
        size = self.shape[1] if operation == "multiply" else self.shape[0]
        axis = 0 if x.ndim <= 2 else -2
        if x.ndim == 0 or x.shape[axis] != size:
            place = "first" if x.ndim <= 2 else "last but one"
            raise ValueError(f"x: sizes {x.shape} given, the {place} must be {size}")
        if x.ndim <= 2:
            return self._apply(x, operation, "batch_last")
        y = self._apply(np.swapaxes(x, -1, -2), operation, "batch_first")
        return np.swapaxes(y, -1, -2)

    def _product_elsewhere(self, x: Any) -> Any:
        """Arrays of others through DLPack, where they are and as what they are: on the CPU, or on a GPU,
        which needs torch."""
        kind, _ = x.__dlpack_device__()
        home = importlib.import_module(type(x).__module__.partition(".")[0])
        if kind in (1, 3):  # host memory
            return home.from_dlpack(np.ascontiguousarray(self._product(np.from_dlpack(x))))
        torch = importlib.import_module("torch")
        y = self._apply_tensor(torch.from_dlpack(x))
        return y if home is torch else home.from_dlpack(y)

    def _apply_tensor(self, x: Any) -> Any:
        raise NotImplementedError(f"x: on {x.device} given, must be in host memory for {type(self).__name__}")

    def to_dense(self) -> Array:
        """The matrix."""
        return self._product(np.eye(self.shape[1], dtype=self.dtype))


def is_foreign(x: Any) -> bool:
    """Whether x is another library's array."""
    return hasattr(x, "__dlpack__") and not isinstance(x, np.ndarray | np.generic)


def _as_array(x: Any) -> Array:
    if issparse(x):
        return np.asarray(x.toarray())
    if np.isscalar(x):
        raise ValueError(f"x: {x!r} given, must be an array; * multiplies by a number")
    array = np.from_dlpack(x) if is_foreign(x) else np.asarray(x)
    if array.dtype.kind not in "biufc":
        raise ValueError(f"x: dtype {array.dtype} given, must be one of numbers")
    return array
