"""The devices that contests take place on, and how calls are timed there."""

from __future__ import annotations

import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
from torch import Tensor

from kronsparse import __version__
from kronsparse.bench.measuring.c_api import Library, Plan
from kronsparse.bench.measuring.machine import arguments, commit, describe_machine, load
from kronsparse.bench.measuring.timing import Effort, seconds_of
from kronsparse.bench.results.rows import Results, default_path, device_of, now

# How long the GPU is kept busy before a run, beyond what the run takes to enqueue, where that is known.
HEAD_START_S, FIRST_HEAD_START_S = 30e-6, 300e-6
LONGEST_HEAD_START_S = 20e-3
TRIAL_CYCLES = 400_000  # some 0.2 ms


@dataclass
class Rotation:
    """A call on one set of buffers after the other, so that none finds its input in a cache."""

    calls: Sequence[Callable[[], Tensor]]
    enqueue_s: float = 0.0  # of the host, per call, as seen so far; 0 before the first
    turn: int = 0

    def __call__(self) -> Tensor:
        self.turn += 1
        return self.calls[self.turn % len(self.calls)]()


class Device(ABC):
    """A device by its kronsparse name, as torch knows it."""

    uuid = ""  # of a GPU, where torch knows it
    # How many short calls, at least, are replayed as one: what a replay costs besides is lost in them.
    replayed_calls = 1
    contenders: tuple[str, ...] = ()  # those who can take part, where not all can

    def __init__(self, name: str) -> None:
        self.name = name
        self.torch = torch.device(name)

    @property
    @abstractmethod
    def cache_bytes(self) -> int:
        """The bytes of the last cache, which inputs must exceed."""

    @property
    @abstractmethod
    def memory_bytes(self) -> int:
        """The memory that operands and temporaries must fit into."""

    @property
    @abstractmethod
    def effort(self) -> Effort:
        """How long one contender is timed."""

    @property
    def of_ceilings(self) -> Device:
        """The device that tells, through PyTorch, what this one could reach."""
        return self

    def address(self, tensor: Tensor) -> int:
        """The address of the tensor's elements, for kronsparse."""
        return int(tensor.data_ptr())

    def fetch(self, tensor: Tensor) -> Tensor:
        """The tensor, once it shows what kronsparse wrote to its address."""
        return tensor

    @abstractmethod
    def stream(self) -> int:
        """The handle kronsparse runs on: torch's current stream."""

    @abstractmethod
    def synchronize(self) -> None:
        """Waits for everything enqueued."""

    @abstractmethod
    def seconds_of(self, call: Callable[[], object], calls: int = 1) -> float:
        """Time of the device per call."""

    def seconds_in_a_row(self, call: Callable[[], object], calls: int = 1) -> float:
        """Time per call as a caller sees it who makes many: of the device or of the host, whichever is
        slower."""
        return self.seconds_of(call, calls)

    @abstractmethod
    def replayable(self, calls: Sequence[Callable[[], object]]) -> Callable[[], object]:
        """All the calls as one, without their launch costs where the device can."""

    @abstractmethod
    def marker(self) -> Callable[[], bool]:
        """Says, when asked, whether everything enqueued so far is done."""

    @abstractmethod
    def tidy(self) -> None:
        """Gives back memory that torch hoards, before others need it."""

    @abstractmethod
    def describe(self) -> dict[str, object]:
        """The device in the record of a run."""


class CpuDevice(Device):
    """The cores this process is pinned to. Buffers are not rotated: a batch is chosen to fill memory, not
    caches."""

    cache_bytes = 0
    memory_bytes = 4 << 30
    effort = Effort(run_s=4e-3, total_s=20e-3, fewest=5, most=7)

    def stream(self) -> int:
        return 0

    def synchronize(self) -> None:
        pass

    def seconds_of(self, call: Callable[[], object], calls: int = 1) -> float:
        return seconds_of(call, calls)

    def replayable(self, calls: Sequence[Callable[[], object]]) -> Callable[[], object]:
        def replay() -> None:
            for call in calls:
                call()

        return replay

    def marker(self) -> Callable[[], bool]:
        return lambda: True

    def tidy(self) -> None:
        pass

    def describe(self) -> dict[str, object]:
        return {}


