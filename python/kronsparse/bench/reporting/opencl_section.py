"""The tables of `tools/bench-opencl`: over the floor, half types over f32, all over the CPU backend."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from kronsparse.bench.reporting.document import Section, Table
from kronsparse.bench.results.rows import OURS, Row, is_opencl
from kronsparse.checks import LAYOUTS


def over_floor(rows: Sequence[Row]) -> Table:
    """Times over the larger of bytes at the copy rate and flops at the rate of f32 products."""
    ours = _timed(rows, OURS)
    return _table("time / floor", ours, lambda row: float(row["median_s"] / row["floor_s"]))


def over_f32(rows: Sequence[Row]) -> Table:
    """Times of half types over those of f32 on the same pattern."""
    ours = _timed(rows, OURS)
    f32 = {_place(row): row for row in ours if row["dtype"] == "f32"}
    halves = [row for row in ours if row["dtype"] in ("f16", "bf16") and _place(row) in f32]
    return _table("time / f32's", halves, lambda row: float(row["median_s"] / f32[_place(row)]["median_s"]))


def over_cpu(rows: Sequence[Row]) -> Table:
    """Times over those of the CPU backend, by turns with it."""
    cpu = {row["problem"]: row for row in _timed(rows, "cpu")}
    ours = [row for row in _timed(rows, OURS) if row["problem"] in cpu]
    return _table(
        "OpenCL's time / the CPU backend's",
        ours,
        lambda row: float(row["median_s"] / cpu[row["problem"]]["median_s"]),
    )


def sections(rows: Sequence[Row]) -> list[Section]:
    """What a report says of an OpenCL device beyond what it says of all: empty for others."""
    if not any(is_opencl(row) for row in rows if row["record"] == "run"):
        return []
    tables = [over_floor(rows), over_f32(rows), over_cpu(rows)]
    return [Section("OpenCL", [table for table in tables if table.rows])]


def _place(row: Row) -> tuple[object, ...]:
    return (row["layout"], row["pattern"], row["batch"])


def _timed(rows: Sequence[Row], contender: str) -> list[Row]:
    return [row for row in rows if row.get("contender") == contender and row["status"] == "ok"]


def _table(what: str, rows: Sequence[Row], ratio: Callable[[Row], float]) -> Table:
    lines = []
    for dtype in dict.fromkeys(row["dtype"] for row in rows):
        for layout in LAYOUTS:
            ratios = [ratio(row) for row in rows if (row["dtype"], row["layout"]) == (dtype, layout)]
            if ratios:
                numbers = [f"{statistics.median(ratios):.2f}", f"{max(ratios):.1f}"]
                lines.append([dtype, layout, str(len(ratios)), *numbers])
    return Table(["dtype", "layout", "patterns", f"{what}, median", "worst"], lines)
