"""Runs of the benchmark: rows, going on after a kill, budgets, wrong answers. On the CPU."""

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import SimpleNamespace

import bench_helpers
import pytest
import torch
from bench_helpers import CEILINGS, Clock, FakeNvml, pretend_gpu, run_in_process, run_record, shorten_windows
from kronsparse import _native
from kronsparse.bench import accuracy
from kronsparse.bench.__main__ import main
from kronsparse.bench.measuring import machine, sweep
from kronsparse.bench.measuring.arena import Arena
from kronsparse.bench.measuring.c_api import Library, find_library
from kronsparse.bench.measuring.contest import Contender, Table, hold_contest
from kronsparse.bench.measuring.devices import CpuDevice
from kronsparse.bench.measuring.energy import NvmlMeter
from kronsparse.bench.measuring.small_batch import SmallContest
from kronsparse.bench.problems.problem import Problem
from kronsparse.bench.problems.suites import SUITES
from kronsparse.bench.results.rows import Results, default_path, read_rows
from kronsparse.chains import Pattern

TWO = "2x8x8x4 1x8x16x1"


def of_record(rows, record):
    return [row for row in rows if row["record"] == record]


def test_rows_of_a_run(monkeypatch, tmp_path, capsys):
    rows = run_in_process(monkeypatch, tmp_path / "rows.jsonl", "--suite", TWO, "--modes", "fp32,ieee")
    (run,) = of_record(rows, "run")
    assert run["versions"]["torch"] == torch.__version__ and run["machine"]["cpu"] and run["commit"]
    assert run["ceilings"]["copy_bytes"] == CEILINGS.copy_bytes
    timed = {
        (row["pattern"], row["layout"], row["contender"], row["mode"])
        for row in of_record(rows, "row")
        if row["status"] == "ok"
    }
    for pattern in TWO.split():
        for layout in ("batch_first", "batch_last"):
            assert {(pattern, layout, "kronsparse", mode) for mode in ("fp32", "ieee")} <= timed
            assert {(pattern, layout, name, "") for name in ("bmm", "einsum", "strided")} <= timed
    for row in of_record(rows, "row"):
        assert row["status"] in ("ok", "skipped", "unavailable"), row
        if row["status"] == "ok":
            assert 0 < row["q1_s"] <= row["median_s"] <= row["q3_s"] and row["runs"] >= 1
            assert row["error"] < 1e-5 and row["floor_s"] > 0
            assert {"h", "sparsity", "bytes", "flops"} <= row.keys()
        if row["contender"] == "kronsparse":
            assert row["predicted_s"] > 0 and row["implementation"]
    printed = capsys.readouterr()
    assert "## f32 ieee batch_first" in printed.out
    assert ", 1 threads: rows to " in printed.err.splitlines()[0]


def test_more_competitors_are_added_to_a_file(monkeypatch, tmp_path):
    path = tmp_path / "rows.jsonl"
    options = ["--suite", TWO, "--layouts", "batch_last", "--competitors"]
    run_in_process(monkeypatch, path, *options, "ours,bmm")
    rows = run_in_process(monkeypatch, path, *options, "ours,bmm,sparse,bsr,compiled")
    names = [row["contender"] for row in of_record(rows, "row")]
    assert names.count("kronsparse") == 2  # not again
    assert {"sparse", "bsr"} <= set(names)
    compiled = [row for row in of_record(rows, "row") if row["contender"] == "compiled"]
    assert [row["status"] for row in compiled] == ["ok", "ok"], compiled


def test_a_file_of_another_machine_is_refused(monkeypatch, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(run_record()) + "\n")
    with pytest.raises(ValueError, match="holds results of G"):
        run_in_process(monkeypatch, path, "--suite", TWO)


def test_a_file_of_other_threads_is_refused(monkeypatch, tmp_path):
    path = tmp_path / "rows.jsonl"
    processor = machine.describe_machine()["cpu"]
    path.write_text(json.dumps(run_record(machine={"cpu": processor}, threads=64)) + "\n")
    with pytest.raises(ValueError, match=r"64 threads, and this is .*, 1 threads"):
        run_in_process(monkeypatch, path, "--suite", TWO)