class CudaDevice(Device):
    """A GPU by torch's number for it."""

    replayed_calls = 240  # a graph starts up to 3 us after the one before it
    effort = Effort(run_s=0.3e-3, total_s=15e-3, fewest=10, most=30)

    def __init__(self, name: str) -> None:
        super().__init__(name)
        torch.cuda.set_device(self.torch)
        self.properties = torch.cuda.get_device_properties(self.torch)
        uuid = str(getattr(self.properties, "uuid", ""))
        self.uuid = uuid if uuid.startswith("GPU-") or not uuid else f"GPU-{uuid}"
        self.cycles_per_s = 1e9
        cycles = 20_000_000
        sleep_s = min(self._events(lambda: torch.cuda._sleep(cycles), 1) for _ in range(3))
        self.cycles_per_s = cycles / sleep_s

    @property
    def cache_bytes(self) -> int:
        return int(self.properties.L2_cache_size)

    @property
    def memory_bytes(self) -> int:
        return int(self.properties.total_memory)

    def stream(self) -> int:
        return int(torch.cuda.current_stream().cuda_stream)

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def _events(self, call: Callable[[], object], calls: int) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(calls):
            call()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e-3 / calls

    def seconds_of(self, call: Callable[[], object], calls: int = 1) -> float:
        # The GPU spins while the host enqueues the whole run: what is timed is the GPU, not Python.
        enqueue_s = getattr(call, "enqueue_s", 0.0)
        beyond_s = HEAD_START_S if enqueue_s else FIRST_HEAD_START_S
        head_start_s = min(beyond_s + 1.3 * enqueue_s * calls, LONGEST_HEAD_START_S)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(int(head_start_s * self.cycles_per_s))
        start.record()
        begun = time.perf_counter()
        for _ in range(calls):
            call()
        host_s = (time.perf_counter() - begun) / calls
        end.record()
        end.synchronize()
        if isinstance(call, Rotation):  # the least: a full queue makes the host wait for the GPU
            call.enqueue_s = min(enqueue_s or host_s, host_s)
        return float(start.elapsed_time(end)) * 1e-3 / calls

    def seconds_in_a_row(self, call: Callable[[], object], calls: int = 1) -> float:
        self.synchronize()
        return self._events(call, calls)

    def replayable(self, calls: Sequence[Callable[[], object]]) -> Callable[[], object]:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # what libraries set up at a first call must not be captured
            for call in calls[:3]:
                call()
        torch.cuda.current_stream().wait_stream(side)
        self.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for call in calls:
                call()
        return graph.replay

    def marker(self) -> Callable[[], bool]:
        event = torch.cuda.Event()
        event.record()
        return lambda: bool(event.query())

    def tidy(self) -> None:
        if torch.cuda.memory_reserved() > self.memory_bytes // 2:
            torch.cuda.empty_cache()

    def describe(self) -> dict[str, object]:
        asked = "driver_version,clocks.sm,clocks.max.sm,clocks.mem,power.limit,temperature.gpu"
        command = ["nvidia-smi", f"--id={self.torch.index or 0}", "--format=csv,noheader"]
        try:
            query = [*command, f"--query-gpu={asked}"]
            answer = subprocess.run(query, capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            answer = ""
        told = dict(zip(asked.split(","), (word.strip() for word in answer.split(",")), strict=False))
        return {
            "gpu": self.properties.name,
            "compute_capability": f"{self.properties.major}.{self.properties.minor}",
            "multiprocessors": self.properties.multi_processor_count,
            "memory_bytes": self.memory_bytes,
            "l2_bytes": self.cache_bytes,
            "nvidia_smi": told,
        }


def seconds_by_events(call: Callable[[], object], trials: int = 3) -> float:
    """The least time of a call on torch's GPU, after one that sets things up: to tell ways apart that differ
    by much. The GPU spins while the host enqueues."""
    call()
    found = []
    for _ in range(trials):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(TRIAL_CYCLES)
        start.record()
        call()
        end.record()
        end.synchronize()
        found.append(float(start.elapsed_time(end)) * 1e-3)
    return min(found)


def open_device(name: str, library: Library | None = None) -> Device:
    """cpu, cuda:N where torch sees one, or opencl:N where the library does."""
    if name == "cpu":
        return CpuDevice(name)
    if name.split(":")[0] == "opencl" and library is not None:
        from kronsparse.bench.measuring.opencl_device import OpenclDevice

        return OpenclDevice(name if ":" in name else f"{name}:0", library)
    if name.split(":")[0] != "cuda":
        raise ValueError(f"--device {name}: the benchmark knows cpu and cuda:N here, and in run opencl:N")
    if not torch.cuda.is_available():
        raise ValueError(f"torch sees no CUDA device for --device {name} (try --device cpu for a dry run)")
    return CudaDevice(name if ":" in name else f"{name}:0")


def machine(device: Device) -> dict[str, object]:
    """The hardware in the record of a run."""
    return {**describe_machine(), **device.describe()}


def check_continued(results: Results, now: str) -> None:
    """Refuses to append to the results of another device."""
    runs = [row for row in results.rows if row["record"] == "run"]
    if runs and device_of(runs[-1]) != now:
        raise ValueError(f"--output {results.path} holds results of {device_of(runs[-1])}, and this is {now}")


def begin_results(suite: str, device: Device, output: Path | None, packages: Sequence[str] = ()) -> Results:
    """The results file of a run that has just begun, with the record of where and of what. The versions of
    further packages are told where they are installed."""
    hardware = machine(device)
    results = Results(output or default_path(suite, hardware))
    threads = torch.get_num_threads() if device.name == "cpu" else None
    versions = {"kronsparse": __version__, "torch": torch.__version__, "cuda": str(torch.version.cuda)}
    for name in packages:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    where = {"machine": hardware, "threads": threads}
    check_continued(results, device_of(where))
    told = {"load": load(), "options": arguments()}
    results.add("run", time=now(), suite=suite, **where, versions=versions, commit=commit(), **told)
    return results


def bound_call(device: Device, plan: Plan, x: Tensor, y: Tensor) -> Callable[[], Tensor]:
    """A call of a plan on the stream of the moment: that of a graph's capture is another."""
    runs: dict[int, Callable[[], None]] = {}

    def call() -> Tensor:
        stream = device.stream()
        if stream not in runs:
            runs[stream] = plan.bind(device.address(x), device.address(y), stream)
        runs[stream]()
        return y

    return call
