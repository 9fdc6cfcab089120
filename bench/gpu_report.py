#!/usr/bin/env python3
"""Summary, in Markdown, of what gpu_vs_torch.py measured: distance to the floor, wins and losses."""

from __future__ import annotations

import argparse
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from command import Row, read_rows

OURS = "kronsparse"
EAGER = ("bmm", "einsum", "dense")
BEST_OF_EAGER = f"best of {', '.join(EAGER)}"
RIVALS = (*EAGER, BEST_OF_EAGER, "blocks", "strided", "transposing", "compiled")
WORST_SHOWN = 8
# The bound on small batches: launch, and one and a half times the reading of the weights.
LAUNCH_S, WEIGHT_FACTOR = 2.5e-6, 1.5


@dataclass(frozen=True)
class Target:
    floors: float  # the median of time / floor may be at most this
    wins: dict[str, float]  # by rival: the share of patterns that must be won
    speedups: dict[str, float] = field(default_factory=dict)  # by rival: the least median


_HALF_FIRST = Target(2.3, {BEST_OF_EAGER: 0.92}, {BEST_OF_EAGER: 2.2, "compiled": 1.4})
_HALF_LAST = Target(1.8, {BEST_OF_EAGER: 0.92, "strided": 0.65}, {BEST_OF_EAGER: 2.2})
TARGETS = {
    ("f16", "", "batch_first"): _HALF_FIRST,
    ("bf16", "", "batch_first"): _HALF_FIRST,
    ("f16", "", "batch_last"): _HALF_LAST,
    ("bf16", "", "batch_last"): _HALF_LAST,
    ("f32", "fp32", "batch_first"): Target(1.3, {BEST_OF_EAGER: 0.95}, {BEST_OF_EAGER: 1.8}),
    ("f32", "fp32", "batch_last"): Target(1.1, {BEST_OF_EAGER: 0.95, "strided": 0.8}, {BEST_OF_EAGER: 1.8}),
    ("f32", "ieee", "batch_first"): Target(1.8, {BEST_OF_EAGER: 0.85}),
    ("f32", "ieee", "batch_last"): Target(1.35, {BEST_OF_EAGER: 0.85}),
}


@dataclass
class Contested:
    """One problem: seconds of ours by mode, and of the best spelling of each rival."""

    layout: str
    pattern: str
    dtype: str
    floor_s: float = 0.0
    ours: dict[str, float] = field(default_factory=dict)
    implementations: dict[str, str] = field(default_factory=dict)  # of ours, by mode
    rivals: dict[str, float] = field(default_factory=dict)
    spellings: dict[str, str] = field(default_factory=dict)  # the best, by rival
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def dims(self) -> list[int]:
        return [int(number) for number in self.pattern.split("x")]

    def add(self, row: Row) -> None:
        self.floor_s = row["floor_s"]
        ours, rival = row["contender"] == OURS, row["contender"]
        if row["status"] == "wrong" or (ours and row["status"] != "ok"):
            name = f"{row['spelling']} {row['mode']}".strip()
            self.failures[name] = f"{row['status']}: {row['problem']}: {name}: {row['reason']}"
        if ours and row["status"] != "ok":  # counts as lost
            self.ours[row["mode"]], self.implementations[row["mode"]] = math.inf, "none"
        if row["status"] != "ok":
            return
        if ours:
            self.ours[row["mode"]] = row["median_s"]
            self.implementations[row["mode"]] = row["implementation"]
        elif row["median_s"] < self.rivals.get(rival, math.inf):
            self.rivals[rival], self.spellings[rival] = row["median_s"], row["spelling"]

    def finish(self) -> None:
        eager = [self.rivals[name] for name in EAGER if name in self.rivals]
        if eager:
            self.rivals[BEST_OF_EAGER] = min(eager)
        if self.dims[3] == 1 and self.layout == "batch_last" and "bmm" in self.rivals:
            self.rivals.setdefault("strided", self.rivals["bmm"])  # there bmm permutes nothing


def contested(rows: Iterable[Row]) -> list[Contested]:
    """Joins the rows of each problem; of a row that several runs wrote, the last counts."""
    latest: dict[tuple[str, ...], Row] = {}
    for row in rows:
        if row["record"] == "row":
            latest[row["problem"], row["contender"], row["spelling"]] = row
    found: dict[tuple[str, str, str, int], Contested] = {}
    for row in latest.values():
        key = (row["dtype"], row["layout"], row["pattern"], row["batch"])
        one = found.setdefault(key, Contested(row["layout"], row["pattern"], row["dtype"]))
        one.add(row)
    for one in found.values():
        one.finish()
    return sorted(found.values(), key=lambda one: (one.dtype, one.layout, one.dims))


