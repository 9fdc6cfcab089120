"""Joules: ours beside the others, and beside the paper."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from kronsparse.bench.reporting import paper
from kronsparse.bench.reporting.document import Section, Table
from kronsparse.bench.reporting.plots import binned, drawn
from kronsparse.bench.results.dataset import family_of, latest, mode_of
from kronsparse.bench.results.rows import OURS, Row
from kronsparse.bench.results.statistics import Wins, median, wins
from kronsparse.chains import Pattern
from kronsparse.checks import LAYOUTS

Key = tuple[str, str, Pattern, int]  # dtype, mode of ours, pattern, batch


def _joules(rows: Sequence[Row]) -> dict[Key, dict[str, float]]:
    """The least of both layouts and of all spellings, by contender."""
    rivals: dict[tuple[str, Pattern, int], dict[str, float]] = {}
    ours: dict[Key, float] = {}
    for row in latest(rows, "energy"):
        if row["status"] != "ok" or "joules" not in row:
            continue
        pattern, name = Pattern.parse(row["pattern"]), family_of(row)
        if name == OURS:
            key = (row["dtype"], mode_of(row), pattern, row["batch"])
            ours[key] = min(row["joules"], ours.get(key, math.inf))
        else:
            of_problem = rivals.setdefault((row["dtype"], pattern, row["batch"]), {})
            of_problem[name] = min(row["joules"], of_problem.get(name, math.inf))
    return {key: {OURS: joules, **rivals.get((key[0], key[2], key[3]), {})} for key, joules in ours.items()}


class Saving(NamedTuple):
    """The energy that ours saves over the best rival, in one dtype and mode."""

    dtype: str
    mode: str
    won: Wins
    percent: float  # in the median
    pairs: list[tuple[float, float, Pattern]]  # joules of ours and of the rival


def savings(rows: Sequence[Row]) -> list[Saving]:
    """One for each dtype and mode that was measured beside a rival."""
    found, savings = _joules(rows), []
    for dtype, mode in sorted({(key[0], key[1]) for key in found}, reverse=True):
        pairs = [
            (joules[OURS], min(other for name, other in joules.items() if name != OURS), key[2])
            for key, joules in found.items()
            if key[:2] == (dtype, mode) and len(joules) > 1
        ]
        won = wins((mine, theirs) for mine, theirs, _ in pairs)
        if won is not None:
            percent = 100 * (1 - median([mine / theirs for mine, theirs, _ in pairs]))
            savings.append(Saving(dtype, mode, won, percent, pairs))
    return savings


def energy(rows: Sequence[Row]) -> Section | None:
    """Wins and median saving over the best rival, and box plots against d·h(b,c): in each layout that was
    measured, and for the better of both, which is the paper's way."""
    lines, plots = [], []
    published = [f"{paper.ENERGY_WINS.percent:.0f} %", f"{paper.ENERGY_MEDIAN_SAVING_PERCENT:.0f} %"]
    measured = [row for row in rows if row.get("record") == "energy"]
    rivals = sorted({family_of(row) for row in measured if row["status"] == "ok"} - {OURS})
    layouts = [one for one in LAYOUTS if any(row["layout"] == one for row in measured)]
    places = {one: [row for row in measured if row["layout"] == one] for one in layouts}
    if len(layouts) > 1:
        places["best of both"] = measured
    for place, ones in places.items():
        for dtype, mode, won, percent, pairs in savings(ones):
            is_paper = dtype == "f32" and place == "best of both"
            mine = [f"{100 * won.share:.0f} %", f"{percent:.0f} %", str(won.problems)]
            told = published if is_paper else ["-", "-"]
            lines.append([f"{dtype} {mode}".strip(), place, *told, *mine])
            points = [(pattern.d * pattern.h, theirs / ours) for ours, theirs, pattern in pairs]
            whose = rivals[0] if len(rivals) == 1 else f"the best of {', '.join(rivals)}"
            title = f"Joules of {whose} / ours, {dtype} {mode}".strip() + f", {place}"
            where = "for each the better of both layouts" if place == "best of both" else f"all in {place}"
            caption = f"{len(pairs)} patterns, {where}. Boxes: quartiles; whiskers: 5 and 95 %."
            plots.append(drawn({"joules": binned(points)}, title, "d·h(b,c), from", "ratio", caption))
    if not lines:
        return None
    idle = sorted({round(row["idle_w"], 1) for row in measured})
    of_paper = ["paper: less energy", "paper: median saving"]
    headers = ["", "layout", *of_paper, "less energy", "median saving", "patterns"]
    idle_told = f"{idle[0]:g} to {idle[-1]:g} W" if len(idle) > 1 else f"{idle[0]:g} W"
    remark = (
        f"Measured beside {', '.join(rivals)}. Joules are those of the whole device, idle power included; "
        f"idle it takes {idle_told}."
    )
    if len(layouts) == 1:
        remark += (
            f" The paper takes the better of both layouts (less energy on {published[0]} of the patterns, "
            f"{published[1]} in the median); here {layouts[0]} alone was measured."
        )
    return Section("Figure 6b: energy", [Table(headers, lines), remark, *plots])
