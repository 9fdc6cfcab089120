"""The suite `random`: its problems, its runs, its part of the report."""

import math

import pytest
import torch
from bench_helpers import row, run_in_process, run_record, write
from kronsparse.bench.__main__ import main
from kronsparse.bench.measuring import answers
from kronsparse.bench.measuring.answers import Checker
from kronsparse.bench.measuring.arena import Arena, draw_values
from kronsparse.bench.measuring.devices import CpuDevice
from kronsparse.bench.problems import random_suite
from kronsparse.bench.problems.problem import Problem
from kronsparse.bench.problems.random_suite import random_cases
from kronsparse.bench.problems.suites import SUITES
from kronsparse.bench.report import build
from kronsparse.bench.reporting.verdict import summary
from kronsparse.bench.results.dataset import collect
from kronsparse.bench.results.statistics import percentile
from kronsparse.chains import Pattern


@pytest.fixture
def small(monkeypatch):
    """Problems as quick as those of a test."""
    for name, bounds in (("COUNTS", (1, 4)), ("SIZES", (2, 9)), ("DISTANCES", (1, 5)), ("BATCHES", (4, 9))):
        monkeypatch.setattr(random_suite, name, bounds)
    monkeypatch.setattr(random_suite, "LEAST_BYTES", 100)
    monkeypatch.setattr("kronsparse.bench.measuring.ceilings._CPU_SIZES", (16, 1 << 12))


def test_a_seed_gives_the_same_problems_everywhere():
    assert [f"{pattern} B={batch}" for pattern, batch in random_cases(1, 3)] == [
        "1x1280x676x4 B=1407",
        "58x54x668x1 B=1030",
        "33x11x2699x148 B=77",
    ]
    assert random_cases(1, 50) == random_cases(1)[:50] and len(random_cases(1)) == 200
    assert not set(random_cases(1)) & set(random_cases(2))


def test_problems_lie_within_the_bounds_and_in_every_octave():
    cases = [case for seed in range(5) for case in random_cases(seed)]
    bounds = ((1, 128), (2, 4096), (2, 4096), (1, 256), (64, 32768))
    for at, (least, most) in enumerate(bounds):
        found = [(*pattern, batch)[at] for pattern, batch in cases]
        assert least <= min(found) < 2 * least and most / 2 < max(found) <= most
        octaves = {int(math.log2(number)) for number in found}
        assert octaves >= set(range(int(math.log2(least)), int(math.log2(most))))
    for pattern, batch in cases:
        elements = (batch * pattern.cols, batch * pattern.rows, pattern.nnz)
        assert max(elements) <= 2**30 and 2 * sum(elements) >= 20e6


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--suite", "random"], "--seed: none given, --suite random needs one"),
        (["--suite", "sample", "--seed", "3"], "--seed 3 given, allowed with --suite random only"),
        (["--suite", "sample", "--count", "3"], "--count 3 given, allowed with --suite random only"),
    ],
)
def test_seeds_are_for_random(arguments, told, capsys):
    assert main(["run", "--device", "cpu", *arguments]) == 1
    assert told in capsys.readouterr().err


