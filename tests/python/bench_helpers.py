"""Helpers of the benchmark's tests: runs in this process with made-up ceilings, made-up rows, and a
pretended GPU with its counter of energy."""

from __future__ import annotations

import argparse
import json
import time
from contextlib import nullcontext
from types import SimpleNamespace

import torch
from kronsparse.bench import run
from kronsparse.bench.measuring import machine
from kronsparse.bench.measuring.ceilings import Ceilings
from kronsparse.bench.measuring.devices import CudaDevice
from kronsparse.bench.results.rows import read_rows

CEILINGS = Ceilings(1e10, {"f32": 1e10})


def run_in_process(monkeypatch, path, *arguments):
    """`kronsparse-bench run --device cpu`, quickly; the rows of its file."""
    monkeypatch.setenv(machine.PREPARED_VARIABLE, "1")
    monkeypatch.setattr(Ceilings, "measure", staticmethod(lambda device, runs=5: CEILINGS))
    parser = argparse.ArgumentParser()
    run.add_options(parser)
    given = ["--device", "cpu", "--threads", "1", "--batch", "32", "--output", str(path), *arguments]
    assert run.main(parser.parse_args(given)) == 0
    return read_rows(path)


def run_record(**changes):
    return {
        "record": "run",
        "machine": {"cpu": "C", "gpu": "G", "compute_capability": "9.0"},
        "versions": {"kronsparse": "1", "torch": "2"},
        "commit": "c",
        "ceilings": {"copy_bytes": 1e12, "gemm_flops": {"f32": 1e12, "f16": 1e12}},
        **changes,
    }


def row(pattern, contender, seconds, dtype="f16", layout="batch_last", **changes):
    mode = "fp32" if dtype == "f32" else ""
    return {
        "record": "row",
        "problem": f"{dtype} {layout} B=8 {pattern}",
        "layout": layout,
        "pattern": pattern,
        "batch": 8,
        "dtype": dtype,
        "mode": mode,
        "contender": contender,
        "spelling": contender,
        "implementation": "mma" if contender == "kronsparse" else "",
        "status": "ok",
        "reason": "",
        "error": 1e-4,
        "median_s": seconds,
        "q1_s": 0.99 * seconds,
        "q3_s": 1.01 * seconds,
        "runs": 10,
        "floor_s": 1.0,
        "floor_bound": "bytes",
        **changes,
    }


def pretend_gpu(monkeypatch):
    """torch.cuda replaced: events take the host's time, a graph replays nothing."""

    class Event:
        def __init__(self, enable_timing=False):
            self.at = 0.0

        def record(self):
            self.at = time.perf_counter()

        def synchronize(self): ...

        def query(self):
            return time.perf_counter() - self.at > 1e-3

        def elapsed_time(self, end):
            return (end.at - self.at) * 1e3

    sleeps = []

    def sleep(cycles):
        sleeps.append(cycles)
        time.sleep(1e-4)

    facts = {"major": 9, "minor": 0, "multi_processor_count": 132, "name": "Pretended", "uuid": "abc"}
    properties = SimpleNamespace(L2_cache_size=1 << 16, total_memory=1 << 32, **facts)
    for name, value in {
        "Event": Event,
        "_sleep": sleep,
        "set_device": lambda device: None,
        "get_device_properties": lambda device: properties,
        "memory_reserved": lambda: 0,
        "synchronize": lambda: None,
        "current_stream": lambda: SimpleNamespace(cuda_stream=0, wait_stream=lambda other: None),
        "Stream": lambda: SimpleNamespace(wait_stream=lambda other: None),
        "stream": lambda side: nullcontext(),
        "graph": lambda graph: nullcontext(),
        "CUDAGraph": lambda: SimpleNamespace(replay=lambda: "replayed"),
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    device = CudaDevice("cuda:0")
    device.torch = torch.device("cpu")
    device.sleeps = sleeps
    return device


class Clock:
    """In the place of the module time: a moment passes whenever it is asked, and sleeping takes no time, so
    that nothing depends on how busy the machine is."""

    MOMENT_S = 0.2e-3

    def __init__(self):
        self.now = 100.0

    def perf_counter(self):
        self.now += self.MOMENT_S
        return self.now

    monotonic = perf_counter

    def sleep(self, seconds):
        self.now += seconds


class FakeNvml:
    """A GPU that takes 250 W, and counts in millijoules as NVML does, in ticks."""

    WATTS, TICK_S = 250.0, 0.004

    def __init__(self, status=0, scale=1.0):
        self.status, self.scale, self.begun = status, scale, time.perf_counter()

    def nvmlInit_v2(self):  # noqa: N802
        return 0

    def nvmlDeviceGetHandleByUUID(self, uuid, handle):  # noqa: N802
        assert uuid == b"GPU-x"
        return 0

    def nvmlDeviceGetTotalEnergyConsumption(self, device, counted):  # noqa: N802
        ticks = int((time.perf_counter() - self.begun) / self.TICK_S) + 1000
        counted._obj.value = int(ticks * self.TICK_S * self.WATTS * 1e3 * self.scale)
        return self.status

    def nvmlDeviceGetPowerUsage(self, device, milliwatts):  # noqa: N802
        milliwatts._obj.value = int(self.WATTS * 1e3)
        return 0


def shorten_windows(monkeypatch):
    """And nobody waits for them: returns their clock, which is that of what is pretended here too."""
    clock = Clock()
    monkeypatch.setattr("kronsparse.bench.measuring.energy_contest.time", clock)
    monkeypatch.setitem(globals(), "time", clock)
    for name, seconds in (("WINDOW_S", 0.05), ("SETTLING_S", 0.01), ("CHUNK_S", 0.002)):
        monkeypatch.setattr(f"kronsparse.bench.measuring.energy_contest.{name}", seconds)
    return clock


def write(path, rows):
    """A results file of these; its name."""
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return str(path)
