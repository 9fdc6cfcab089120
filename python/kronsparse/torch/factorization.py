"""Factorisation on torch's devices: the same algorithm as `kronsparse.factorize`, from left to right, with
torch's batched SVD and QR.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from kronsparse.chains import Chain, ChainLike, as_chain
from kronsparse.patterns import Pattern, reduction
from kronsparse.torch.backends import to_dense

DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)


class TensorFactorization(NamedTuple):
    """As `kronsparse.Factorization`, with tensors on the device of the matrix."""

    factors: list[Tensor]
    error: float
    lower_bound: float
    upper_bound: float
    split_errors: tuple[float, ...]


class Split(NamedTuple):
    """Blocks of a product of two patterns and of its factors: src/factorize/split.hpp explains them."""

    left: Pattern
    right: Pattern

    @property
    def rank(self) -> int:
        return self.left.rank_with(self.right)

    @property
    def _parts(self) -> tuple[int, int, int, int]:
        return self.left.a, self.right.a // self.left.a, self.left.d // self.right.d, self.right.d

    def of_product(self, values: Tensor) -> Tensor:
        """(a, s, q, d, b1, c2)"""
        a, s, q, d = self._parts
        return values.reshape(a, self.left.b, q, s, self.right.c, d).permute(0, 3, 2, 5, 1, 4)

    def of_left(self, values: Tensor) -> Tensor:
        a, s, q, d = self._parts
        return values.reshape(a, self.left.b, s, self.rank, q, d).permute(0, 2, 4, 5, 1, 3)

    def of_right(self, values: Tensor) -> Tensor:
        a, s, q, d = self._parts
        return values.reshape(a, s, self.rank, q, self.right.c, d).permute(0, 1, 3, 5, 2, 4)

    def to_left(self, blocks: Tensor) -> Tensor:
        return blocks.permute(0, 4, 1, 5, 2, 3).reshape(self.left)

    def to_right(self, blocks: Tensor) -> Tensor:
        return blocks.permute(0, 1, 4, 2, 5, 3).reshape(self.right)


def factorize(w: Tensor, chain: ChainLike, polish: int = 0, certify: bool = True) -> TensorFactorization:
    """Kronecker-sparse factors whose product is close to w, on the device of w.

    >>> w = torch.randn(16, 16, dtype=torch.float64)
    >>> found = factorize(w, "butterfly")
    >>> found.lower_bound <= found.error <= found.upper_bound
    True
    """
    if w.dim() != 2 or w.dtype not in DTYPES:
        raise ValueError(f"w: {w.dim()} dimensions of {w.dtype} given, must be 2 of real or complex numbers")
    if not bool(torch.isfinite(w).all()):
        raise ValueError("w: an element is not finite")
    patterns = as_chain(chain, *w.shape)
    for index, rank in enumerate(patterns.ranks):
        if rank == 0:
            raise ValueError(
                f"chain: factor {index} ({patterns[index]}) and factor {index + 1} ({patterns[index + 1]}) "
                "are not chainable, so there may be no best product"
            )
    reduced, fused = reduction(patterns)
    w = w.detach()
    norm = float(torch.linalg.norm(w.to(_wide(w.dtype))))
    whole = _product(reduced)
    values = _inside(w, whole)
    outside = _squared_norm_outside(w, whole)

    def relative(squared: float) -> float:
        return math.sqrt(squared) / norm if norm else 0.0

    errors = []
    for place in range(1, len(reduced)):
        if certify or place == 1:
            errors.append(relative(outside + _tail(values, reduced, place)))
    factors = []
    for place in range(1, len(reduced)):
        split = Split(reduced[place - 1], _product(Chain(reduced[place:])))
        blocks = split.of_product(values)
        basis = torch.linalg.svd(blocks, full_matrices=False)[0][..., : split.rank]
        factors.append(split.to_left(basis))
        values = split.to_right(basis.mH @ blocks)
    factors.append(values.reshape(reduced[-1]))
    error = _error(w, factors)
    for sweep in range(polish):
        polished = _swept(w, reduced, list(factors), goes_left=sweep % 2 == 0)
        now = _error(w, polished)
        if now >= error:
            break
        factors, error = polished, now
    squares = relative(outside) ** 2 + sum(one**2 - relative(outside) ** 2 for one in errors)
    upper = math.sqrt(min(1.0, squares)) if certify else math.inf
    lifted = [values.resolve_conj().contiguous() for values in _lifted(factors, patterns, fused)]
    return TensorFactorization(
        lifted, error, max(errors, default=0.0), upper, tuple(errors) if certify else ()
    )


def factorize_array(
    matrix: NDArray[Any], device: str, chain: Chain, polish: int, certify: bool
) -> tuple[list[NDArray[Any]], float, float, float, tuple[float, ...]]:
    """The same for NumPy's arrays, computed on a device."""
    found = factorize(torch.from_numpy(matrix).to(device), chain, polish, certify)
    factors = [values.cpu().numpy() for values in found.factors]
    return factors, found.error, found.lower_bound, found.upper_bound, found.split_errors


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.complex128 if dtype.is_complex else torch.float64