@pytest.mark.parametrize(
    ("options", "threads"), [([], 5), (["--suite", "cpu-targets"], 2), (["--threads", "3"], 3)]
)
def test_threads_are_the_physical_cores_unless_told_otherwise(monkeypatch, options, threads):
    prepared = []
    monkeypatch.setattr(machine, "physical_cores", lambda: 5)
    monkeypatch.setattr(machine, "restart_prepared", prepared.append)
    monkeypatch.setattr(sweep, "sweep", lambda options: prepared.append(options.threads) or 0)
    assert main(["run", "--device", "cpu", *options]) == 0
    assert prepared == [threads, threads]


KILLED = """
import sys
from kronsparse.bench.measuring.ceilings import Ceilings
from kronsparse.bench.__main__ import main
Ceilings.measure = staticmethod(lambda device, runs=5: Ceilings(1e10, {"f32": 1e10}))
main(sys.argv[1:])
"""


def test_going_on_after_a_kill(monkeypatch, tmp_path):
    path = tmp_path / "rows.jsonl"
    patterns = " ".join(f"{a}x8x8x{d}" for a in (1, 2, 3, 4) for d in (1, 2, 3, 4))
    options = ["--suite", patterns, "--competitors", "ours,bmm,einsum,strided"]
    command = [*options, "--device", "cpu", "--threads", "1", "--batch", "32", "--output", str(path)]
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, "run", *command],
        env={**os.environ, machine.PREPARED_VARIABLE: "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (path.exists() and '"done"' in path.read_text()):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = of_record(read_rows(path), "done")
    assert before and len(before) < 32
    with path.open("a") as file:
        file.write('{"record": "row", "prob')  # as if killed in the middle of a line
    rows = run_in_process(monkeypatch, path, *options)
    done = [problem for row in of_record(rows, "done") for problem in row["problems"]]
    assert len(done) == len(set(done)) == 32
    ours = [row["problem"] for row in of_record(rows, "row") if row["contender"] == "kronsparse"]
    assert len(ours) == len(set(ours)) == 32
    assert len(of_record(rows, "run")) == 2


def test_a_file_goes_on_after_a_broken_line(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(run_record()) + '\n{"rec')
    assert read_rows(path) == [run_record()]
    Results(path).add("run", machine={})
    assert read_rows(path) == [run_record(), {"record": "run", "machine": {}}]


def test_a_refused_run_leaves_the_file_as_it_was(monkeypatch, tmp_path):
    path = tmp_path / "rows.jsonl"
    text = json.dumps(run_record()) + '\n{"rec'
    path.write_text(text)
    with pytest.raises(ValueError, match="holds results of"):
        run_in_process(monkeypatch, path, "--suite", "2x8x8x4")
    Results(path).add_rows([])
    assert path.read_text() == text


@pytest.mark.parametrize("broken", ['{"rec', "[1]", "null", "{}", ""])
def test_a_broken_line_that_no_killed_run_left_is_refused(tmp_path, broken):
    path = tmp_path / "rows.jsonl"
    for behind in ('{"record": "done"}\n', ""):
        path.write_text(f"{json.dumps(run_record())}\n{broken}\n{behind}")
        with pytest.raises(ValueError, match=r"rows\.jsonl:2: no record"):
            read_rows(path)


@pytest.mark.parametrize(
    ("record", "told"),
    [
        ({"record": "row"}, "record 'row' without problem, dtype, layout, pattern, batch, contender,"),
        ({"record": "run"}, "record 'run' without machine"),
        ({**bench_helpers.row("1x2x2x1", "bmm", 1.0), "median_s": ...}, "record 'row' without median_s"),
        (
            {**bench_helpers.row("1x2x2x1", "bmm", 1.0), "record": "small", "dtype": ...},
            "record 'small' without dtype",
        ),
    ],
)
def test_a_record_without_what_all_have_is_refused(tmp_path, capsys, record, told):
    path = tmp_path / "rows.jsonl"
    given = {key: value for key, value in record.items() if value is not ...}
    path.write_text("".join(json.dumps(one) + "\n" for one in (run_record(), given)))
    for command in (["report", "--summary"], ["compare", str(path)]):
        assert main([*command, str(path)]) == 1
        line = capsys.readouterr().err
        assert f"rows.jsonl:2: {told}" in line and line.count("\n") == 1


def test_a_run_goes_on_in_a_file_of_layers(monkeypatch, tmp_path):
    path = tmp_path / "rows.jsonl"
    layers = run_record(machine={"cpu": machine.describe_machine()["cpu"]}, threads=1)
    del layers["ceilings"]
    path.write_text(json.dumps(layers) + "\n")
    options = ["--suite", "2x8x8x4", "--competitors", "ours", "--layouts", "batch_last"]
    assert of_record(run_in_process(monkeypatch, path, *options), "row")


def test_rows_go_to_the_folder_one_is_in(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    Results(default_path("mine.txt", {"cpu": "Some(R) CPU @ 2 GHz"})).add("run")
    (written,) = (tmp_path / "results").iterdir()
    assert written.name.startswith("some-mine-")


def test_a_budget_is_kept_and_the_rest_said(monkeypatch, tmp_path, capsys):
    clock = Clock()
    monkeypatch.setattr(sweep, "time", clock)
    problems = [Problem("f32", "batch_last", Pattern(1, 1, 1, d), 8, ("fp32",)) for d in range(1, 101)]
    done = []

    def hold(problem, families):
        clock.sleep(0.01)
        done.append(problem)
        return [{"record": "row", "status": "ok", "problem": "", "floor_s": 1.0, "median_s": 1.0, **NAMES}]

    results = Results(tmp_path / "rows.jsonl")
    begun = clock.monotonic()
    left = sweep.run_problems(problems, ["kronsparse"], results, "time", begun + 0.2, hold)
    assert 0.18 < clock.monotonic() - begun < 0.22
    assert 15 <= len(done) <= 20 and left == 100 - len(done)
    assert f"{left} of 100 problems left out" in capsys.readouterr().err
    assert done == problems[: len(done)]


NAMES = {"contender": "kronsparse", "spelling": "kronsparse", "implementation": "", "mode": "", "reason": ""}


def test_a_budget_measures_one_problem_at_least(tmp_path):
    problems = [Problem("f32", "batch_last", Pattern(1, 1, 1, d), 8, ("fp32",)) for d in (1, 2, 3)]
    done = []

    def hold(problem, families):
        done.append(problem)
        return []

    left = sweep.run_problems(problems, ["kronsparse"], Results(tmp_path / "r"), "time", 0.0, hold)
    assert done == problems[:1] and left == 2


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--suite sample --modes fp32,ieee --compiled", "sample: 384 problems"),
        ("--suite paper-time --dtypes f16 --competitors all", "paper-time: 1254 problems"),
        ("--suite random --seed 7 --dtypes f16", "random: 400 problems"),
        ("--suite sample --dtypes f16 --impl mma --competitors ours", "sample: 128 problems; kronsparse\n"),
        ("--suite paper-energy --limit 140", "paper-energy: 280 problems"),
        ("--suite small-batch", "small-batch: 36 problems"),
    ],
)
def test_a_dry_run_tells_what_a_gpu_would_measure(monkeypatch, capsys, options, told):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert main(["run", *options.split(), "--dry-run", "--device", "cuda:0"]) == 0
    printed = capsys.readouterr().out
    assert told in printed and "about " in printed
    everyone = ("sample --modes", "competitors all", "random")
    assert ("triton, cutensor" in printed) == any(word in options for word in everyone)


