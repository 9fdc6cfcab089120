"""Advice on chains: what is proposed, its order, and how measurements change it."""

import pytest
from bench_helpers import row, run_record, write
from kronsparse.bench.__main__ import main
from kronsparse.bench.advise import Advice, Experience, Layer, advise, not_told_apart, parameters
from kronsparse.bench.problems.problem import Problem
from kronsparse.bench.problems.proposals import Proposal, proposals, two_factors
from kronsparse.bench.results.elsewhere import Elsewhere
from kronsparse.chains import Pattern, checked, monarch

LAYER = Layer(1024, 1024, "f32", "fp32", "batch_first", 100)


def by_flops(problem):
    """A model in which only products count, and small blocks cost a little more."""
    patterns = map(Pattern.parse, problem.split()[-1].split("*"))
    return sum(pattern.nnz * (1 + pattern.h) for pattern in patterns)


def test_proposals_fit_the_layer_and_the_parameters():
    found = list(proposals(1024, 256, 40_000))
    assert len(found) > 20
    for one in found:
        checked(one.chain)
        assert (one.chain[0].rows, one.chain[-1].cols) == (1024, 256)
        assert one.parameters <= 40_000
    assert any(one.name.startswith("low rank") for one in found)


def test_numbers_of_a_proposal():
    one = Proposal("monarch", monarch(64, 64))
    assert one.parameters == 2 * 64 * 8 and one.density == pytest.approx(2 * 8 / 64)
    assert one.rank == 64 and one.h == pytest.approx(0.25)
    assert Proposal("", two_factors(64, 64, 2, 4)).rank == 8


def test_the_fastest_comes_first_and_the_budget_is_used():
    found = advise(LAYER, 200_000, by_flops)
    assert [one.seconds for one in found] == sorted(one.seconds for one in found)
    assert all(100_000 <= one.proposal.parameters <= 200_000 for one in found)
    dense = 1024 * 1024 * (1 + 2 / 1024)
    assert found[0].speedup == pytest.approx(dense / found[0].seconds)


def test_of_equally_fast_chains_the_richest_comes_first():
    found = advise(LAYER, 140_000, lambda problem: 1.0)
    two = [one.proposal.rank for one in found if len(one.proposal.chain) == 2]
    assert two == sorted(two, reverse=True) and two[0] == 1024


def test_measurements_come_before_predictions():
    before = advise(LAYER, 200_000, by_flops)
    slow = before[0].proposal.chain[0]
    text = f"f32 batch_first B=100 {slow}"
    measured = row(str(slow), "kronsparse", 1e9, dtype="f32", layout="batch_first", problem=text)
    experience = Experience.of([{**measured, "predicted_s": 1e9}])
    after = advise(LAYER, 200_000, by_flops, experience)
    assert slow not in after[0].proposal.chain
    assert next(one for one in after if slow in one.proposal.chain).measured >= 1


def test_a_model_that_is_off_is_corrected():
    rows = [
        row(pattern, "kronsparse", 3.0, dtype="f32", layout="batch_first", predicted_s=1.5)
        for pattern in ("1x2x2x1", "1x4x4x1", "1x8x8x1")
    ]
    experience = Experience.of(rows)
    assert experience.factors == {"f32 batch_first": 2.0}
    plain, corrected = (advise(LAYER, 200_000, by_flops, known)[0] for known in (None, experience))
    assert corrected.seconds == pytest.approx(2 * plain.seconds)
    assert corrected.speedup == pytest.approx(plain.speedup)


def test_budgets():
    assert parameters("10%", 5000) == 500 and parameters("70", 5000) == 70
    for text in ("many", "inf%", "%"):
        with pytest.raises(ValueError, match="neither a number nor a share"):
            parameters(text, 5000)
    with pytest.raises(ValueError, match="'-5%' given, -250 parameters, must be at least 1"):
        parameters("-5%", 5000)


def test_times_that_do_not_differ_are_no_ranking():
    chain = Proposal("monarch", monarch(64, 64))
    found = [Advice(chain, seconds, 1.0, 0) for seconds in (1.0, 1.0, 1.005, 1.2, 3.0, 3.0)]
    assert not_told_apart(found).startswith(
        "Of lines 1 to 3 and lines 5 to 6 the times differ by less than 1 %"
    )
    assert not_told_apart(found[2:5]) == ""


