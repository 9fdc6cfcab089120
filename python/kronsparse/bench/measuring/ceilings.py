"""The ceilings of the hardware, as PyTorch reaches them, and the floor they give to a problem."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from kronsparse.bench.measuring.answers import TORCH_DTYPES
from kronsparse.bench.measuring.devices import CpuDevice, Device
from kronsparse.bench.problems.problem import DTYPES, Problem

# Large enough for the full rates: of a GPU, of a few CPU cores.
_GPU_SIZES = 8192, 1 << 30
_CPU_SIZES = 2048, 1 << 29


@contextmanager
def tf32_allowed(allowed: bool) -> Iterator[None]:
    """PyTorch's setting for products and convolutions of f32, for a while."""
    settings: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [one.allow_tf32 for one in settings]
    for one in settings:
        one.allow_tf32 = allowed
    try:
        yield
    finally:
        for one, was in zip(settings, before, strict=True):
            one.allow_tf32 = was


def _copy(device: Device, copied: int) -> Callable[[], object]:
    source, target = torch.zeros(2, copied, dtype=torch.uint8, device=device.torch).unbind()
    return partial(target.copy_, source)


def _product(device: Device, dtype: torch.dtype, size: int) -> Callable[[], object]:
    left, right, product = torch.randn(3, size, size, device=device.torch).to(dtype).unbind()
    return partial(torch.mm, left, right, out=product)


@dataclass(frozen=True)
class Ceilings:
    """The rates that PyTorch reaches on a device."""

    copy_bytes: float  # per second, reads and writes both counted
    gemm_flops: dict[str, float] = field(default_factory=dict)  # per second, by dtype, and "tf32"

    @staticmethod
    def measure(device: Device, runs: int = 5) -> Ceilings:
        """The best of so many runs of a copy, and of a product in each dtype."""
        device = device.of_ceilings
        on_cpu = isinstance(device, CpuDevice)
        size, copied = _CPU_SIZES if on_cpu else _GPU_SIZES

        def best(call: Callable[[], object]) -> float:
            call()
            return min(device.seconds_of(call) for _ in range(runs))

        copy_s = best(_copy(device, copied))
        gemm_flops = {}
        # A CPU computes halves in f32: every dtype is held against the rate of f32.
        for name in ["f32"] if on_cpu else [*DTYPES, "tf32"]:
            dtype = TORCH_DTYPES.get(name, torch.float32)
            with tf32_allowed(name == "tf32"):
                multiply_s = best(_product(device, dtype, size))
            gemm_flops[name] = 2.0 * size**3 / multiply_s
        return Ceilings(2.0 * copied / copy_s, gemm_flops)

    @staticmethod
    def of_record(run: dict[str, Any]) -> Ceilings:
        """Those that a run wrote into its results file."""
        return Ceilings(**run["ceilings"])

    def __str__(self) -> str:
        unit, scale = ("T", 1e12) if self.copy_bytes > 5e11 else ("G", 1e9)
        rates = ", ".join(f"{name} {rate / scale:.3g}" for name, rate in self.gemm_flops.items())
        return f"copy {self.copy_bytes / scale:.3g} {unit}B/s, GEMM {rates} {unit}FLOP/s"

    def gemm_rate(self, dtype: str) -> float:
        """Flops per second that the dtype is held against."""
        return self.gemm_flops.get(dtype, self.gemm_flops["f32"])

    def floor(self, problem: Problem) -> tuple[float, str]:
        """The least seconds, and what binds. Every mode of f32 is held against the rate of f32."""
        by_flops = problem.flops / self.gemm_rate(problem.dtype)
        by_bytes = problem.moved_bytes / self.copy_bytes
        return (by_flops, "flops") if by_flops >= by_bytes else (by_bytes, "bytes")


class Probe:
    """The copy and the product that give the ceilings of a CPU, ready to be timed by turns with others.

    A shared machine is slower in one minute than in the next, by half at times: the ceilings of a run's start
    say little of a problem that is measured minutes later.
    """

    def __init__(self, device: CpuDevice) -> None:
        self._size, self._copied = _CPU_SIZES
        self.calls = _copy(device, self._copied), _product(device, torch.float32, self._size)

    def ceilings(self, copy_s: float, product_s: float) -> Ceilings:
        """From the time of each call."""
        return Ceilings(2.0 * self._copied / copy_s, {"f32": 2.0 * self._size**3 / product_s})
