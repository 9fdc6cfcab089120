"""kronsparse-bench chains: the problems, the rows, wrong answers, the tables."""

import json

import pytest
from bench_helpers import CEILINGS, run_record
from kronsparse.bench import chains
from kronsparse.bench.__main__ import main
from kronsparse.bench.measuring.ceilings import Ceilings
from kronsparse.bench.problems import chain_cases
from kronsparse.bench.reporting import chains_section, plots
from kronsparse.bench.results.rows import read_rows
from kronsparse.chains import monarch

QUICK = ["chains", "--device", "cpu", "--dtypes", "f32", "--batch", "5", "--limit", "1"]


@pytest.fixture
def run(monkeypatch, tmp_path):
    monkeypatch.setattr(Ceilings, "measure", staticmethod(lambda device, runs=5: CEILINGS))
    monkeypatch.setattr(chains, "SMALL_RUNS", 1)
    small = [chain_cases.Case("small", "64x64 monarch 8", monarch(64, 64, 8), 1)]
    monkeypatch.setattr(chain_cases, "small", lambda: small)

    def run(*more):
        path = tmp_path / "chains.jsonl"
        code = main([*QUICK, "--output", str(path), *more])
        return code, [row for row in read_rows(path) if row["record"] == "chain"]

    return run


def test_the_cases_are_those_of_the_table():
    assert [len(chain_cases.cases([group])) for group in chain_cases.GROUPS] == [8, 24, 27]
    assert all(min(case.chain.shape) >= 384 for case in chain_cases.cases(["layers", "further"]))
    assert all(max(case.chain.shape) <= 4096 for case in chain_cases.cases(["layers", "further"]))
    assert len({(case.name, case.batch) for case in chain_cases.cases(chain_cases.GROUPS)}) == 59


def test_every_member_is_checked_and_timed(run, capsys):
    code, rows = run()
    assert code == 0
    assert [(row["group"], row["layout"]) for row in rows] == [
        *(("layers", "batch_first"), ("layers", "batch_last")),
        *(("further", "batch_first"), ("further", "batch_last"), ("small", "batch_first")),
    ]
    for row in rows:
        assert row["status"] == "ok" and row["batch"] == 5
        assert set(row["seconds"]) == set(row["errors"]) == {"kronsparse", "unfused", "dense"}
        assert max(row["errors"]["kronsparse"], row["errors"]["unfused"]) <= row["allowed"] < 1e-5
        assert row["implementations"]["unfused"].count(" + ") == 1
    told = capsys.readouterr().out
    assert "**Eight layers, f32 batch_first**" in told and "goal" not in told  # goals are a GPU's


@pytest.mark.gpu
def test_every_member_on_a_gpu(tmp_path):
    path = tmp_path / "chains.jsonl"
    options = ["--device", "cuda:0", "--dtypes", "f16,f32", "--limit", "1", "--output", str(path)]
    assert main(["chains", *options]) == 0
    rows = [row for row in read_rows(path) if row["record"] == "chain"]
    assert len(rows) == 2 * 5 and all(row["status"] == "ok" for row in rows)
    assert all(set(row["seconds"]) == {"kronsparse", "unfused", "dense"} for row in rows)


def test_a_wrong_answer_is_not_timed(run, monkeypatch):
    right = chains.ChainContest.run
    monkeypatch.setattr(
        chains.ChainContest, "run", lambda self, plan, x, y: lambda: right(self, plan, x, y)().mul_(1.001)
    )
    code, rows = run("--groups", "layers")
    assert code == 1
    assert all(row["status"] == "wrong" and set(row["seconds"]) == {"dense"} for row in rows)
    assert "kronsparse: error 0.001, " in rows[0]["reason"]


def test_an_element_that_nobody_wrote_is_wrong(run, monkeypatch):
    monkeypatch.setattr(chains.ChainContest, "run", lambda self, plan, x, y: lambda: y)
    _, rows = run("--groups", "layers", "--layouts", "batch_first")
    assert rows[0]["status"] == "wrong" and rows[0]["errors"]["kronsparse"] is None


