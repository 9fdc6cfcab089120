"""What the tests of the benchmark share: runs in this process with made-up ceilings, and made-up rows."""

from __future__ import annotations

import argparse

from kronsparse.bench import machine, run
from kronsparse.bench.ceilings import Ceilings
from kronsparse.bench.results import read_rows

CEILINGS = Ceilings(1e10, {"f32": 1e10})


def run_in_process(monkeypatch, path, *arguments):
    """`kronsparse-bench run --device cpu`, quickly; the rows of its file."""
    monkeypatch.setenv(machine.PREPARED_VARIABLE, "1")
    monkeypatch.setattr(Ceilings, "measure", staticmethod(lambda device, runs=5: CEILINGS))
    parser = argparse.ArgumentParser()
    run.add_options(parser)
    given = ["--device", "cpu", "--threads", "1", "--batch", "32", "--output", str(path), *arguments]
    assert run.main(parser.parse_args(given)) == 0
    return read_rows(path)


def run_record(**changes):
    return {
        "record": "run",
        "machine": {"cpu": "C", "gpu": "G", "compute_capability": "9.0"},
        "versions": {"kronsparse": "1", "torch": "2"},
        "commit": "c",
        "ceilings": {"copy_bytes": 1e12, "gemm_flops": {"f32": 1e12, "f16": 1e12}},
        **changes,
    }


def row(pattern, contender, seconds, dtype="f16", layout="batch_last", **changes):
    mode = "fp32" if dtype == "f32" else ""
    return {
        "record": "row",
        "problem": f"{dtype} {layout} B=8 {pattern}",
        "layout": layout,
        "pattern": pattern,
        "batch": 8,
        "dtype": dtype,
        "mode": mode,
        "contender": contender,
        "spelling": contender,
        "implementation": "mma" if contender == "kronsparse" else "",
        "status": "ok",
        "reason": "",
        "error": 1e-4,
        "median_s": seconds,
        "q1_s": 0.99 * seconds,
        "q3_s": 1.01 * seconds,
        "runs": 10,
        "floor_s": 1.0,
        "floor_bound": "bytes",
        **changes,
    }
