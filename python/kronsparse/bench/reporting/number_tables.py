"""The tables and numbers that Markdown files of this repository take from results; see `numbers`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from kronsparse.bench.reporting import chains_section, models_section, opencl_section, paper, weights_table
from kronsparse.bench.reporting.document import Table, markdown_table
from kronsparse.bench.reporting.energy_section import savings
from kronsparse.bench.reporting.exam_section import HEADERS, exam_lines, of_grid
from kronsparse.bench.reporting.layer_table import sentences, steps_table
from kronsparse.bench.reporting.peft_table import peft_table
from kronsparse.bench.reporting.verdict import ceilings_text
from kronsparse.bench.results.dataset import Measured, collect, halves_over_f32, kinds, latest, of_kind
from kronsparse.bench.results.rows import OURS, Row, last_run
from kronsparse.bench.results.statistics import Wins, median, wins
from kronsparse.bench.results.targets import ANYONE, EAGER, GPU_TARGETS, GRID_EXAMS, Target
from kronsparse.chains import Pattern
from kronsparse.checks import LAYOUTS

Groups = Sequence[Sequence[Row]]  # the rows of each argument's files


def _joined(groups: Groups) -> list[Row]:
    return [row for rows in groups for row in rows]


def _name(dtype: str, mode: str, layout: str) -> str:
    words = [dtype, f"`{mode}`" if mode not in ("", "fp32") else "", layout]
    return " ".join(filter(None, words))


def _won(ones: Sequence[Measured], mode: str, rival: str) -> Wins | None:
    return wins((one.ours[mode], one.rivals[rival]) for one in ones if rival in one.rivals)


def _floors(ones: Sequence[Measured], mode: str) -> float:
    return median([one.ours[mode] / one.floor_s for one in ones])


def _sections(rows: Sequence[Row]) -> list[tuple[tuple[str, str, str], list[Measured]]]:
    measured = [one for one in collect(rows) if one.seed is None]
    found = [
        ((dtype, mode, layout), of_kind(measured, dtype, mode, layout))
        for dtype, mode in kinds(measured)
        for layout in LAYOUTS
    ]
    return [(kind, ones) for kind, ones in found if ones]


def gpu_summary(groups: Groups, _: Sequence[str]) -> str:
    """Ours over the floor and over eager PyTorch, the default modes."""
    rows = []
    for kind, ones in _sections(_joined(groups)):
        won = _won(ones, kind[1], EAGER)
        if kind[1] in ("", "fp32") and won:
            floors = median([one.over_floor(kind[1]) for one in ones])
            numbers = [f"{floors:.2f}", f"on {100 * won.share:.0f} %", f"{won.median:.1f}"]
            anyone = _won([one for one in ones if one.is_contested], kind[1], ANYONE)
            numbers.append(f"on {100 * anyone.share:.0f} % of {anyone.problems}" if anyone else "")
            published = paper.WINS.get((kind[0], kind[2]))
            theirs = f"on {published[-1].percent:.0f} %" if published else ""
            rows.append([_name(*kind), str(len(ones)), *numbers, theirs])
    headers = [
        "",
        "patterns",
        "ours / floor",
        "faster than the best of bmm, einsum, dense",
        "median speed-up",
        "faster than the best of anything",
        "the paper's kernel",
    ]
    return markdown_table(Table(headers, rows))


def grid_exam(groups: Groups, _: Sequence[str]) -> str:
    """The paper's grid beside everyone, in the default modes, with its targets."""
    lines, _worst = exam_lines(of_grid(collect(_joined(groups))), GRID_EXAMS)
    return markdown_table(Table(HEADERS, lines))


def gpu_sentence(groups: Groups, _: Sequence[str]) -> str:
    """The same in one line: the least and the largest share of wins, and median speed-up."""
    found = [
        _won(ones, kind[1], EAGER) for kind, ones in _sections(_joined(groups)) if kind[1] in ("", "fp32")
    ]
    won = [one for one in found if one is not None]
    shares, medians = [one.share for one in won], [one.median for one in won]
    return (
        f"{100 * min(shares):.0f} to {100 * max(shares):.0f} % of the patterns, "
        f"{min(medians):.1f} to {max(medians):.1f} times in the median"
    )


def _goal(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form).replace("%", " %")


