"""Meters of energy: NVML's counter of a GPU, RAPL's of a CPU. Where there is none, they refuse."""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from kronsparse.bench.errors import RefusalError

NVML = "libnvidia-ml.so.1"
RAPL = Path("/sys/class/powercap")
# The counter and the reading of the power of the moment may differ by this much; a wrong unit is 1000 off.
PLAUSIBLE_RATIO = 10.0


class EnergyUnavailableError(RefusalError):
    """There is no counter of energy here, or none that can be believed."""


class Meter(ABC):
    """A counter of joules that only grows."""

    name: str

    @abstractmethod
    def joules(self) -> float:
        """Since some moment in the past."""

    def watts_now(self) -> float | None:
        """The power of the moment, where the hardware says it."""
        return None

    def check_unit(self, watts: float) -> None:
        """Refuses where this power, by the counter, cannot be that of the moment: a unit must be wrong."""
        now = self.watts_now()
        if now and not 1 / PLAUSIBLE_RATIO < watts / now < PLAUSIBLE_RATIO:
            raise EnergyUnavailableError(
                f"{self.name} counts {watts:.3g} W where the power of the moment is {now:.3g} W"
            )


class NvmlMeter(Meter):
    """NVML's total energy of a GPU, which counts in millijoules and ticks about every 80 ms."""

    name = "NVML's total energy"

    def __init__(self, nvml: Any, uuid: str = "", index: int = 0) -> None:
        self._nvml = nvml
        self._device = ctypes.c_void_p()
        self._call("nvmlInit_v2")
        if uuid:
            self._call("nvmlDeviceGetHandleByUUID", uuid.encode(), ctypes.byref(self._device))
        else:
            self._call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(self._device))
        self.joules()  # refuses now rather than later

    def _call(self, function: str, *arguments: object) -> None:
        status = getattr(self._nvml, function)(*arguments)
        if status != 0:
            raise EnergyUnavailableError(f"{function} failed with NVML's status {status}")

    def joules(self) -> float:
        counted = ctypes.c_ulonglong()
        self._call("nvmlDeviceGetTotalEnergyConsumption", self._device, ctypes.byref(counted))
        if counted.value == 0:
            raise EnergyUnavailableError("NVML's total energy stands at zero: this GPU does not count")
        return counted.value * 1e-3

    def watts_now(self) -> float | None:
        milliwatts = ctypes.c_uint()
        try:
            self._call("nvmlDeviceGetPowerUsage", self._device, ctypes.byref(milliwatts))
        except EnergyUnavailableError:
            return None
        return milliwatts.value * 1e-3


class RaplMeter(Meter):
    """RAPL's counters of all packages, in microjoules, which wrap around."""

    name = "RAPL"

    def __init__(self, root: Path = RAPL) -> None:
        self._zones = sorted(root.glob("intel-rapl:[0-9]")) if root.is_dir() else []
        if not self._zones:
            raise EnergyUnavailableError(f"no RAPL counter under {root}")
        try:
            self._last = [self._read(zone, "energy_uj") for zone in self._zones]
            self._ranges = [self._read(zone, "max_energy_range_uj") for zone in self._zones]
        except OSError as error:
            raise EnergyUnavailableError(f"RAPL's counters cannot be read: {error}") from None
        self._total = 0

    @staticmethod
    def _read(zone: Path, name: str) -> int:
        return int((zone / name).read_text())

    def joules(self) -> float:
        now = [self._read(zone, "energy_uj") for zone in self._zones]
        for before, after, span in zip(self._last, now, self._ranges, strict=True):
            self._total += after - before if after >= before else after - before + span
        self._last = now
        return self._total * 1e-6


def open_meter(device: str, uuid: str = "") -> Meter:
    """The meter of a device by its kronsparse name."""
    if device == "cpu":
        return RaplMeter()
    try:
        nvml = ctypes.CDLL(NVML)
    except OSError as error:
        raise EnergyUnavailableError(f"NVML cannot be loaded: {error}") from None
    return NvmlMeter(nvml, uuid, int(device.partition(":")[2] or 0))
