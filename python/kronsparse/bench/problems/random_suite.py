"""The suite `random`: problems that nobody tuned for, drawn from a seed.

A seed that was used during development is an exam whose questions are known: give a new one. The draws are
those of Python's own generator, whose numbers are the same on every machine and in every version.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from itertools import islice

from kronsparse.chains import Pattern

PROBLEMS = 200
COUNTS, SIZES, DISTANCES, BATCHES = (1, 128), (2, 4096), (1, 256), (64, 32768)
MOST_ELEMENTS = 2**30  # of x, of y and of the values
# Bytes of x, y and values in a half type, so that every dtype has the same problems.
LEAST_BYTES = 20e6
_HALF_BYTES = 2

Case = tuple[Pattern, int]  # with its batch


def _log_uniform(draw: random.Random, least: int, most: int) -> int:
    """A whole number from least to most; an octave is as likely as any other."""
    return min(most, math.floor(math.exp(draw.uniform(math.log(least), math.log(most + 1)))))


def _fits(pattern: Pattern, batch: int) -> bool:
    elements = batch * pattern.cols, batch * pattern.rows, pattern.nnz
    return max(elements) <= MOST_ELEMENTS and _HALF_BYTES * sum(elements) >= LEAST_BYTES


def _cases(seed: int) -> Iterator[Case]:
    draw = random.Random(seed)
    while True:
        a, b, c, d, batch = (
            _log_uniform(draw, *bounds) for bounds in (COUNTS, SIZES, SIZES, DISTANCES, BATCHES)
        )
        if _fits(Pattern(a, b, c, d), batch):
            yield Pattern(a, b, c, d), batch


def random_cases(seed: int, count: int = PROBLEMS) -> tuple[Case, ...]:
    """The first problems of a seed: patterns with their batches.

    >>> random_cases(1, 2) == random_cases(1)[:2]
    True
    """
    return tuple(islice(_cases(seed), count))
