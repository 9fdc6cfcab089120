"""Times KSLinear as a layer: a step of training beside torch's bmm, eager and compiled, and nn.Linear's; the
layer beside its bare kernel; the host's part of a call beside nn.Linear's.

Gradients are compared with float64 before anything is timed.

  kronsparse-bench layers --dtypes f16,bf16 --output layers.jsonl
  kronsparse-bench layers --dtypes f16 --limit 6 --compiled
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from kronsparse.bench.measuring.devices import Device, begin_results, open_device
from kronsparse.bench.options import add_output, count, words
from kronsparse.bench.reporting.layer_table import summary
from kronsparse.bench.results.rows import Row
from kronsparse.chains import Pattern
from kronsparse.torch import KSLinear, _operators
from kronsparse.torch._library import ADJOINT, SETTINGS
from kronsparse.torch.backends import to_dense

# Patterns of the paper's grid: narrow and wide blocks, few and many, every distance of j.
PATTERNS = [
    Pattern(*sizes)
    for sizes in (
        *((16, 48, 48, 16), (1, 64, 64, 64), (48, 64, 64, 4), (8, 128, 128, 16), (4, 192, 192, 8)),
        *((64, 64, 256, 2), (4, 256, 64, 32), (1, 96, 96, 64), (12, 128, 512, 4), (3, 768, 192, 4)),
        *((1, 1024, 1024, 4), (64, 48, 48, 1)),
    )
]
BATCH = 25088
DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16}
# The largest errors of gradients, in norm: a few roundings of the dtype.
ALLOWED = {"f16": 2e-3, "bf16": 1.6e-2}
SAMPLES_CHECKED = 64
HOST_CALLS, HOST_RUNS = 200, 30
DENSE_BYTES = 16e9  # nn.Linear with larger matrices is not tried


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `layers`."""
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
        help="dtypes to run (default f16,bf16)",
    )
    add("--batch", type=count, default=BATCH, metavar="N", help=f"number of samples (default {BATCH})")
    add("--limit", type=count, metavar="N", help=f"run the first N of {len(PATTERNS)} patterns")
    add(
        "--compiled", action="store_true", help="time torch.compile of bmm too, which takes seconds a pattern"
    )
    add_output(parser)


def main(options: argparse.Namespace) -> int:
    """Measures, and prints the tables. Returns 1 where a gradient was wrong."""
    device = open_device(options.device)
    results = begin_results("layers", device, options.output)
    results.add("host", **host_time(device))
    for dtype in options.dtypes:
        for pattern in PATTERNS[: options.limit]:
            row = training_step(device, dtype, pattern, options.batch, options.compiled)
            results.add("layer", **row)
            print(f"{row['problem']}: {row['status']}", file=sys.stderr, flush=True)
    print(summary(results.rows))
    return int(any(row.get("status") == "wrong" for row in results.rows))


def host_time(device: Device) -> Row:
    """Microseconds that a call of a tiny layer keeps the host busy, beside nn.Linear's."""
    where, dtype = device.torch, torch.float16
    layers = {
        "linear": torch.nn.Linear(64, 64, device=where, dtype=dtype),
        "kslinear": KSLinear(64, 64, "dense", backend="kernel", device=where, dtype=dtype),
    }
    x = torch.randn(1, 64, device=where, dtype=dtype)

    def microseconds(layer: torch.nn.Module) -> float:
        device.synchronize()
        begun = time.perf_counter()
        for _ in range(HOST_CALLS):
            layer(x)
        return (time.perf_counter() - begun) / HOST_CALLS * 1e6

    with torch.no_grad():
        runs = [[microseconds(layer) for layer in layers.values()] for _ in range(HOST_RUNS)]
    return {name: statistics.median(run[at] for run in runs[3:]) for at, name in enumerate(layers)}


