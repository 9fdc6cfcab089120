"""Values of chains: products, sums and stacks of Kronecker-sparse matrices that are again chains.

Functions take and return lists of factors, arrays of shapes (a, b, c, d), left factor first. `KSOperator` has
them as methods.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kronsparse.patterns import Chain, Pattern, enclosing

Array = NDArray[Any]
Factors = Sequence[Array]


def chain_of(factors: Factors) -> Chain:
    return Chain(values.shape for values in factors)


def expanded(values: Array, pattern: Pattern) -> Array:
    """The values of the same matrix in a larger pattern: its a and d divide those of the values.

    >>> expanded(np.array([[[[2.0]]], [[[3.0]]]]), Pattern(1, 2, 2, 1))[0, :, :, 0]
    array([[2., 0.],
           [0., 3.]])
    """
    a, b, c, d = values.shape
    i, j = a // pattern.a, d // pattern.d
    large = np.zeros((pattern.a, i, b, j, i, c, j, pattern.d), values.dtype)
    # The block (i, j) of the values lies where row and column agree in i and j.
    diagonal = np.einsum("AibjicjD->AibcjD", large)
    diagonal[...] = values.reshape(pattern.a, i, b, c, j, pattern.d)
    return large.reshape(pattern)


def fitted(values: Array, pattern: Pattern) -> Array:
    """The same, where a diagonal matrix may first be written with another a and d."""
    a, b, c, d = values.shape
    if b == c == 1:
        values = values.reshape(pattern.a, 1, 1, a * d // pattern.a)
    return expanded(values, pattern)


def fuse(left: Array, right: Array) -> Array:
    """The values of the product of two factors, where it is Kronecker-sparse: `Pattern.times`."""
    product = Pattern.of(left.shape).times(Pattern.of(right.shape))
    if product is None:
        raise ValueError(
            f"factors: the product of {Pattern.of(left.shape)} and {Pattern.of(right.shape)} is not "
            "Kronecker-sparse"
        )
    middle = Pattern.of(left.shape).cols // (product.a * product.d)
    wide = fitted(left, Pattern(product.a, product.b, middle, product.d))
    tall = fitted(right, Pattern(product.a, middle, product.c, product.d))
    blocks = wide.transpose(0, 3, 1, 2) @ tall.transpose(0, 3, 1, 2)
    return np.ascontiguousarray(blocks.transpose(0, 2, 3, 1))


def transpose(factors: Factors) -> list[Array]:
    return [values.transpose(0, 2, 1, 3) for values in reversed(factors)]


def scale(factors: Factors, number: complex) -> list[Array]:
    """The product times a number, which goes to the smallest factor."""
    smallest = min(range(len(factors)), key=lambda index: factors[index].size)
    return [values * number if index == smallest else values for index, values in enumerate(factors)]


def identity(size: int, pattern: Pattern | None = None) -> Array:
    """The identity as a factor, in the form that the enclosing pattern keeps."""
    a = 1 if pattern is None else pattern.a
    return np.ones((a, 1, 1, size // a))


def block_diag(chains: Sequence[Factors]) -> list[Array]:
    """The matrix with these products along its diagonal, all of one size.

    Factors at the same place of the chains take one pattern: their own where they agree, else one that
    encloses them, or a dense one where not even their sizes agree. Shorter chains are filled up with
    identities on the right.
    """
    sizes = {chain_of(factors).shape for factors in chains}
    if len(sizes) != 1:
        raise ValueError(f"operators: sizes {sorted(sizes)} given, must be equal")
    length = max(map(len, chains))
    longest = next(factors for factors in chains if len(factors) == length)
    filled = []
    for factors in chains:
        size = chain_of(factors).cols
        rest = [identity(size, Pattern.of(one.shape)) for one in longest[len(factors) :]]
        filled.append([*factors, *rest])
    return [_stacked(values) for values in zip(*filled, strict=True)]


def _stacked(values: Sequence[Array]) -> Array:
    """One factor with these matrices along its diagonal."""
    patterns = [Pattern.of(one.shape) for one in values]
    if len({(one.rows, one.cols) for one in patterns}) != 1:
        large = np.zeros(
            (len(values), max(one.rows for one in patterns), max(one.cols for one in patterns), 1)
        )
        large = large.astype(np.result_type(*values))
        for place, one in zip(large, values, strict=True):
            matrix = to_dense(one)
            place[: matrix.shape[0], : matrix.shape[1], 0] = matrix
        return large
    # A diagonal matrix agrees with any pattern.
    full = [one for one in patterns if (one.b, one.c) != (1, 1)] or patterns
    common = enclosing(full[0].rows, full[0].cols, full)
    return np.concatenate([fitted(one, common) for one in values])


def hstack(chains: Sequence[Factors]) -> list[Array]:
    """[W_1 W_2 ...], of one size."""
    rows = chain_of(chains[0]).rows
    return [np.ones((1, 1, len(chains), rows)), *block_diag(chains)]


def vstack(chains: Sequence[Factors]) -> list[Array]:
    """The W_i one below the other, of one size."""
    cols = chain_of(chains[0]).cols
    return [*block_diag(chains), np.ones((1, len(chains), 1, cols))]


def add(chains: Sequence[Factors]) -> list[Array]:
    """The sum. Where all factors but one are the same arrays, that one is added up; else two more factors
    are needed."""
    shapes = {tuple(values.shape for values in factors) for factors in chains}
    if len(shapes) == 1:
        different = [
            index
            for index, values in enumerate(zip(*chains, strict=True))
            if any(one is not values[0] for one in values)
        ]
        if len(different) <= 1:
            place = different[0] if different else 0
            total = sum(factors[place] for factors in chains)
            return [np.asarray(total) if index == place else one for index, one in enumerate(chains[0])]
    return [*hstack(chains), np.ones((1, len(chains), 1, chain_of(chains[0]).cols))]


def inverse(factors: Factors) -> list[Array]:
    """The inverse: blocks inverted one by one, by elimination with pivots, in the reverse order."""
    inverted = []
    for index, values in enumerate(factors):
        _, b, c, _ = values.shape
        if b != c:
            raise ValueError(f"factors[{index}]: {Pattern.of(values.shape)} given, must have square blocks")
        try:
            blocks = np.linalg.inv(_computable(values).transpose(0, 3, 1, 2))
        except np.linalg.LinAlgError:
            raise ValueError(f"factors[{index}]: has a singular block, so there is no inverse") from None
        inverted.append(blocks.transpose(0, 2, 3, 1).astype(values.dtype, copy=False))
    return inverted[::-1]


def _computable(values: Array) -> Array:
    return values.astype(np.float32) if values.dtype == np.float16 else values


# (x + iy)(u + iv) from three real products, xu, yv and (x + y)(u + v): its real and its imaginary part.
_COMBINE = np.array([[1.0, -1.0, 0.0], [-1.0, -1.0, 1.0]])
_SPREAD = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])


def real_part(factors: Factors) -> list[Array]:
    """The real part of the product, as a chain of real factors: 2·L + 1 for L complex ones.

    Each complex factor becomes three real ones side by side, and between them stand factors that add up real
    and imaginary parts.
    """
    return _part(factors, _COMBINE[:1])


def imaginary_part(factors: Factors) -> list[Array]:
    """The imaginary part of the product, in the same way."""
    return _part(factors, _COMBINE[1:])


def _part(factors: Factors, first: Array) -> list[Array]:
    chain = chain_of(factors)
    result = [_on_parts(first, chain.rows)]
    for index, values in enumerate(factors):
        result.append(np.concatenate([values.real, values.imag, values.real + values.imag]))
        between = _SPREAD @ _COMBINE if index < len(factors) - 1 else _SPREAD[:, :1]  # the input is real
        result.append(_on_parts(between, chain[index].cols))
    dtype = np.result_type(*(values.real for values in factors))
    return [values.astype(dtype, copy=False) for values in result]


def _on_parts(matrix: Array, size: int) -> Array:
    """The matrix (x) the identity of this size."""
    return np.repeat(matrix[None, :, :, None], size, axis=3)


def to_dense(values: Array) -> Array:
    """The matrix of one factor."""
    a, b, c, d = values.shape
    return expanded(values, Pattern(1, a * b * d, a * c * d, 1))[0, :, :, 0]


def support(chain: Chain) -> NDArray[np.bool_]:
    """True for each entry of the product of a chain that may be other than zero."""
    columns = np.eye(chain.cols, dtype=bool)
    for a, b, c, d in reversed(chain):
        reached = np.asarray(columns.reshape(a, c, d, -1).any(axis=1))
        columns = np.broadcast_to(reached[:, None], (a, b, *reached.shape[1:])).reshape(a * b * d, -1)
    return columns


def check_finite(argument: str, matrix: Array) -> None:
    finite = np.isfinite(matrix)
    if not finite.all():
        row, col = np.argwhere(~finite)[0]
        raise ValueError(f"{argument}: the element at row {row}, column {col} is not finite")


def norm(values: Array) -> float:
    """The Frobenius norm, without overflow."""
    largest = float(np.max(np.abs(values), initial=0.0))
    if largest == 0 or not math.isfinite(largest):
        return largest
    return largest * float(np.linalg.norm(np.asarray(values / largest).ravel()))
