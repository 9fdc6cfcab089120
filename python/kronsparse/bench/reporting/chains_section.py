"""The tables of `kronsparse-bench chains`, and its part of a report."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kronsparse.bench.reporting.document import Plot, Section, Table, markdown_table
from kronsparse.bench.reporting.plots import bar_plot
from kronsparse.bench.results.rows import OURS, Row, is_cpu, last_run
from kronsparse.bench.results.statistics import median
from kronsparse.bench.results.targets import CHAIN_FLOORS, FURTHER_SPEEDUP, SMALL_CHAINS

_GROUPS = {
    "layers": "Eight layers",
    "further": "24 further chains, widths 384 to 4096",
    "small": "Layers of two factors at small batches, in CUDA graphs",
}


def latest_chains(rows: Sequence[Row]) -> list[Row]:
    """The last row of each problem."""
    found = {row["problem"]: row for row in rows if row.get("record") == "chain"}
    return list(found.values())


def groups_of(rows: Sequence[Row]) -> dict[tuple[str, ...], list[Row]]:
    """The rows by group, dtype and layout."""
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in latest_chains(rows):
        found.setdefault((row["group"], row["dtype"], row["layout"]), []).append(row)
    order = {name: place for place, name in enumerate(_GROUPS)}
    return dict(sorted(found.items(), key=lambda item: order.get(item[0][0], len(order))))


def _milliseconds(seconds: float | None, scale: float = 1e3) -> str:
    return "-" if seconds is None else f"{seconds * scale:.4f}" if scale == 1e3 else f"{seconds * scale:.2f}"


def _ratio(above: float | None, below: float | None) -> str:
    return "-" if above is None or below is None else f"{above / below:.2f}"


def table_of(rows: Sequence[Row]) -> Table:
    """A line for each chain of one group, dtype and layout."""
    is_small = rows[0]["group"] == "small"
    lines = []
    for row in rows:
        seconds = row["seconds"]
        ours, unfused, dense = (seconds.get(name) for name in (OURS, "unfused", "dense"))
        scale = 1e6 if is_small else 1e3
        times = [_milliseconds(one, scale) for one in (ours, unfused, dense)]
        ratios = [_ratio(unfused, ours), _ratio(dense, ours)]
        floors = [] if is_small else [_milliseconds(row["floor_s"]), _ratio(ours, row["floor_s"])]
        name = f"{row['name']}, B = {row['batch']:,}"
        told = row.get("implementations", {}).get(OURS, "")
        lines.append([name, *times, *floors, *ratios, told if row["status"] == "ok" else row["reason"]])
    unit = "us" if is_small else "ms"
    floors = [] if is_small else ["fused floor", "ours / floor"]
    headers = [
        "chain",
        f"ours, {unit}",
        "unfused",
        "dense",
        *floors,
        "unfused / ours",
        "dense / ours",
        "ours",
    ]
    return Table(headers, lines)


def _pairs(rows: Sequence[Row], above: str, below: str) -> list[float]:
    return [
        row["seconds"][above] / row["seconds"][below]
        for row in rows
        if above in row["seconds"] and below in row["seconds"]
    ]


def _verdict(value: float, at_most: float) -> str:
    return f" (goal {at_most:g}: {'reached' if value <= at_most else '**missed**'})"


def sentences(rows: Sequence[Row], with_goals: bool = True) -> list[str]:
    """The verdict on the rows of one group, dtype and layout; the goals are a GPU's."""
    group, dtype = rows[0]["group"], rows[0]["dtype"]
    told = []
    failed = [row for row in rows if row["status"] != "ok"]
    if failed:
        told.append(
            f"Not counted, {len(failed)}: " + "; ".join(f"{row['name']} ({row['status']})" for row in failed)
        )
    timed = [row for row in rows if OURS in row["seconds"]]
    if not timed:
        return told
    if group != "small":
        floors = [row["seconds"][OURS] / row["floor_s"] for row in timed]
        mean = math.exp(sum(map(math.log, floors)) / len(floors))
        is_goal = with_goals and group == "layers"
        verdict = _verdict(mean, CHAIN_FLOORS[dtype]) if is_goal else ""
        told.append(f"Ours takes {mean:.2f} times the fused floor in the geometric mean{verdict}.")
        over = _pairs(timed, "dense", OURS)
        faster = sum(one > 1 for one in over)
        told.append(f"Faster than dense on {faster} of {len(over)}.")
    over = _pairs(timed, "unfused", OURS)
    if over and group == "small":
        ratios = [1 / one for one in over]
        middle, worst = median(ratios), max(ratios)
        goals = [_verdict(middle, SMALL_CHAINS), _verdict(worst, 1.0)] if with_goals else ["", ""]
        told.append(
            f"Over the sum of its factors' kernels: {middle:.2f} in the median{goals[0]}, "
            f"{worst:.2f} at worst{goals[1]}."
        )
    elif over:
        goal = f" (goal {FURTHER_SPEEDUP:g}; at worst 1)" if with_goals and group == "further" else ""
        told.append(
            f"Faster than its factors one by one {median(over):.2f} times in the median{goal}, "
            f"{min(over):.2f} at worst."
        )
    return told


def summary(rows: Sequence[Row]) -> str:
    """All of it, in Markdown."""
    parts, with_goals = [], not is_cpu(last_run(rows))
    for (group, dtype, layout), ones in groups_of(rows).items():
        title = f"**{_GROUPS.get(group, group)}, {dtype} {layout}**"
        parts += [title, markdown_table(table_of(ones)), *sentences(ones, with_goals)]
    return "\n\n".join(parts)


def sections(rows: Sequence[Row]) -> list[Section]:
    """Those of a report: none where no chain was timed."""
    found, with_goals = [], not is_cpu(last_run(rows))
    for group, title in _GROUPS.items():
        blocks: list[str | Table | Plot] = []
        for (name, dtype, layout), ones in groups_of(rows).items():
            if name != group:
                continue
            blocks += [f"**{dtype} {layout}.** " + " ".join(sentences(ones, with_goals))]
            if group != "small":
                bars = {
                    contender: {
                        row["name"]: row["seconds"][contender] / row["floor_s"]
                        for row in ones
                        if contender in row["seconds"]
                    }
                    for contender in (OURS, "unfused", "dense")
                }
                caption = "Time over the fused floor, which is to read x and write y once; the dashed line."
                blocks.append(
                    bar_plot(bars, f"{title}, {dtype} {layout}", "time / fused floor", caption, highest=10.0)
                )
            blocks.append(table_of(ones))
        if blocks:
            found.append(Section(f"Chains: {title[0].lower()}{title[1:]}", blocks))
    return found