def test_the_command_asks_the_library(monkeypatch, capsys):
    options = ["--in", "256", "--out", "512", "--dtype", "f32", "--device", "cpu", "--parameters", "20%"]
    assert main(["advise", *options, "--top", "3"]) == 0
    printed = capsys.readouterr().out
    assert (
        "| chain | what | parameters | density | h | rank | predicted us | speed-up over dense |" in printed
    )
    assert len([line for line in printed.splitlines() if line.startswith("| 1x")]) == 3
    assert main(["advise", *options[:4], "--device", "cpu", "--parameters", "1"]) == 1
    assert "no chain for 512x256 has 1 to 1 parameters" in capsys.readouterr().err
    assert main(["advise", *options[:4], "--device", "cpu", "--parameters", "1000%", "--rank", "9"]) == 1
    assert "has 655360 to 1310720 parameters and rank 9 or more" in capsys.readouterr().err
    monkeypatch.setattr("kronsparse.bench.advise.TOLD_APART", 10.0)  # whatever the cost model says
    assert main(["advise", *options[:4], "--device", "cpu", "--parameters", "20%"]) == 0
    assert "the times differ by less than 1000 %: choose by rank, or measure." in capsys.readouterr().out


def of_another_gpu():
    """A GPU whose kernels take twice the floor, four times where d is 64."""
    ceilings = {"copy_bytes": 1e12, "gemm_flops": {"f16": 1e14, "f32": 1e13}}
    rows = [run_record(ceilings=ceilings)]
    for a, d in ((1, 1), (4, 1), (16, 1), (64, 1), (1, 4), (1, 16), (1, 64), (4, 64)):
        for b in (16, 32, 64, 256):
            problem = Problem("f16", "batch_first", Pattern(a, b, b, d), 4096)
            floor_s = max(problem.moved_bytes / 1e12, problem.flops / 1e14)
            told = {"problem": problem.text(), "batch": 4096, "layout": "batch_first"}
            rows.append(row(str(problem.pattern), "kronsparse", (4 if d == 64 else 2) * floor_s, **told))
    return rows


def test_a_gpu_that_is_not_here_is_planned_for_by_its_measurements(tmp_path, capsys):
    there = Elsewhere.of(of_another_gpu())
    for pattern, times in (
        (Pattern(4, 64, 64, 1), 2),
        (Pattern(1, 64, 64, 64), 4),
        (Pattern(32, 48, 48, 1), 2),
    ):
        problem = Problem("f16", "batch_first", pattern, 4096)
        assert there.predict(problem.text()) == pytest.approx(times * there.floor(problem), rel=0.2)
    pair = "f16 batch_first B=4096 1x64x64x64*64x64x64x1"
    apart = [there.predict(f"f16 batch_first B=4096 {one}") for one in ("1x64x64x64", "64x64x64x1")]
    assert there.predict(pair) == pytest.approx(sum(apart))
    assert there.error("f16", "", "batch_first") < 0.3
    with pytest.raises(
        ValueError, match="no time of ours in f32 fp32 batch_last; the files have f16 batch_first"
    ):
        there.predict("f32 batch_last B=8 1x2x2x1")
    path = write(tmp_path / "there.jsonl", of_another_gpu())
    command = ["advise", "--in", "1024", "--out", "1024", "--parameters", "10%", "--like", path]
    assert main([*command, "--library", str(tmp_path / "no-library")]) == 0  # none is needed
    assert "G, from 32 measured problems; told from the others" in capsys.readouterr().out


def test_whole_chains_that_were_measured_count_with_their_times():
    before = advise(LAYER, 200_000, by_flops)
    last = before[-1].proposal
    chain = {"record": "chain", "status": "ok", "seconds": {"kronsparse": 1e-9}}
    chain["problem"] = f"f32 batch_first B=100 {last}"
    after = advise(LAYER, 200_000, by_flops, Experience.of([chain]))
    assert after[0].proposal == last and after[0].measured == len(last.chain)