def test_a_dry_run_leaves_out_what_was_done(tmp_path, capsys):
    done = {"record": "done", "kind": "time", "problems": ["f16 batch_last B=64 1x8x8x2"]}
    rows = [run_record(), {**done, "contenders": ["kronsparse"]}]
    path = bench_helpers.write(tmp_path / "r.jsonl", rows)
    suite = tmp_path / "problems"
    suite.write_text("f16 batch_last B=64 1x8x8x2\nf16 batch_last B=64 1x8x8x3")
    arguments = ["run", "--suite", str(suite)]
    arguments += ["--competitors", "ours", "--dry-run", "--device", "cuda:0", "--output", path]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert "1 of them were done before" in printed and "1x8x8x3" in printed and "1x8x8x2" not in printed


@pytest.mark.parametrize("path", ["/dev/full", "/dev/null", "/"])
def test_results_are_kept_in_files(path):
    with pytest.raises(ValueError, match="must be a file"):
        Results(Path(path))


def test_who_stops_a_command_is_told_how_to_go_on(monkeypatch, tmp_path, capsys):
    def interrupted(options):
        raise KeyboardInterrupt

    monkeypatch.setattr("kronsparse.bench.run.main", interrupted)
    monkeypatch.setattr("kronsparse.bench.layers.main", interrupted)
    monkeypatch.setattr(Results, "last_written", None)
    assert main(["run", "--suite", "sample"]) == 130
    assert capsys.readouterr().err.endswith("stopped; nothing was written\n")
    monkeypatch.setattr(Results, "last_written", tmp_path / "rows.jsonl")
    for given in (["--suite", "1x2x2x1 1x4x4x1"], ["--suite", "1x2x2x1 1x4x4x1", "--output", "mine"]):
        assert main(["run", *given]) == 130
        output = "mine" if "mine" in given else tmp_path / "rows.jsonl"
        told = f"goes on from here: kronsparse-bench run --suite '1x2x2x1 1x4x4x1' --output {output}\n"
        assert capsys.readouterr().err.endswith(told)
    monkeypatch.setattr(sys, "argv", ["/somewhere/kronsparse/bench/__main__.py"])
    assert main(["run", "--suite", "1x2x2x1"]) == 130
    assert f"{sys.executable} -m kronsparse.bench run --suite 1x2x2x1 --output" in capsys.readouterr().err
    assert main(["layers"]) == 130
    assert capsys.readouterr().err.endswith(f"rows so far are in {tmp_path / 'rows.jsonl'}\n")


