"""How the benchmark measures: answers, clocks, meters; a GPU and NVML are pretended."""

import ctypes
import math
import time
from functools import partial
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from bench_helpers import CEILINGS, FakeNvml, pretend_gpu, shorten_windows
from kronsparse.bench.measuring import contest as contest_module
from kronsparse.bench.measuring.answers import (
    LIBRARY_SAMPLES,
    TORCH_DTYPES,
    Checker,
    Errors,
    is_right,
    is_sound,
)
from kronsparse.bench.measuring.arena import Arena, draw_values
from kronsparse.bench.measuring.c_api import Library, find_library
from kronsparse.bench.measuring.ceilings import Ceilings, Probe
from kronsparse.bench.measuring.contest import PROBE_RUNS, Contest, Table, hold_contest
from kronsparse.bench.measuring.devices import CpuDevice, Rotation
from kronsparse.bench.measuring.energy import EnergyUnavailableError, NvmlMeter, RaplMeter, open_meter
from kronsparse.bench.measuring.energy_contest import _measured, hold_energy_contest, idle_watts, observe
from kronsparse.bench.measuring.timing import interleaved
from kronsparse.bench.problems.problem import Problem
from kronsparse.bench.problems.suites import SUITES
from kronsparse.bench.rivals.spellings import FAMILIES, GPU_FAMILIES, spellings_for
from kronsparse.chains import Pattern

PATTERN = Pattern(2, 3, 5, 4)
PROBLEM = Problem("f32", "batch_first", PATTERN, 100, ("fp32",))


# ---- ceilings ----


class SteadyProbe:
    """Calls that count themselves; a copy that takes a second, a product that takes three."""

    def __init__(self):
        self.called = [0, 0]
        self.seconds = []
        self.calls = tuple(partial(self._call, which) for which in range(2))

    def _call(self, which):
        self.called[which] += 1

    def ceilings(self, copy_s, product_s):
        self.seconds.append((copy_s, product_s))
        return Ceilings(PROBLEM.moved_bytes / 1.0, {"f32": PROBLEM.flops / 3.0})


def test_a_problem_s_own_ceilings_are_measured_by_turns():
    probe = SteadyProbe()
    table = Table(Arena(CpuDevice("cpu"), [PROBLEM]), CEILINGS, Library(find_library()), probe=probe)
    rows = hold_contest(table, PROBLEM, ["kronsparse", "bmm"])
    assert probe.called == [PROBE_RUNS, PROBE_RUNS]
    ((copy_s, product_s),) = probe.seconds
    assert copy_s > 0 and product_s > 0
    for row in rows:
        assert (row["floor_s"], row["floor_bound"]) == (3.0, "flops")
        assert row["ceilings"] == {
            "copy_bytes": PROBLEM.moved_bytes,
            "gemm_flops": {"f32": PROBLEM.flops / 3},
        }


def test_without_a_probe_the_floor_is_the_run_s():
    table = Table(Arena(CpuDevice("cpu"), [PROBLEM]), CEILINGS, Library(find_library()))
    for row in hold_contest(table, PROBLEM, ["kronsparse"]):
        assert (row["floor_s"], row["floor_bound"]) == CEILINGS.floor(PROBLEM) and "ceilings" not in row


def test_halves_are_timed_by_turns_with_f32():
    half, wider = Problem("f16", "batch_first", PATTERN, 100), Problem("f16", "batch_first", PATTERN, 5000)
    arena = Arena(CpuDevice("cpu"), [PROBLEM, half])
    table = Table(arena, CEILINGS, Library(find_library()), probe=SteadyProbe())
    ours, *theirs = hold_contest(table, half, ["kronsparse", "einsum"])
    assert ours["over_f32"] > 0 and not any("over_f32" in row for row in theirs)
    assert all("over_f32" not in row for row in hold_contest(table, PROBLEM, ["kronsparse"]))
    # Nothing to compare with where the run has no f32, or none as large.
    assert arena.holds(PROBLEM) and not arena.holds(Problem("f32", "batch_first", PATTERN, 5000, ("fp32",)))
    table.arena = Arena(CpuDevice("cpu"), [half, wider])
    assert all("over_f32" not in row for row in hold_contest(table, half, ["kronsparse"]))


