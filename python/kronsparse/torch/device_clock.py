"""How long a GPU takes for calls, without what the host takes to make them.

A layer at a small batch is a few microseconds of a GPU's work and several times as much of Python's. Events
around such a call, on a GPU that waits for it, measure Python. In a CUDA graph, or behind other work that the
GPU still has to do, only the GPU's time counts. So calls are enqueued while the GPU is kept busy with
something else.

Events take time themselves, as long as a small kernel's, and a kernel that may begin before the one ahead has
ended gains nothing behind an event. So what is timed is a call behind a kernel that reads x, and what that
kernel takes alone is subtracted. x is then in the cache, where whoever made it has left it. All else was
pushed out before: other layers' weights have been read since this one's were. It is pushed out by reading.
Lines that were written would have to go to memory while the weights come from there, at the cost of who reads
the most.
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

        def behind_a_reader(call: Callable[[], object]) -> Callable[[], object]:
            return lambda: (x.sum(), call())

        timed: list[Callable[[], object]] = [x.sum, *map(behind_a_reader, calls)]
        evict = _eviction(x.device)
        cycles = _SLEEP_CYCLES
        while True:
            events, was_busy = _enqueue(timed, evict, cycles)
            torch.cuda.current_stream().synchronize()
            if was_busy or cycles >= _MOST_SLEEP_CYCLES:
                break
            cycles *= 10
    alone, *together = (
        statistics.median(1e-3 * begin.elapsed_time(end) for begin, end in mine) for mine in events
    )
    return [max(seconds - alone, 0.0) for seconds in together]


Events = list[tuple[torch.cuda.Event, torch.cuda.Event]]


def _enqueue(
    calls: Sequence[Callable[[], object]], evict: Callable[[], object], cycles: int
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
            begin.record()
            call()
            end.record()
            mine.append((begin, end))
    return events, not slept.query()


def _eviction(device: torch.device) -> Callable[[], object]:
    """Reads more than the second-level cache holds; nothing where there is no memory for that."""
    size = 2 * getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 64 << 20)
    try:
        return torch.zeros(size // 4, dtype=torch.float32, device=device).sum
    except torch.OutOfMemoryError:
        return lambda: None