def _marked(text: str, missed: bool) -> str:
    return f"**{text}**" if missed else text


def targets(groups: Groups, _: Sequence[str]) -> str:
    """Every kind that was measured, with its goals; what misses one is bold."""
    rows = []
    for kind, ones in _sections(_joined(groups)):
        mode, target = kind[1], GPU_TARGETS.get(kind, Target(math.inf))
        floors, eager = _floors(ones, mode), _won(ones, mode, EAGER)
        is_known = 2 * sum("strided" in one.rivals for one in ones) > len(ones)  # not just where d = 1
        strided = _won(ones, mode, "strided") if is_known else None
        if eager is None:
            continue
        least_wins, least_gain = target.wins.get(EAGER), target.speedups.get(EAGER)
        missed = eager.share < (least_wins or 0) or eager.median < (least_gain or 0)
        least_strided = target.wins.get("strided")
        goals = [_goal(least_wins, ".0%"), _goal(least_gain, "g")]
        cells = [_name(*kind), str(len(ones)), _marked(f"{floors:.2f}", floors > target.floors)]
        cells.append(_goal(target.floors, "g") if target.floors < math.inf else "")
        cells.append(_marked(f"{100 * eager.share:.0f} %, {eager.median:.2f}", missed))
        cells.append(", ".join(filter(None, goals)))
        lost = strided is not None and strided.share < (least_strided or 0)
        cells.append(_marked(f"{100 * strided.share:.0f} %", lost) if strided else "")
        rows.append([*cells, _goal(least_strided if strided else None, ".0%")])
    headers = ["", "patterns", "time / floor, median", "goal", "wins over eager, median speed-up", "goal"]
    return markdown_table(Table([*headers, "wins over strided", "goal"], rows))


def _of_cpu(rows: Sequence[Row], layout: str) -> tuple[float, float, float, Wins]:
    """Medians of ours / floor (and the worst) and of PyTorch / floor; wins over PyTorch."""
    ones = [one for one in of_kind(collect(rows), "f32", "fp32", layout) if ANYONE in one.rivals]
    floors = [one.ours["fp32"] / one.floor_s for one in ones]
    theirs = median([one.rivals[ANYONE] / one.floor_s for one in ones])
    found = _won(ones, "fp32", ANYONE)
    assert found is not None
    return median(floors), max(floors), theirs, found


def _range(values: Sequence[float], between: str = " - ", digits: int = 1) -> str:
    ends = [f"{value:.{digits}f}" for value in (min(values), max(values))]
    return between.join(dict.fromkeys(ends))


def cpu_summary(groups: Groups, _: Sequence[str]) -> str:
    """Medians of several runs, from the least to the largest."""
    rows = []
    for layout in LAYOUTS:
        runs = [_of_cpu(rows_of_run, layout) for rows_of_run in groups]
        columns = ([run[0] for run in runs], [run[2] for run in runs], [run[3].median for run in runs])
        rows.append([layout, *map(_range, columns)])
    headers = ["", "ours / floor", "best of PyTorch / floor", "PyTorch / ours"]
    return markdown_table(Table(headers, rows))


def cpu_sentence(groups: Groups, _: Sequence[str]) -> str:
    """How many times faster than the best of PyTorch, from the least median of the runs to the largest."""
    told = []
    for layout in LAYOUTS:
        medians = [_of_cpu(rows_of_run, layout)[3].median for rows_of_run in groups]
        told.append(f"{_range(medians, ' to ')} times faster than the best of PyTorch in {layout}")
    return ", ".join(told)


def cpu_runs(groups: Groups, names: Sequence[str]) -> str:
    """A column for each run: medians, and the worst in parentheses."""
    rows = []
    for layout in LAYOUTS:
        runs = [_of_cpu(rows_of_run, layout) for rows_of_run in groups]
        rows.append(
            [
                f"{layout}: ours over the floor, median (worst)",
                *(f"{one[0]:.2f} ({one[1]:.2f})" for one in runs),
            ]
        )
        rows.append([f"{layout}: best of PyTorch over the floor", *(f"{one[2]:.2f}" for one in runs)])
        rows.append(
            [
                f"{layout}: best of PyTorch over ours, median (least)",
                *(f"{one[3].median:.2f} ({one[3].least:.2f})" for one in runs),
            ]
        )
    heads = [name.replace("_", " ") for name in names]
    return markdown_table(Table(["", *heads], rows))


