"""Factorisation on torch's devices: the same algorithm as `kronsparse.factorize`, from left to right or from
right to left, with torch's batched SVD and QR; blocks of rank 1 by their Gram matrices.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from kronsparse.chains import Chain, ChainLike, as_chain
from kronsparse.checks import check_option
from kronsparse.patterns import Pattern, reduction
from kronsparse.torch.backends import to_dense

Progress = Callable[[float], object]
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


def factorize(
    w: Tensor,
    chain: ChainLike,
    polish: int = 0,
    certify: bool = True,
    order: str = "left",
    progress: Progress | None = None,
) -> TensorFactorization:
    """Kronecker-sparse factors whose product is close to w, on the device of w; order is "left" or "right".

    >>> w = torch.randn(16, 16, dtype=torch.float64)
    >>> found = factorize(w, "butterfly")
    >>> found.lower_bound <= found.error <= found.upper_bound
    True
    """
    if w.dim() != 2 or w.dtype not in DTYPES:
        raise ValueError(f"w: {w.dim()} dimensions of {w.dtype} given, must be 2 of real or complex numbers")
    if not bool(torch.isfinite(w).all()):
        raise ValueError("w: an element is not finite")
    check_option("order", order, ("left", "right"))
    patterns = as_chain(chain, *w.shape)
    for index, rank in enumerate(patterns.ranks):
        if rank == 0:
            raise ValueError(
                f"chain: factor {index} ({patterns[index]}) and factor {index + 1} ({patterns[index + 1]}) "
                "are not chainable, so there may be no best product"
            )
    with _full_precision(w.device.type):
        return _factorize(w.detach(), patterns, polish, certify, order, progress)


@contextlib.contextmanager
def _full_precision(device: str) -> Iterator[None]:
    """Products as exact as their dtype, whatever the user allows elsewhere: TF32 has errors of 1e-3."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.no_grad(), torch.autocast(device, enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def _factorize(
    w: Tensor, patterns: Chain, polish: int, certify: bool, order: str, progress: Progress | None
) -> TensorFactorization:
    reduced, fused = reduction(patterns)
    last = len(reduced) - 1
    steps = last + (max(last - 1, 0) if certify else 0) + polish + 1
    done = 0

    def tell() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done / steps)

    w, exponent = _scaled(w)
    norm = float(torch.linalg.norm(w.to(_wide(w.dtype))))
    whole = _product(reduced)
    values = _inside(w, whole)
    outside = _squared_norm_outside(w, whole)

    def relative(squared: float) -> float:
        return math.sqrt(squared) / norm if norm else 0.0

    places = list(range(1, len(reduced)))[:: 1 if order == "left" else -1]
    of_splits: dict[int, float] = {}
    for place in sorted(places[1:]) if certify else ():
        split = Split(_product(Chain(reduced[:place])), _product(Chain(reduced[place:])))
        of_splits[place] = relative(outside + _tail(split.of_product(values), split.rank))
        tell()
    factors: list[Tensor] = []
    for place in places:
        if order == "left":
            split = Split(reduced[place - 1], _product(Chain(reduced[place:])))
            left, right, squared = _nearest(split.of_product(values), split.rank)
            factors.append(split.to_left(left))
            values = split.to_right(right)
        else:
            split = Split(_product(Chain(reduced[:place])), reduced[place])
            right, left, squared = _nearest(split.of_product(values).mT, split.rank)
            factors.insert(0, split.to_right(right.mT))
            values = split.to_left(left.mT)
        if place == places[0]:  # of the matrix itself: a bound for all
            of_splits[place] = relative(outside + squared)
        tell()
    errors = [of_splits[place] for place in sorted(of_splits)]
    factors.insert(len(factors) if order == "left" else 0, values)
    error = _error(w, factors)
    for sweep in range(polish):
        polished = _swept(w, reduced, list(factors), goes_left=sweep % 2 == 0)
        now = _error(w, polished)
        if now >= error:
            break
        factors, error = polished, now
        tell()
    done = steps - 1
    tell()
    rounded = (of_splits[place] + _rounding(reduced, place, w.dtype) for place in sorted(of_splits))
    squares = relative(outside) ** 2 + sum(one**2 - relative(outside) ** 2 for one in rounded)
    upper = math.sqrt(min(1.0, squares)) if certify else math.inf
    _unscale(factors, exponent)
    lifted = [values.resolve_conj().contiguous() for values in _lifted(factors, patterns, fused)]
    lower = max(errors, default=relative(outside))  # a single factor leaves nothing but that
    return TensorFactorization(lifted, error, lower, upper, tuple(errors) if certify else ())


class ArrayFactorization(NamedTuple):
    """The same with NumPy's arrays."""

    factors: list[NDArray[Any]]
    error: float
    lower_bound: float
    upper_bound: float
    split_errors: tuple[float, ...]