def test_rates_of_the_probe(monkeypatch):
    monkeypatch.setattr("kronsparse.bench.measuring.ceilings._CPU_SIZES", (64, 1 << 12))
    probe = Probe(CpuDevice("cpu"))
    for call in probe.calls:
        call()
    # Both ways, and a multiplication and an addition.
    assert probe.ceilings(2.0, 0.5) == Ceilings(4096.0, {"f32": 4 * 64**3})


def test_only_the_exams_of_a_cpu_have_own_ceilings():
    assert [name for name, suite in SUITES.items() if suite.cpu_own_ceilings] == ["random", "cpu-targets"]


# ---- answers ----


@pytest.fixture
def checked():
    x = torch.randn(PROBLEM.shapes[0])
    values = draw_values(PROBLEM, CpuDevice("cpu"))
    checker = Checker(PROBLEM, x, values)
    einsum, *_ = spellings_for("batch_first", PATTERN, ["einsum"])
    return checker, checker.errors_of_torch(), einsum.prepare(values)(x, torch.empty(PROBLEM.shapes[1]))


def test_right(checked):
    checker, allowed, y = checked
    errors = checker.errors(y)
    assert is_right(errors, allowed, "f32") and is_sound(errors, PROBLEM)


@pytest.mark.parametrize(
    "spoil",
    [lambda y: y.add_(1e-4), lambda y: y[0, 3].add_(0.1), lambda y: y[50, 3].fill_(math.nan)],
)
def test_wrong(checked, spoil):
    checker, allowed, y = checked
    spoil(y)
    errors = checker.errors(y)
    assert not is_right(errors, allowed, "f32") and not is_sound(errors, PROBLEM)


@pytest.mark.parametrize("dtype", ["f64", "complex128"])
def test_doubles_are_held_against_more_than_doubles(dtype):
    """1 + 2^-60: double loses the second, and with it the difference to what it should be."""
    problem = Problem(dtype, "batch_last", Pattern(1, 1, 2, 1), 3)
    values = torch.tensor([1.0, 2.0**-60], dtype=TORCH_DTYPES[dtype]).reshape(1, 1, 2, 1)
    x = torch.ones(problem.shapes[0], dtype=values.dtype)
    errors = Checker(problem, x, values).errors(torch.ones(problem.shapes[1], dtype=values.dtype))
    assert errors.norm == pytest.approx(2.0**-60) and errors.finite


def test_less_exact_than_the_library():
    halved = Errors(2e-4, 1e-4, True)
    assert is_right(halved, halved, "f32")
    assert not is_right(Errors(5e-4, 1e-4, True), halved, "f32")


def test_plain_sums_may_be_off_by_the_root_of_their_length():
    exact = Errors(1e-8, 1e-8, True)
    assert not is_right(Errors(6e-7, 3e-7, True), exact, "f32")
    assert is_right(Errors(6e-7, 3e-7, True), exact, "f32", plain_terms=1024)
    assert not is_right(Errors(3e-6, 3e-7, True), exact, "f32", plain_terms=1024)


def test_few_outputs_may_be_unlucky_but_not_wrong():
    """Norms of two sets of four roundings may differ by some times; those of many may not."""
    library, thrice = Errors(1e-7, 1e-7, True), partial(Errors, 3e-7, 3e-7, True)
    assert is_right(thrice(outputs=4), library, "f32")
    assert not is_right(thrice(outputs=10_000), library, "f32")
    for outputs in (1, 4):  # a single product of TF32, or of two where there should be three
        assert not is_right(Errors(1e-4, 1e-4, True, outputs), library, "f32")


