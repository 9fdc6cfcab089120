"""One factor after the other by least squares: weights that are a matrix, and rounding.

With the others fixed, the product L X R is linear in a factor X, and |(W - L X R) C^(1/2)|² a quadratic whose
minimum conjugate gradients find; each of their steps makes it smaller.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kronsparse.operators import KSOperator
from kronsparse.products import gradient, multiply

Array = NDArray[Any]

MOST_STEPS = 20


def squared_error(w: Array, factors: Sequence[Array] | None, covariance: Array | None) -> float:
    """tr((W - product) C (W - product)^H), without factors tr(W C W^H)."""
    rest = w if factors is None else w - KSOperator(factors).to_dense()
    weighed = rest if covariance is None else rest @ covariance
    return max(0.0, float(np.vdot(rest.astype(weighed.dtype), weighed).real))


def best_factor(
    w: Array, factors: Sequence[Array], index: int, covariance: Array | None, steps: int = MOST_STEPS
) -> Array:
    """The values of one factor with the least error beside the others, from its present ones on."""
    x = factors[index].copy()
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
    return x


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

    >>> round_to(np.array([1.001, 3.3]), "bf16").tolist()
    [1.0, 3.296875]
    """
    if dtype == "f16":
        return values.astype(np.float16).astype(values.dtype)
    bits = values.astype(np.float32).view(np.uint32)
    to_even = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return ((bits + to_even) & np.uint32(0xFFFF0000)).view(np.float32).astype(values.dtype)


def rounded(w: Array, factors: Sequence[Array], dtype: str, covariance: Array | None = None) -> list[Array]:
    """Factors of f16 or bf16: each is rounded, and the next one makes up for it as far as it can."""
    plain = [round_to(values, dtype) for values in factors]
    careful = list(factors)
    for index in range(len(factors)):
        careful[index] = round_to(careful[index], dtype)
        if index + 1 < len(factors):
            careful[index + 1] = best_factor(w, careful, index + 1, covariance)
    is_better = squared_error(w, careful, covariance) < squared_error(w, plain, covariance)
    return careful if is_better else plain