def test_progress_is_short_where_nobody_watches(tmp_path, capsys):
    problems = [Problem("f32", "batch_last", Pattern(1, 1, 1, d), 8, ("fp32",)) for d in range(1, 21)]

    def hold(problem, families):
        return [{"record": "row", "status": "ok", "problem": "", "floor_s": 1.0, "median_s": 1.0, **NAMES}]

    sweep.run_problems(problems, ["kronsparse"], Results(tmp_path / "r"), "time", math.inf, hold)
    assert capsys.readouterr().err.splitlines() == ["[  20/20] left 0:00"]


class LyingPlan:
    """Writes nothing, or something wrong."""

    implementation = "lying"

    def __init__(self, write=None):
        self.write = write

    def __enter__(self):
        return self

    def __exit__(self, *_): ...

    def bind(self, x, y, stream):
        return lambda: self.write(y) if self.write else None


class LyingLibrary:
    version = "0"

    def __init__(self, write=None):
        self.write = write

    def plan(self, *_):
        return LyingPlan(self.write)

    def predict(self, *_):
        return 1.0

    def was_tuned(self, *_):
        return False


@pytest.mark.parametrize("layout", ["batch_first", "batch_last"])
def test_wrong_answers_are_recorded_and_not_timed(layout):
    problem = Problem("f32", layout, Pattern(2, 3, 5, 4), 64, ("fp32",))
    device = CpuDevice("cpu")

    def zeros(address):
        import ctypes

        ctypes.memset(address, 0, problem.operand_bytes[1])

    for write in (None, zeros):
        table = Table(Arena(device, [problem]), CEILINGS, LyingLibrary(write))
        rows = hold_contest(table, problem, ["kronsparse", "bmm"])
        status = {row["contender"]: row["status"] for row in rows}
        assert status["kronsparse"] == "wrong" and status["bmm"] == "ok"
        ours = next(row for row in rows if row["contender"] == "kronsparse")
        assert "median_s" not in ours and ours["reason"].startswith("error")
        json.dumps(rows, allow_nan=False)


def test_what_does_not_fit_is_skipped_and_says_so():
    problem = Problem("f32", "batch_first", Pattern(64, 48, 48, 64), 49, ("fp32",))
    device = CpuDevice("cpu")
    table = Table(Arena(device, [problem]), CEILINGS, LyingLibrary())
    rows = hold_contest(table, problem, ["dense"])
    assert [row["status"] for row in rows] == ["skipped"]
    assert "GB" in rows[0]["reason"]


