"""The table and the sentences of `kronsparse-bench layers`."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from kronsparse.bench.reporting.document import Section, Table, markdown_table
from kronsparse.bench.results.rows import Row

RIVALS = {"bmm": "bmm", "compiled": "torch.compile of bmm", "linear": "nn.Linear"}


def steps_table(rows: Sequence[Row]) -> Table:
    """A line for each layer, with the parts of its step and the rivals' times over ours."""
    timed = _timed(rows)
    rivals = [name for name in RIVALS if any(name in row["step_s"] for row in timed.values())]
    lines = []
    for problem, row in timed.items():
        step = row["step_s"]
        ratios = [f"{step[name] / step['kernel']:.2f}" if name in step else "" for name in rivals]
        parts = (step["kernel"], row["forward_s"]["kernel"], row["adjoint_s"], row["gradient_s"])
        lines.append([problem, *(f"{part * 1e3:.2f}" for part in parts), *ratios])
    over = [f"{name} / ours" for name in rivals]
    return Table(["layer", "step, ms", "forward", "adjoint", "gradient", *over], lines)


def sentences(rows: Sequence[Row]) -> list[str]:
    """The medians, and what a call costs the host."""
    timed, told = list(_timed(rows).values()), []
    for dtype in dict.fromkeys(row["dtype"] for row in timed):
        for name in RIVALS:
            found = [
                row["step_s"][name] / row["step_s"]["kernel"]
                for row in timed
                if row["dtype"] == dtype and name in row["step_s"]
            ]
            if found:
                middle = f"{statistics.median(found):.2f} times in the median of {len(found)} layers"
                told.append(f"{dtype}: faster than {RIVALS[name]} {middle}, {min(found):.2f} times at worst")
    over_bare = [row["forward_s"]["kernel"] / row["bare_s"] for row in timed]
    if over_bare:
        told.append(
            f"`KSLinear`'s forward takes {statistics.median(over_bare):.3f} times as long as the bare kernel"
        )
    for row in [row for row in rows if row["record"] == "host"][-1:]:
        told.append(
            f"a call of `KSLinear` costs the host {row['kslinear']:.1f} us, "
            f"one of `nn.Linear` {row['linear']:.1f} us"
        )
    return told


def summary(rows: Sequence[Row]) -> str:
    """All of it, in Markdown."""
    return "\n\n".join([markdown_table(steps_table(rows)), *sentences(rows)])


def training(rows: Sequence[Row]) -> Section | None:
    """The section of a report."""
    return Section("Training", [steps_table(rows), *sentences(rows)]) if _timed(rows) else None


def _timed(rows: Sequence[Row]) -> dict[str, Row]:
    """By problem, the last; the times of rivals from all runs, each beside ours of the same run."""
    found: dict[str, Row] = {}
    for row in rows:
        if row["record"] != "layer" or row["status"] != "ok":
            continue
        known = found.get(row["problem"])
        # A run with fewer rivals does not take the place of one with more.
        if known is None or len(row["step_s"]) >= len(known["step_s"]):
            found[row["problem"]] = row
    return found