def test_chance_allows_what_chance_does():
    """Answers that are twice as far off as the library's in the mean are almost never called wrong."""
    torch.manual_seed(0)
    for outputs in (4, 16, 256):
        mine, its = 1e-6 * torch.randn(2, 20_000, outputs).square().mean(-1).sqrt()
        right = [
            is_right(Errors(2 * one, 0.0, True, outputs), Errors(other, 0.0, True), "f32")
            for one, other in zip(mine.tolist(), its.tolist(), strict=True)
        ]
        assert sum(right) / len(right) > 0.996


def test_short_sums_of_three_products():
    library = Errors(8e-8, 8e-8, True)
    assert not is_right(Errors(2.7e-7, 2.7e-7, True), library, "f32")
    assert is_right(Errors(2.7e-7, 2.7e-7, True), library, "f32", short=True)
    assert not is_right(Errors(4e-7, 2.7e-7, True), library, "f32", short=True)


def test_the_library_gets_no_fewer_samples_for_small_batches(monkeypatch):
    """On two samples it would split its sums."""
    problem = Problem("f32", "batch_first", Pattern(2, 8, 512, 1), 2)
    x, values = torch.randn(problem.shapes[0]), torch.rand(problem.pattern)
    checker, given = Checker(problem, x, values), []
    inputs = checker._inputs
    monkeypatch.setattr(checker, "_inputs", lambda samples: given.append(samples) or inputs(samples))
    errors = checker.errors_of_torch()
    assert len(given[0]) >= LIBRARY_SAMPLES and set(given[0].tolist()) == {0, 1}
    assert errors.outputs == 2 * 2 * 8 and 0 < errors.norm < 1e-6


@pytest.mark.parametrize("layout", ["batch_first", "batch_last"])
@pytest.mark.parametrize("pattern", [PATTERN, Pattern(3, 4, 4, 1), Pattern(1, 8, 2, 3)])
def test_every_spelling_computes_the_product(layout, pattern):
    problem = Problem("f32", layout, pattern, 8)
    x, values = torch.randn(problem.shapes[0]), torch.rand(pattern)
    checker = Checker(problem, x, values)
    left_out = ("compiled", "compiled-einsum", *GPU_FAMILIES)
    found = spellings_for(layout, pattern, [name for name in FAMILIES if name not in left_out])
    assert {"bmm", "einsum", "dense", "sparse", "bsr", "strided"} <= {one.family for one in found}
    for spelling in found:
        try:
            y = spelling.prepare(values)(x, torch.full(problem.shapes[1], math.nan))
        except RuntimeError as error:
            assert spelling.family in ("bsr", "sparse"), error  # not on every CPU
            continue
        assert y.shape == problem.shapes[1] and y.is_contiguous()
        assert checker.errors(y).norm < 1e-6, f"{layout} {pattern} {spelling.name}"


# ---- the clock of a GPU ----


@pytest.fixture
def pretended(monkeypatch):
    return pretend_gpu(monkeypatch)


def test_a_head_start_covers_the_launches(pretended):
    slow = Rotation([lambda: time.sleep(2e-3) or torch.empty(0)])
    pretended.seconds_of(slow)
    assert slow.enqueue_s > 1e-3
    before = pretended.sleeps[-1]
    pretended.seconds_of(slow, 3)
    assert pretended.sleeps[-1] > 10 * before


def test_a_graph_captures_every_call_after_a_warm_up(pretended):
    calls = [mock.Mock() for _ in range(5)]
    assert pretended.replayable(calls)() == "replayed"
    assert [call.call_count for call in calls] == [2, 2, 2, 1, 1]


def test_a_gpu_describes_itself(pretended):
    assert pretended.describe()["gpu"] == "Pretended" and pretended.uuid == "GPU-abc"


