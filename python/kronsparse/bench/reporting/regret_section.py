"""The table of `regret`: how far the choice is from the best candidate."""

from __future__ import annotations

from collections.abc import Sequence

from kronsparse.bench.reporting.document import Section, Table
from kronsparse.bench.reporting.exam_section import judged
from kronsparse.bench.results.rows import Row, is_cpu, last_run
from kronsparse.bench.results.statistics import median, percentile
from kronsparse.bench.results.targets import REGRET_MEDIAN, REGRET_P95

WORST_SHOWN = 10


def _cells(rows: Sequence[Row], is_judged: bool) -> list[str]:
    found = [row["regret"] for row in rows]
    middle, high = median(found), percentile(found, 95)
    right = sum(row["best"] == row["choice"] for row in rows) / len(rows)
    goals = (REGRET_MEDIAN, REGRET_P95) if is_judged else (None, None)
    told = [
        judged(f"{value:.3f}", goal, value <= (goal or 0))
        for value, goal in zip((middle, high), goals, strict=True)
    ]
    return [str(len(rows)), *told, f"{max(found):.2f}", f"{right:.0%}"]


def regret_section(rows: Sequence[Row]) -> Section | None:
    """By suite, dtype and layout, and over all; then the problems that were chosen worst."""
    last = {(row["suite"], row["problem"]): row for row in rows if row["record"] == "regret"}
    timed = [row for row in last.values() if "regret" in row]
    if not timed:
        return None
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in timed:
        groups.setdefault((row["suite"], row["dtype"], row["layout"]), []).append(row)
    lines = [[*key, *_cells(ones, False)] for key, ones in sorted(groups.items())]
    lines.append(["all", "", "", *_cells(timed, not is_cpu(last_run(rows)))])
    headers = ["suite", "dtype", "layout", "problems", "median", "95 %", "worst", "best was chosen"]
    caption = "Time of the choice over that of the fastest candidate."
    worst = sorted(timed, key=lambda row: row["regret"], reverse=True)[:WORST_SHOWN]
    shown = [
        [row["problem"], f"{row['regret']:.2f}", row["choice"], row["best"]]
        + [f"{row[name] * 1e3:.4f}" for name in ("choice_s", "best_s")]
        for row in worst
        if row["regret"] > 1
    ]
    blocks: list[str | Table] = [Table(headers, lines, caption)]
    if shown:
        blocks.append(Table(["worst choices", "regret", "choice", "best", "choice ms", "best ms"], shown))
    wrong = [
        f"{name} on {row['problem']}: {one['reason']}"
        for row in last.values()
        for name, one in row["candidates"].items()
        if one["status"] == "wrong"
    ]
    blocks += [f"Wrong: {text}." for text in wrong]
    seeds = sorted({row["seed"] for row in timed if "seed" in row})
    if seeds:
        blocks.append(f"Seeds of random: {', '.join(map(str, seeds))}.")
    return Section("Regret of the choice", blocks)
