"""Chains that could stand for a dense layer, with what they cost in parameters and give in rank."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from kronsparse.bench.problems.suites import block_butterfly
from kronsparse.chains import Chain, Pattern, chain_text, checked, low_rank

MOST_LEVELS = 8


@dataclass(frozen=True)
class Proposal:
    """A chain for a layer."""

    name: str
    chain: Chain

    @property
    def parameters(self) -> int:
        """Values of all its factors."""
        return sum(pattern.nnz for pattern in self.chain)

    @property
    def density(self) -> float:
        """Parameters over entries of the matrix."""
        return self.parameters / (self.chain[0].rows * self.chain[-1].cols)

    @property
    def rank(self) -> int:
        """The rank of the product with values in general position: the narrowest place of the chain."""
        return min(self.chain[0].rows, *(pattern.cols for pattern in self.chain))

    @property
    def h(self) -> float:
        """The least of its factors: what its products cost most in arithmetic."""
        return min(pattern.h for pattern in self.chain)

    def __str__(self) -> str:
        return chain_text(self.chain)


def _divisors(number: int) -> list[int]:
    return [one for one in range(1, number + 1) if number % one == 0]


def two_factors(rows: int, cols: int, blocks: int, width: int) -> Chain:
    """(1, rows/blocks, width, blocks), (blocks, width, cols/blocks, 1): Monarch where width = blocks, low
    rank where blocks = 1. It has width·(rows + cols) parameters, whatever the blocks.

    >>> chain_text(two_factors(32, 8, blocks=4, width=2))
    '1x8x2x4*4x2x2x1'
    """
    left = Pattern.of((1, rows // blocks, width, blocks))
    return checked([left, Pattern.of((blocks, width, cols // blocks, 1))])


def proposals(rows: int, cols: int, most_parameters: int) -> Iterator[Proposal]:
    """Every chain of the families the paper names that stays within the parameters."""
    widths = [1 << power for power in range(14)] + [3 << power for power in range(12)]
    for width in sorted(widths):
        if width * (rows + cols) > most_parameters:
            continue
        if width < min(rows, cols):
            yield Proposal(f"low rank {width}", low_rank(rows, cols, width))
        for blocks in _divisors(math.gcd(rows, cols)):
            # Wider inside than the matrix itself, a chain only repeats what it can do.
            if 1 < blocks < min(rows, cols) and blocks * width <= 2 * min(rows, cols):
                name = "monarch" if width == blocks else "two factors"
                yield Proposal(f"{name}, {blocks} blocks", two_factors(rows, cols, blocks, width))
    for levels in range(2, MOST_LEVELS + 1):
        if rows == cols and rows % 2**levels == 0:
            butterfly = Proposal(f"block butterfly, {levels} levels", block_butterfly(rows, levels))
            if butterfly.parameters <= most_parameters:
                yield butterfly
