"""The measurements of `auto` on a pretended GPU: its time, the host's, and its cache."""

import contextlib
from types import SimpleNamespace

import pytest
import torch
from kronsparse.torch import backends, device_clock


class PretendedGpu:
    """Work is enqueued by a host with a clock of its own, and done in order."""

    def __init__(self, launch_s=2e-6, memory=True, event_s=1.5e-6):
        self.host = self.done = 0.0
        self.event_s = event_s
        self.launch_s = launch_s
        self.memory = memory
        self.cached = set()
        self.slept = []

    def work(self, seconds, host_s=None):
        self.host += self.launch_s if host_s is None else host_s
        self.done = max(self.done, self.host) + seconds

    def call(self, name, host_s, warm_s, cold_s):
        """A product that is faster if its weights are in the cache."""

        def run():
            self.work(warm_s if name in self.cached else cold_s, host_s)
            self.cached.add(name)

        return run

    def sleep(self, cycles):
        self.slept.append(cycles)
        self.work(cycles / 2e9)

    def synchronize(self):
        self.host = max(self.host, self.done)

    def zeros(self, size, dtype, **_):
        if not self.memory:
            raise torch.OutOfMemoryError
        assert size * dtype.itemsize >= 100 << 20, "twice the cache"

        def read():
            self.work(30e-6)
            self.cached.clear()

        return SimpleNamespace(sum=read)

    def event(self, **_):
        gpu = self

        class Event:
            def record(self):
                gpu.work(gpu.event_s)
                self.at = gpu.done

            def query(self):
                return gpu.host >= self.at

            def elapsed_time(self, other):
                return 1e3 * (other.at - self.at)

        return Event()


@pytest.fixture
def pretend(monkeypatch):
    def make(**how):
        gpu = PretendedGpu(**how)
        monkeypatch.setattr(torch.cuda, "Event", gpu.event)
        monkeypatch.setattr(torch.cuda, "_sleep", gpu.sleep, raising=False)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda: gpu)
        monkeypatch.setattr(torch.cuda, "device", contextlib.nullcontext)
        monkeypatch.setattr(
            torch.cuda, "get_device_properties", lambda _: SimpleNamespace(L2_cache_size=50 << 20)
        )
        monkeypatch.setattr(device_clock.torch, "zeros", gpu.zeros)
        monkeypatch.setattr(backends, "measured", {})
        return gpu

    return make


def x_of(gpu):
    return SimpleNamespace(device="cuda:0", sum=lambda: gpu.work(1e-6))


def choice_of(gpu, kernel, dense):
    problem = ((), torch.float16, "batch_first", torch.device("cuda"), 128, True, None, "")
    return backends.measure(problem, x_of(gpu), gpu.call("kernel", *kernel), gpu.call("dense", *dense))


def test_the_host_s_time_does_not_count(pretend):
    """GPT-2 decoding 128 sequences: the GPU takes 12.5 us for our kernels and 6.2 for dense; the host takes
    longer than either, and longest for dense."""
    gpu = pretend()
    choice = choice_of(gpu, (10e-6, 12.5e-6, 12.5e-6), (18e-6, 6.2e-6, 6.2e-6))
    assert choice.backend == "dense"
    assert choice.reason == "measured for a batch of 128: 12.5 us for the kernels, 6.2 us for dense"
    gpu = pretend()
    assert choice_of(gpu, (30e-6, 5e-6, 5e-6), (8e-6, 6.2e-6, 6.2e-6)).backend == "kernel"


def test_weights_are_not_in_the_cache(pretend):
    """Decoding one sequence: dense is faster only while its weights stay in the cache, which they do not."""
    gpu = pretend()
    assert choice_of(gpu, (10e-6, 5e-6, 5.5e-6), (10e-6, 4e-6, 9e-6)).backend == "kernel"
    gpu = pretend(memory=False)
    assert choice_of(gpu, (10e-6, 5e-6, 5.5e-6), (10e-6, 4e-6, 9e-6)).backend == "dense"


def test_the_time_of_events_does_not_count(pretend):
    """With it, 5.8 and 6.2 us would be too near to each other."""
    gpu = pretend(event_s=20e-6)
    assert choice_of(gpu, (10e-6, 5.8e-6, 5.8e-6), (10e-6, 6.2e-6, 6.2e-6)).backend == "kernel"


def test_a_slow_host_is_given_time(pretend):
    gpu = pretend()
    choice = choice_of(gpu, (0.2e-3, 12.5e-6, 12.5e-6), (0.4e-3, 6.2e-6, 6.2e-6))
    assert choice.backend == "dense"
    assert len(gpu.slept) == 2 and gpu.slept[1] > gpu.slept[0]
    # A host that is slower still ends the attempts.
    gpu = pretend()
    choice_of(gpu, (1.0, 12.5e-6, 12.5e-6), (2.0, 6.2e-6, 6.2e-6))
    assert len(gpu.slept) == 3