def cpu_halves(groups: Groups, _: Sequence[str]) -> str:
    """Ours in half precision over ours in f32: the median and the largest, of what was run."""
    measured = collect(_joined(groups))
    dtypes = ("f16", "bf16")
    ratios = {
        (dtype, layout): halves_over_f32(measured, dtype, layout) for dtype in dtypes for layout in LAYOUTS
    }
    layouts = [layout for layout in LAYOUTS if any(ratios[dtype, layout] for dtype in dtypes)]

    def cell(found: Sequence[float]) -> str:
        return f"{median(found):.2f} ({max(found):.2f})" if found else ""

    rows = [
        [f"{dtype} over f32, ours", *(cell(ratios[dtype, layout]) for layout in layouts)]
        for dtype in dtypes
        if any(ratios[dtype, layout] for layout in layouts)
    ]
    return markdown_table(Table(["", *layouts], rows))


def ceilings(groups: Groups, _: Sequence[str]) -> str:
    """Those of the last run."""
    return ceilings_text(last_run(_joined(groups)))


def _against(groups: Groups, words: Sequence[str]) -> tuple[str, list[Measured]]:
    """The mode, and what was measured beside the rival, for words dtype, mode or "default", layout, rival."""
    dtype, mode, layout, rival = words
    mode = mode if mode != "default" else "fp32" if dtype == "f32" else ""
    ones = [one for one in of_kind(collect(_joined(groups)), dtype, mode, layout) if rival in one.rivals]
    if not ones:
        raise ValueError(f"nothing measured of {' '.join(words)}")
    return mode, ones


def win_share(groups: Groups, words: Sequence[str]) -> str:
    """One number: the share of patterns won, for words dtype, mode or "default", layout, rival."""
    mode, ones = _against(groups, words)
    won = _won(ones, mode, words[-1])
    assert won is not None
    return f"{100 * won.share:.0f} %"


def speed_up(groups: Groups, words: Sequence[str]) -> str:
    """The median and the least speed-up, with the same words."""
    (mode, ones), rival = _against(groups, words), words[-1]
    worst = min(ones, key=lambda one: one.rivals[rival] / one.ours[mode])
    least = worst.rivals[rival] / worst.ours[mode]
    middle = median([one.rivals[rival] / one.ours[mode] for one in ones])
    return f"{middle:.2f} times in the median and {least:.2f} times at worst ({worst.pattern})"


def errors(groups: Groups, _: Sequence[str]) -> str:
    """In norm against fp64, of ours: from the least to the largest of each dtype."""
    found: dict[str, list[float]] = {}
    for row in latest(_joined(groups), "row"):
        if row["contender"] == OURS and row["status"] == "ok":
            found.setdefault(row["dtype"], []).append(row["error"])
    return ", ".join(f"{dtype} {min(all_):.1e} to {max(all_):.1e}" for dtype, all_ in found.items())


def _small_problems(groups: Groups) -> dict[tuple[Pattern, int], dict[str, Row]]:
    """The fastest row of each contender, by pattern and batch."""
    best: dict[tuple[Pattern, int], dict[str, Row]] = {}
    for row in latest(_joined(groups), "small"):
        if row["status"] == "ok":
            of_problem = best.setdefault((Pattern.parse(row["pattern"]), row["batch"]), {})
            known = of_problem.get(row["contender"])
            if known is None or row["median_s"] < known["median_s"]:
                of_problem[row["contender"]] = row
    return best


def small_sentence(groups: Groups, _: Sequence[str]) -> str:
    """How often bmm is beaten and the bound kept, and the median speed-up of each batch."""
    best = _small_problems(groups)
    ours = [one[OURS] for one in best.values() if OURS in one]
    met = {
        key: one["bmm"]["median_s"] / one[OURS]["median_s"]
        for key, one in best.items()
        if one.keys() >= {OURS, "bmm"}
    }
    batches = sorted({batch for _, batch in met})
    medians = [f"{median([ratio for key, ratio in met.items() if key[1] == batch]):.1f}" for batch in batches]
    within = sum(row["median_s"] <= row["bound_s"] for row in ours)
    won = sum(ratio > 1 for ratio in met.values())
    at = ", ".join(map(str, batches))
    return (
        f"{', '.join(medians)} times faster than bmm in the median at B = {at}; "
        f"faster on {won} of {len(met)}, within the goal on {within} of {len(ours)}"
    )


