#!/usr/bin/env python3
"""Summary of a cpu_vs_torch results file: ratios to the floor and to PyTorch, and the verdict."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from command import Row, read_rows


@dataclass(frozen=True)
class Target:
    times_floor: float  # the median may be at most this
    speedup: float  # over the best of PyTorch; the median must be at least this


TARGETS = {"batch_first": Target(1.6, 2.0), "batch_last": Target(1.35, 1.2)}
LOWEST_SPEEDUP = 0.8
# The halves must be no slower than f32; two medians of the same code differ by about this much.
HALF_NOISE = 1.05


@dataclass
class Comparison:
    """One problem: our time, PyTorch's times, the floor."""

    layout: str
    pattern: str
    batch: int
    run: int
    floor_s: float = 0.0
    bound: str = ""
    implementation: str = ""
    ours: dict[str, float] = field(default_factory=dict)  # seconds by dtype
    torch: dict[str, float] = field(default_factory=dict)  # seconds by spelling, f32
    failures: list[str] = field(default_factory=list)  # wrong answers, and ours missing

    @property
    def order(self) -> tuple[str, list[int]]:
        return self.layout, _pattern_of(self.pattern)

    @property
    def best_torch(self) -> tuple[str, float] | None:
        return min(self.torch.items(), key=lambda item: item[1], default=None)

    @property
    def ours_over_floor(self) -> float | None:
        return self.ours["f32"] / self.floor_s if "f32" in self.ours else None

    @property
    def torch_over_floor(self) -> float | None:
        return self.best_torch[1] / self.floor_s if self.best_torch else None

    @property
    def speedup(self) -> float | None:
        return self.best_torch[1] / self.ours["f32"] if self.best_torch and "f32" in self.ours else None

    @property
    def speedup_over_permuting(self) -> float | None:
        """Over the spellings people write: those that permute, not those on strided views."""
        times = [time for name, time in self.torch.items() if "strided" not in name]
        return min(times) / self.ours["f32"] if times and "f32" in self.ours else None


def _pattern_of(text: str) -> list[int]:
    return [int(number) for number in text.split("x")]


def compare(rows: Iterable[Row]) -> list[Comparison]:
    """Joins the rows of each problem; of a problem that several runs measured, the last counts."""
    found: dict[tuple[str, str], Comparison] = {}
    run = 0
    for row in rows:
        if row["record"] != "row":
            run += 1
            continue
        key = (row["layout"], row["pattern"])
        if key not in found or found[key].run != run:
            found[key] = Comparison(*key, batch=row["batch"], run=run)
        one = found[key]
        if row["dtype"] == "f32":
            one.floor_s, one.bound = row["floor_s"], row["floor_bound"]
        ours = row["contender"] == "kronsparse"
        if row["status"] == "wrong" or (ours and row["status"] != "ok"):
            one.failures.append(f"{row['status']}: {row['spelling']} ({row['dtype']}): {row['reason']}")
        elif row["status"] == "ok" and ours:
            one.ours[row["dtype"]] = row["median_s"]
            if row["dtype"] == "f32":
                one.implementation = row["implementation"]
        elif row["status"] == "ok":
            one.torch[row["spelling"]] = row["median_s"]
    return list(found.values())


def machine_line(rows: Iterable[Row]) -> str:
    """Where the last run of the file was made, and with what."""
    run = [row for row in rows if row["record"] == "run"][-1]
    rates, versions = run["rates"], run["versions"]
    return (
        f"{run['machine']['cpu']}, {run['threads']} threads; "
        f"kronsparse {versions['kronsparse']} ({run['commit']}), torch {versions['torch']}; "
        f"SGEMM {rates['sgemm_flops'] / 1e9:.0f} GFLOP/s, copy {rates['copy_bytes'] / 1e9:.1f} GB/s"
    )


