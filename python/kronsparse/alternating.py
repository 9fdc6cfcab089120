"""Factors for chains that are not chainable: improved one by one, by least squares, from several starts.

Such a chain may have no best product, and no algorithm is known that comes near one with a guarantee. What is
found is a place where no single factor can be improved any more, or close to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kronsparse import algebra
from kronsparse.least_squares import improved, relative_error, squared_error
from kronsparse.patterns import Chain

Array = NDArray[Any]
Factors = list[Array]
Part = Callable[[Chain], Factors]

SWEEPS = 20  # where none are asked for
TRIAL_SWEEPS = 3
RANDOM_STARTS = 2


def alternating(
    w: Array, chain: Chain, polish: int, part: Part, progress: Callable[[float], object] | None
) -> tuple[Factors, float, float]:
    """Factors, their error, and a bound that no product of the chain is below: what lies outside of the
    product's support. `part` factorises w with a chainable chain of the same size.

    Every start gets a few sweeps; the best one gets the rest.
    """
    algebra.check_finite("w", w)
    norm = algebra.norm(w)
    if norm == 0:
        return [np.zeros(pattern, w.dtype) for pattern in chain], 0.0, 0.0
    scaled = (w / norm).astype(w.dtype)
    sweeps = polish or SWEEPS
    trials = min(TRIAL_SWEEPS, sweeps)
    starts = _starts(scaled, chain, part)
    total = len(starts) * trials + sweeps - trials
    done = 0

    def swept(factors: Factors, count: int) -> Factors:
        nonlocal done
        for _ in range(count):
            factors = improved(scaled, factors, None, 1)
            done += 1
            if progress is not None:
                progress(done / total)
        return factors

    tried = [swept(start, trials) for start in starts]
    best = min(tried, key=lambda factors: squared_error(scaled, factors, None))
    best = swept(best, sweeps - trials)
    outside = float(np.linalg.norm(scaled[~algebra.support(chain)]))
    error = relative_error(scaled, best, None)
    share = norm ** (1 / len(chain))  # all alike: one factor alone could overflow
    return [(values * share).astype(w.dtype) for values in best], error, outside


def _starts(w: Array, chain: Chain, part: Part) -> list[Factors]:
    """Random factors; and for each chainable part, w as a product of that part, the others being identities,
    where these are square."""
    rng = np.random.default_rng(0)
    starts = [
        [(rng.normal(size=pattern) / math.sqrt(pattern.c)).astype(w.dtype) for pattern in chain]
        for _ in range(RANDOM_STARTS)
    ]
    identities = [_identity(pattern, w.dtype) for pattern in chain]
    for begin, end in _chainable_parts(chain):
        if all(chain[at].b == chain[at].c for at in range(len(chain)) if not begin <= at < end):
            starts.append([*identities[:begin], *part(Chain(chain[begin:end])), *identities[end:]])
    return starts


def _identity(pattern: tuple[int, int, int, int], dtype: np.dtype[Any]) -> Array:
    return np.broadcast_to(np.eye(pattern[1], pattern[2], dtype=dtype)[None, :, :, None], pattern).copy()


def _chainable_parts(chain: Chain) -> list[tuple[int, int]]:
    """The longest stretches of chainable neighbours.

    >>> _chainable_parts(Chain([(1, 2, 2, 2), (2, 2, 2, 1), (1, 2, 2, 2)]))
    [(0, 2), (2, 3)]
    """
    ends = [index + 1 for index, rank in enumerate(chain.ranks) if rank == 0] + [len(chain)]
    return list(zip([0, *ends[:-1]], ends, strict=True))
