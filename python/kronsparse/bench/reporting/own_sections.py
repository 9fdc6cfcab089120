"""Sections that the paper has not: machine, distance to the floor, losses by name, predicted times."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kronsparse.bench.reporting.document import Section, Table
from kronsparse.bench.reporting.plots import Box, drawn
from kronsparse.bench.reporting.verdict import PLAIN_FLOOR, RIVALS, ceilings_text, losses, machine_text
from kronsparse.bench.results.dataset import Measured, of_kind
from kronsparse.bench.results.rows import OURS, Row
from kronsparse.bench.results.statistics import median, rank_correlation, wins
from kronsparse.bench.results.targets import ANYONE, EAGER
from kronsparse.checks import LAYOUTS

_VIRTUAL = (EAGER, ANYONE)


def _machines(runs: Sequence[Row]) -> list[str]:
    """Each machine with its versions, once, with all the commits that were measured there."""
    found: dict[str, list[Row]] = {}
    for run in runs:
        found.setdefault(machine_text(run, ["..."]), []).append(run)
    return [
        machine_text(alike[0], list(dict.fromkeys(run["commit"] for run in alike)))
        for alike in found.values()
    ]


def overview(rows: Sequence[Row], measured: Sequence[Measured], kinds: Sequence[tuple[str, str]]) -> Section:
    """The answer in short, and where it was measured."""
    lines = []
    for dtype, mode in kinds:
        for layout in LAYOUTS:
            ones = of_kind(measured, dtype, mode, layout)
            if not ones:
                continue
            cells = [f"{dtype} {mode}".strip(), layout, str(len(ones))]
            cells.append(f"{median([one.ours[mode] / one.floor_s for one in ones]):.2f}")
            known = [one.over_floor(mode) for one in ones if math.isfinite(one.tensor_floor_s)]
            cells.append(f"{median(known):.2f}" if known and mode == "fp32" else "-")
            for name in (EAGER, ANYONE, "strided"):
                met = [one for one in ones if name in one.rivals and (name != ANYONE or one.is_contested)]
                found = wins((one.ours[mode], one.rivals[name]) for one in met)
                told = (
                    [f"{100 * found.share:.0f} % of {found.problems}", f"{found.median:.2f}"] if found else []
                )
                cells += told or ["-", "-"]
            lines.append(cells)
    headers = ["", "layout", "patterns", "time / floor", "/ floor of three TF32 products"]
    for name in ("bmm, einsum, dense", "every rival", "strided"):
        headers += [f"faster than {name}", "median speed-up"]
    runs = [row for row in rows if row.get("record") == "run"]
    ceilings = [text for text in map(ceilings_text, runs) if text]
    machines = [*_machines(runs), *(f"Ceilings: {text}." for text in ceilings[-1:])]
    caption = (
        "The floor is max(bytes of x, y and weights / copy rate, flops / GEMM rate of the dtype), both rates "
        "PyTorch's own in the same run. Bmm, einsum and dense stand for the fastest of them that was timed, "
        "every rival for the best of anything, where more than those took part. "
        "Each time is as it was measured, in the last run that has it."
    )
    return Section("Overview", [Table(headers, lines, caption), *machines])


def floor_distance(measured: Sequence[Measured], kinds: Sequence[tuple[str, str]]) -> Section:
    """Time over the floor, of everyone."""
    plots = []
    for dtype, mode in kinds:
        series: dict[str, dict[str, list[float]]] = {}
        for layout in LAYOUTS:
            ones = of_kind(measured, dtype, mode, layout)
            for name in (OURS, *(name for name in RIVALS if name not in _VIRTUAL)):
                known = [(one.best_of([name], mode), one.floor_s) for one in ones]
                floors = [time / floor for time, floor in known if time is not None and time < math.inf]
                if floors:
                    series.setdefault(layout, {})[name] = floors
        if series:
            title = f"Time / floor, {dtype} {mode}".strip()
            caption = f"The dashed line is the floor. {PLAIN_FLOOR if mode == 'fp32' else ''}".strip()
            plots.append(drawn(series, title, "contender", "time / floor", caption))
    return Section("Distance to the floor", plots)


def where_we_lose(measured: Sequence[Measured], kinds: Sequence[tuple[str, str]]) -> Section:
    """Every problem on which somebody is faster, with who and by how much."""
    rows = []
    for dtype, mode in kinds:
        for layout in LAYOUTS:
            ones = of_kind(measured, dtype, mode, layout)
            for ratio, one in losses(ones, mode, ANYONE):
                rivals = {name: seconds for name, seconds in one.rivals.items() if name not in _VIRTUAL}
                who = min(rivals, key=lambda name: rivals[name])
                ours = f"{one.ours[mode] / one.floor_s:.2f}" if one.ours[mode] < math.inf else "wrong or none"
                problem = f"{dtype} {mode} {layout} B={one.batch} {one.pattern}".replace("  ", " ")
                theirs = one.best_rows.get(who, {}).get("spelling", who)
                rows.append(
                    [problem, f"{ratio:.2f}", f"{who} ({theirs})", ours, f"{rivals[who] / one.floor_s:.2f}"]
                )
    told = f"On {len(rows)} of {sum(len(of_kind(measured, *kind)) for kind in kinds)} problems."
    headers = ["problem", "their time / ours", "faster", "ours / floor", "theirs / floor"]
    return Section("Where we lose", [told, Table(headers, rows, PLAIN_FLOOR)] if rows else ["Nowhere."])


def predictions(measured: Sequence[Measured], kinds: Sequence[tuple[str, str]]) -> Section | None:
    """The cost model's seconds over the measured ones."""
    lines = []
    for dtype, mode in kinds:
        for layout in LAYOUTS:
            pairs = []
            for one in of_kind(measured, dtype, mode, layout):
                predicted = one.best_rows[f"{OURS} {mode}".strip()].get("predicted_s")
                if predicted and one.ours[mode] < math.inf:
                    pairs.append((predicted, one.ours[mode]))
            if not pairs:
                continue
            box = Box.of([predicted / seconds for predicted, seconds in pairs])
            rank = rank_correlation(pairs)
            near = sum(1 / 1.5 < predicted / seconds < 1.5 for predicted, seconds in pairs) / len(pairs)
            numbers = [f"{number:.2f}" for number in (box.median, box.low, box.high)]
            told = "-" if rank is None else f"{rank:.3f}"
            lines.append(
                [f"{dtype} {mode}".strip(), layout, *numbers, f"{100 * near:.0f} %", told, str(len(pairs))]
            )
    if not lines:
        return None
    headers = ["", "layout", "median", "5 %", "95 %", "within 1.5x", "rank correlation", "problems"]
    caption = "Predicted / measured seconds. `advise` ranks chains by these predictions."
    return Section("Predictions of the cost model", [Table(headers, lines, caption)])


