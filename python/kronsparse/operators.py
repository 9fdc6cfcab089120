"""KSOperator: a chain of factors as a linear operator, with algebra that gives such operators again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from kronsparse import algebra
from kronsparse.chains import Chain, ChainLike, Pattern, as_chain
from kronsparse.checks import as_size, check_size
from kronsparse.linear_operator import ArrayOperator
from kronsparse.products import DTYPES, gradient, multiply

__all__ = ["KSOperator", "block_diag", "gradient", "hstack", "multiply", "vstack"]

Array = NDArray[Any]

_INTEGERS = "biu"
"""kinds of dtypes without kernels"""


class KSOperator(ArrayOperator):
    """The product of Kronecker-sparse factors (a, b, c, d), left factor first, as a linear operator.

    It is one of SciPy's LinearOperators, where SciPy is installed. Products have the dtype that NumPy's would
    have, and mean what NumPy's mean in any number of dimensions. Sums, products, multiples, powers,
    transposes, inverses, real and imaginary parts are operators with factors of their own. Factors of
    integers or booleans become float64: there are no kernels for them. Products of arrays are computed on
    `device`, "cpu" or such as "opencl:0".

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
    >>> (2 * op - op) @ np.ones(8)
    array([8., 8., 8., 8., 8., 8.])
    """

    def __init__(self, factors: Sequence[ArrayLike], device: str = "cpu") -> None:
        self.device = device
        arrays = [_factor(index, values) for index, values in enumerate(factors)]
        self.chain: Chain = Chain(Pattern.of(values.shape) for values in arrays)
        dtype = np.result_type(*arrays)
        super().__init__(self.chain.shape, np.dtype(np.float64) if dtype.kind in _INTEGERS else dtype)
        self.factors = [values.astype(self.dtype, copy=False) for values in arrays]

    def _apply(self, x: Array, operation: str, layout: str) -> Array:
        """All factors in one call of the library."""
        if np.iscomplexobj(x) and not np.iscomplexobj(self.factors[0]):
            parts = [self._apply(part, operation, layout) for part in (x.real, x.imag)]
            return np.asarray(parts[0] + 1j * parts[1])
        dtype = np.result_type(self.dtype, x.dtype)
        factors = [values.astype(dtype, copy=False) for values in self.factors]
        given = x.astype(dtype, copy=False)
        return multiply(given, factors, layout=layout, operation=operation, device=self.device)

    def _apply_tensor(self, x: Any, operation: str, layout: str) -> Any:
        import torch

        from kronsparse.torch import ks_linear

        name = str(x.dtype).removeprefix("torch.").replace("bfloat16", "float32")  # as on the CPU
        dtype = getattr(torch, np.result_type(self.dtype, np.dtype(name)).name)
        op = {"multiply": self, "transposed": self.T, "adjoint": self.H}[operation]
        # At every call: a copy that is kept would not follow factors that are written to.
        factors = [torch.tensor(one, dtype=dtype, device=x.device) for one in op.factors]
        return ks_linear(x.to(dtype), factors, layout=layout)

    def _with(self, factors: Sequence[Array]) -> KSOperator:
        """Other factors on the same device."""
        return KSOperator(factors, self.device)

    def __matmul__(self, x: Any) -> Any:
        if isinstance(x, KSOperator):
            return self._with([*self.factors, *x.factors])
        return super().__matmul__(x)

    def __add__(self, x: Any) -> Any:
        if isinstance(x, KSOperator):
            return _stacked(algebra.add, [self, x])
        return super().__add__(x)

    def _scaled(self, number: Any) -> KSOperator:
        return self._with(algebra.scale(self.factors, number))

    def __pow__(self, exponent: Any) -> KSOperator:
        """The operator times itself so many times; the identity for 0."""
        if isinstance(exponent, bool) or as_size(exponent) != exponent or exponent < 0:
            raise ValueError(f"exponent: {exponent!r} given, must be an integer of at least 0")
        if self.shape[0] != self.shape[1]:
            raise ValueError(f"operator: sizes {self.shape} given, must be square to have powers")
        if exponent == 0:
            return self._with([algebra.identity(self.shape[0]).astype(self.dtype)])
        return self._with([*self.factors] * int(exponent))

    def _transpose(self) -> KSOperator:
        return self._with(algebra.transpose(self.factors))

    def _adjoint(self) -> KSOperator:
        return self._with(algebra.transpose([values.conj() for values in self.factors]))

    def conj(self) -> KSOperator:
        """The operator of the conjugate matrix."""
        return self._with([values.conj() for values in self.factors])

    conjugate = conj

    def astype(self, dtype: DTypeLike) -> KSOperator:
        """The factors in another dtype; a complex operator has no real one."""
        return self._with(in_dtype(self.factors, dtype))

    @property
    def real(self) -> KSOperator:
        """The operator of the matrix' real part: itself where it is real, else with 2·L + 1 factors.

        >>> KSOperator([np.full((1, 1, 1, 2), 1j)]).real.to_dense()
        array([[0., 0.],
               [0., 0.]])
        """
        return self if self.dtype.kind != "c" else self._with(algebra.real_part(self.factors))

    @property
    def imag(self) -> KSOperator:
        """The operator of the matrix' imaginary part."""
        if self.dtype.kind != "c":
            return self._scaled(0)
        return self._with(algebra.imaginary_part(self.factors))

    def inverse(self) -> KSOperator:
        """The inverse, factor by factor; each must have square blocks that are not singular.

        >>> KSOperator([np.full((2, 1, 1, 1), 4.0)]).inverse().factors[0].ravel()
        array([0.25, 0.25])
        """
        return self._with(algebra.inverse(self.factors))

    def fuse(self, index: int) -> KSOperator:
        """The same operator with factors `index` and `index` + 1 made one; see `Chain.fuse`."""
        self.chain.fused_pattern(index)
        fused = algebra.fuse(self.factors[index], self.factors[index + 1])
        return self._with([*self.factors[:index], fused, *self.factors[index + 2 :]])

    def fused_as(self, chain: ChainLike) -> KSOperator:
        """The same operator with neighbours fused until it has the given chain: `Chain.planned` returns one.

        >>> op = KSOperator([np.ones((1, 2, 2, 2)), np.ones((2, 2, 2, 1))])
        >>> op.fused_as("1x4x4x1")
        KSOperator(1x4x4x1, float64)
        """
        wanted = as_chain(chain, *self.shape)
        op, index = self, 0
        while index < len(wanted):
            if index < len(op.chain) and op.chain[index] == wanted[index]:
                index += 1
            elif index + 1 < len(op.chain):
                op = op.fuse(index)
            else:
                break
        if op.chain != wanted:
            raise ValueError(f"chain: {wanted} given, must be {self.chain} with neighbours fused")
        return op

    def cropped(self, rows: int, cols: int) -> Any:
        """The upper left part of the matrix, which undoes padding.

        >>> KSOperator([np.ones((1, 4, 4, 1))]).cropped(3, 2).to_dense().shape
        (3, 2)
        """
        from kronsparse.transforms import Transform

        check_size("rows", rows)
        check_size("cols", cols)
        if rows > self.shape[0] or cols > self.shape[1]:
            raise ValueError(f"rows, cols: {rows}, {cols} given, must be within {self.shape}")
        # Columns that are left out become 0, so that it does not matter what they are multiplied by.
        inputs = np.minimum(np.arange(self.shape[1]), cols - 1)
        a, _, c, d = self.chain[-1]
        last = self.factors[-1] * (np.arange(self.shape[1]) < cols).reshape(a, 1, c, d)
        factors = [*self.factors[:-1], last.astype(self.dtype)]
        return Transform(factors, inputs, np.arange(rows), cols, self.device)

    def to_dense(self) -> Array:
        """The matrix.

        >>> KSOperator([np.full((2, 1, 1, 1), 3.0)]).to_dense()
        array([[3., 0.],
               [0., 3.]])
        """
        return super().to_dense()

    def __repr__(self) -> str:
        return f"KSOperator({self.chain}, {self.dtype})"


