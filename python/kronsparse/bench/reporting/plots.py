"""Plots of the report: their numbers, and which picture of `figures` shows them.

Boxes are in the paper's convention: quartiles, whiskers 5 and 95 %, no outliers. Pictures are drawn when a
page is made: only that needs Bokeh.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kronsparse.bench.reporting.document import Plot, Table

Series = Mapping[str, Sequence[float]]  # values by group
Bars = Mapping[str, Mapping[str, float]]  # heights by series, then by group


@dataclass(frozen=True)
class Box:
    """The numbers of a box plot."""

    low: float
    q1: float
    median: float
    q3: float
    high: float

    @staticmethod
    def of(values: Sequence[float]) -> Box:
        """From the values."""
        return Box(*(float(value) for value in np.percentile(values, [5, 25, 50, 75, 95])))


def drawn(
    series: Mapping[str, Series],
    title: str,
    x_label: str,
    y_label: str,
    caption: str,
    log: bool = True,
    reference: float | None = 1.0,
) -> Plot:
    """Boxes of each series side by side in each group; the dashed line is the reference."""
    boxes = {
        (name, group): (Box.of(values), len(values))
        for name, by_group in series.items()
        for group, values in by_group.items()
        if len(values)
    }
    rows = []
    for (name, group), (box, number) in boxes.items():
        told = [f"{value:.3g}" for value in (box.median, box.q1, box.q3, box.low, box.high)]
        rows.append([group, name, *told, str(number)])
    headers = [x_label, "", "median", "quartile", "quartile", "5 %", "95 %", "values"]

    def draw() -> Any:
        from kronsparse.bench.reporting import figures

        return figures.box_figure(boxes, title, x_label, y_label, log, reference)

    return Plot(draw if boxes else None, caption, Table(headers, rows, title))


def bar_plot(
    bars: Bars,
    title: str,
    y_label: str,
    caption: str,
    reference: float | None = 1.0,
    stacked: bool = False,
    highest: float | None = None,
) -> Plot:
    """The bars of each series beside those of the others in each group, or on top of them.

    Bars above `highest` are cut off; their number shows when they are pointed at. The dashed line is the
    reference.

    >>> plot = bar_plot({"ours": {"p": 1.0}, "theirs": {"p": 9.0}}, "Time", "ms", "", highest=2.0)
    >>> plot.numbers.rows
    [['p', '1', '9']]
    """
    series = [name for name, by_group in bars.items() if by_group]
    groups = list(dict.fromkeys(group for name in series for group in bars[name]))
    rows = [
        [group, *(f"{bars[name][group]:.3g}" if group in bars[name] else "" for name in series)]
        for group in groups
    ]

    def draw() -> Any:
        from kronsparse.bench.reporting import figures

        given = {name: bars[name] for name in series}
        return figures.bar_figure(given, groups, title, y_label, reference, stacked, highest)

    return Plot(draw if groups else None, caption, Table(["", *series], rows, title))


def histogram(values: Sequence[float], edges: Sequence[float], title: str, unit: str, caption: str) -> Plot:
    """How many values lie from one edge to the next; the last bin holds its upper edge, too.

    >>> histogram([1, 2, 2, 3], [0, 2, 3], "Sizes", "", "").numbers.rows
    [['0 - 2', '1'], ['2 - 3', '3']]
    """
    counts, _ = np.histogram(values, edges)
    names = [f"{low:g} - {high:g}{unit}" for low, high in itertools.pairwise(edges)]
    bars = {name: float(count) for name, count in zip(names, counts, strict=True)}
    return bar_plot({"patterns": bars}, title, "patterns", caption, reference=None)


def binned(pairs: Sequence[tuple[float, float]], most: int = 12) -> dict[str, list[float]]:
    """Values y of pairs (x, y) by x, neighbours put together until there are few groups."""
    values = sorted({round(x, 6) for x, _ in pairs})
    if not values:
        return {}
    edges = [chunk[0] for chunk in np.array_split(values, min(most, len(values)))]
    groups: dict[str, list[float]] = {}
    for x, y in sorted(pairs):
        at = max(edge for edge in edges if edge <= round(x, 6))
        groups.setdefault(f"{at:.3g}", []).append(y)
    return groups