def small_batch(groups: Groups, _: Sequence[str]) -> str:
    """Microseconds of each pattern at each batch, ours and bmm's, with the bound."""
    best = _small_problems(groups)
    batches = sorted({batch for _, batch in best})
    rows = []
    for pattern in sorted({pattern for pattern, _ in best}):
        found = [best.get((pattern, batch), {}) for batch in batches]
        cells = [
            " / ".join(f"{one[name]['median_s'] * 1e6:.1f}" if name in one else "-" for one in found)
            for name in (OURS, "bmm")
        ]
        bound = next(one["bound_s"] for ones in found for one in ones.values())
        rows.append([str(pattern), *cells, f"{bound * 1e6:.1f}"])
    at = f"at B = {' / '.join(map(str, batches))}"
    return markdown_table(Table(["pattern", f"ours, us {at}", "bmm", "goal"], rows))


def energy_saving(groups: Groups, _: Sequence[str]) -> str:
    """The energy that f32 saves over the best rival, beside the paper's."""
    (saving,) = [one for one in savings(_joined(groups)) if one.dtype == "f32"]
    told = f"{100 * saving.won.share:.0f} % of patterns take less, {saving.percent:.0f} % less in the median"
    published = f"{paper.ENERGY_WINS.percent:.0f} % and {paper.ENERGY_MEDIAN_SAVING_PERCENT:.0f} %"
    return f"{told} (the paper, on a V100: {published})."


def layers(groups: Groups, words: Sequence[str]) -> str:
    """Steps of training, of one dtype if it is named."""
    rows = _joined(groups)
    return markdown_table(steps_table([row for row in rows if not words or row.get("dtype") in words]))


def layer_sentences(groups: Groups, _: Sequence[str]) -> str:
    """Their medians, and what a call costs the host."""
    return "\n".join(f"- {told}" for told in sentences(_joined(groups)))


def weights(groups: Groups, _: Sequence[str]) -> str:
    """The price of weights that may change."""
    return markdown_table(weights_table.price_table(_joined(groups)))


def weights_sentences(groups: Groups, _: Sequence[str]) -> str:
    """The host's part of a call, and the bytes that many batch sizes leave packed."""
    return "\n".join(f"- {told}" for told in weights_table.sentences(_joined(groups)))


def weights_sentence(groups: Groups, words: Sequence[str]) -> str:
    """Unfrozen over frozen of one kind of problem, such as "f16 batch_first", at each batch."""
    name = " ".join(words)
    told = [
        f"{float(middle):.2f} ({float(worst):.2f}) at {kind.removeprefix(name).strip().replace('=', ' = ')}"
        for kind, _, middle, worst, _ in weights_table.price_table(_joined(groups)).rows
        if kind.startswith(f"{name} ")
    ]
    return ", ".join(told)


def models_sentence(groups: Groups, _: Sequence[str]) -> str:
    """The time of frozen models over that of their dense twins: from the least to the largest."""
    found: dict[str, dict[str, list[float]]] = {}
    for row in _joined(groups):
        if row["record"] == "model":
            of_dtype = found.setdefault(row["dtype"], {})
            of_dtype.setdefault(row["model"], []).append(row["frozen_s"] / row["dense_s"])
    for row in models_section.whole_models(_joined(groups)):
        over_dense = models_section.ratio(row, "auto")
        if over_dense is not None:
            found.setdefault(row["dtype"], {}).setdefault(row["scene"], []).append(over_dense)
    return "; ".join(
        f"{dtype}: " + ", ".join(f"{model} {_range(all_, ' to ', 2)}" for model, all_ in of_dtype.items())
        for dtype, of_dtype in found.items()
    )


def models(groups: Groups, _: Sequence[str]) -> str:
    """Whole models beside their dense twins."""
    rows = _joined(groups)
    cells = models_section.whole_models(rows)
    return markdown_table(models_section.ratios_table(cells) if cells else weights_table.models_table(rows))