def _factor(index: int, values: ArrayLike) -> Array:
    array = np.ascontiguousarray(values)
    if array.dtype.kind not in _INTEGERS and array.dtype.name not in DTYPES:
        raise ValueError(f"factors[{index}]: dtype {array.dtype} given, must be one of {', '.join(DTYPES)}")
    return array


def in_dtype(factors: Sequence[Array], dtype: DTypeLike) -> list[Array]:
    """Factors in another dtype, from real to complex but not back."""
    wanted = np.dtype(dtype)
    if wanted.name not in DTYPES:
        raise ValueError(f"dtype: {wanted} given, must be one of {', '.join(DTYPES)}")
    if wanted.kind != "c" and np.iscomplexobj(factors[0]):
        raise ValueError(f"dtype: {wanted} given, must be complex; .real is the real part")
    return [values.astype(wanted) for values in factors]


def hstack(operators: Sequence[KSOperator]) -> KSOperator:
    """Operators of one size side by side.

    >>> hstack([KSOperator([np.ones((1, 3, 2, 1))])] * 2).shape
    (3, 4)
    """
    return _stacked(algebra.hstack, operators)


def vstack(operators: Sequence[KSOperator]) -> KSOperator:
    """Operators of one size one below the other.

    >>> vstack([KSOperator([np.ones((1, 3, 2, 1))])] * 2).shape
    (6, 2)
    """
    return _stacked(algebra.vstack, operators)


def block_diag(operators: Sequence[KSOperator]) -> KSOperator:
    """Operators of one size along a diagonal.

    >>> block_diag([KSOperator([np.ones((1, 3, 2, 1))])] * 2)
    KSOperator(2x3x2x1, float64)
    """
    return _stacked(algebra.block_diag, operators)


def _stacked(
    stack: Callable[[Sequence[algebra.Factors]], list[Array]], operators: Sequence[KSOperator]
) -> KSOperator:
    if not operators:
        raise ValueError("operators: none given, must be at least one")
    factors = stack([one.factors for one in operators])
    dtype = np.result_type(*(one.dtype for one in operators))
    return KSOperator([values.astype(dtype, copy=False) for values in factors], operators[0].device)
