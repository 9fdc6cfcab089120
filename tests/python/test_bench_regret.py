"""Regret: every candidate timed, the choice beside the best. On the CPU."""

import pytest
from bench_helpers import CEILINGS, row, run_record, write
from kronsparse.bench.__main__ import main
from kronsparse.bench.measuring import machine
from kronsparse.bench.measuring.c_api import Library, find_library
from kronsparse.bench.measuring.ceilings import Ceilings
from kronsparse.bench.measuring.contest import Contender
from kronsparse.bench.measuring.regret_sweep import regret_row
from kronsparse.bench.measuring.timing import Timing
from kronsparse.bench.problems.problem import Problem
from kronsparse.bench.reporting.regret_section import regret_section
from kronsparse.bench.results.rows import read_rows
from kronsparse.chains import Pattern

PROBLEM = Problem("f32", "batch_first", Pattern(2, 8, 8, 4), 32, ("fp32",))


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setenv(machine.PREPARED_VARIABLE, "1")
    monkeypatch.setattr(Ceilings, "measure", staticmethod(lambda device, runs=5: CEILINGS))


def test_candidates_through_the_c_api():
    found = Library(find_library()).candidates(PROBLEM.text("fp32"))
    assert list(found)[-1] == "reference" and list(found.values()) == sorted(found.values())
    assert "amx-emulated" not in found  # refuses f32


def test_every_candidate_is_timed(quick, tmp_path, capsys):
    path = tmp_path / "regret.jsonl"
    command = [
        "regret",
        "--suites",
        "2x8x8x4,small-batch",
        "--device",
        "cpu",
        "--threads",
        "1",
        "--batch",
        "4",
    ]
    command += ["--dtypes", "f32", "--limit", "1", "--within", "1e6", "--output", str(path)]
    assert main(command) == 0
    found = [one for one in read_rows(path) if one["record"] == "regret"]
    assert [one["suite"] for one in found] == ["2x8x8x4", "2x8x8x4", "small-batch"]
    for one in found:
        times = {name: told["median_s"] for name, told in one["candidates"].items()}
        assert len(times) >= 2 and "reference" in times and min(times.values()) > 0
        assert one["regret"] == times[one["choice"]] / min(times.values()) >= 1
        assert one["best"] in times and one["not_timed"] == []
    told = capsys.readouterr().out
    assert "| all |  |  | 3 |" in told and "send the file in" in told
    assert main(command) == 0  # nothing left to do
    assert len([one for one in read_rows(path) if one["record"] == "regret"]) == 3
    # Every suite as small batches are timed, too.
    small = tmp_path / "small.jsonl"
    assert main([*command[:-1], str(small), "--kind", "small", "--layouts", "batch_last"]) == 0
    found = [one for one in read_rows(small) if one["record"] == "regret"]
    assert [one["suite"] for one in found] == ["2x8x8x4", "small-batch"]
    assert all(one["status"] == "ok" and one["regret"] >= 1 for one in found)
    # The slower ones are not timed with a narrow bound.
    command[command.index("1e6")], command[-1] = "1.01", str(tmp_path / "other.jsonl")
    assert main([*command, "--layouts", "batch_last"]) == 0
    assert "reference" in read_rows(tmp_path / "other.jsonl")[1]["not_timed"]


def timed(name, seconds, status="ok"):
    contender = Contender(
        "kronsparse", "kronsparse", "fp32", name, predicted_s=1.0, timing=Timing.of([seconds])
    )
    if status != "ok":
        contender.drop(status, "off by 3")
    return contender


def test_the_choice_is_held_against_the_best():
    one = regret_row(
        PROBLEM, "fp32", [timed("mma", 3.0), timed("simt", 2.0), timed("gemm", 1.0, "wrong")], []
    )
    assert (one["choice"], one["best"], one["regret"]) == ("mma", "simt", 1.5)
    assert one["candidates"]["gemm"]["status"] == "wrong" and one["candidates"]["gemm"]["median_s"] is None
    lost = regret_row(PROBLEM, "fp32", [timed("mma", 3.0, "wrong"), timed("simt", 2.0)], [])
    assert "regret" not in lost and lost["status"] == "wrong"


def test_the_table_names_the_worst_choices(tmp_path):
    rows = [run_record()]
    for at in range(40):
        times = [timed("mma", 1.3 if at == 7 else 1.0), timed("simt", 1.0)]
        problem = Problem("f16", "batch_last", Pattern(at + 1, 2, 2, 1), 8, seed=4)
        rows.append({"record": "regret", "suite": "random", **regret_row(problem, "", times, [])})
    table, worst, seeds = regret_section(rows).blocks
    assert table.rows[-1][3:6] == ["40", "1.000 (target 1.01: reached)", "1.000 (target 1.1: reached)"]
    assert table.rows[-1][6] == "1.30" and seeds == "Seeds of random: 4."
    assert worst.rows == [["f16 batch_last B=8 8x2x2x1", "1.30", "mma", "simt", "1300.0000", "1000.0000"]]
    rows.append(row("1x2x2x1", "kronsparse", 1.0))
    page = tmp_path / "page"
    assert main(["report", write(tmp_path / "rows.jsonl", rows), "--output", str(page)]) == 0
    assert "## Regret of the choice" in page.with_suffix(".md").read_text()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--suites", "paper-energy"], "--suites paper-energy: measures joules"),
        (["--suites", "random"], "--seed: none given"),
        (["--suites", "sample", "--seed", "1"], "--seed 1 given, allowed where --suites has random"),
        (["--within", "0.5", "--seed", "1"], "--within 0.5 given, must be at least 1"),
    ],
)
def test_wrong_calls(arguments, told, capsys):
    assert main(["regret", "--device", "cpu", *arguments]) == 1
    assert told in capsys.readouterr().err