def test_buffers_are_rotated_beyond_the_cache(pretended, monkeypatch):
    monkeypatch.setattr(contest_module, "SLOW", math.inf)  # on a busy machine anyone may be
    problem = Problem("f32", "batch_last", PATTERN, 64, ("fp32",))
    arena = Arena(pretended, [problem])
    operands = arena.operands(problem)
    assert len(operands) * sum(problem.operand_bytes) > 3 * (1 << 16)
    assert len({x.data_ptr() for x, _ in operands}) == len(operands)
    assert abs(float(operands[0][0].std()) - 1) < 0.1  # standard normal
    library = SimpleNamespace(plan=None, predict=None)
    rows = hold_contest(Table(arena, CEILINGS, library), problem, ["bmm", "strided"])
    runs = {}  # of each family's fastest spelling; others keep the time of their trial
    for found in rows:
        runs[found["contender"]] = max(runs.get(found["contender"], 0), found.get("runs", 0))
    assert min(runs[name] for name in ("bmm", "strided")) >= 10


def test_ours_runs_on_the_stream_of_the_moment(pretended, monkeypatch):
    """A graph is captured on a stream of its own."""
    problem = Problem("f32", "batch_last", PATTERN, 64, ("fp32",))
    current, used = [7], []

    class Plan:
        implementation = "it"

        def __enter__(self):
            return self

        def __exit__(self, *_): ...

        def bind(self, x, y, stream):
            return lambda: used.append(stream)

    monkeypatch.setattr(pretended, "stream", lambda: current[0])
    library = SimpleNamespace(plan=lambda *_: Plan(), predict=lambda *_: 1.0, was_tuned=lambda *_: False)
    monkeypatch.setattr("kronsparse.bench.measuring.contest.is_right", lambda *_: True)
    with Contest(Table(Arena(pretended, [problem]), CEILINGS, library), problem) as contest:
        contest.enter(["kronsparse"])
        assert set(used) == {7}
        current[0] = 8
        contest.contenders[0].call()
        assert used[-1] == 8


def test_calls_take_turns():
    order = []
    calls = [lambda: order.append("a"), lambda: order.append("b")]
    timings = interleaved(
        calls, [(1, 3), (2, 2)], lambda call, repeats: [call() for _ in range(repeats)] and 1.0
    )
    assert "".join(order) == "abbabba"
    assert [timing.runs for timing in timings] == [3, 2]


# ---- energy ----


@pytest.fixture
def clock(monkeypatch):
    return shorten_windows(monkeypatch)


def test_nvml_counts_in_millijoules(clock):
    meter = NvmlMeter(FakeNvml(), "GPU-x")
    first = meter.joules()
    clock.sleep(0.1)
    assert meter.joules() - first == pytest.approx(25, rel=0.05)
    window = observe(meter, lambda: clock.sleep(1e-4))
    assert window.watts == pytest.approx(250, rel=0.02) and window.seconds >= 0.05


def test_a_wrong_unit_is_noticed(clock):
    device = CpuDevice("cpu")
    assert idle_watts(NvmlMeter(FakeNvml(), "GPU-x"), device) == pytest.approx(250, rel=0.05)
    with pytest.raises(EnergyUnavailableError, match="where the power of the moment is 250 W"):
        idle_watts(NvmlMeter(FakeNvml(scale=1000), "GPU-x"), device)


def test_a_gpu_without_a_counter_is_refused(monkeypatch):
    with pytest.raises(EnergyUnavailableError, match="status 3"):
        NvmlMeter(FakeNvml(status=3), "GPU-x")
    with pytest.raises(EnergyUnavailableError, match="stands at zero"):
        NvmlMeter(FakeNvml(scale=0), "GPU-x")
    monkeypatch.setattr("kronsparse.bench.measuring.energy.NVML", "libno-such-library.so")
    with pytest.raises(EnergyUnavailableError, match="cannot be loaded"):
        open_meter("cuda:0")


