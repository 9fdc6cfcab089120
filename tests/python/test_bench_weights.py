"""kronsparse-bench weights, on the CPU and on small things."""

from kronsparse.bench import weights
from kronsparse.bench.__main__ import main
from kronsparse.bench.reporting import weights_table
from kronsparse.bench.results.rows import read_rows
from kronsparse.chains import Pattern

PROBLEMS = [("f16", "batch_first", 2, Pattern(2, 3, 4, 5)), ("f32", "batch_last", 100, Pattern(1, 8, 6, 3))]


def run(monkeypatch, tmp_path):
    monkeypatch.setattr(weights, "HOST_CALLS", 3)
    monkeypatch.setattr(weights, "HOST_RUNS", 2)
    monkeypatch.setattr(weights, "MANY_BATCHES", (1, 5))
    monkeypatch.setattr(weights, "_problems", lambda *_: PROBLEMS)
    path = tmp_path / "weights.jsonl"
    code = main(["weights", "--device", "cpu", "--output", str(path)])
    return code, read_rows(path)


def test_rows_and_summary_of_weights(monkeypatch, tmp_path, capsys):
    code, rows = run(monkeypatch, tmp_path)
    assert code == 0
    assert [row["record"] for row in rows] == ["run", *["host_times", "packed"] * 2, *["price"] * 2]
    for row in rows[-2:]:
        assert row["status"] == "ok" and min(row["unfrozen_s"], row["frozen_s"]) > 0
        assert max(row["unfrozen_error"], row["frozen_error"]) <= weights.ALLOWED[row["dtype"]]
    assert all(row["packed"] <= 3 * row["weights"] for row in rows if row["record"] == "packed")
    told = capsys.readouterr().out
    assert "f32 batch_last B=100" in told and "2 batch sizes leave" in told and "nn.Linear" in told


def test_a_wrong_answer_is_not_timed(monkeypatch, tmp_path):
    right = weights.by_einsum
    monkeypatch.setattr(weights, "by_einsum", lambda *given: 1.01 * right(*given))
    code, rows = run(monkeypatch, tmp_path)
    assert code == 1
    assert [row["status"] for row in rows if row["record"] == "price"] == ["wrong", "wrong"]


def test_every_suite_is_in_the_list_of_problems():
    found = weights._problems(["f16", "f32"], None, False)
    assert len(found) == 3 * 12 + 2 * 2 * 2 * 64
    assert {batch for _, _, batch, _ in found} == {1, 8, 64, 1024, 25088}


def test_the_worst_pattern_is_named():
    row = {"record": "price", "status": "ok", "dtype": "f16", "layout": "batch_first", "batch": 8}
    rows = [
        row | {"problem": f"f16 batch_first B=8 1x{size}x{size}x1", "unfrozen_s": times, "frozen_s": 1.0}
        for size, times in ((2, 1.5), (3, 4.0), (4, 2.0))
    ]
    (line,) = weights_table.price_table(rows).rows
    assert line == ["f16 batch_first B=8", "3", "2.000", "4.000", "1x3x3x1"]


def test_the_table_of_models_in_older_files():
    row = {"record": "model", "model": "vit", "dtype": "f16", "blocks": 4, "taken": {"dense": 2}}
    (line,) = weights_table.models_table([row | {"dense_s": 2e-3, "frozen_s": 1e-3}]).rows
    assert line == ["vit f16 monarch(4)", "2.00", "1.00", "0.500", "dense 2"]