def test_batches_of_a_cpu_are_the_paper_s_halved():
    suite = SUITES["sample"]
    for pattern in suite.patterns:
        problem = Problem("f32", "batch_first", pattern, 25088)
        batch = sweep.cpu_batch(problem, CEILINGS, suite.cpu_floor_s, CpuDevice.memory_bytes)
        assert batch >= 49 and math.log2(batch / 49) % 1 == 0


def test_small_batches(monkeypatch, tmp_path, capsys):
    options = ["--suite", "4x8x8x1 1x8x8x4", "--kind", "small", "--competitors", "ours,bmm"]
    monkeypatch.setattr("kronsparse.bench.measuring.small_batch.RUNS", 3)
    rows = run_in_process(monkeypatch, tmp_path / "rows.jsonl", *options)
    small = of_record(rows, "small")
    assert {row["status"] for row in small} == {"ok"} and {row["batch"] for row in small} == {32}
    assert all(row["bound_s"] > 2.5e-6 and row["plans"] >= 20 for row in small)
    assert "faster than bmm on" in capsys.readouterr().out


def test_small_batches_are_replayed_in_whole_rounds(monkeypatch):
    monkeypatch.setattr(CpuDevice, "replayed_calls", 70)
    device, order, clocked = CpuDevice("cpu"), [], []

    def seconds_of(replay, repeats=1):  # every replay takes as long as 80 calls of 2 ms
        order.clear()
        replay()
        clocked.append(repeats)
        return 0.16

    monkeypatch.setattr(device, "seconds_of", seconds_of)
    contest = SmallContest(device, CEILINGS, Problem("f32", "batch_first", Pattern(4, 8, 8, 1), 8))
    calls = [lambda at=at: order.append(at) or contest.y for at in range(20)]
    contender = Contender("bmm", "bmm")
    contest.contest(contender, calls, lambda errors: True)
    assert order == [*range(20)] * 4
    assert contender.timing.median_s == pytest.approx(2e-3)
    assert set(clocked) == {1} and contender.timing.calls == 80


def test_energy_is_refused_without_a_counter(monkeypatch, tmp_path):
    monkeypatch.setattr("kronsparse.bench.measuring.energy.RAPL", tmp_path / "none")
    with pytest.raises(RuntimeError, match="no RAPL counter"):
        run_in_process(monkeypatch, tmp_path / "rows.jsonl", "--suite", "paper-energy", "--limit", "1")
    assert not (tmp_path / "rows.jsonl").exists()


def test_accuracy(monkeypatch, capsys):
    monkeypatch.setattr(accuracy, "TERMS", (64, 300))
    monkeypatch.setattr(accuracy, "SHAPES", ((2, 3, 1), (1, 5, 4)))
    monkeypatch.setattr(accuracy, "BATCHES", (7,))
    assert main(["accuracy", "--device", "cpu"]) == 0
    printed = capsys.readouterr().out
    for precision in ("f32 fp32", "f32 ieee", "f32 tf32", "f16", "bf16", "f64", "complex64", "complex128"):
        for data in ("normal", "positive"):
            for terms in (64, 300):
                assert f"| {precision} | {data} | {terms} | " in printed
    assert printed.endswith("All within the bound.\n")


@pytest.mark.gpu
def test_accuracy_on_a_gpu():
    assert main(["accuracy", "--device", "cuda:0"]) == 0


def test_accuracy_shows_what_nobody_wrote(monkeypatch, capsys):
    monkeypatch.setattr(accuracy, "TERMS", (64,))
    idle = SimpleNamespace(implementation="nobody", run=lambda *_: None)
    monkeypatch.setattr(accuracy, "make_plan", lambda *_: nullcontext(idle))
    assert main(["accuracy", "--device", "cpu", "--dtypes", "f16"]) == 1
    printed = capsys.readouterr().out
    assert "| f16 | positive | 64 | nan | " in printed and "24 beyond the bound" in printed
    assert "elements nobody wrote" in printed


