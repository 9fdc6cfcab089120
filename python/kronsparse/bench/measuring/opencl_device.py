"""An OpenCL device, which torch does not know: tensors of the host have copies in its memory."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import torch
from torch import Tensor

from kronsparse import _native
from kronsparse.bench.measuring.c_api import Library
from kronsparse.bench.measuring.devices import CpuDevice, CudaDevice, Device
from kronsparse.bench.measuring.timing import Effort
from kronsparse.bench.results.rows import OURS


class OpenclDevice(CpuDevice):
    """Times are of the host's clock, around runs that are enqueued one after the other and waited for."""

    effort = Effort(run_s=2e-3, total_s=30e-3, fewest=5, most=15)
    contenders = (OURS,)  # nobody else runs there

    def __init__(self, name: str, library: Library) -> None:
        why = _native.why_unusable(name)
        if why:
            raise ValueError(f"--device {name}: {why}")
        self.name = name
        self.torch = torch.device("cpu")
        self.native = library
        self.description = dict(_native.devices())[name]
        self.memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self._copies: dict[tuple[int, int], int] = {}

    @property
    def of_ceilings(self) -> Device:
        """The same GPU by CUDA, where torch sees it; else the host's CPU."""
        for number in range(torch.cuda.device_count()):
            if torch.cuda.get_device_name(number) in self.description:
                return CudaDevice(f"cuda:{number}")
        return CpuDevice("cpu")

    def address(self, tensor: Tensor) -> int:
        """The address of a copy in the device's memory, made now."""
        key = (int(tensor.data_ptr()), tensor.nbytes)
        if key not in self._copies:
            self._copies[key] = self.native.allocate(self.name, tensor.nbytes)
        self.native.copy_from_host(self.name, self._copies[key], *key)
        return self._copies[key]

    def fetch(self, tensor: Tensor) -> Tensor:
        """Copies the device's copy back into the tensor."""
        key = (int(tensor.data_ptr()), tensor.nbytes)
        self.native.copy_to_host(self.name, key[0], self._copies[key], key[1])
        return tensor

    def synchronize(self) -> None:
        self.native.synchronise(self.name)

    def seconds_of(self, call: Callable[[], object], calls: int = 1) -> float:
        self.synchronize()
        begun = time.perf_counter()
        for _ in range(calls):
            call()
        self.synchronize()
        return (time.perf_counter() - begun) / calls

    def tidy(self) -> None:
        for data in self._copies.values():
            self.native.free(self.name, data)
        self._copies.clear()

    def describe(self) -> dict[str, object]:
        return {"gpu": self.description, "opencl": self.name}
