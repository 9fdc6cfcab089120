"""How long a GPU takes for calls, without what the host takes to make them.

A layer at a small batch is a few microseconds of a GPU's work and several times as much of Python's. Events
around such a call, on a GPU that waits for it, measure Python. In a CUDA graph, or behind other work that the
GPU still has to do, only the GPU's time counts. So calls are enqueued while the GPU is kept busy with
something else. Before each, what the caches hold is pushed out: other layers' weights have been read since
this one's were. x is read again: whoever made it has left it there.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

_RUNS = 9
_SLEEP_CYCLES, _MOST_SLEEP_CYCLES = 4_000_000, 400_000_000  # 2 and 200 ms of an H200


def device_seconds(calls: Sequence[Callable[[], object]], x: Tensor) -> list[float]:
    """The GPU's median seconds for each of the calls, by turns, on the current stream of x's device. They
    multiply x, which is only read."""
    with torch.cuda.device(x.device):
        for call in calls:
            call()  # the first has to prepare
        torch.cuda.current_stream().synchronize()
        evict = _eviction(x.device)
        cycles = _SLEEP_CYCLES
        while True:
            events, was_busy = _enqueue(calls, x, evict, cycles)
            torch.cuda.current_stream().synchronize()
            if was_busy or cycles >= _MOST_SLEEP_CYCLES:
                break
            cycles *= 10
    return [statistics.median(1e-3 * begin.elapsed_time(end) for begin, end in mine) for mine in events]


Events = list[tuple[torch.cuda.Event, torch.cuda.Event]]


def _enqueue(
    calls: Sequence[Callable[[], object]], x: Tensor, evict: Callable[[], object], cycles: int
) -> tuple[list[Events], bool]:
    """The events around each run of each call, and whether the GPU was busy until all were enqueued."""
    events: list[Events] = [[] for _ in calls]
    torch.cuda._sleep(cycles)
    slept = torch.cuda.Event()
    slept.record()
    for _ in range(_RUNS):
        for call, mine in zip(calls, events, strict=True):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            evict()
            x.sum()
            begin.record()
            call()
            end.record()
            mine.append((begin, end))
    return events, not slept.query()


def _eviction(device: torch.device) -> Callable[[], object]:
    """Writes more than the second-level cache holds; nothing where there is no memory for that."""
    size = 2 * getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 64 << 20)
    try:
        return torch.empty(size, dtype=torch.uint8, device=device).zero_
    except torch.OutOfMemoryError:
        return lambda: None
