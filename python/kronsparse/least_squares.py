"""One factor after the other by least squares: weights that are a matrix, and rounding.

With the others fixed, the product L X R is linear in a factor X, and |(W - L X R) C^(1/2)|² a quadratic whose
minimum conjugate gradients find; each of their steps makes it smaller.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kronsparse.operators import KSOperator
from kronsparse.products import gradient, multiply

Array = NDArray[Any]

MOST_STEPS = 20
LARGEST = {"f16": 65504.0, "bf16": 3.3895313892515355e38}


def squared_error(w: Array, factors: Sequence[Array] | None, covariance: Array | None) -> float:
    """tr((W - product) C (W - product)^H) / unit(W)², in double precision; without factors, of W itself."""
    rest = w if factors is None else w - KSOperator(factors).to_dense()
    rest = (rest / unit(w)).astype(np.result_type(rest, np.float64))
    weighed = rest if covariance is None else rest @ covariance
    square = float(np.vdot(rest, weighed).real)
    return square if square > 0 or math.isnan(square) else 0.0


def relative_error(w: Array, factors: Sequence[Array], covariance: Array | None) -> float:
    """The root of the squared error over that of no factors."""
    whole = squared_error(w, None, covariance)
    return math.sqrt(squared_error(w, factors, covariance) / whole) if whole else 0.0


def unit(w: Array) -> float:
    """A power of two near the largest element: squares of what is divided by it neither overflow nor vanish.

    >>> unit(np.array([3e-300, -5e-300])) / 5e-300 < 2
    True
    """
    largest = float(np.abs(w).max())
    return math.ldexp(1.0, math.frexp(largest)[1] - 1) if largest > 0 else 1.0


def best_factor(
    w: Array, factors: Sequence[Array], index: int, covariance: Array | None, steps: int = MOST_STEPS
) -> Array:
    """The values of one factor with the least error beside the others, from its present ones on."""
    # All are divided by powers of two: squares would overflow or vanish.
    units = [unit(values) for values in factors]
    units[index] = unit(w) / math.prod(units[:index] + units[index + 1 :])
    w = w / unit(w)
    factors = [_divided(values, by) for values, by in zip(factors, units, strict=True)]
    x = factors[index]
    right = _dense(factors[index + 1 :], w.shape[1], w.dtype)
    left = factors[:index]

    def product(values: Array) -> Array:
        y = multiply(right, values, layout="batch_last")
        return KSOperator(left) @ y if left else y

    def slope(rest: Array) -> Array:
        g = rest if covariance is None else rest @ covariance
        g = KSOperator(left).rmatmat(g) if left else g
        return gradient(right, np.ascontiguousarray(g, right.dtype), values_shape, layout="batch_last")

    values_shape = x.shape
    downhill = slope(w - product(x))
    direction, length = downhill, float(np.vdot(downhill, downhill).real)
    first = length
    for _ in range(steps):
        if length <= 1e-28 * first or length == 0:
            break
        curved = slope(product(direction))
        curvature = float(np.vdot(direction, curved).real)
        if curvature <= 0:
            break  # to rounding, the direction has no effect
        step = length / curvature
        x += (step * direction).astype(x.dtype)
        downhill = downhill - step * curved
        before, length = length, float(np.vdot(downhill, downhill).real)
        direction = downhill + (length / before) * direction
    return _divided(x, 1 / units[index])


def _divided(values: Array, number: float) -> Array:
    """The number alone may be beyond the dtype of the values."""
    return (values.astype(np.result_type(values, np.float64)) / number).astype(values.dtype)


def _dense(factors: Sequence[Array], size: int, dtype: np.dtype[Any]) -> Array:
    return KSOperator(factors).to_dense() if factors else np.eye(size, dtype=dtype)


def improved(w: Array, factors: Sequence[Array], covariance: Array | None, sweeps: int) -> list[Array]:
    """Sweeps over all factors; what would be worse, by rounding, is left out."""
    best = list(factors)
    error = squared_error(w, best, covariance)
    for _ in range(sweeps):
        for index in range(len(best)):
            changed = [*best[:index], best_factor(w, best, index, covariance), *best[index + 1 :]]
            now = squared_error(w, changed, covariance)
            if now < error:
                best, error = changed, now
    return best


def round_to(values: Array, dtype: str) -> Array:
    """The nearest values that f16 or bf16 has, in the dtype of the values.

    Numbers beyond the largest become infinite.

    >>> round_to(np.array([1.001, 3.3]), "bf16").tolist()
    [1.0, 3.296875]
    >>> round_to(np.array([1e39, np.nan]), "bf16").tolist()
    [inf, nan]
    """
    with np.errstate(over="ignore"):
        if dtype == "f16":
            return values.astype(np.float16).astype(values.dtype)
        single = values.astype(np.float32)
    bits = single.view(np.uint32)
    to_even = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    halved = ((bits + to_even) & np.uint32(0xFFFF0000)).view(np.float32)
    return np.where(np.isnan(single), single, halved).astype(values.dtype)


def rounded(w: Array, factors: Sequence[Array], dtype: str, covariance: Array | None = None) -> list[Array]:
    """Factors of f16 or bf16: each is rounded, and the next one makes up for it as far as it can."""
    plain = [round_to(values, dtype) for values in factors]
    careful = list(factors)
    for index in range(len(factors)):
        careful[index] = round_to(careful[index], dtype)
        if index + 1 < len(factors):
            careful[index + 1] = best_factor(w, careful, index + 1, covariance)
    with np.errstate(invalid="ignore", over="ignore"):  # where values were beyond the largest
        errors = [squared_error(w, factors, covariance) for factors in (careful, plain)]
    return careful if errors[0] < errors[1] or math.isnan(errors[1]) else plain
