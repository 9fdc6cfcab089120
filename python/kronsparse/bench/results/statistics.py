"""The statistics of the report: wins, correlations, the regression."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np


class Fit(NamedTuple):
    """log y = intercept + slopes · log x, by least squares."""

    intercept: float
    slopes: tuple[float, ...]
    r2: float
    adjusted_r2: float
    problems: int


class Wins(NamedTuple):
    """How often the first of a pair of times is less, and by how much."""

    problems: int
    share: float
    median_when_won: float | None  # second / first over the cases won, as the paper counts
    median: float  # second / first over all
    least: float


def wins(pairs: Iterable[tuple[float, float]]) -> Wins | None:
    """Counts the wins in pairs (ours, theirs) of seconds or joules.

    >>> wins([(1.0, 2.0), (2.0, 1.0)])
    Wins(problems=2, share=0.5, median_when_won=2.0, median=1.25, least=0.5)
    """
    ratios = [theirs / ours if math.isfinite(ours) else 0.0 for ours, theirs in pairs if ours or theirs]
    if not ratios:
        return None
    won = [ratio for ratio in ratios if ratio > 1]
    return Wins(
        len(ratios),
        len(won) / len(ratios),
        median(won) if won else None,
        median(ratios),
        min(ratios),
    )


def median(values: Sequence[float]) -> float:
    """The middle one; infinite ones are larger than all others."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


def percentile(values: Sequence[float], percent: float) -> float:
    """So many percent of the values are at most this; infinite ones are larger than all others.

    >>> percentile([1.0, 2.0, 3.0, float("inf")], 50)
    2.0
    """
    return float(np.percentile(values, percent, method="inverted_cdf"))


def log_correlation(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Pearson's, of the logarithms; nothing where one of the two does not vary."""
    if len(pairs) < 3:
        return None
    x, y = np.log(np.array(pairs, dtype=float)).T
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    return float(np.corrcoef(x, y)[0, 1])


def rank_correlation(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Spearman's: whether the order of the one is that of the other.

    >>> rank_correlation([(1, 2), (2, 7), (2, 7), (9, 8)])
    1.0
    """
    if len(pairs) < 3:
        return None
    x, y = (_ranks(column) for column in np.array(pairs, dtype=float).T)
    return round(float(np.corrcoef(x, y)[0, 1]), 12)


def _ranks(column: np.ndarray) -> np.ndarray:
    """Equal numbers share the mean of their ranks, whichever way a machine sorts them."""
    _, places, counts = np.unique(column, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts + 1) / 2)[places]


def log_regression(rows: Sequence[Sequence[float]]) -> Fit | None:
    """Rows are y and its predictors, all positive.

    >>> fit = log_regression([(2.0 * x * x, x) for x in (1.0, 2.0, 3.0, 5.0)])
    >>> round(fit.slopes[0], 6), round(fit.r2, 6)
    (2.0, 1.0)
    """
    if len(rows) < len(rows[0]) + 2 if rows else True:
        return None
    logs = np.log(np.array(rows, dtype=float))
    y, x = logs[:, 0], np.column_stack([np.ones(len(logs)), logs[:, 1:]])
    coefficients, _, rank, _ = np.linalg.lstsq(x, y, rcond=None)
    if rank < x.shape[1] or np.ptp(y) == 0:
        return None
    residual, total = y - x @ coefficients, y - y.mean()
    r2 = 1.0 - float(residual @ residual) / float(total @ total)
    count, predictors = len(rows), x.shape[1] - 1
    adjusted = 1.0 - (1.0 - r2) * (count - 1) / (count - predictors - 1)
    intercept, *slopes = map(float, coefficients)
    return Fit(intercept, tuple(slopes), r2, adjusted, count)
