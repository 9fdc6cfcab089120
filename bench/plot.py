#!/usr/bin/env python3
"""Draws a cpu_vs_torch results file: for each pattern our time and PyTorch's best, in floors."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from command import read_rows
from report import Comparison, compare, machine_line

OURS_COLOUR, TORCH_COLOUR, FLOOR_COLOUR = "#1965b0", "#e8601c", "#555555"
TICKS = (1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)


def _by_d_then_pattern(one: Comparison) -> tuple[int, list[int]]:
    dims = one.order[1]
    return dims[3], dims


def draw(comparisons: Sequence[Comparison], title: str, path: Path) -> None:
    # Only drawing needs it, so that reading the rest of this folder does not.
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    layouts = sorted({one.layout for one in comparisons})
    rows = max(sum(one.layout == layout for one in comparisons) for layout in layouts)
    figure, axes = pyplot.subplots(
        1, len(layouts), figsize=(1 + 5.5 * len(layouts), 1.6 + 0.27 * rows), sharex=True, squeeze=False
    )
    slowest = max(max(one.ours_over_floor or 1, one.torch_over_floor or 1) for one in comparisons)
    for axis, layout in zip(axes[0], layouts, strict=True):
        mine = sorted(
            (one for one in comparisons if one.layout == layout), key=_by_d_then_pattern, reverse=True
        )
        for height, one in enumerate(mine):
            ours, theirs = one.ours_over_floor, one.torch_over_floor
            if ours and theirs:
                colour = OURS_COLOUR if ours <= theirs else TORCH_COLOUR
                axis.plot([ours, theirs], [height, height], color=colour, alpha=0.35, linewidth=3, zorder=1)
            if theirs:
                axis.scatter(theirs, height, color=TORCH_COLOUR, s=34, zorder=2)
            if ours:
                axis.scatter(ours, height, color=OURS_COLOUR, s=34, zorder=3)
        axis.axvline(1, color=FLOOR_COLOUR, linewidth=1)
        for height in range(1, len(mine)):
            if mine[height].order[1][3] != mine[height - 1].order[1][3]:
                axis.axhline(height - 0.5, color="#cccccc", linewidth=0.8)
        axis.set_yticks(range(len(mine)), [one.pattern for one in mine], fontsize=8, family="monospace")
        axis.set_xscale("log")
        axis.set_xticks([tick for tick in TICKS if tick <= slowest * 1.1], minor=False)
        axis.xaxis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%g"))
        axis.minorticks_off()
        axis.grid(axis="x", color="#eeeeee")
        axis.set_axisbelow(True)
        axis.set_title(layout, fontsize=11)
        axis.set_xlabel("time / floor")
        for side in ("top", "right", "left"):
            axis.spines[side].set_visible(False)
        axis.tick_params(axis="y", length=0)
    handles = [
        pyplot.Line2D([], [], color=OURS_COLOUR, marker="o", linestyle="", label="kronsparse"),
        pyplot.Line2D([], [], color=TORCH_COLOUR, marker="o", linestyle="", label="best of PyTorch"),
        pyplot.Line2D([], [], color=FLOOR_COLOUR, label="floor"),
    ]
    figure.legend(handles=handles, loc="upper right", ncols=3, frameon=False, fontsize=9)
    figure.suptitle(title, x=0.01, ha="left", fontsize=9)
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, help="a .jsonl file that cpu_vs_torch.py wrote")
    parser.add_argument(
        "--output", type=Path, help="picture (.svg, .png or .pdf; default: .svg beside the results)"
    )
    given = parser.parse_args()
    rows = read_rows(given.results)
    comparisons = [one for one in compare(rows) if one.ours_over_floor or one.torch_over_floor]
    if not comparisons:
        sys.exit(f"plot: no f32 times in {given.results}")
    path = given.output or given.results.with_suffix(".svg")
    try:
        draw(comparisons, machine_line(rows), path)
    except ModuleNotFoundError as error:
        sys.exit(f"plot: {error}; matplotlib is needed for this picture alone")
    print(path)


if __name__ == "__main__":
    main()