def test_the_budget_ends_a_run(run, capsys):
    code, rows = run("--budget", "0s")
    assert code == 0 and len(rows) == 1  # a run that measures nothing is of no use
    told = capsys.readouterr().err
    assert "--budget: stopped before f32 batch_last B=5" in told and "; 4 are left" in told
    code, rows = run("--budget", "0s")  # goes on
    assert [row["layout"] for row in rows] == ["batch_first", "batch_last"]
    assert len(run()[1]) == len(run()[1]) == 5


def test_a_file_of_another_machine_is_refused(run, tmp_path, capsys):
    (tmp_path / "chains.jsonl").write_text(json.dumps(run_record()) + "\n")
    assert main([*QUICK, "--output", str(tmp_path / "chains.jsonl")]) == 1
    assert "holds results of G, and this is" in capsys.readouterr().err


def made_up(group, name, ours, unfused, dense, dtype="f16"):
    seconds = {"kronsparse": ours, "unfused": unfused, "dense": dense}
    row = {"record": "chain", "problem": f"{dtype} {name}", "group": group, "name": name, "dtype": dtype}
    row |= {"layout": "batch_first", "batch": 8, "status": "ok", "reason": "", "seconds": seconds}
    return row | {"floor_s": 1.0, "implementations": {"kronsparse": "fused"}}


def test_the_sentences_say_whether_goals_are_reached():
    rows = [run_record(), made_up("layers", "p", 1.0, 4.0, 2.0), made_up("layers", "q", 4.0, 4.0, 2.0)]
    rows += [made_up("further", "r", 1.0, 1.8, 2.0), made_up("small", "s", 0.8, 1.0, 2.0)]
    text = chains_section.summary(rows)
    assert "2.00 times the fused floor in the geometric mean (goal 2: reached)" in text
    assert "Faster than dense on 1 of 2." in text
    assert "0.80 in the median (goal 0.85: reached), 0.80 at worst (goal 1: reached)" in text
    slower = [*rows, made_up("layers", "p", 1.1, 4.0, 2.0)]  # the last of a problem counts
    assert "2.10 times the fused floor in the geometric mean (goal 2: **missed**)" in chains_section.summary(
        slower
    )
    found = chains_section.sections(rows)
    assert found[0].title == "Chains: eight layers" and len(found) == 3


def bars_of(plot):
    """The ends of all bars of a picture, by series."""
    found = [one.data_source.data for one in plot.draw().renderers]
    return {data["name"][0]: list(zip(data["bottom"], data["top"], strict=True)) for data in found}


def test_bars_on_top_of_each_other_and_cut_off():
    stacked = plots.bar_plot({"p": {"x": 1.0, "y": 2.0}, "q": {"x": 3.0}}, "T", "s", "", None, stacked=True)
    assert stacked.numbers.rows == [["x", "1", "3"], ["y", "2", ""]]
    assert bars_of(stacked) == {"p": [(0.0, 1.0), (0.0, 2.0)], "q": [(1.0, 4.0)]}
    cut = plots.bar_plot({"p": {"x": 50.0}}, "T", "s", "", highest=10.0)
    assert bars_of(cut) == {"p": [(0.0, 50.0)]} and cut.draw().y_range.end == 10.0
    assert plots.bar_plot({}, "T", "s", "").draw is None


def test_boxes_lie_where_their_numbers_say():
    plot = plots.drawn({"p": {"x": range(101)}, "q": {"x": [1.0], "y": []}}, "T", "g", "s", "", log=False)
    boxes = {one.data_source.data["name"][0]: one.data_source.data for one in plot.draw().renderers}
    assert (boxes["p"]["low"], boxes["p"]["q3"], boxes["p"]["number"]) == ([5.0], [75.0], [101])
    assert boxes["q"]["place"] == [("x", "q")] and len(plot.numbers.rows) == 2
