"""The base of operators on arrays: SciPy's LinearOperator, with products that mean what NumPy's do.

SciPy is not needed: without it, operators are no LinearOperators, and all else works.
"""

from __future__ import annotations

import importlib
import numbers
import sys
from collections.abc import Callable
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

# DLPack's kinds of devices: memory of the CPU, and that which CUDA and ROCm pin.
HOST_MEMORY = (1, 3, 11)
NUMBERS = "biufc"
"""kinds of dtypes"""


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
            return _elsewhere(x, self._product)
        return self._product(_as_array(x))

    def __rmatmul__(self, x: Any) -> Any:
        """x W, for x (..., rows)."""
        if isinstance(x, LinearOperator):
            return super()._rdot(x)
        if is_foreign(x):
            return _elsewhere(x, self._product_from_right)
        return self._product_from_right(_as_array(x))

    def dot(self, x: Any) -> Any:
        """W x, or W times a number."""
        return self * x

    def __call__(self, x: Any) -> Any:
        return self @ x

    def __mul__(self, x: Any) -> Any:
        return self._scaled(x) if _is_number(x) else self @ x

    def __rmul__(self, x: Any) -> Any:
        return self._scaled(x) if _is_number(x) else self.__rmatmul__(x)

    def __truediv__(self, x: Any) -> Any:
        if not _is_number(x):
            raise ValueError(f"x: {type(x).__name__} given, must be a number to divide by")
        return self._scaled(1 / x)

    def __neg__(self) -> Any:
        return self._scaled(-1)

    def __pos__(self) -> Any:
        return self

    def __add__(self, x: Any) -> Any:
        if _is_number(x) and x == 0:
            return self
        return super().__add__(_as_operator(x))

    def __radd__(self, x: Any) -> Any:
        """0 + operator, which `sum` begins with."""
        return self + x

    def __sub__(self, x: Any) -> Any:
        return self + (x if _is_number(x) else -_as_operator(x))

    def __rsub__(self, x: Any) -> Any:
        return -self + x

    def __array_function__(self, function: Any, types: Any, given: Any, options: Any) -> Any:
        """NumPy's functions. Some would take the operator for one object, and compute something else."""
        if function is np.dot and len(given) == 2 and not options:
            left, right = given
            return left.dot(right) if isinstance(left, ArrayOperator) else left @ right
        if function in _OF_ELEMENTS or function.__module__ == "numpy.linalg":
            name = f"{function.__module__}.{function.__name__}"
            raise TypeError(f"{name}: {type(self).__name__} given, must be an array; .to_dense() makes one")
        return function._implementation(*given, **options)

    def _scaled(self, number: Any) -> Any:
        return super().__rmul__(number)

    def _product(self, x: Array, operation: str = "multiply") -> Array:
        """The product with an array of NumPy, or in the same way with a tensor of torch."""
        size = self.shape[1] if operation == "multiply" else self.shape[0]
        axis = 0 if x.ndim <= 2 else -2
        if x.ndim == 0 or x.shape[axis] != size:
            place = "first" if x.ndim <= 2 else "last but one"
            raise ValueError(f"x: sizes {tuple(x.shape)} given, the {place} must be {size}")
        if x.ndim <= 2:
            return self._applied(x, operation, "batch_last")
        return self._applied(x.swapaxes(-1, -2), operation, "batch_first").swapaxes(-1, -2)

    def _product_from_right(self, x: Array) -> Array:
        if x.ndim == 0 or x.shape[-1] != self.shape[0]:
            raise ValueError(f"x: sizes {tuple(x.shape)} given, the last must be {self.shape[0]}")
        return self._applied(x, "transposed", "batch_first")

    def _applied(self, x: Array, operation: str, layout: str) -> Array:
        apply: Callable[..., Array] = self._apply if isinstance(x, np.ndarray) else self._apply_tensor
        return apply(x, operation, layout)

    def _apply_tensor(self, x: Any, operation: str, layout: str) -> Any:
        """The same as `_apply` for a tensor of torch, where it is."""
        raise NotImplementedError(f"x: on {x.device} given, must be in host memory for {type(self).__name__}")

    def to_dense(self) -> Array:
        """The matrix."""
        return self._product(np.eye(self.shape[1], dtype=self.dtype))


