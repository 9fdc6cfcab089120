"""Bars in SVG: side by side in groups, or one on top of the other; and histograms."""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from kronsparse.bench.document import Plot, Table
from kronsparse.bench.plots import COLOURS, ticks

Bars = Mapping[str, Mapping[str, float]]  # heights by series, then by group
_LEFT, _RIGHT, _TOP = 60, 12, 46
_GRID, _INK = "#dddddd", "#222222"


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

    Bars above `highest` are cut off and bear their number. The dashed line is the reference.

    >>> plot = bar_plot({"ours": {"p": 1.0}, "theirs": {"p": 9.0}}, "Time", "ms", "", highest=2.0)
    >>> plot.numbers.rows
    [['p', '1', '9']]
    >>> plot.svg.count("<rect") - 2  # without those of the legend
    2
    """
    series = [name for name, by_group in bars.items() if by_group]
    groups = list(dict.fromkeys(group for name in series for group in bars[name]))
    heights = (
        [sum(bars[name].get(group, 0.0) for name in series) for group in groups]
        if stacked
        else [height for name in series for height in bars[name].values()]
    )
    top = max([*heights, reference or 0.0], default=1.0) * 1.05 or 1.0
    top = min(top, highest) if highest else top
    rows = [
        [group, *(f"{bars[name][group]:.3g}" if group in bars[name] else "" for name in series)]
        for group in groups
    ]
    svg = _drawn(bars, series, groups, title, y_label, top, reference, stacked) if groups else ""
    return Plot(svg, caption, Table(["", *series], rows, title))


def _drawn(
    bars: Bars,
    series: Sequence[str],
    groups: Sequence[str],
    title: str,
    y_label: str,
    top: float,
    reference: float | None,
    stacked: bool,
) -> str:
    step_wanted = max(34, 12 * (1 if stacked else len(series)) + 12)
    legend = sum(_legend_width(name) for name in series)
    wanted = (7.3 * len(title), legend, len(groups) * step_wanted, 360)
    width = math.ceil(_LEFT + _RIGHT + max(wanted))
    floor = _TOP + 200
    height = math.ceil(floor + 26 + 4.2 * max(map(len, groups)))  # names are turned

    def y_of(value: float) -> float:
        return floor - (floor - _TOP) * min(value, top) / top

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" font-family="system-ui, sans-serif" font-size="11" fill="{_INK}">',
        f"<title>{html.escape(title)}</title>",
        f'<text x="{_LEFT}" y="14" font-size="13" font-weight="600">{html.escape(title)}</text>',
    ]
    for tick in ticks(0.0, top, False):
        y = y_of(tick)
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{width - _RIGHT}" stroke="{_GRID}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:.3g}</text>')
    step = (width - _LEFT - _RIGHT) / len(groups)
    bar = min(26.0, 0.8 * step / (1 if stacked else len(series)))
    for place, group in enumerate(groups):
        centre, below = _LEFT + (place + 0.5) * step, 0.0
        turned = f'transform="rotate(-40 {centre:.1f} {floor + 14})" text-anchor="end"'
        parts.append(f'<text x="{centre:.1f}" y="{floor + 14}" {turned}>{html.escape(group)}</text>')
        for number, name in enumerate(series):
            if group not in bars[name]:
                continue
            value = bars[name][group]
            x = centre - bar / 2 + (0 if stacked else (number - (len(series) - 1) / 2) * bar)
            y, bottom = y_of(below + value), y_of(below)
            tip = html.escape(f"{name}, {group}: {value:.3g}")
            parts.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{0.9 * bar:.1f}" height="{max(bottom - y, 0.5):.1f}" '
                f'fill="{COLOURS[number % len(COLOURS)]}" fill-opacity="0.7"><title>{tip}</title></rect>'
            )
            if not stacked and value > top:
                parts.append(
                    f'<text x="{x + bar / 2:.1f}" y="{_TOP - 3}" text-anchor="middle" font-size="9">'
                    f"{value:.2g}</text>"
                )
            below += value if stacked else 0.0
    if reference is not None:
        y = y_of(reference)
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{width - _RIGHT}" stroke="{_INK}" stroke-dasharray="5 3"/>')
    x = float(_LEFT)
    for number, name in enumerate(series):
        parts.append(
            f'<rect x="{x:.0f}" y="22" width="10" height="10" fill="{COLOURS[number % len(COLOURS)]}" '
            f'fill-opacity="0.7"/><text x="{x + 14:.0f}" y="31">{html.escape(name)}</text>'
        )
        x += _legend_width(name)
    middle = (floor + _TOP) / 2
    parts.append(
        f'<text x="14" y="{middle:.0f}" text-anchor="middle" transform="rotate(-90 14 {middle:.0f})">'
        f"{html.escape(y_label)}</text>"
    )
    return "".join([*parts, "</svg>"])


def _legend_width(name: str) -> float:
    return 6.5 * len(name) + 30


def histogram(values: Sequence[float], edges: Sequence[float], title: str, unit: str, caption: str) -> Plot:
    """How many values lie from one edge to the next; the last bin holds its upper edge, too.

    >>> histogram([1, 2, 2, 3], [0, 2, 3], "Sizes", "", "").numbers.rows
    [['0 - 2', '1'], ['2 - 3', '3']]
    """
    counts, _ = np.histogram(values, edges)
    names = [f"{low:g} - {high:g}{unit}" for low, high in itertools.pairwise(edges)]
    bars = {name: float(count) for name, count in zip(names, counts, strict=True)}
    return bar_plot({"patterns": bars}, title, "patterns", caption, reference=None)
