"""Times a layer that reads its weights at every call beside the same layer frozen: the price of weights that
may change.

Answers are compared with float64 before anything is timed. Batches up to 64 are timed in CUDA graphs, each
call with weights of its own that are out of the cache; larger ones are timed eagerly. For layers of two
factors it also times the host's part of a call beside that of nn.Linear, and counts the bytes that 16 batch
sizes leave packed.

  kronsparse-bench weights --output weights.jsonl
  kronsparse-bench weights --device cpu --limit 2
"""

from __future__ import annotations

import argparse
import copy
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from kronsparse.bench.measuring.answers import TORCH_DTYPES
from kronsparse.bench.measuring.devices import Device, begin_results, open_device
from kronsparse.bench.options import add_output, count, words
from kronsparse.bench.problems.suites import SMALL_BATCHES, SUITES
from kronsparse.bench.reporting.weights_table import summary
from kronsparse.bench.results.rows import Row
from kronsparse.chains import Pattern
from kronsparse.torch import KSLinear, memory_info
from kronsparse.torch.backends import by_einsum

BATCHES = (1024, 25088)
DTYPES = ("f16", "f32")
LAYOUTS = ("batch_first", "batch_last")
ALLOWED = {"f16": 2e-3, "bf16": 1.6e-2, "f32": 2e-6}  # in norm: a few roundings
SAMPLES_CHECKED = 16
HOST_CALLS, HOST_RUNS = 200, 15
MANY_BATCHES = (1, 2, 3, 5, 8, 13, 16, 33, 64, 100, 256, 500, 1024, 2000, 4096, 8192)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `weights`."""
    add = parser.add_argument
    add(
        "--device",
        default="cuda:0",
        help="device to measure: cuda:N, or cpu to try the command (default cuda:0)",
    )
    add(
        "--dtypes",
        type=words(list(DTYPES)),
        default=list(DTYPES),
        metavar="LIST",
        help="dtypes to run (default f16,f32)",
    )
    add("--limit", type=count, metavar="N", help="run the first N patterns of each suite")
    add_output(parser)


def main(options: argparse.Namespace) -> int:
    """Measures, and prints the tables. Returns 1 where an answer was wrong."""
    device = open_device(options.device)
    results = begin_results("weights", device, options.output)
    for dtype in options.dtypes:
        results.add("host_times", **host_times(device, dtype))
        results.add("packed", **packed_bytes(device, dtype))
    for dtype, layout, batch, pattern in _problems(options.dtypes, options.limit, device.name == "cpu"):
        row = price(device, dtype, layout, batch, pattern)
        results.add("price", **row)
        print(f"{row['problem']}: {row['status']}", file=sys.stderr, flush=True)
        device.tidy()
    print(summary(results.rows))
    return int(any(row.get("status") == "wrong" for row in results.rows))


def _problems(dtypes: Sequence[str], limit: int | None, is_cpu: bool) -> list[tuple[str, str, int, Pattern]]:
    small, sample = (SUITES[name].patterns[:limit] for name in ("small-batch", "sample"))
    found = [("f16", "batch_first", batch, pattern) for batch in SMALL_BATCHES for pattern in small]
    for batch in BATCHES[: 1 if is_cpu else None]:
        found += [(dtype, layout, batch, one) for dtype in dtypes for layout in LAYOUTS for one in sample]
    return found if "f16" in dtypes else [one for one in found if one[0] in dtypes]


def price(device: Device, dtype: str, layout: str, batch: int, pattern: Pattern) -> Row:
    """Seconds of a call, frozen and not, of one factor."""
    torch.manual_seed(1)
    where, kind = device.torch, TORCH_DTYPES[dtype]
    is_small = batch <= max(SMALL_BATCHES)
    bytes_of_values = pattern.nnz * kind.itemsize
    copies = min(40, max(1, math.ceil(2.2 * device.cache_bytes / bytes_of_values))) if is_small else 1
    layers = [
        KSLinear(pattern.cols, pattern.rows, [pattern], False, layout, "kernel", where, kind)
        for _ in range(copies)
    ]
    shape = (batch, pattern.cols) if layout == "batch_first" else (pattern.cols, batch)
    x = torch.randn(shape, device=where).to(kind)
    problem = f"{dtype} {layout} B={batch} {pattern}"
    row: Row = {"problem": problem, "dtype": dtype, "layout": layout, "batch": batch, "status": "ok"}
    states = {"unfrozen": layers, "frozen": [copy.deepcopy(layer).eval().freeze() for layer in layers]}
    with torch.no_grad():
        for state, of_state in states.items():
            row[f"{state}_error"] = error = _error(of_state[0], x, layout)
            if not error <= ALLOWED[dtype]:
                return row | {"status": "wrong"}
        calls = {state: [_call_of(layer, x) for layer in of_state] for state, of_state in states.items()}
        if is_small:
            seconds = {state: _graph_seconds(device, of_state) for state, of_state in calls.items()}
        else:
            seconds = _seconds_by_turns(device, {state: of_state[0] for state, of_state in calls.items()})
    return row | {f"{state}_s": of_state for state, of_state in seconds.items()}


def _call_of(layer: KSLinear, x: Tensor) -> Callable[[], Tensor]:
    return lambda: layer(x)


def _error(layer: KSLinear, x: Tensor, layout: str) -> float:
    """In norm, against float64, of some samples."""
    is_first = layout == "batch_first"
    some = x[:SAMPLES_CHECKED] if is_first else x[:, :SAMPLES_CHECKED]
    y = layer(x)
    exact = by_einsum(some.double(), layer.factors[0].double(), layout)
    mine = (y[:SAMPLES_CHECKED] if is_first else y[:, :SAMPLES_CHECKED]).double()
    return float((mine - exact).norm() / exact.norm())


def _seconds_by_turns(device: Device, calls: dict[str, Callable[[], Tensor]]) -> dict[str, float]:
    """Medians; by turns, because a GPU slows down as it gets warm."""
    for call in calls.values():
        call(), call()
    _, runs = device.effort.schedule(max(device.seconds_of(call) for call in calls.values()))
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(runs):
        for name, call in calls.items():
            found[name].append(device.seconds_of(call))
    return {name: statistics.median(seconds) for name, seconds in found.items()}


def _graph_seconds(device: Device, calls: Sequence[Callable[[], Tensor]]) -> float:
    rounds = math.ceil(device.replayed_calls / len(calls))
    in_graph = list(calls) * rounds
    for call in calls:
        call()  # what is frozen is packed before the graph
    replay = device.replayable(in_graph)
    device.seconds_of(replay)
    return statistics.median(device.seconds_of(replay) / len(in_graph) for _ in range(11))


def host_times(device: Device, dtype: str) -> Row:
    """Microseconds that a call of a small layer of two factors keeps the host busy, beside nn.Linear's."""
    where, kind, size = device.torch, TORCH_DTYPES[dtype], 64
    linear = nn.Linear(size, size, device=where, dtype=kind)
    layers = {"linear": linear, "kslinear": KSLinear(size, size, device=where, dtype=kind)}
    x = torch.randn(1, size, device=where).to(kind)
    g = torch.randn(1, size, device=where).to(kind)

    def microseconds(call: Callable[[], object]) -> float:
        runs = []
        for _ in range(HOST_RUNS):
            device.synchronize()
            begun = time.perf_counter()
            for _ in range(HOST_CALLS):
                call()
            runs.append((time.perf_counter() - begun) / HOST_CALLS * 1e6)
        return min(runs)

    def times_of(layer: nn.Module) -> dict[str, float]:
        with torch.no_grad():
            found = {"no_grad": microseconds(lambda: layer(x))}
        found["with gradient"] = microseconds(lambda: layer(x))
        return found | {"forward and backward": microseconds(lambda: layer(x).backward(g))}

    row: Row = {"dtype": dtype, "size": size, "batch": 1}
    row |= {name: times_of(layer) for name, layer in layers.items()}
    frozen = KSLinear(size, size, device=where, dtype=kind, backend="kernel").eval().freeze()
    with torch.no_grad():
        row["frozen"] = {"no_grad": microseconds(lambda: frozen(x))}
    return row


def packed_bytes(device: Device, dtype: str) -> Row:
    """The packed bytes of a frozen layer of two factors after many batch sizes, beside its weights; and the
    microseconds that the first call with a new size keeps the host."""
    where, kind, size = device.torch, TORCH_DTYPES[dtype], 1024
    layer = KSLinear(size, size, "monarch(blocks=32)", backend="kernel", device=where, dtype=kind).eval()
    values = sum(factor.numel() * factor.element_size() for factor in layer.factors)
    before = memory_info().packed_bytes
    layer.freeze()
    first: list[float] = []
    with torch.no_grad():
        for batch in MANY_BATCHES:
            x = torch.randn(batch, size, device=where).to(kind)
            layer(x[:1])
            device.synchronize()
            begun = time.perf_counter()
            layer(x)
            first.append((time.perf_counter() - begun) * 1e6)
            device.synchronize()
    kept = memory_info().packed_bytes - before
    return {
        "dtype": dtype,
        "weights": values,
        "packed": kept,
        "batches": len(MANY_BATCHES),
        "first_us": first,
    }
