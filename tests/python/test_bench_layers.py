"""KSLinear timed as a layer: rows, the summary, and gradients that are wrong. On the CPU."""

import argparse

import pytest
import torch
from kronsparse.bench import layers
from kronsparse.bench.results.rows import read_rows
from kronsparse.chains import Pattern


def run(monkeypatch, path, *arguments):
    monkeypatch.setattr(layers, "PATTERNS", [Pattern(2, 8, 16, 4), Pattern(1, 8, 8, 1)])
    monkeypatch.setattr(layers, "HOST_CALLS", 3)
    parser = argparse.ArgumentParser()
    layers.add_options(parser)
    given = ["--device", "cpu", "--batch", "32", "--output", str(path), *arguments]
    return layers.main(parser.parse_args(given)), read_rows(path)


def test_rows_and_summary(monkeypatch, tmp_path, capsys):
    code, rows = run(monkeypatch, tmp_path / "layers.jsonl", "--dtypes", "f16,bf16")
    assert code == 0
    assert [row["record"] for row in rows] == ["run", "host", *["layer"] * 4]
    assert rows[0]["commit"] and rows[0]["versions"]["torch"] == torch.__version__
    for row in rows[2:]:
        assert row["status"] == "ok" and 0 < max(row["errors"]) <= layers.ALLOWED[row["dtype"]]
        assert row["step_s"].keys() == row["forward_s"].keys() == {"kernel", "bmm", "linear"}
        assert row["linear_error"] <= 2 * layers.ALLOWED[row["dtype"]]
        assert min(row["bare_s"], row["adjoint_s"], row["gradient_s"], *row["step_s"].values()) > 0
    told = capsys.readouterr().out
    assert "bf16 batch_first B=32 2x8x16x4" in told and "f16: faster than bmm" in told
    assert "f16: faster than nn.Linear" in told and "linear / ours" in told
    assert "costs the host" in told


@pytest.mark.parametrize("wrong", [0, 1], ids=["of x", "of the values"])
def test_wrong_gradients_are_not_timed(monkeypatch, tmp_path, wrong):
    right = layers._operators.backward_operator

    def backward(*given):
        made = right(*given)
        made[wrong] = 1.01 * made[wrong]
        return made

    monkeypatch.setattr(layers._operators, "backward_operator", backward)
    code, rows = run(monkeypatch, tmp_path / "layers.jsonl", "--dtypes", "f16", "--limit", "1")
    assert code == 1
    assert rows[-1]["status"] == "wrong" and "step_s" not in rows[-1]