def _last_run(rows: Iterable[Row]) -> Row:
    return [row for row in rows if row["record"] == "run"][-1]


def machine_line(rows: Iterable[Row]) -> str:
    run = _last_run(rows)
    versions, ceilings = run["versions"], run["ceilings"]
    driver = run["machine"].get("nvidia_smi", {}).get("driver_version", "")
    gemm = ", ".join(f"{name} {rate / 1e12:.3g}" for name, rate in ceilings["gemm_flops"].items())
    return (
        f"{run['machine']['gpu']}{f', driver {driver}' if driver else ''}; "
        f"kronsparse {versions['kronsparse']} ({run['commit']}), torch {versions['torch']}; "
        f"copy {ceilings['copy_bytes'] / 1e12:.3g} TB/s, GEMM {gemm} TFLOP/s"
    )


def _judged(value: float, target: float | None, reached: bool, form: str) -> str:
    text = format(value, form)
    if target is None:
        return text
    return f"{text} (target {target:{form.replace('.2f', 'g')}}: {'reached' if reached else '**missed**'})"


def _rival_line(name: str, ones: Sequence[Contested], mode: str, target: Target | None) -> str | None:
    pairs = [(one.ours[mode], one.rivals[name], one.floor_s) for one in ones if name in one.rivals]
    if not pairs:
        return None
    floors = statistics.median(theirs / floor for _, theirs, floor in pairs)
    speedups = [theirs / ours for ours, theirs, _ in pairs]
    wins, median = sum(ratio > 1 for ratio in speedups) / len(pairs), statistics.median(speedups)
    wanted_wins = target.wins.get(name) if target else None
    wanted_median = target.speedups.get(name) if target else None
    won = _judged(wins, wanted_wins, wins >= (wanted_wins or 0), ".0%")
    gain = _judged(median, wanted_median, median >= (wanted_median or 0), ".2f")
    return f"| {name} | {len(pairs)} | {floors:.2f} | {won} | {gain} | {min(speedups):.2f} |"


def _losses(ones: Sequence[Contested], mode: str, rivals: Sequence[str]) -> Iterator[str]:
    for name in rivals:
        lost = sorted(
            (one.rivals[name] / one.ours[mode], one.pattern)
            for one in ones
            if one.rivals.get(name, math.inf) < one.ours[mode]
        )
        if lost:
            listed = ", ".join(f"{pattern} {ratio:.2f}" for ratio, pattern in lost)
            yield f"- slower than {name} on {len(lost)}: {listed}"


def _implementations(ones: Sequence[Contested], mode: str) -> str:
    floors: dict[str, list[float]] = defaultdict(list)
    for one in ones:
        floors[one.implementations[mode]].append(one.ours[mode] / one.floor_s)
    named = [f"{name} ({len(all_)}, {statistics.median(all_):.2f})" for name, all_ in sorted(floors.items())]
    return f"- implementations (patterns, median time / floor): {', '.join(named)}"


def _section(
    dtype: str, mode: str, layout: str, ones: Sequence[Contested], target: Target | None
) -> list[str]:
    floors = sorted(((one.ours[mode] / one.floor_s, one.pattern) for one in ones), reverse=True)
    median = statistics.median(ratio for ratio, _ in floors)
    wanted = target.floors if target else None
    judged = _judged(median, wanted, median <= (wanted or 0), ".2f")
    rivals = [_rival_line(name, ones, mode, target) for name in RIVALS]
    worst = ", ".join(f"{pattern} {ratio:.2f}" for ratio, pattern in floors[:WORST_SHOWN])
    title = " ".join(filter(None, (dtype, mode, layout)))
    return [
        f"## {title}",
        "",
        "| | patterns | median time / floor | ours wins | median speed-up | least |",
        "|---|---|---|---|---|---|",
        f"| **{OURS}** | {len(ones)} | {judged} | | | |",
        *filter(None, rivals),
        "",
        _implementations(ones, mode),
        f"- furthest from the floor: {worst}",
        *_losses(ones, mode, (BEST_OF_EAGER, "blocks", "strided", "transposing", "compiled")),
        "",
    ]