def _product(chain: Chain) -> Pattern:
    product = chain.product
    assert product is not None  # neighbours are chainable
    return product


def _inside(matrix: Tensor, pattern: Pattern) -> Tensor:
    """The elements of a matrix that a pattern has, as its values."""
    a, b, c, d = pattern
    blocks = matrix.reshape(a, b, d, a, c, d).diagonal(dim1=0, dim2=3)  # b, d, c, d, a
    return blocks.diagonal(dim1=1, dim2=3).permute(2, 0, 1, 3)


def _squared_norm_outside(matrix: Tensor, pattern: Pattern) -> float:
    a, b, c, d = pattern
    outside = matrix.to(_wide(matrix.dtype), copy=True).view(a, b, d, a, c, d)
    outside.diagonal(dim1=0, dim2=3).diagonal(dim1=1, dim2=3).zero_()
    return float(torch.linalg.norm(outside)) ** 2


def _tail(values: Tensor, chain: Chain, place: int) -> float:
    """The squared error of the best two factors at a split."""
    split = Split(_product(Chain(chain[:place])), _product(Chain(chain[place:])))
    singular = torch.linalg.svdvals(split.of_product(values))[..., split.rank :]
    return float(singular.double().square().sum())


def _error(w: Tensor, factors: list[Tensor]) -> float:
    norm = float(torch.linalg.norm(w.to(_wide(w.dtype))))
    return float(torch.linalg.norm((w - to_dense(factors)).to(_wide(w.dtype)))) / norm if norm else 0.0


def _swept(w: Tensor, chain: Chain, factors: list[Tensor], goes_left: bool) -> list[Tensor]:
    """Each factor as the best beside the others, which are made orthonormal around it."""
    last = len(factors) - 1
    for index in range(last) if goes_left else range(last, 0, -1):
        _pass_on(chain, factors, index, to_right=goes_left)
    for index in range(last, -1, -1) if goes_left else range(last + 1):
        left = to_dense(factors[:index]).mH @ w if index else w
        projected = left @ to_dense(factors[index + 1 :]).mH if index < last else left
        factors[index] = _inside(projected, chain[index]).contiguous()
        if index > 0 and goes_left:
            _pass_on(chain, factors, index, to_right=False)
        elif index < last and not goes_left:
            _pass_on(chain, factors, index, to_right=True)
    return factors


def _pass_on(chain: Chain, factors: list[Tensor], index: int, to_right: bool) -> None:
    """Makes blocks of a factor orthonormal, and gives what that takes away to its neighbour."""
    first = index if to_right else index - 1
    split = Split(chain[first], chain[first + 1])
    left, right = split.of_left(factors[first]), split.of_right(factors[first + 1])
    if to_right:
        left, triangle = torch.linalg.qr(left)
        right = triangle @ right
    else:
        turned, triangle = torch.linalg.qr(right.mH)
        left, right = left @ triangle.mH, turned.mH
    factors[first], factors[first + 1] = split.to_left(left), split.to_right(right)


def _lifted(factors: list[Tensor], chain: Chain, fused: list[int]) -> list[Tensor]:
    """Factors of the chain before redundant neighbours were fused, one after the other."""
    before = [chain]
    for index in fused:
        before.append(before[-1].fuse(index))
    for index, one in zip(reversed(fused), reversed(before[:-1]), strict=True):
        split = Split(one[index], one[index + 1])
        blocks = split.of_product(factors[index])
        rows, cols = blocks.shape[-2:]
        left = blocks.new_zeros((*blocks.shape[:-1], split.rank))
        right = blocks.new_zeros((*blocks.shape[:-2], split.rank, cols))
        if rows <= cols:  # the smaller side becomes the identity
            left[..., :rows] = torch.eye(rows, dtype=blocks.dtype, device=blocks.device)
            right[..., :rows, :] = blocks
        else:
            left[..., :cols] = blocks
            right[..., :cols, :] = torch.eye(cols, dtype=blocks.dtype, device=blocks.device)
        factors[index : index + 1] = [split.to_left(left), split.to_right(right)]
    return factors