NONSENSE = [
    ["run", "--batch", "0"],
    ["run", "--limit", "0"],
    ["run", "--windows", "-1"],
    ["run", "--threads", "0"],
    ["layers", "--batch", "0"],
    ["advise", "--in", "0", "--out", "64"],
    ["compare", "a", "b", "--noise", "-5"],
    ["compare", "a", "b", "--noise", "nan"],
]


@pytest.mark.parametrize("arguments", NONSENSE)
def test_numbers_without_a_meaning_are_refused(arguments, capsys):
    with pytest.raises(SystemExit):
        main(arguments)
    assert re.search(r"argument --\w+: '\S+' given, must be a .*number", capsys.readouterr().err)


def test_an_implementation_that_nobody_has_is_refused_before_anything_is_measured(monkeypatch, tmp_path):
    path = tmp_path / "rows.jsonl"
    with pytest.raises(RuntimeError, match="'foo' is neither an implementation for cpu nor a family"):
        run_in_process(monkeypatch, path, "--suite", TWO, "--impl", "foo")
    assert not path.exists()
    options = ["--suite", "2x8x8x4", "--competitors", "ours", "--layouts", "batch_last"]
    rows = run_in_process(monkeypatch, path, *options, "--impl", "reference")
    assert [row["implementation"] for row in of_record(rows, "row")] == ["reference"]


class OnTheCpu(Library):
    """Ours as if on a GPU."""

    def plan(self, problem, values, implementation=None, device="cpu"):
        assert device == "cuda:0"
        return super().plan(problem, values, implementation, "cpu")

    def predict(self, problem, implementation=None, device="cpu"):
        assert device == "cuda:0"
        return super().predict(problem, implementation, "cpu")

    def was_tuned(self, problem, implementation, device="cpu"):
        assert device == "cuda:0"
        return super().was_tuned(problem, implementation, "cpu")


@pytest.fixture
def gpu(monkeypatch):
    device = pretend_gpu(monkeypatch)
    monkeypatch.setattr(sweep, "open_device", lambda name, library: device)
    monkeypatch.setattr(sweep, "Library", OnTheCpu)
    monkeypatch.setattr(CEILINGS.__class__, "floor", lambda self, problem: (1.0, "bytes"))
    return device


def test_a_whole_run_on_a_pretended_gpu(gpu, monkeypatch, tmp_path, capsys):
    options = ["--device", "cuda:0", "--suite", "2x8x8x4", "--dtypes", "f32,f16", "--modes", "fp32,tf32"]
    rows = run_in_process(monkeypatch, tmp_path / "rows.jsonl", *options)
    assert of_record(rows, "run")[0]["machine"]["gpu"] == "Pretended"
    found = {(row["contender"], row["dtype"], row["mode"]): row for row in of_record(rows, "row")}
    for dtype, mode in (("f32", "fp32"), ("f32", "tf32"), ("f16", "")):
        ours = found["kronsparse", dtype, mode]
        assert ours["status"] == "ok" and ours["runs"] >= 10, ours
    for name in ("bmm", "einsum", "dense", "blocks", "strided"):
        assert found[name, "f32", ""]["status"] == "ok", found[name, "f32", ""]
    # Calls per (i, j) are for a CPU.
    assert not any(row["spelling"] == "mm strided views" for row in of_record(rows, "row"))
    assert "## f32 tf32 batch_first" in capsys.readouterr().out


def test_a_competitor_that_does_not_apply_leaves_no_row(gpu, monkeypatch, tmp_path):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    options = ["--device", "cuda:0", "--suite", "2x8x8x4", "--layouts", "batch_first", "--dtypes", "f32"]
    rows = run_in_process(monkeypatch, tmp_path / "rows.jsonl", *options, "--competitors", "strided")
    assert not of_record(rows, "row") and len(of_record(rows, "done")) == 1


def test_energy_on_a_pretended_gpu(gpu, monkeypatch, tmp_path):
    shorten_windows(monkeypatch)
    monkeypatch.setattr(sweep, "open_meter", lambda name, uuid: NvmlMeter(FakeNvml(), "GPU-x"))
    options = ["--device", "cuda:0", "--suite", "2x8x8x4", "--kind", "energy", "--competitors", "ours,bmm"]
    rows = run_in_process(monkeypatch, tmp_path / "rows.jsonl", *options, "--dtypes", "f32")
    joules = {(row["contender"], row["layout"]) for row in of_record(rows, "energy") if "joules" in row}
    assert len(joules) == 4
    assert {round(row["idle_w"], -2) for row in of_record(rows, "energy")} <= {200, 300}


