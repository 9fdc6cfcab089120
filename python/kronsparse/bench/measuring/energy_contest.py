"""Joules of one problem: each contender keeps the device busy for a second and more, between two ticks of
the counter."""

from __future__ import annotations

import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kronsparse.bench.measuring.contest import Contender, Contest, Table
from kronsparse.bench.measuring.devices import Device
from kronsparse.bench.measuring.energy import EnergyUnavailableError, Meter
from kronsparse.bench.problems.problem import Problem
from kronsparse.bench.results.rows import OURS, Row

WINDOW_S = 1.0
SETTLING_S = 0.3  # until clocks and power are those of this load
CHUNK_S, CHUNKS_AHEAD = 0.01, 2  # of work, enqueued at once
POLL_S = 0.5e-3
# Calls shorter than this are replayed from a graph, so that the device need not wait for the host.
LAUNCH_S, MOST_IN_GRAPH = 0.5e-3, 100
LONGEST_TICK_S = 5.0


@dataclass(frozen=True)
class Window:
    """Between two ticks of the counter."""

    joules: float
    seconds: float

    @property
    def watts(self) -> float:
        """The mean power in it."""
        return self.joules / self.seconds


def _wait_for_tick(meter: Meter, meanwhile: Callable[[], object]) -> tuple[float, float]:
    """(joules, moment) right after the counter has moved; the device is kept busy meanwhile."""
    before, begun = meter.joules(), time.perf_counter()
    while True:
        meanwhile()
        now = meter.joules()
        if now != before:
            return now, time.perf_counter()
        if time.perf_counter() - begun > LONGEST_TICK_S:
            raise EnergyUnavailableError(f"{meter.name} has not moved for {LONGEST_TICK_S:g} s")


def observe(meter: Meter, meanwhile: Callable[[], object]) -> Window:
    """Reads the counter over a window of at least a second, from tick to tick."""
    first, begun = _wait_for_tick(meter, meanwhile)
    while time.perf_counter() - begun < WINDOW_S:
        meanwhile()
    last, ended = _wait_for_tick(meter, meanwhile)
    return Window(last - first, ended - begun)


def idle_watts(meter: Meter, device: Device) -> float:
    """The power of the device with nothing to do; also the moment to doubt the counter's unit."""
    device.synchronize()
    time.sleep(WINDOW_S)  # clocks come down
    watts = observe(meter, lambda: time.sleep(2e-3)).watts
    meter.check_unit(watts)
    return watts


class Load:
    """Keeps the device busy with one call, two chunks of them ahead, and counts them. Never waits long, so
    that the ticks of a counter are seen when they come."""

    def __init__(self, device: Device, call: Callable[[], object], call_s: float) -> None:
        self._device = device
        self._together = max(1, min(MOST_IN_GRAPH, math.ceil(LAUNCH_S / call_s)))
        self._launch = device.replayable([call] * self._together) if self._together > 1 else call
        self._launches = max(1, math.ceil(CHUNK_S / (call_s * self._together)))
        self._pending: deque[Callable[[], bool]] = deque()
        self.calls = 0

    def __call__(self) -> None:
        while self._pending and self._pending[0]():
            self._pending.popleft()
        if len(self._pending) >= CHUNKS_AHEAD:
            time.sleep(POLL_S)
            return
        for _ in range(self._launches):
            self._launch()
        self._pending.append(self._device.marker())
        self.calls += self._launches * self._together


def _measured(contender: Contender, device: Device, meter: Meter, windows: int) -> dict[str, Any]:
    assert contender.call is not None
    load = Load(device, contender.call, contender.trial_s)
    begun = time.perf_counter()
    while time.perf_counter() - begun < SETTLING_S:
        load()
    load.calls = 0
    begun = time.perf_counter()
    found: list[Window] = []
    while len(found) < windows or load.calls == 0:  # a call may be longer than a window
        found.append(observe(meter, load))
    spent_s = time.perf_counter() - begun
    # Joules of a call: the power, times the wall-clock time that one call takes in such a window.
    call_s = spent_s / load.calls
    per_call = [window.watts * call_s for window in found]
    return {
        "joules": statistics.median(per_call),
        "watts": statistics.median(window.watts for window in found),
        "window_s": statistics.median(window.seconds for window in found),
        "windows": len(found),
        "energy_calls": load.calls,
        "loaded_call_s": call_s,
    }


def hold_energy_contest(
    table: Table, meter: Meter, idle_w: float, windows: int, problem: Problem, families: Sequence[str]
) -> list[Row]:
    """Rows of one problem: ours in each mode, and the fastest spelling of each family."""
    with Contest(table, problem) as contest:
        contest.enter(families)
        rows = []
        for one in contest.contenders:
            beaten = one.family != OURS and one.trial_s > contest.best(one.family)
            if one.status == "ok" and beaten:
                one.drop("skipped", "another spelling is faster")
            measured = _measured(one, table.device, meter, windows) if one.call else {}
            rows.append({**contest.row(one, "energy"), **measured, "idle_w": idle_w})
        return rows
