"""The exams, on the paper's grid and on problems that nobody tuned for: the floor, and every rival."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from kronsparse.bench.problems.suites import PAPER_BATCH, SUITES
from kronsparse.bench.reporting.document import Section, Table
from kronsparse.bench.results.dataset import Measured, kinds, of_kind
from kronsparse.bench.results.rows import OURS, Row, is_cpu, last_run
from kronsparse.bench.results.statistics import median, percentile, wins
from kronsparse.bench.results.targets import ANYONE, CPU_EXAMS, EAGER, GPU_EXAMS, GRID_EXAMS, Exam
from kronsparse.checks import LAYOUTS

WORST_SHOWN = 6
HEADERS = (
    *("", "layout", "problems", "median time / floor", "95 %", f"faster than the {EAGER}"),
    *("faster than every rival", "worst against the best rival"),
)


def judged(text: str, goal: float | None, kept: bool, form: str = "g") -> str:
    """A number with its goal, where there is one."""
    if goal is None:
        return text
    return f"{text} (target {goal:{form}}: {'reached' if kept else '**missed**'})"


def exam_row(ones: Sequence[Measured], mode: str, exam: Exam | None) -> list[str]:
    """The cells of one dtype, mode and layout, after its name."""
    if not all(one.has_tensor_floor(mode) for one in ones):
        exam = None  # which is held against another floor than these files have
    goals = exam or Exam(math.inf)
    floors = [one.over_floor(mode) for one in ones]
    middle, high = median(floors), percentile(floors, 95)
    cells = [str(len(ones)), judged(f"{middle:.2f}", goals.median if exam else None, middle <= goals.median)]
    cells.append(judged(f"{high:.2f}", goals.p95, high <= (goals.p95 or 0)))
    for name, goal in ((EAGER, None), (ANYONE, goals.wins)):
        met = [one for one in ones if name in one.rivals and (name != ANYONE or one.is_contested)]
        found = wins((one.ours[mode], one.rivals[name]) for one in met)
        if found is None:
            cells.append("-")
            continue
        # n beside it, where not every problem has a rival.
        number = f" of {found.problems}" if found.problems < len(ones) else ""
        cells.append(judged(f"{found.share:.0%}{number}", goal, found.share >= (goal or 0), ".0%"))
    # A loss counts, whoever else was there.
    found = wins((one.ours[mode], one.rivals[ANYONE]) for one in ones if ANYONE in one.rivals)
    least = judged(f"{found.least:.2f}", goals.least, found.least >= (goals.least or 0)) if found else "-"
    return [*cells, least]


def _worst(ones: Sequence[Measured], mode: str, name: str) -> list[str]:
    """Sentences with the problems that are furthest off."""
    alike = len({one.batch for one in ones}) == 1
    names = {id(one): str(one.pattern) if alike else f"{one.pattern} B={one.batch}" for one in ones}
    by_floor = sorted(ones, key=lambda one: one.over_floor(mode), reverse=True)[:WORST_SHOWN]
    far = ", ".join(
        f"{names[id(one)]} {one.over_floor(mode):.1f} ({one.implementation(mode)})" for one in by_floor
    )
    told = [f"{name}, furthest from the floor: {far}."]
    met = [(one.rivals[ANYONE] / one.ours[mode], one) for one in ones if ANYONE in one.rivals]
    lost = sorted((pair for pair in met if pair[0] < 1), key=lambda pair: pair[0])[:WORST_SHOWN]
    if lost:
        listed = ", ".join(f"{names[id(one)]} {ratio:.2f} ({one.winner})" for ratio, one in lost)
        told.append(f"{name}, furthest behind a rival: {listed}.")
    return told


# Tells which floor it is.
FLOOR = (
    "The floor is max(bytes of x, y and weights / copy rate, flops / GEMM rate of the dtype); f32 in its "
    "default mode is held against three products at the TF32 rate, where that was measured."
)


def exam_lines(
    measured: Sequence[Measured], exams: Mapping[tuple[str, str, str], Exam]
) -> tuple[list[list[str]], list[str]]:
    """A row for each dtype, mode and layout, and the problems that are furthest off."""
    lines, worst = [], []
    for dtype, mode in kinds(measured):
        for layout in LAYOUTS:
            ones = of_kind(measured, dtype, mode, layout)
            if ones:
                name = f"{dtype} {mode}".strip()
                lines.append([name, layout, *exam_row(ones, mode, exams.get((dtype, mode, layout)))])
                worst += _worst(ones, mode, f"{name} {layout}")
    return lines, worst


def _remembered(ones: Sequence[Measured]) -> list[str]:
    """Who would not have been chosen by the cost model alone, perhaps."""
    rows = [row for one in ones for name, row in one.best_rows.items() if name.startswith(OURS)]
    tuned = sum(bool(row.get("tuned")) for row in rows)
    return (
        [f"Times remembered by `kronsparse tune` stood for {tuned} of {len(rows)} choices."] if tuned else []
    )


def of_grid(measured: Sequence[Measured]) -> list[Measured]:
    """The problems of the paper's grid, which all have the paper's batch."""
    grid = set(SUITES["paper-time"].patterns)
    return [one for one in measured if one.seed is None and one.batch == PAPER_BATCH and one.pattern in grid]


def grid_section(rows: Sequence[Row], measured: Sequence[Measured]) -> Section | None:
    """The table of the patterns of the paper's grid."""
    ones = of_grid(measured)
    if not ones or is_cpu(last_run(rows)):
        return None
    grid = SUITES["paper-time"].patterns
    lines, worst = exam_lines(ones, GRID_EXAMS)
    missing = len(grid) - len({one.pattern for one in ones})
    told = f" {missing} of its {len(grid)} patterns were not measured." if missing else ""
    caption = f"Patterns of the paper's grid, B = {PAPER_BATCH}.{told} {FLOOR}"
    return Section(
        "The paper's grid, beside everyone", [Table(HEADERS, lines, caption), *_remembered(ones), *worst]
    )


def random_section(rows: Sequence[Row], measured: Sequence[Measured]) -> Section | None:
    """The table of all seeds together, the seeds, and the problems that are furthest off."""
    drawn = [one for one in measured if one.seed is not None]
    if not drawn:
        return None
    lines, worst = exam_lines(drawn, CPU_EXAMS if is_cpu(last_run(rows)) else GPU_EXAMS)
    patterns = {(one.seed, one.pattern, one.batch) for one in drawn}
    counted = Counter(str(seed) for seed, _, _ in patterns)
    seeds = ", ".join(f"{seed} ({number} problems)" for seed, number in sorted(counted.items()))
    caption = (
        "Problems drawn from a seed: a log-uniform in 1..128, b and c in 2..4096, d in 1..256, batch in "
        "64..32768; at most 2^30 elements of x, y and values each, and 20 MB or more of them in a half type. "
        f"{FLOOR}"
    )
    table = Table(HEADERS, lines, caption)
    return Section("Problems nobody tuned for", [f"Seeds: {seeds}.", table, *_remembered(drawn), *worst])
