"""The plans that torch's operators keep: how many, how many at most, and which to forget.

A plan holds the packed values of one problem (sizes, batch, dtype, layout, operation). It is found again by
the memory of the values and by their version, a counter that torch increments with in-place changes of a
tensor. Fused optimisers leave the counter alone, so every step of a torch.optim.Optimizer makes all packed
values stale. What neither shows:

- writing to ``parameter.data`` in place (assigning to ``.data`` is seen),
- collectives of torch.distributed on a parameter (``broadcast``, ``all_reduce``, ``recv``, ... of it, of its
  ``.data`` or of ``.detach()``); what DistributedDataParallel and FSDP do is seen,
- a compiled function that multiplies by a parameter and then changes it in place, both in one graph: compiled
  code counts the change before it begins,
- replaying a CUDA graph that contains an optimiser,
- writing to the memory by other means than torch.

After these, call `mark_stale` or `KSLinear.repack`.

Plans go with their layer, and with a parameter that it replaces. Those of memory that a parameter had before
an assignment to its ``.data`` stay until newer ones need their place; `drop_plans` before it frees them.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook

from kronsparse.torch import _library


class PlanCacheInfo(NamedTuple):
    """What is kept in this process."""

    plans: int
    """plans kept now"""
    capacity: int
    """plans kept at most; those that a CUDA graph uses are kept besides"""
    bytes: int
    """packed values and workspaces"""
    made: int
    """plans made since the start"""
    packed: int
    """times that values were packed since the start"""


def plan_cache_info() -> PlanCacheInfo:
    """How much is kept.

    >>> plan_cache_info().capacity
    1024
    """
    _library.check_usable("the plan cache")
    return PlanCacheInfo(*torch.ops.kronsparse.plan_cache_info())


def resize_plan_cache(capacity: int) -> None:
    """Keeps at most so many plans, those used last. Each batch size of each factor needs three in training;
    of a factor and direction those of the last 16 batch sizes are kept.

    >>> resize_plan_cache(1024)
    """
    _library.check_usable("the plan cache")
    torch.ops.kronsparse.plan_cache_resize(capacity)


def clear_plan_cache() -> None:
    """Forgets all plans and frees their memory. CUDA graphs that were captured must not be replayed any more.

    >>> clear_plan_cache()
    >>> plan_cache_info().plans
    0
    """
    _library.check_usable("the plan cache")
    torch.ops.kronsparse.plan_cache_clear()


def mark_stale(values: Tensor) -> None:
    """Has these values packed again when they are used next: for changes that torch does not count.

    >>> values = torch.nn.Parameter(torch.ones(1, 2, 2, 1))
    >>> values.data.mul_(2)
    tensor([[[[2.],
              [2.]],
    <BLANKLINE>
             [[2.],
              [2.]]]])
    >>> mark_stale(values)
    """
    if _has_plans(values):
        torch.ops.kronsparse.mark_stale(values.detach())


def drop_plans(values: Tensor) -> None:
    """Forgets the plans of these values and frees their memory.

    >>> drop_plans(torch.ones(1, 2, 2, 1))
    """
    if _has_plans(values):
        torch.ops.kronsparse.drop_plans(values.detach())


def _has_plans(values: Tensor) -> bool:
    # Tensors of other devices have none, and those of other types may have no memory to be found by.
    return (
        not _library.why_unusable and values.device.type in ("cpu", "cuda") and type(values) in PLAIN_TENSORS
    )


PLAIN_TENSORS = (Tensor, torch.nn.Parameter)


def _after_optimiser_step(*_: object) -> None:
    torch.ops.kronsparse.mark_all_stale()


if not _library.why_unusable:
    register_optimizer_step_post_hook(_after_optimiser_step)