def test_suites_are_listed_with_what_they_are(capsys):
    assert main(["run", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == list(SUITES)
    assert all(suite.told in line for suite, line in zip(SUITES.values(), lines, strict=True))


def test_a_run_of_random_problems(small, monkeypatch, tmp_path, capsys):
    path = tmp_path / "rows.jsonl"
    given = ["--suite", "random", "--seed", "3", "--dtypes", "f32", "--competitors", "ours,bmm,einsum"]
    rows = run_in_process(monkeypatch, path, *given, "--count", "4")
    ours = [one for one in rows if one.get("contender") == "kronsparse"]
    cases = [(str(pattern), 32) for pattern, _ in random_cases(3, 4)]
    assert [(one["pattern"], one["batch"]) for one in ours[::2]] == cases
    assert {one["layout"] for one in ours} == {"batch_first", "batch_last"} and len(ours) == 8
    assert all(one["status"] == "ok" and one["seed"] == 3 for one in ours)
    assert next(one for one in rows if one["record"] == "run")["seed"] == 3
    printed = capsys.readouterr().out
    assert "Seeds: 3 (4 problems)." in printed and "| f32 fp32 | batch_last | 4 |" in printed
    assert "## f32 fp32 batch_first" not in printed  # that is the grid's
    more = run_in_process(monkeypatch, path, *given, "--count", "6")
    assert len([one for one in more if one.get("contender") == "kronsparse"]) == 12  # goes on


def test_problems_too_large_for_the_machine_are_left_out(small, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(Arena, "fits", staticmethod(lambda device, problem: problem.pattern.a < 3))
    given = ["--suite", "random", "--seed", "3", "--count", "12", "--competitors", "ours"]
    rows = run_in_process(monkeypatch, tmp_path / "rows.jsonl", *given)
    left = [one for one in rows if one["record"] == "left_out"]
    assert left and f"{len(left)} of 24 problems left out" in capsys.readouterr().err
    assert not any(one.get("status") == "skipped" for one in rows)


def of_seed(pattern, contender, seconds, **changes):
    return row(pattern, contender, seconds, seed=9, bytes=1e12, flops=1e12, **changes)


def test_the_exam_is_reported_apart_from_the_grid():
    ceilings = {"copy_bytes": 1e12, "gemm_flops": {"f32": 1e12, "f16": 1e12, "tf32": 6e12}}
    rows = [run_record(ceilings=ceilings), row("1x2x2x1", "kronsparse", 9.0), row("1x2x2x1", "bmm", 9.9)]
    for at, (ours, bmm, triton) in enumerate(((1.5, 2.0, 3.0), (2.0, 9.0, 1.0), (3.0, 6.0, 6.0))):
        pattern = f"{at + 1}x4x4x1"
        rows.append(of_seed(pattern, "kronsparse", ours))
        rows += [of_seed(pattern, "bmm", bmm), of_seed(pattern, "triton", triton)]
    printed = "\n".join(summary(rows))
    (line,) = [one for one in printed.splitlines() if one.startswith("| f16 | batch_last |")]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[2:] == [
        "3",
        "2.00 (target 1.7: **missed**)",
        "3.00 (target 4: reached)",
        "100%",
        "67% (target 85%: **missed**)",
        "0.50 (target 0.7: **missed**)",
    ]
    assert "furthest behind a rival: 2x4x4x1 0.50 (triton)" in printed
    assert "1x2x2x1" in printed.split("Problems nobody tuned for")[1].split("## f16 batch_last")[1]
    titles = [section.title for section in build(rows).sections]
    assert "Problems nobody tuned for" in titles


def exam_cells(rows, start):
    (line,) = [one for one in "\n".join(summary(rows)).splitlines() if one.startswith(start)]
    return [cell.strip() for cell in line.strip("|").split("|")][2:]


@pytest.mark.parametrize(
    ("rates", "median"),
    [
        ({"f32": 1e12, "tf32": 1e12}, "1.33 (target 1.5: reached)"),
        ({"f32": 1e12}, "4.00"),  # over another floor, which is not what the target is of
    ],
)
def test_the_grid_is_judged_beside_everyone(rates, median):
    pattern, floor = "1x48x48x1", {"bytes": 1e12, "flops": 1e12, "batch": 25088, "dtype": "f32"}
    rows = [run_record(ceilings={"copy_bytes": 1e12, "gemm_flops": rates})]
    rows += [row(pattern, "kronsparse", 4.0, **floor), row(pattern, "bmm", 3.0, **floor)]
    rows += [row("1x48x48x2", "kronsparse", 4.0, **floor), row("1x48x48x2", "triton", 5.0, **floor)]
    rows.append(row("1x48x48x7", "kronsparse", 99.0, **floor))  # which is not of the grid
    cells = exam_cells(rows, "| f32 fp32 | batch_last | 2 |")
    least = "0.75"  # a loss counts, though only bmm took part
    told = "100% of 1 (target 95%: reached)" if "tf32" in rates else "100% of 1"
    assert cells == ["2", median, cells[2], "0% of 1", told, least]


def test_f32_is_held_against_three_products_in_tf32():
    ceilings = {"copy_bytes": 1e12, "gemm_flops": {"f32": 1e12, "tf32": 6e12}}
    rows = [run_record(ceilings=ceilings), of_seed("1x4x4x1", "kronsparse", 3.0, dtype="f32")]
    (one,) = collect(rows)
    assert one.floor_of("fp32") == 1.0  # bytes: the flops take half of it
    (one,) = collect([rows[0], {**rows[1], "flops": 4e12}])
    assert one.floor_of("fp32") == 2.0 and one.over_floor("fp32") == 1.5
    assert one.floor_of("ieee") == one.floor_s


def test_percentiles_count_what_is_missing():
    assert percentile([1.0] * 19 + [math.inf], 95) == 1.0
    assert percentile([1.0] * 18 + [math.inf] * 2, 95) == math.inf


def test_the_report_of_random_rows_alone(tmp_path, capsys):
    rows = [run_record(), of_seed("2x4x4x1", "kronsparse", 1.0)]
    assert main(["report", write(tmp_path / "r.jsonl", rows), "--output", str(tmp_path / "page")]) == 0
    told = (tmp_path / "page.md").read_text()
    assert "Seeds: 9 (1 problems)." in told and "remembered" not in told


def test_the_report_says_who_was_tuned(tmp_path, capsys):
    remembered = {**of_seed("2x4x4x1", "kronsparse", 1.0), "tuned": True}
    predicted = {**of_seed("1x2x2x1", "kronsparse", 1.0), "tuned": False}
    rows = [run_record(), remembered, predicted]
    assert main(["report", write(tmp_path / "r.jsonl", rows), "--output", str(tmp_path / "page")]) == 0
    told = (tmp_path / "page.md").read_text()
    assert "Times remembered by `kronsparse tune` stood for 1 of 2 choices." in told


@pytest.mark.parametrize("layout", ["batch_first", "batch_last"])
def test_a_large_problem_is_compared_on_some_outputs(monkeypatch, layout):
    monkeypatch.setattr(answers, "MOST_COMPARED", {"cpu": 1 << 11})
    monkeypatch.setattr(answers, "OUTPUTS_COMPARED", 4)
    problem = Problem("f32", layout, Pattern(3, 40, 8, 5), 20, ("fp32",))
    x, values = torch.randn(problem.shapes[0]), draw_values(problem, CpuDevice("cpu"))
    checker = Checker(problem, x, values)
    i, k, j = checker._i, checker._k, checker._j
    assert (len(k), int(i[0]), int(j[0]), int(i[1]), int(j[1]), int(k[1])) == (4, 0, 0, 2, 4, 39)
    assert 2 < len(i) < 15 and len(set(zip(i.tolist(), j.tolist(), strict=True))) == len(i)
    shape = (20, 3, 8, 5) if layout == "batch_first" else (3, 8, 5, 20)
    form = "nicj,ibcj->nibj" if layout == "batch_first" else "icjn,ibcj->ibjn"
    y = torch.einsum(form, x.view(shape), values).reshape(problem.shapes[1]).contiguous()
    assert checker.errors(y).norm < 1e-6 and checker.errors_of_torch().norm < 1e-6
    last = (19, problem.pattern.rows - 1) if layout == "batch_first" else (problem.pattern.rows - 1, 19)
    y[last] += 0.1
    assert checker.errors(y).norm > 1e-4


def test_values_that_matter_are_rotated():
    device = CpuDevice("cpu")
    device.cache_bytes = 1 << 20
    heavy = Problem("f32", "batch_first", Pattern(1, 256, 256, 1), 64, ("fp32",))
    light = Problem("f32", "batch_first", Pattern(1, 4, 4, 1), 4096, ("fp32",))
    arena = Arena(device, [heavy, light])
    assert arena.value_sets(light) == 1 and arena.sets(light) > 1
    assert arena.value_sets(heavy) * heavy.moved_bytes >= 4 << 20
    device.cache_bytes = 0
    assert arena.value_sets(heavy) == 1