def training_step(device: Device, dtype: str, pattern: Pattern, batch: int, compiled: bool) -> Row:
    """Seconds of forward and backward, of a forward alone and of the bare kernel; the gradients' errors."""
    torch.manual_seed(1)
    where, kind = device.torch, DTYPES[dtype]
    values = (torch.rand(pattern, device=where) * 2 - 1).div(pattern.c**0.5).to(kind)
    x = torch.randn(batch, pattern.cols, device=where, dtype=kind).requires_grad_()
    g = torch.randn(batch, pattern.rows, device=where, dtype=kind)
    row: Row = {"problem": f"{dtype} batch_first B={batch} {pattern}", "dtype": dtype, "status": "ok"}

    def layer_of(backend: str) -> KSLinear:
        return KSLinear.from_factors([values], backend=backend)

    def step_of(call: Callable[[Tensor], Tensor], weights: Tensor) -> Callable[[], None]:
        def step() -> None:
            x.grad = weights.grad = None
            call(x).backward(g)

        return step

    layers = {"kernel": layer_of("kernel"), "bmm": layer_of("bmm")}
    calls: dict[str, Callable[[Tensor], Tensor]] = dict(layers)
    if compiled:
        torch._dynamo.reset()  # it compiles one function for a few shapes only, then runs it uncompiled
        layers["compiled"] = layer_of("bmm")
        calls["compiled"] = torch.compile(layers["compiled"], dynamic=False)
    dense = _dense_layer(pattern, values)
    if dense is not None:
        calls["linear"] = dense
    factor = layers["kernel"].factors[0]
    step_of(calls["kernel"], factor)()
    assert x.grad is not None and factor.grad is not None  # a step has just made them
    row["errors"] = _errors(pattern, x, values, g, x.grad, factor.grad)
    if not max(row["errors"]) <= ALLOWED[dtype]:
        return row | {"status": "wrong"}
    if dense is not None:
        with torch.no_grad():
            few = x[:SAMPLES_CHECKED]
            row["linear_error"] = _error(dense(few), layers["kernel"](few).double())
        if not row["linear_error"] <= 2 * ALLOWED[dtype]:
            del calls["linear"]
    weights = {name: layer.factors[0] for name, layer in layers.items()}
    if dense is not None:
        weights["linear"] = dense.weight
    row["step_s"] = {name: _seconds(device, step_of(call, weights[name])) for name, call in calls.items()}
    with torch.no_grad():
        row["forward_s"] = {name: _seconds(device, partial(call, x)) for name, call in calls.items()}
        plain, settings = _operators.plain, SETTINGS["none", "batch_first", "fp32"]
        frozen = torch.ops.kronsparse.freeze([factor.detach()], [factor._version])
        row["bare_s"] = _seconds(device, lambda: plain(x, [factor], None, settings, frozen))
        row["adjoint_s"] = _seconds(device, lambda: plain(g, [factor], None, settings | ADJOINT, frozen))
        row["gradient_s"] = _seconds(device, lambda: _operators.gradient(x, g, *pattern, settings))
        torch.ops.kronsparse.release(frozen)
    return row


def _dense_layer(pattern: Pattern, values: Tensor) -> torch.nn.Linear | None:
    """nn.Linear with the same matrix, where its zeros fit in memory: what ours takes the place of."""
    entries = pattern.rows * pattern.cols
    # The matrix, its gradient, and a copy of each while they are made.
    if 4 * entries * values.element_size() > DENSE_BYTES:
        return None
    dense = torch.nn.Linear(pattern.cols, pattern.rows, False, values.device, values.dtype)
    with torch.no_grad():
        dense.weight.copy_(to_dense([values]))
    return dense


def _error(found: Tensor, exact: Tensor) -> float:
    return float((found.double() - exact).norm() / exact.norm())


def _seconds(device: Device, call: Callable[[], object]) -> float:
    call(), call()
    estimate = device.seconds_of(call)
    _, runs = device.effort.schedule(estimate)
    return statistics.median(device.seconds_of(call) for _ in range(runs))


def _errors(
    pattern: Pattern, x: Tensor, values: Tensor, g: Tensor, grad_x: Tensor, grad_values: Tensor
) -> list[float]:
    """In norm, against float64: the gradient of x for some samples, that of the values for one (i, j)."""
    a, b, c, d = pattern
    some = slice(0, SAMPLES_CHECKED)
    exact_x = torch.einsum("nikj,iklj->nilj", g[some].double().view(-1, a, b, d), values.double())
    i, j = a // 2, d // 2
    outputs = g.view(-1, a, b, d)[:, i, :, j].double()
    inputs = x.detach().view(-1, a, c, d)[:, i, :, j].double()
    pairs = ((grad_x[some].view(-1, a, c, d), exact_x), (grad_values[i, :, :, j], outputs.T @ inputs))
    return [_error(ours, exact) for ours, exact in pairs]