def _table(dtype: str, mode: str, layout: str, ones: Sequence[Contested]) -> list[str]:
    shown = [name for name in RIVALS if name != BEST_OF_EAGER and any(name in one.rivals for one in ones)]
    heading = [f"{dtype} {mode} {layout}", "floor ms", "ours ms", "ours / floor", *shown, "implementation"]
    lines = [f"| {' | '.join(heading)} |", "|---" * len(heading) + "|"]
    for one in ones:
        ours = one.ours[mode]
        rivals = [f"{one.rivals[name] / one.floor_s:.2f}" if name in one.rivals else "" for name in shown]
        cells = [one.pattern, f"{one.floor_s * 1e3:.3f}", f"{ours * 1e3:.3f}", f"{ours / one.floor_s:.2f}"]
        lines.append(f"| {' | '.join([*cells, *rivals, one.implementations[mode]])} |")
    return [*lines, ""]


def _small_order(row: Row, *_: Row) -> tuple[str, str, list[int], int]:
    return row["dtype"], row["layout"], [int(size) for size in row["pattern"].split("x")], row["batch"]


def _small_batch(rows: Iterable[Row]) -> list[str]:
    found: dict[str, dict[str, Row]] = {}
    for row in rows:
        if row["record"] == "small" and row["status"] == "ok":
            best = found.setdefault(row["problem"], {})
            known = best.get(row["contender"])
            newer = known is None or row["spelling"] == known["spelling"]
            if newer or row["median_s"] < known["median_s"]:
                best[row["contender"]] = row
    failures = [
        f"- {row['status']}: {row['problem']}: {row['spelling']}: {row['reason']}"
        for row in rows
        if row["record"] == "small" and row["status"] != "ok"
    ]
    if not found and not failures:
        return []
    lines = [
        "## small batches, microseconds",
        "",
        "| problem | weights once | bound | ours | bmm | speed-up | within bound | implementation |",
        "|---|---|---|---|---|---|---|---|",
    ]
    within = faster = compared = 0
    for problem, best in sorted(found.items(), key=lambda item: _small_order(*item[1].values())):
        ours, bmm = best.get(OURS), best.get("bmm")
        known = next(iter(best.values()))
        cells = [problem, f"{known['weights_s'] * 1e6:.2f}", f"{known['bound_s'] * 1e6:.2f}"]
        cells += [f"{one['median_s'] * 1e6:.2f}" if one else "" for one in (ours, bmm)]
        cells.append(f"{bmm['median_s'] / ours['median_s']:.2f}" if ours and bmm else "")
        kept = bool(ours and ours["median_s"] <= ours["bound_s"])
        cells += ["yes" if kept else "**no**", ours["implementation"] if ours else ""]
        within += kept
        if ours and bmm:
            compared += 1
            faster += ours["median_s"] < bmm["median_s"]
        lines.append(f"| {' | '.join(cells)} |")
    verdict = f"Within the bound on {within} of {len(found)}; faster than bmm on {faster} of {compared}."
    return [*lines, "", verdict, *failures, ""]


def summary(rows: Sequence[Row], tables: bool = False) -> list[str]:
    lines = [machine_line(rows), ""]
    everything = contested(rows)
    targets = TARGETS if _last_run(rows)["machine"].get("compute_capability") else {}
    for dtype in sorted({one.dtype for one in everything}):
        for mode in ("", "fp32", "ieee", "tf32"):
            for layout in ("batch_first", "batch_last"):
                ones = [
                    one
                    for one in everything
                    if (one.dtype, one.layout) == (dtype, layout) and mode in one.ours
                ]
                if ones:
                    lines += _section(dtype, mode, layout, ones, targets.get((dtype, mode, layout)))
                    lines += _table(dtype, mode, layout, ones) if tables else []
    failures = [f"- {text}" for one in everything for text in one.failures.values()]
    return [*lines, *_small_batch(rows), *(["## failures", "", *failures] if failures else [])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, nargs="+", help=".jsonl files that gpu_vs_torch.py wrote")
    parser.add_argument("--table", action="store_true", help="also every problem in a table")
    given = parser.parse_args()
    rows = [row for path in given.results for row in read_rows(path)]
    print("\n".join(summary(rows, given.table)))


if __name__ == "__main__":
    main()