def factorize_array(
    matrix: NDArray[Any],
    device: str,
    chain: Chain,
    order: str,
    polish: int,
    certify: bool,
    progress: Progress | None,
) -> ArrayFactorization:
    """The same for NumPy's arrays, computed on a device."""
    try:
        torch.empty(1, device=device).item()
    except (AssertionError, NotImplementedError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"device: {device!r} given, which torch cannot use: {reason}") from None
    found = factorize(torch.tensor(matrix, device=device), chain, polish, certify, order, progress)
    return ArrayFactorization([values.cpu().numpy() for values in found.factors], *found[1:])


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


def _scaled(w: Tensor) -> tuple[Tensor, int]:
    """The matrix divided by a power of two near its largest element, and the exponent: squares of what is
    left neither overflow nor vanish."""
    largest = float((torch.view_as_real(w) if w.is_complex() else w).abs().max())
    exponent = math.frexp(largest)[1]
    w = w.clone()
    _multiply_by_power(w, -exponent)
    return w, exponent


def _unscale(factors: list[Tensor], exponent: int) -> None:
    """Shared among all: one factor alone could overflow, or lose bits where numbers are very small."""
    for index, values in enumerate(factors):
        part = int(exponent / (len(factors) - index))
        exponent -= part
        factors[index] = values.clone()
        _multiply_by_power(factors[index], part)


def _multiply_by_power(values: Tensor, exponent: int) -> None:
    """In two steps: one power alone may be too large."""
    half = exponent // 2
    for one in (half, exponent - half):
        values.mul_(math.ldexp(1.0, one))


def _nearest(blocks: Tensor, rank: int) -> tuple[Tensor, Tensor, float]:
    """The products left·right of this rank that are nearest to blocks, left having orthonormal columns; the
    sum of their squared distances."""
    if rank == 1:
        u, p, distances = _rank_one(blocks)
        if blocks.shape[-2] > blocks.shape[-1]:  # u belongs to the rows of the turned blocks
            length = p.norm(dim=(-2, -1), keepdim=True)
            unit = torch.zeros_like(p)
            unit[..., 0] = 1  # any will do where there is nothing
            left = torch.where(length > 0, p / torch.where(length > 0, length, 1), unit).mT
            right = (u * length).mT
        else:
            left, right = u, p
        return left.to(blocks.dtype), right.to(blocks.dtype), distances
    left, singular, _ = torch.linalg.svd(blocks, full_matrices=False)
    left = left[..., :rank]
    return left, left.mH @ blocks, float(singular[..., rank:].double().square().sum())


def _tail(blocks: Tensor, rank: int) -> float:
    """The squared distance of blocks from the nearest of this rank."""
    if rank == 1:
        return _rank_one(blocks)[2]
    return float(torch.linalg.svdvals(blocks)[..., rank:].double().square().sum())


def _rank_one(blocks: Tensor) -> tuple[Tensor, Tensor, float]:
    """u and p, u·p being nearest to each block, or to the turned one where that is wider; the sum of the
    squared distances, or less by rounding. src/factorize/rank_one explains it."""
    wide = blocks.to(_wide(blocks.dtype))
    rows, cols = wide.shape[-2:]
    if rows > cols:
        wide = wide.mT
    rounding = 4 * (rows + cols) * torch.finfo(torch.float64).eps
    gram = wide @ wide.mH
    trace = gram.diagonal(dim1=-2, dim2=-1).real.sum(-1)
    values, vectors = torch.linalg.eigh(gram)
    u = vectors[..., -1:]
    p = u.mH @ wide
    quotient = p.abs().square().sum((-2, -1))
    far = trace - values[..., -1] - rounding * trace
    # Nearly of rank 1: the distance itself, less what u may be worse than the best vector (Temple's bound).
    gap = 2 * quotient - trace
    residual = (gram @ u - quotient[..., None, None] * u).norm(dim=(-2, -1)) + rounding * trace
    length = ((wide - u @ p).norm(dim=(-2, -1)) - rounding * trace.sqrt()).clamp(min=0)
    near = length.square() * (1 - rounding) - residual.square() / torch.where(gap > 0, gap, 1)
    distances = torch.where(quotient >= 15 / 16 * trace, near, far).clamp(min=0)
    return u, p, float(distances.sum())


def _rounding(chain: Chain, place: int, dtype: torch.dtype) -> float:
    """What rounding makes of a split's error, as in src/factorize/factorize.cpp."""
    sides = _product(Chain(chain[:place])).b + _product(Chain(chain[place:])).c
    return 4 * sides * torch.finfo(torch.float64).eps + 16 * torch.finfo(dtype).eps


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
