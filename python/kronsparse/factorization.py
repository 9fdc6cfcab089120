"""Dense matrices as products of Kronecker-sparse factors, with a number that says how good they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kronsparse import _native, algebra
from kronsparse.alternating import alternating
from kronsparse.chains import Chain, ChainLike, as_chain, for_budget
from kronsparse.checks import as_size, check_option
from kronsparse.least_squares import LARGEST, improved, relative_error, round_to, rounded, squared_error
from kronsparse.linear_operator import as_matrix, refuse_masked
from kronsparse.operators import KSOperator

Array = NDArray[Any]
Progress = Callable[[float], object]
ORDERS = ("left", "right", "balanced")
MOST_SWEEPS = 2**31 - 1
# Covariances are sums of many rounded products: eigenvalues may be below 0 by this much of the largest.
NEGLIGIBLE = 1e-5


@dataclass(frozen=True)
class Factorization:
    """Factors of a matrix W, left factor first, and how close their product is.

    Errors are Frobenius norms of W - product over that of W. No product of the chain has a smaller error than
    `lower_bound`: every such product is one of two factors at each split of the chain, and the largest of the
    best errors of those (`split_errors`) is this bound. `upper_bound` is what the algorithm promised: for the
    orders left and right the root of the sum of the squared split errors.
    """

    factors: list[Array] = field(repr=False)
    chain: Chain
    error: float
    lower_bound: float
    upper_bound: float
    split_errors: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """error / lower_bound: how many times worse than the best product this can be, at most; 1 where both
        are 0 to rounding, infinite where nothing is known."""
        rounding = 1e-14 if self.factors[0].dtype.name in ("float64", "complex128") else 1e-5
        if self.error < rounding:
            return 1.0
        return self.error / self.lower_bound if self.lower_bound > 0 else math.inf

    @property
    def operator(self) -> KSOperator:
        return KSOperator(self.factors)

    def rounded(self, w: ArrayLike, dtype: str = "f16", weights: ArrayLike | None = None) -> Factorization:
        """The factors of w with values that f16 or bf16 has, and their error, by the weights of `factorize`.

        Each factor makes up for the rounding of those before it, which is never worse than rounding each
        value: where it would be, that is done. f16 comes as float16, bf16, which NumPy lacks, as float32 with
        bf16's values.

        >>> w = np.random.default_rng(0).normal(size=(16, 16))
        >>> found = factorize(w, "monarch(blocks=4, rank=3)")
        >>> found.rounded(w, "bf16").factors[0].dtype
        dtype('float32')
        """
        check_option("dtype", dtype, ("f16", "bf16"))
        if np.iscomplexobj(self.factors[0]):
            raise ValueError(
                f"dtype: {dtype!r} given, but the factors are complex, and there is no such type"
            )
        matrix = _matrix(w)
        if matrix.shape != self.chain.shape:
            raise ValueError(
                f"w: sizes {matrix.shape} given, must be those of the factors, {self.chain.shape}"
            )
        algebra.check_finite("w", matrix)
        covariance = None
        if weights is not None:
            covariance, scale = _weights(weights, matrix)
            covariance = np.diag(scale**2) if covariance is None else covariance
        factors = rounded(matrix, self.factors, dtype, covariance)
        if not all(np.isfinite(values).all() for values in factors):
            largest = max(float(np.abs(values).max()) for values in self.factors)
            raise ValueError(
                f"dtype: {dtype!r} given, which has no numbers beyond {LARGEST[dtype]:.3g}, but the factors "
                f"have elements up to {largest:.3g}"
            )
        error = relative_error(matrix, factors, covariance)
        storage = np.float16 if dtype == "f16" else np.float32
        return replace(self, factors=[values.astype(storage) for values in factors], error=error)


def factorize(
    w: ArrayLike,
    chain: ChainLike | int,
    order: str | Sequence[int] = "left",
    orthonormal: bool = True,
    polish: int = 0,
    weights: ArrayLike | None = None,
    device: str = "cpu",
    certify: bool = True,
    progress: Progress | None = None,
) -> Factorization:
    """Kronecker-sparse factors whose product is close to w, a matrix of real or complex numbers: an array,
    also a sparse one or another library's, or an operator.

    `chain` is a list of patterns, its text, a name with parameters, or the number of parameters to spend
    (`kronsparse.for_budget`). Where it is chainable (`Chain.is_chainable`), two factors are the best there
    are; more are found by the hierarchical algorithm of Le, Zheng, Riccietti and Gribonval ("Butterfly
    factorization with error guarantees", 2025). A chain that is not chainable, such as "kaleidoscope" or
    "blast", may have no best product: factors are then improved one by one from several starts, in `polish`
    sweeps (20 where that is 0), and nothing says how good they could be: `upper_bound` is infinite, and
    `lower_bound` only counts what lies outside of the product's support.

    - `order`: "left", "right" or "balanced", or the splits 1..L-1 (of the reduced chain) in any order
    - `orthonormal`: keeps the other factors orthonormal when one is split, so that its error is the product's
    - `polish`: sweeps of exact least squares over the factors afterwards, never worse
    - `weights`: the covariance C of the layer's inputs, a matrix, or a vector for a diagonal one. The error
      is then that of W·sqrt(C), which is that of the outputs. A vector is exact; for a matrix the factors
      start from its diagonal, and `polish` sweeps of least squares go on with all of it
    - `device`: "cpu", or a device of torch, which then takes the SVDs; orders are "left" and "right" there
    - `certify`: computes the bounds, which takes another SVD for each split
    - `progress`: is called with the share of the work that is done

    >>> found = factorize([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]], "butterfly")
    >>> found.error < 1e-15
    True
    >>> w = np.random.default_rng(0).normal(size=(16, 16))
    >>> found = factorize(w, "butterfly")
    >>> found.lower_bound <= found.error <= found.upper_bound
    True
    """
    matrix = _matrix(w)
    patterns = _chain(chain, matrix)
    if as_size(polish) != polish or not 0 <= polish <= MOST_SWEEPS:
        raise ValueError(f"polish: {polish!r} given, must be an integer of 0 to {MOST_SWEEPS}")
    if progress is not None and not callable(progress):
        raise ValueError(f"progress: {progress!r} given, must be a function, or None")
    splits: list[int] = []
    if not isinstance(order, str):
        splits, order = _splits(order), "left"
    check_option("order", order, ORDERS)
    options = _Options(order, splits, bool(orthonormal), str(device), certify)
    if weights is None:
        return _factorize(matrix, patterns, options, polish, progress)
    covariance, scale = _weights(weights, matrix)
    stages = 1 if covariance is None else 1 + polish

    def told(stage: int, share: float) -> None:
        if progress is not None:
            progress((stage + share) / stages)

    sweeps = polish if covariance is None else 0
    found = _factorize(matrix * scale, patterns, options, sweeps, lambda share: told(0, share))
    # Columns of the last factor are those of the product.
    a, _, c, d = found.factors[-1].shape
    last = found.factors[-1] / scale.reshape(a, 1, c, d)
    found = replace(found, factors=[*found.factors[:-1], last.astype(matrix.dtype, copy=False)])
    if covariance is None:
        return found
    least = _least_eigenvalue(covariance, scale, certify)
    factors = found.factors
    for sweep in range(polish):
        factors = improved(matrix, factors, covariance, 1)
        told(1 + sweep, 1.0)
    whole = squared_error(matrix, None, covariance)
    # In the directions that C weighs least, errors count this much of what the diagonal says.
    part = math.sqrt(least * squared_error(matrix, None, np.diag(scale**2)) / whole) if whole else 0.0
    return replace(
        found,
        factors=factors,
        error=relative_error(matrix, factors, covariance),
        lower_bound=part * found.lower_bound,
        upper_bound=math.inf,
        split_errors=tuple(part * error for error in found.split_errors),
    )


@dataclass(frozen=True)
class _Options:
    """The options of `factorize`, checked."""

    order: str
    splits: list[int]
    orthonormal: bool
    device: str
    certify: bool


def _splits(given: Sequence[int]) -> list[int]:
    try:
        splits = [as_size(split) for split in given]
    except TypeError:
        splits = [0]
    if any(split < 1 for split in splits):
        raise ValueError(
            f"order: {given!r} given, must be one of {', '.join(ORDERS)}, or the splits from 1 on"
        )
    return splits


def _matrix(given: ArrayLike) -> Array:
    """The matrix in a dtype that can be computed with."""
    refuse_masked("w", given)
    matrix = as_matrix("w", given)
    if matrix.ndim != 2:
        raise ValueError(f"w: {matrix.ndim} dimensions given, must be 2")
    if matrix.size == 0:
        raise ValueError(f"w: sizes {matrix.shape} given, must have an element")
    if matrix.dtype.kind in "biu":
        matrix = matrix.astype(np.float64)
    elif matrix.dtype == np.float16:
        matrix = matrix.astype(np.float32)
    if matrix.dtype.name not in ("float32", "float64", "complex64", "complex128"):
        raise ValueError(f"w: dtype {matrix.dtype} given, must be one of real or complex numbers")
    return np.require(matrix, matrix.dtype.newbyteorder("="), ["C", "A"])


def _chain(given: ChainLike | int, matrix: Array) -> Chain:
    rows, cols = matrix.shape
    budget = as_size(given)
    return for_budget(rows, cols, budget) if budget else as_chain(given, rows, cols)  # type: ignore[arg-type]


def _factorize(
    matrix: Array, chain: Chain, options: _Options, polish: int, progress: Progress | None
) -> Factorization:
    on_torch = options.device != "cpu"
    if not chain.is_chainable:
        if on_torch or options.splits:
            raise ValueError(
                f"chain: {chain} is not chainable, so device must be 'cpu' and order a word; "
                f"device {options.device!r} and {len(options.splits)} splits given"
            )

        def part(of: Chain) -> list[Array]:
            return _factorize(matrix, of, replace(options, certify=False), 0, None).factors

        factors, error, lower = alternating(matrix, chain, polish, part, progress)
        return Factorization(factors, chain, error, lower, math.inf, ())
    if on_torch:
        from kronsparse.torch.factorization import factorize_array

        if options.order == "balanced" or options.splits or not options.orthonormal:
            raise ValueError(
                f"device: {options.device!r} given, must be 'cpu' unless order is 'left' or 'right', and "
                "orthonormal"
            )
        algebra.check_finite("w", matrix)
        found = factorize_array(
            matrix, options.device, chain, options.order, polish, options.certify, progress
        )
        return Factorization(found.factors, chain, *found[1:])
    values = [np.empty(pattern, matrix.dtype) for pattern in chain]
    error, lower, upper, of_splits = _native.factorize_into(
        values,
        matrix,
        options.order,
        options.splits,
        options.orthonormal,
        polish,
        options.certify,
        progress,
    )
    return Factorization(values, chain, error, lower, upper, tuple(of_splits))


def _weights(given: ArrayLike, matrix: Array) -> tuple[Array | None, Array]:
    """The covariance, None where it is diagonal, and the square root of its diagonal; both are scaled so that
    the largest variance is 1, which leaves relative errors as they are."""
    weights = np.asarray(given)
    cols = matrix.shape[1]
    if weights.shape not in ((cols,), (cols, cols)):
        raise ValueError(f"weights: sizes {weights.shape} given, must be ({cols},) or ({cols}, {cols})")
    if weights.dtype.kind not in "fciu" or not np.isfinite(weights).all():
        raise ValueError("weights: an element is not a finite number")
    wide = weights.astype(np.complex128 if np.iscomplexobj(weights) else np.float64)
    diagonal = wide if wide.ndim == 1 else np.diagonal(wide)
    largest = float(np.abs(diagonal).max())
    if largest > 0:
        wide, diagonal = wide / largest, diagonal / largest
    if wide.ndim == 1 and wide.imag.any():
        raise ValueError("weights: a vector that is not real given, must be variances")
    if wide.ndim == 2 and np.abs(wide - wide.conj().T).max() > NEGLIGIBLE:
        raise ValueError(
            "weights: a matrix that is not its own conjugate transpose given, must be a covariance"
        )
    diagonal = diagonal.real
    if (diagonal < 0).any():
        raise ValueError(f"weights: a variance of {diagonal.min() * largest} given, must be at least 0")
    real = matrix.real.dtype
    # An input that is always 0 may be weighed in any way: its column has no error.
    scale = np.sqrt(np.where(diagonal > 0, diagonal, 1)).astype(real)
    if weights.ndim == 1:
        if (diagonal == 0).any():
            raise ValueError("weights: a variance of 0 given, must be positive in a vector")
        return None, scale
    # For a real matrix the imaginary part, which is antisymmetric, cancels out.
    return wide.astype(matrix.dtype) if np.iscomplexobj(matrix) else wide.real.astype(real), scale


def _least_eigenvalue(covariance: Array, scale: Array, exactly: bool) -> float:
    """The least eigenvalue of the covariance with its diagonal scaled to 1, at least 0: 0 where it is not
    wanted exactly. An error where it is below 0 by more than rounding."""
    scaled = (covariance / np.outer(scale, scale)).astype(np.result_type(covariance, np.float64))
    allowed = NEGLIGIBLE * float(np.abs(scaled).sum(axis=1).max())
    least = 0.0
    if exactly:
        least = float(np.linalg.eigvalsh(scaled)[0])
        is_covariance = least >= -allowed
    else:
        try:
            np.linalg.cholesky(scaled + max(allowed, 1e-300) * np.eye(len(scaled)))
            is_covariance = True
        except np.linalg.LinAlgError:
            is_covariance = False
    if not is_covariance:
        raise ValueError("weights: a matrix with a negative eigenvalue given, must be a covariance")
    return max(0.0, least)


__all__ = ["Factorization", "factorize", "round_to"]
