"""Memory that all problems of a run share, filled once: what is drawn, and what is copied, costs no time."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from kronsparse.bench.measuring.answers import TORCH_DTYPES
from kronsparse.bench.measuring.devices import Device
from kronsparse.bench.problems.problem import ITEM_BYTES, Problem

# Buffers are rotated until together they are this many times the last cache.
CACHES_TO_EXCEED = 4
MOST_SETS = 16
WEIGHTY = 0.1  # the share of the values in what is read and written from which on they are rotated, too
_ALIGNMENT = 512


def draw_values(problem: Problem, device: Device) -> Tensor:
    """Uniform within 1/sqrt(c), as the paper has them."""
    values = torch.rand(problem.pattern, device=device.torch).mul_(2).sub_(1)
    return values.div_(math.sqrt(problem.pattern.c)).to(TORCH_DTYPES[problem.dtype])


class Arena:
    """x, standard normal, and y for every problem of a run, as views of a few large buffers."""

    def __init__(self, device: Device, problems: Iterable[Problem]) -> None:
        self.device = device
        elements: dict[str, int] = {}
        y_bytes = 0
        for problem in problems:
            x_bytes, mine = (self.sets(problem) * self._rounded(size) for size in problem.operand_bytes)
            count = x_bytes // ITEM_BYTES[problem.dtype]
            elements[problem.dtype] = max(count, elements.get(problem.dtype, 0))
            y_bytes = max(mine, y_bytes)
        self._x = {dtype: self._normal(dtype, count) for dtype, count in elements.items()}
        self._y = torch.empty(y_bytes, dtype=torch.uint8, device=device.torch)

    def _normal(self, dtype: str, count: int) -> Tensor:
        torch.manual_seed(1)
        pool = torch.empty(count, dtype=TORCH_DTYPES[dtype], device=self.device.torch)
        pool.normal_()
        return pool

    @staticmethod
    def _rounded(size: int) -> int:
        return -(-size // _ALIGNMENT) * _ALIGNMENT

    @staticmethod
    def fits(device: Device, problem: Problem) -> bool:
        """x and y, a permuted copy of each, and as much again for whatever else is around; the values as they
        were drawn, packed, and as two rivals have them."""
        needed = 3 * sum(problem.operand_bytes) + 4 * problem.weight_bytes
        return needed < 0.9 * device.memory_bytes

    def sets(self, problem: Problem) -> int:
        """How many pairs x, y are rotated."""
        wanted = CACHES_TO_EXCEED * self.device.cache_bytes / max(1, sum(problem.operand_bytes))
        return max(1, min(MOST_SETS, math.ceil(wanted)))

    def value_sets(self, problem: Problem) -> int:
        """How many sets of values are rotated: one, unless values are so large a part of what is read that
        it would matter whether they stay in the cache."""
        if problem.weight_bytes < WEIGHTY * problem.moved_bytes:
            return 1
        wanted = CACHES_TO_EXCEED * self.device.cache_bytes / problem.moved_bytes
        return max(1, min(self.sets(problem), math.ceil(wanted)))

    def holds(self, problem: Problem) -> bool:
        """Whether this problem, which may be none of the run's, finds its operands here."""
        x_bytes, y_bytes = (self.sets(problem) * self._rounded(size) for size in problem.operand_bytes)
        pool = self._x.get(problem.dtype)
        return pool is not None and x_bytes <= pool.nbytes and y_bytes <= self._y.nbytes

    def operands(self, problem: Problem) -> list[tuple[Tensor, Tensor]]:
        """As many pairs x, y as are rotated."""
        size = ITEM_BYTES[problem.dtype]
        pools = (self._x[problem.dtype], self._y.view(TORCH_DTYPES[problem.dtype]))
        pairs = []
        for turn in range(self.sets(problem)):
            views = []
            for pool, used, shape in zip(pools, problem.operand_bytes, problem.shapes, strict=True):
                begin = turn * self._rounded(used) // size
                views.append(pool[begin : begin + used // size].view(shape))
            pairs.append((views[0], views[1]))
        return pairs