def test_a_counter_that_stands_still_is_refused(monkeypatch):
    monkeypatch.setattr("kronsparse.bench.measuring.energy_contest.LONGEST_TICK_S", 0.02)
    stuck = SimpleNamespace(joules=lambda: 1.0, name="it")
    with pytest.raises(EnergyUnavailableError, match="has not moved"):
        observe(stuck, lambda: None)


def test_rapl_counts_in_microjoules_and_wraps(tmp_path):
    with pytest.raises(EnergyUnavailableError, match="no RAPL counter"):
        RaplMeter(tmp_path / "none")
    for number, value in enumerate((100, 990_000_000)):
        zone = tmp_path / f"intel-rapl:{number}"
        zone.mkdir()
        (zone / "energy_uj").write_text(f"{value}\n")
        (zone / "max_energy_range_uj").write_text("1000000000\n")
    meter = RaplMeter(tmp_path)
    assert meter.joules() == 0
    (tmp_path / "intel-rapl:0/energy_uj").write_text("3000100\n")  # 3 J
    (tmp_path / "intel-rapl:1/energy_uj").write_text("1000000\n")  # 11 J, over the end
    assert meter.joules() == pytest.approx(14)


def test_joules_of_a_problem(clock):
    problem = Problem("f32", "batch_last", PATTERN, 64, ("fp32",))
    device = CpuDevice("cpu")
    table = Table(Arena(device, [problem]), CEILINGS, Library(find_library()))
    meter = NvmlMeter(FakeNvml(), "GPU-x")
    rows = hold_energy_contest(table, meter, 80.0, 2, problem, ["kronsparse", "bmm"])
    timed = [row for row in rows if row["status"] == "ok"]
    assert [row["contender"] for row in timed] == ["kronsparse", "bmm"]
    for row in timed:
        assert row["record"] == "energy" and row["idle_w"] == 80.0 and row["windows"] == 2
        assert row["watts"] == pytest.approx(250, rel=0.05) and row["window_s"] >= 0.05
        # Nothing but this call ran, so its joules are the power times its time: of both windows, and of the
        # ticks that were waited for.
        assert row["joules"] == pytest.approx(row["watts"] * row["loaded_call_s"], rel=0.05)
        spent_s = row["loaded_call_s"] * row["energy_calls"]
        assert 2 * row["window_s"] <= spent_s <= 2 * row["window_s"] + 2 * FakeNvml.TICK_S


def test_every_call_of_a_window_is_counted(clock):
    calls = []

    def call():
        clock.sleep(1e-3)
        calls.append(clock.now)

    contender = SimpleNamespace(call=call, trial_s=1e-3)
    device = SimpleNamespace(marker=lambda: lambda: True)
    measured = _measured(contender, device, NvmlMeter(FakeNvml(), "GPU-x"), 2)
    # Those of the settling before it, and no others, are left out.
    settling = sum(at <= calls[0] + 0.01 for at in calls)
    assert abs(len(calls) - measured["energy_calls"] - settling) <= 2  # a chunk
    # The moments that reading clock and counter take are in it too.
    assert 1e-3 <= measured["loaded_call_s"] < 1.4e-3
    assert measured["watts"] == pytest.approx(250, rel=0.05)


def test_a_call_longer_than_a_window(clock):
    ends = [0.0]

    def marker():  # one after the other
        ends.append(max(ends[-1], clock.now) + 0.3)
        return lambda mine=ends[-1]: clock.now >= mine

    contender = SimpleNamespace(call=lambda: None, trial_s=0.3)
    measured = _measured(contender, SimpleNamespace(marker=marker), NvmlMeter(FakeNvml(), "GPU-x"), 2)
    assert measured["windows"] > 2 and measured["energy_calls"] == 1
    assert measured["loaded_call_s"] == pytest.approx(0.3, rel=0.2)


def test_the_meter_reads_through_ctypes():
    counted = ctypes.c_ulonglong()
    FakeNvml().nvmlDeviceGetTotalEnergyConsumption(None, ctypes.byref(counted))
    assert counted.value > 0
