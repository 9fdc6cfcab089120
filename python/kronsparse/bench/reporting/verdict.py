"""Ours beside each rival: time over the floor, wins and losses, small batches, and the project's targets."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

from kronsparse.bench.reporting.document import Document, Section, Table, to_markdown
from kronsparse.bench.reporting.exam_section import grid_section, random_section
from kronsparse.bench.reporting.layer_table import training
from kronsparse.bench.results.dataset import Measured, collect, halves_over_f32, kinds, latest, of_kind
from kronsparse.bench.results.rows import OURS, Row, device_of, is_cpu, is_opencl, last_run
from kronsparse.bench.results.statistics import median, wins
from kronsparse.bench.results.targets import (
    ANYONE,
    CPU_HALF_NOISE,
    CPU_LOWEST_SPEEDUP,
    CPU_TARGETS,
    EAGER,
    GPU_TARGETS,
    OPENCL_TARGETS,
    Target,
)
from kronsparse.checks import LAYOUTS

RIVALS = (
    *("bmm", "einsum", "dense", EAGER, "blocks", "strided", "transposing", "bsr", "sparse"),
    *("triton", "cutensor", "compiled", "compiled-einsum", "ksmm", ANYONE),
)
_LOSSES_TO = (
    *(EAGER, "blocks", "strided", "transposing", "triton", "cutensor"),
    *("compiled", "compiled-einsum", "ksmm"),
)
WORST_SHOWN = 8
# Tells which floor it is; the exams have another.
PLAIN_FLOOR = "The floor of f32 is by the rate of PyTorch's f32 GEMM, no tensor cores: ours can be below it."


def ceilings_text(run: Row) -> str:
    """The ceilings of a run, also of one whose file is older than that name; `layers` measures none."""
    if "ceilings" in run:
        copy_bytes, gemm_flops = run["ceilings"]["copy_bytes"], run["ceilings"]["gemm_flops"]
    elif "rates" in run:
        copy_bytes, gemm_flops = run["rates"]["copy_bytes"], {"f32": run["rates"]["sgemm_flops"]}
    else:
        return ""
    rates = ", ".join(f"{name} {rate / 1e12:.3g}" for name, rate in gemm_flops.items())
    return f"copy {copy_bytes / 1e12:.3g} TB/s, GEMM {rates} TFLOP/s"


def machine_line(run: Row) -> str:
    """The machine and the versions of a run, and its ceilings."""
    return "; ".join(filter(None, (machine_text(run), ceilings_text(run))))


def machine_text(run: Row, commits: Sequence[str] = ()) -> str:
    """The machine and the versions of a run, or of runs at several commits."""
    versions, hardware = run["versions"], run["machine"]
    driver = hardware.get("nvidia_smi", {}).get("driver_version", "")
    where = f"{device_of(run)}{f', driver {driver}' if driver else ''}"
    made_with = f"kronsparse {versions['kronsparse']} ({', '.join(commits or [run['commit']])})"
    with_torch = f", torch {versions['torch']}" if "torch" in versions else ""
    return f"{where}; {made_with}{with_torch}"


def targets_of(rows: Sequence[Row]) -> dict[tuple[str, str, str], Target]:
    """Targets are for certain patterns: where no run was of those there are none. Older files are."""
    last = last_run(rows)
    suite, targets = ("cpu-targets", CPU_TARGETS) if is_cpu(last) else ("sample", GPU_TARGETS)
    if is_opencl(last):
        targets = OPENCL_TARGETS
    runs = [row for row in rows if row.get("record") == "run"]
    return targets if any(run.get("suite", suite) == suite for run in runs) else {}


def _judged(value: float, target: float | None, reached: bool, form: str) -> str:
    text = format(value, form)
    if target is None:
        return text
    return f"{text} (target {target:{form.replace('.2f', 'g')}}: {'reached' if reached else '**missed**'})"


def _rival_row(name: str, ones: Sequence[Measured], mode: str, target: Target | None) -> list[str] | None:
    met = [one for one in ones if one.rivals.get(name, math.inf) < math.inf]
    if not met:
        return None
    found = wins((one.ours[mode], one.rivals[name]) for one in met)
    assert found is not None
    floors = median([one.rivals[name] / one.floor_s for one in met])
    wanted_wins = target.wins.get(name) if target else None
    wanted_median = target.speedups.get(name) if target else None
    won = _judged(found.share, wanted_wins, found.share >= (wanted_wins or 0), ".0%")
    gain = _judged(found.median, wanted_median, found.median >= (wanted_median or 0), ".2f")
    return [name, str(found.problems), f"{floors:.2f}", won, gain, f"{found.least:.2f}"]


def losses(ones: Sequence[Measured], mode: str, name: str) -> list[tuple[float, Measured]]:
    """The problems on which a rival is faster, and by how much, the worst first."""
    lost = [
        (one.rivals[name] / one.ours[mode], one)
        for one in ones
        if one.rivals.get(name, math.inf) < one.ours[mode]
    ]
    return sorted(lost, key=lambda pair: pair[0])


def _implementations(ones: Sequence[Measured], mode: str) -> str:
    floors: dict[str, list[float]] = defaultdict(list)
    for one in ones:
        if one.ours[mode] < math.inf:
            row = one.best_rows[f"{OURS} {mode}".strip()]
            floors[row["implementation"]].append(one.ours[mode] / one.floor_s)
    named = [f"{name} ({len(all_)}, {median(all_):.2f})" for name, all_ in sorted(floors.items())]
    return f"Implementations (patterns, median time / floor): {', '.join(named)}."


def _section(kind: tuple[str, str, str], ones: Sequence[Measured], target: Target | None) -> Section:
    dtype, mode, layout = kind
    floors = sorted(((one.ours[mode] / one.floor_s, str(one.pattern)) for one in ones), reverse=True)
    middle = median([ratio for ratio, _ in floors])
    wanted = target.floors if target else None
    own = [f"**{OURS}**", str(len(ones)), _judged(middle, wanted, middle <= (wanted or 0), ".2f"), "", "", ""]
    rivals = [_rival_row(name, ones, mode, target) for name in RIVALS]
    headers = ["", "patterns", "median time / floor", "ours wins", "median speed-up", "least"]
    worst = ", ".join(f"{pattern} {ratio:.2f}" for ratio, pattern in floors[:WORST_SHOWN])
    blocks: list[str | Table] = [
        Table(headers, [own, *(row for row in rivals if row)], PLAIN_FLOOR if mode == "fp32" else ""),
        _implementations(ones, mode),
        f"Furthest from the floor: {worst}.",
    ]
    for name in _LOSSES_TO:
        lost = losses(ones, mode, name)
        if lost:
            listed = ", ".join(f"{one.pattern} {ratio:.2f}" for ratio, one in lost)
            blocks.append(f"Slower than {name} on {len(lost)}: {listed}.")
    return Section(" ".join(filter(None, (dtype, mode, layout))), blocks)


def _cpu_section(measured: Sequence[Measured]) -> list[Section]:
    """The promises for a CPU beyond medians."""
    lines = []
    for layout in LAYOUTS:
        ones = of_kind(measured, "f32", "fp32", layout)
        found = wins((one.ours["fp32"], one.rivals[ANYONE]) for one in ones if ANYONE in one.rivals)
        if found:
            verdict = "reached" if found.least >= CPU_LOWEST_SPEEDUP else "**missed**"
            lines.append(
                f"{layout}: least speed-up over PyTorch {found.least:.2f} "
                f"(target {CPU_LOWEST_SPEEDUP}: {verdict})."
            )
        for dtype in ("f16", "bf16"):
            ratios = halves_over_f32(measured, dtype, layout)
            if ratios:
                slower = sum(ratio > CPU_HALF_NOISE for ratio in ratios)
                verdict = "reached" if not slower else f"**missed** on {slower} of {len(ratios)}"
                lines.append(
                    f"{layout}: {dtype} over f32, ours, median {median(ratios):.2f}, worst {max(ratios):.2f} "
                    f"(target no slower: {verdict})."
                )
    return [Section("CPU: the slowest pattern, and halves", lines)] if lines else []


def small_sections(rows: Iterable[Row]) -> list[Section]:
    """Small batches, in microseconds, with the bound they are held to."""
    found: dict[str, dict[str, Row]] = {}
    failures = []
    for row in latest(rows, "small"):
        if row["status"] != "ok":
            failures.append(f"{row['status']}: {row['problem']}: {row['spelling']}: {row['reason']}")
            continue
        best = found.setdefault(row["problem"], {})
        if row["contender"] not in best or row["median_s"] < best[row["contender"]]["median_s"]:
            best[row["contender"]] = row
    if not found and not failures:
        return []
    lines, within, faster, compared = [], 0, 0, 0
    for problem, best in sorted(found.items(), key=lambda item: _small_order(next(iter(item[1].values())))):
        ours, bmm, known = best.get(OURS), best.get("bmm"), next(iter(best.values()))
        kept = bool(ours and ours["median_s"] <= ours["bound_s"])
        times = [f"{one['median_s'] * 1e6:.2f}" if one else "" for one in (ours, bmm)]
        speedup = f"{bmm['median_s'] / ours['median_s']:.2f}" if ours and bmm else ""
        bounds = [f"{known[name] * 1e6:.2f}" for name in ("weights_s", "bound_s")]
        verdict = ["yes" if kept else "**no**", ours["implementation"] if ours else ""]
        lines.append([problem, *bounds, *times, speedup, *verdict])
        within += kept
        if ours and bmm:
            compared += 1
            faster += ours["median_s"] < bmm["median_s"]
    headers = [
        "problem",
        "weights once",
        "bound",
        "ours",
        "bmm",
        "speed-up",
        "within bound",
        "implementation",
    ]
    verdict_line = f"Within the bound on {within} of {len(found)}; faster than bmm on {faster} of {compared}."
    return [Section("Small batches, microseconds", [verdict_line, Table(headers, lines), *failures])]


def _small_order(row: Row) -> tuple[object, ...]:
    return row["dtype"], row["layout"], [int(size) for size in row["pattern"].split("x")], row["batch"]


def target_sections(rows: Sequence[Row], measured: Sequence[Measured]) -> list[Section]:
    """A section for each dtype, mode and layout that was measured, judged where there is a target."""
    targets, sections = targets_of(rows), []
    for dtype, mode in kinds(measured):
        for layout in LAYOUTS:
            ones = of_kind(measured, dtype, mode, layout)
            if ones:
                kind = (dtype, mode, layout)
                sections.append(_section(kind, ones, targets.get(kind)))
    return [*sections, *(_cpu_section(measured) if is_cpu(last_run(rows)) and targets else [])]


def summary(rows: Sequence[Row]) -> list[str]:
    """The lines that a run prints at its end, in Markdown."""
    everything = collect(rows)
    failures = [text for one in everything for text in one.failures]
    measured = [one for one in everything if one.seed is None]
    sections = [
        *filter(None, [grid_section(rows, measured), random_section(rows, everything)]),
        *target_sections(rows, measured),
        *small_sections(rows),
        *filter(None, [training(rows)]),
        *([Section("Failures", failures)] if failures else []),
    ]
    return to_markdown(Document(machine_line(last_run(rows)), sections)).splitlines()
