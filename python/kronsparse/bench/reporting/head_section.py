"""The top of a report: what it says in a sentence, six numbers and one plot; when, how and on what it was
measured; and why it should be read with care, where it should."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kronsparse.bench.reporting.document import Block, Figures, Plot, Section, Table
from kronsparse.bench.results.dataset import Measured, kinds, of_kind
from kronsparse.bench.results.rows import Row, device_of, is_cpu, last_run
from kronsparse.bench.results.statistics import median, wins
from kronsparse.bench.results.targets import ANYONE, EAGER
from kronsparse.checks import LAYOUTS

# Threads of others that no benchmark on a CPU should stand, and the change of a rate that spoils a run.
BUSY_LOAD, STEADY = 0.5, 1.1
# The dtypes whose medians stand on top, in this order as far as they were measured; four of them.
_FIRST = (("f16", ""), ("f32", "fp32"), ("bf16", ""))
_MEDIANS = 4


def _main_kinds(measured: Sequence[Measured]) -> list[tuple[str, str]]:
    found = kinds(measured)
    return [kind for kind in _FIRST if kind in found] or found


def _pairs(measured: Sequence[Measured], name: str, is_contested: bool = True) -> list[tuple[float, float]]:
    """Ours in its default mode beside a rival, over all problems that have both; the best of anything, unless
    told otherwise, where more than bmm, einsum and dense took part."""
    return [
        (one.ours[mode], one.rivals[name])
        for dtype, mode in _main_kinds(measured)
        for one in of_kind(measured, dtype, mode)
        if name in one.rivals and (name != ANYONE or one.is_contested or not is_contested)
    ]


def _figures(measured: Sequence[Measured]) -> Figures:
    """Four medians of time over the floor, the share of problems won, the worst loss."""
    found: list[tuple[str, str]] = []
    for dtype, mode in _main_kinds(measured):
        for layout in LAYOUTS:
            ones = of_kind(measured, dtype, mode, layout)
            if ones and len(found) < _MEDIANS:
                middle = median([one.over_floor(mode) for one in ones])
                found.append((f"{middle:.2f}", f"{dtype} {layout}: median time / floor, n = {len(ones)}"))
    name = ANYONE if _pairs(measured, ANYONE) else EAGER
    won = wins(_pairs(measured, name))
    if won is not None:
        found.append((f"{won.share:.0%}", f"of problems faster than the {name}, n = {won.problems}"))
    worst = wins(_pairs(measured, ANYONE, is_contested=False))  # a loss counts, whoever else was there
    if worst is not None:
        found.append((f"{worst.least:.2f}", f"worst: time of the best rival / ours, n = {worst.problems}"))
    return Figures(found)


def _sentence(run: Row, measured: Sequence[Measured]) -> str:
    """The answer in short."""
    floors = [
        one.over_floor(mode)
        for dtype, mode in _main_kinds(measured)
        for one in of_kind(measured, dtype, mode)
    ]
    where = device_of(run)
    told = f"On {where} kronsparse takes {median(floors):.2f} times the least possible time in the median"
    eager, anyone = (wins(_pairs(measured, name)) for name in (EAGER, ANYONE))
    told = f"{told} of {len(floors)} problems"
    if eager is not None:
        told += f"; it is {eager.median:.1f} times as fast as the {EAGER}"
    if anyone is not None:
        where = f" on the {anyone.problems} where more took part" if anyone.problems < len(floors) else ""
        told += f", {anyone.median:.1f} times as fast as the {ANYONE}{where}"
    return f"{told}."


def _points(measured: Sequence[Measured]) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {}
    for dtype, mode in kinds(measured):
        for one in of_kind(measured, dtype, mode):
            ours = one.ours[mode]
            if not ours < math.inf:
                continue
            row = one.best_rows[f"kronsparse {mode}".strip()]
            rival = one.rivals.get(ANYONE, math.inf)
            # Files that lack them are older than what a point shows.
            if not row.get("bytes"):
                continue
            point = {
                "problem": f"{dtype} {mode} {one.layout} B={one.batch} {one.pattern}".replace("  ", " "),
                "dtype": f"{dtype} {mode}".strip(),
                "layout": one.layout,
                "d": one.pattern.d,
                "intensity": round(row["flops"] / row["bytes"], 3),
                "floors": round(one.over_floor(mode), 4),
                "ms": round(1e3 * ours, 5),
                "kernel": one.implementation(mode),
                "rival": one.winner if rival < math.inf else "none",
                "speedup": round(rival / ours, 3) if rival < math.inf else 0.0,
                "commit": row.get("commit", ""),
            }
            for name, value in point.items():
                columns.setdefault(name, []).append(value)
    return columns


def _roofline(measured: Sequence[Measured]) -> Plot | None:
    points = _points(measured)
    if not points:
        return None

    def draw() -> Any:
        from kronsparse.bench.reporting import figures

        return figures.roofline_figure(points, "Time over the floor, every problem")

    caption = (
        "Each point is a problem; pointing at one names it. Buttons choose dtypes and layouts, the list d. "
        "The floor of f32 in its default mode counts three products at the TF32 rate where that was measured."
    )
    groups: dict[tuple[str, str], list[float]] = {}
    for kind, layout, floors in zip(points["dtype"], points["layout"], points["floors"], strict=True):
        groups.setdefault((kind, layout), []).append(floors)
    rows = [
        [kind, layout, str(len(all_)), *(f"{value:.2f}" for value in (min(all_), median(all_), max(all_)))]
        for (kind, layout), all_ in groups.items()
    ]
    headers = ["dtype", "layout", "problems", "least", "median", "most"]
    return Plot(draw, caption, Table(headers, rows, "Time over the floor, every problem"))


def in_short(rows: Sequence[Row], measured: Sequence[Measured]) -> Section:
    """One sentence, six numbers, one plot."""
    plot = _roofline(measured)
    blocks: list[Block] = [_sentence(last_run(rows), measured), _figures(measured)]
    return Section("In short", [*blocks, *([plot] if plot else [])])


def _runs(rows: Sequence[Row]) -> list[list[Row]]:
    """Each run with what it wrote."""
    found: list[list[Row]] = []
    for row in rows:
        if row.get("record") == "run":
            found.append([])
        if found:
            found[-1].append(row)
    return found


def _clocks(run: Row) -> str:
    told = run["machine"].get("nvidia_smi", {})
    return ", ".join(told[name] for name in ("clocks.sm", "clocks.mem") if told.get(name))


def runs_section(rows: Sequence[Row]) -> Section:
    """When, with which commit and command, at which clocks and load."""
    lines = []
    for records in _runs(rows):
        run = records[0]
        load = run.get("load")
        command = " ".join(run["options"]) if run.get("options") else str(run.get("suite", ""))
        measured = sum(one["record"] not in ("run", "done", "end", "left_out") for one in records)
        lines.append(
            [
                str(run.get("time", "not recorded")),
                str(run.get("commit", "")),
                f"`{command}`" if command else "",
                str(run["versions"].get("torch", "")) if "versions" in run else "",
                _clocks(run),
                f"{load:.1f}" if load is not None else "",
                str(measured),
            ]
        )
    headers = ["time", "commit", "command", "torch", "clocks", "load", "rows"]
    caption = "Oldest first; where several runs measured the same, the last counts."
    return Section("Runs", [Table(headers, lines, caption)])


def warnings(rows: Sequence[Row]) -> list[str]:
    """Why a report is to be read with care: runs that did not come to their end, or on a machine that had
    other work to do."""
    runs, told = _runs(rows), []
    last: dict[tuple[object, ...], list[Row]] = {}
    for records in runs:
        run = records[0]
        last[run.get("suite"), run.get("seed"), run.get("kind")] = records
    for (suite, *_), records in last.items():
        end = next((one for one in records if one["record"] == "end"), None)
        if any(one["record"] == "done" for one in records) and end is None:
            told.append(f"Partial: the last run of {suite} was stopped before its end.")
        elif end and end.get("left"):
            told.append(f"Partial: {end['left']} problems of {suite} were left out when its time was up.")
    loads = [run[0]["load"] for run in runs if run[0].get("load") is not None and is_cpu(run[0])]
    if loads and max(loads) > BUSY_LOAD:
        told.append(f"Loaded: other work ran beside these measurements (load up to {max(loads):.1f}).")
    for records in runs:
        end = next((one for one in records if one["record"] == "end"), None)
        if end is None or "ceilings" not in end or "ceilings" not in records[0]:
            continue
        first, second = (one["ceilings"]["gemm_flops"]["f32"] for one in (records[0], end))
        if max(first / second, second / first) > STEADY:
            told.append(
                f"Not steady: the GEMM rate of the machine changed from {first / 1e12:.3g} to "
                f"{second / 1e12:.3g} TFLOP/s during a run of {records[0].get('suite')}."
            )
    return list(dict.fromkeys(told))