def failures(measured: Sequence[Measured]) -> Section:
    """Wrong answers of anyone, and ours that are missing."""
    told = [text for one in measured for text in one.failures]
    return Section("Failures", told or ["No answer was wrong, and ours is missing nowhere."])


def every_problem(measured: Sequence[Measured], kinds: Sequence[tuple[str, str]]) -> Section:
    """All of it, in floors."""
    names = [name for name in RIVALS if name not in _VIRTUAL and any(name in one.rivals for one in measured)]
    rows = []
    for dtype, mode in kinds:
        for one in of_kind(measured, dtype, mode):
            ours = one.ours[mode]
            cells = [f"{dtype} {mode} {one.layout} B={one.batch} {one.pattern}".replace("  ", " ")]
            cells += [f"{one.pattern.h:.4f}", f"{one.floor_s * 1e3:.4f}"]
            cells += [f"{ours * 1e3:.4f}", f"{ours / one.floor_s:.2f}"] if ours < math.inf else ["-", "-"]
            for name in names:
                seconds = one.rivals.get(name, math.inf)
                cells.append(f"{seconds / one.floor_s:.2f}" if seconds < math.inf else "-")
            row = one.best_rows[f"{OURS} {mode}".strip()]
            rows.append([*cells, row.get("implementation", ""), row.get("commit", "")])
    headers = ["problem", "h", "floor ms", "ours ms", "ours / floor", *names, "implementation", "commit"]
    return Section("Every problem, times over the floor", [PLAIN_FLOOR, Table(headers, rows, folded=True)])