def chains(groups: Groups, words: Sequence[str]) -> str:
    """Chains of one group, dtype and layout, as in "layers f16 batch_first"."""
    found = chains_section.groups_of(_joined(groups)).get(tuple(words))
    if not found:
        raise ValueError(f"{' '.join(words)!r}: no such chains in these files")
    return markdown_table(chains_section.table_of(found))


def chains_sentences(groups: Groups, words: Sequence[str]) -> str:
    """The verdict on these chains, line by line."""
    found = chains_section.groups_of(_joined(groups)).get(tuple(words))
    if not found:
        raise ValueError(f"{' '.join(words)!r}: no such chains in these files")
    return "\n".join(f"- {told}" for told in chains_section.sentences(found))


def accuracy(groups: Groups, _: Sequence[str]) -> str:
    """The largest errors in norm of each dtype and mode, by the number of terms, and over PyTorch's."""
    found: dict[str, list[Row]] = {}
    for row in _joined(groups):
        found.setdefault(row[""], []).append(row)
    rows = []
    for name, ones in found.items():
        errors_of = [
            ", ".join(row["ours"] for row in ones if row["data"] == data) for data in ("normal", "positive")
        ]
        rows.append([name, *errors_of, f"{max(float(row['ours / PyTorch']) for row in ones):.2f}"])
    terms = ", ".join(dict.fromkeys(row["terms"] for row in _joined(groups)))
    headers = ["", f"normal data, {terms} terms", "positive data", "over PyTorch's, at most"]
    return markdown_table(Table(headers, rows))


def kernel(groups: Groups, words: Sequence[str]) -> str:
    """The problems that an implementation was chosen for: how many, and its time over floor or goal."""
    (name,) = words
    found: dict[tuple[str, int, str], list[Row]] = {}
    # Small batches are held against their goal: at the floor nothing but latency would be left.
    for record, yardstick in (("row", "floor"), ("small", "goal")):
        for row in latest(_joined(groups), record):
            if row.get("implementation") == name and row["status"] == "ok":
                kind = _name(row["dtype"], row["mode"], row["layout"])
                found.setdefault((kind, row["batch"], yardstick), []).append(row)
    if not found:
        raise ValueError(f"{name!r} was chosen for no problem of these files")
    rows = []
    for (kind, batch, yardstick), ones in sorted(found.items(), key=lambda item: item[0]):
        seconds = "bound_s" if yardstick == "goal" else "floor_s"
        times = {row["pattern"]: row["median_s"] / row[seconds] for row in ones}
        worst = max(times, key=times.__getitem__)
        middle = f"{median(list(times.values())):.2f} x {yardstick}"
        rows.append([f"{kind}, B = {batch:,}", str(len(ones)), middle, f"{times[worst]:.2f} ({worst})"])
    return markdown_table(Table(["chosen for", "patterns", "time, median", "at worst"], rows))


def opencl(groups: Groups, words: Sequence[str]) -> str:
    """An OpenCL device `over-floor`, `over-f32` or `over-cpu`."""
    tables = {
        "over-floor": opencl_section.over_floor,
        "over-f32": opencl_section.over_f32,
        "over-cpu": opencl_section.over_cpu,
    }
    return markdown_table(tables[words[0]](_joined(groups)))


TABLES: dict[str, Callable[[Groups, Sequence[str]], str]] = {
    "grid-exam": grid_exam,
    "gpu-summary": gpu_summary,
    "gpu-sentence": gpu_sentence,
    "targets": targets,
    "cpu-summary": cpu_summary,
    "cpu-sentence": cpu_sentence,
    "cpu-runs": cpu_runs,
    "cpu-halves": cpu_halves,
    "ceilings": ceilings,
    "win-share": win_share,
    "speed-up": speed_up,
    "errors": errors,
    "small-batch": small_batch,
    "small-sentence": small_sentence,
    "energy-saving": energy_saving,
    "layers": layers,
    "layer-sentences": layer_sentences,
    "weights": weights,
    "weights-sentences": weights_sentences,
    "weights-sentence": weights_sentence,
    "models": models,
    "chains": chains,
    "chains-sentences": chains_sentences,
    "models-sentence": models_sentence,
    "accuracy": accuracy,
    "kernel": kernel,
    "opencl": opencl,
    "peft": lambda groups, _: markdown_table(peft_table(_joined(groups))),
}