def test_the_command_without_the_native_module():
    """From a source tree, where nothing of the package is built."""
    code = "import sys; sys.modules['kronsparse._native'] = None; from kronsparse.bench.__main__ import main"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", f"{code}; main(['run', '--help'])"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and "paper-time" in done.stdout, done.stderr


def test_a_whole_run_on_an_opencl_device(tmp_path, capsys):
    why = _native.why_unusable("opencl:0")
    if why:
        pytest.skip(f"needs an OpenCL device: {why}")
    suite, rows = tmp_path / "suite.txt", tmp_path / "rows.jsonl"
    suite.write_text("f32 ieee batch_first B=40 2x8x8x4\n", encoding="utf-8")
    assert main(["run", "--suite", str(suite), "--device", "opencl", "--output", str(rows)]) == 0
    assert "kronsparse" in capsys.readouterr().out
    measured = [json.loads(line) for line in rows.read_text(encoding="utf-8").splitlines()]
    times = [row for row in measured if row.get("contender") == "kronsparse"]
    assert len(times) == 1 and times[0]["status"] == "ok", times


def tool(name):
    """A program of tools/ as a module."""
    loader = SourceFileLoader(name.replace("-", "_"), str(machine.REPOSITORY / "tools" / name))
    module = module_from_spec(spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def test_bench_opencl_checks_times_and_goes_on(tmp_path, capsys, monkeypatch):
    why = _native.why_unusable("opencl:0")
    if why:
        pytest.skip(f"needs an OpenCL device: {why}")
    bench, rows = tool("bench-opencl"), tmp_path / "rows.jsonl"
    monkeypatch.setattr(bench, "TURNS_BYTES", 1 << 20)
    call = ["bench-opencl", "--out", str(rows), "--batch", "40", "--min-time", "0", "--suite"]
    call += ["2x8x5x4 1x3x70x1", "--library", str(find_library()), "--cpu"]
    monkeypatch.setattr(sys, "argv", [*call, "--dtypes", "f32"])
    assert bench.main() == 0
    monkeypatch.setattr(sys, "argv", [*call, "--dtypes", "f32,bf16"])
    assert bench.main() == 0
    said = capsys.readouterr().out
    assert "of f32's time in the median of 2" in said and "0 wrong" in said, said
    measured = [row for row in read_rows(rows) if row["record"] == "row"]
    assert len(measured) == 16, "two patterns, two layouts, two dtypes, two devices, each once"
    assert all(row["status"] == "ok" and row["error_worst"] < 1 for row in measured), measured
    tiles = tmp_path / "tiles.jsonl"
    tried = ["--suite", "2x12x5x4", "--tiles", "4x16x16,1x16x16", "--out", str(tiles)]
    monkeypatch.setattr(sys, "argv", [*call, *tried])
    assert bench.main() == 0
    measured = [row for row in read_rows(tiles) if row["record"] == "row"]
    assert [(row["layout"], row["spelling"]) for row in measured] == [
        ("batch_first", "4x16x16"),
        ("batch_last", "1x16x16"),
    ]
    assert all(row["implementation"] == "local" and row["status"] == "ok" for row in measured), measured
    # One element is expected to be another than the device has: the sums that it is a term of must be wrong.
    right = bench.Repeated.elements
    monkeypatch.setattr(bench.Repeated, "elements", lambda self, at: right(self, at) + 0.01 * (at == 3))
    monkeypatch.setattr(sys, "argv", [*call, "--dtypes", "f32", "--out", str(tmp_path / "wrong.jsonl")])
    assert bench.main() == 1
    assert "as far from the sum in f64 as rounding explains" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", [*call, "--device", "opencl:no such"])
    with pytest.raises(SystemExit, match=r"--device: opencl:no such given, must be one of .*opencl:0"):
        bench.main()