def _numbers(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _ratio(value: float | None) -> str:
    return f"{value:8.2f}" if value is not None else "       -"


def _judged(what: str, found: str, target: str, reached: bool) -> str:
    return f"  {what:<22}{found}  (target {target}: {'reached' if reached else 'MISSED'})"


def one_line(one: Comparison) -> str:
    return (
        f"{one.layout:<12}{one.pattern:<14}{one.batch:>8}{one.floor_s * 1e3:>9.2f}  {one.bound:<6}"
        f"{_ratio(one.ours_over_floor)}{_ratio(one.torch_over_floor)}{_ratio(one.speedup)}"
        f"  {one.best_torch[0] if one.best_torch else '':<24}"
    )


def heading() -> str:
    columns = f"{'layout':<12}{'pattern':<14}{'batch':>8}{'floor ms':>9}  {'bound':<6}"
    return f"{columns}{'ours':>8}{'torch':>8}{'speedup':>8}  best of PyTorch"


def table(comparisons: Sequence[Comparison]) -> list[str]:
    lines = [one_line(one).rstrip() for one in comparisons]
    legend = "ours and torch are times over the floor; speedup is PyTorch's best time over ours"
    return [heading(), *lines, legend]


def _summarise_layout(layout: str, comparisons: Sequence[Comparison]) -> list[str]:
    lines = [f"{layout}: {len(comparisons)} patterns"]
    target = TARGETS[layout]
    floors = _numbers(one.ours_over_floor for one in comparisons)
    if floors:
        median = statistics.median(floors)
        found = f"median {median:.2f}  worst {max(floors):.2f}"
        lines.append(_judged("ours / floor", found, f"<= {target.times_floor}", median <= target.times_floor))
    torch_floors = _numbers(one.torch_over_floor for one in comparisons)
    if torch_floors:
        median = statistics.median(torch_floors)
        lines.append(f"  {'best PyTorch / floor':<22}median {median:.2f}  worst {max(torch_floors):.2f}")
    compared = [(one.speedup, one) for one in comparisons if one.speedup is not None]
    if compared:
        least, where = min(compared, key=lambda pair: pair[0])
        median = statistics.median(speedup for speedup, _ in compared)
        found = f"median {median:.2f}  least {least:.2f} at {where.pattern}"
        lines.append(_judged("speedup over best", found, f">= {target.speedup}", median >= target.speedup))
        permuting = _numbers(one.speedup_over_permuting for one in comparisons)
        if permuting:
            median = statistics.median(permuting)
            lines.append(f"  {'without strided views':<22}median {median:.2f}  least {min(permuting):.2f}")
        below = [f"{one.pattern} ({speedup:.2f})" for speedup, one in compared if speedup < LOWEST_SPEEDUP]
        found = ", ".join(below) or "none"
        lines.append(_judged(f"speedup below {LOWEST_SPEEDUP}", found, "none", not below))
    return lines


def _summarise_halves(comparisons: Sequence[Comparison]) -> list[str]:
    lines = []
    for dtype in ("f16", "bf16"):
        pairs = [one for one in comparisons if {dtype, "f32"} <= one.ours.keys()]
        if not pairs:
            continue
        ratios = [one.ours[dtype] / one.ours["f32"] for one in pairs]
        worst, where = max(zip(ratios, [one.pattern for one in pairs], strict=True))
        slower = sum(ratio > HALF_NOISE for ratio in ratios)
        found = f"median {statistics.median(ratios):.2f}  worst {worst:.2f} at {where}"
        target = f"no slower, {slower} of {len(pairs)} above {HALF_NOISE}"
        lines.append(_judged(f"ours: {dtype} / f32", found, target, slower == 0))
    return lines


def summarise(comparisons: Sequence[Comparison]) -> list[str]:
    lines: list[str] = []
    for layout in TARGETS:
        mine = [one for one in comparisons if one.layout == layout]
        if mine:
            lines += _summarise_layout(layout, mine) + _summarise_halves(mine)
    return lines + [
        f"{one.layout} {one.pattern} {failure}" for one in comparisons for failure in one.failures
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, help="a .jsonl file that cpu_vs_torch.py wrote")
    rows = read_rows(parser.parse_args().results)
    comparisons = sorted(compare(rows), key=lambda one: one.order)
    print("\n".join([machine_line(rows), "", *table(comparisons), "", *summarise(comparisons)]))


if __name__ == "__main__":
    main()