_OF_ELEMENTS = (
    *(np.block, np.column_stack, np.concatenate, np.dstack, np.hstack, np.stack, np.vstack),
    *(
        np.dot,
        np.einsum,
        np.inner,
        np.kron,
        np.outer,
        np.tensordot,
        np.vdot,
        np.diag,
        np.diagonal,
        np.trace,
        np.transpose,
    ),
)


def _as_operator(x: Any) -> Any:
    if not isinstance(x, LinearOperator):
        raise TypeError(
            f"x: {type(x).__name__} given, must be an operator; scipy.sparse.linalg.aslinearoperator makes "
            "one of a matrix, kronsparse.interchange.from_lazylinop one of lazylinop's"
        )
    return x


def is_foreign(x: Any) -> bool:
    """Whether x is another library's array."""
    return hasattr(x, "__dlpack__") and not isinstance(x, np.ndarray | np.generic)


def _elsewhere(x: Any, product: Callable[[Any], Any]) -> Any:
    """The product with another library's array, where that is and as what it is, through DLPack: by NumPy on
    the CPU, by torch on a GPU."""
    kind, _ = x.__dlpack_device__()
    if kind in HOST_MEMORY:
        return _like(x, np.ascontiguousarray(product(_from_host(x))))
    torch = importlib.import_module("torch")
    return _like(x, product(torch.from_dlpack(_resolved(x))))


def _resolved(x: Any) -> Any:
    """A tensor of torch without its marks that conjugate or negate what is read: DLPack has none."""
    return x.resolve_conj().resolve_neg() if hasattr(x, "resolve_conj") else x


def _from_host(x: Any) -> Array:
    x = _resolved(x)
    if str(getattr(x, "dtype", None)) == "torch.bfloat16":  # which NumPy lacks
        x = x.float()
    return np.from_dlpack(x)


def _like(x: Any, y: Any) -> Any:
    """y as an array of the library that x is one of; y itself where that takes none."""
    if hasattr(x, "__array_namespace__"):
        home = x.__array_namespace__()
    else:
        home = sys.modules.get(type(x).__module__.partition(".")[0])
    if home is sys.modules.get(type(y).__module__):
        return y
    return home.from_dlpack(y) if hasattr(home, "from_dlpack") else y


def _is_number(x: Any) -> bool:
    return isinstance(x, numbers.Number | np.bool_) or (
        isinstance(x, np.ndarray) and x.ndim == 0 and x.dtype.kind in NUMBERS
    )


def refuse_masked(argument: str, x: Any) -> None:
    """Masked elements would count as what lies under the mask."""
    if isinstance(x, np.ma.MaskedArray) and np.ma.is_masked(x):
        raise ValueError(f"{argument}: masked elements given, must have none; .filled(0) gives them a value")


def as_dense(x: Any) -> Array:
    """An array, also of one of SciPy's sparse ones."""
    return np.asarray(x.toarray() if issparse(x) else x)


def as_matrix(argument: str, x: Any) -> Array:
    """An array, also of an operator of ours, SciPy's or lazylinop's, or of another library's array in host
    memory, with its gradients left out."""
    if isinstance(x, ArrayOperator):
        return x.to_dense()
    if isinstance(x, LinearOperator):
        return np.asarray(x @ np.eye(x.shape[1]))
    if is_foreign(x):
        x = x.detach() if hasattr(x, "detach") else x
        if x.__dlpack_device__()[0] not in HOST_MEMORY:
            raise ValueError(
                f"{argument}: an array on a device given, must be in host memory; kronsparse.torch.factorize "
                "takes tensors where they are"
            )
        return _from_host(x)
    if hasattr(x, "toarray") and not hasattr(x, "__array__"):
        return np.asarray(x.toarray())
    return as_dense(x)


def _as_array(x: Any) -> Array:
    if np.isscalar(x):
        raise ValueError(f"x: {x!r} given, must be an array; * multiplies by a number")
    refuse_masked("x", x)
    array = _from_host(x) if is_foreign(x) else as_dense(x)
    if array.dtype == object and array.ndim == 0:
        raise TypeError(
            f"x: {type(x).__name__} given, must be an array or one of SciPy's operators; "
            "kronsparse.interchange.from_lazylinop makes one of lazylinop's"
        )
    if array.dtype.kind not in NUMBERS:
        raise ValueError(f"x: dtype {array.dtype} given, must be one of numbers")
    return array
