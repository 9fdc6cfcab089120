"""Box plots in SVG, in the paper's convention: boxes are quartiles, whiskers 5 and 95 %, no outliers."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kronsparse.bench.document import Plot, Table

# Okabe and Ito's colours, told apart by the colour-blind. In each group series stand in the legend's order.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 30, 64
_GRID, _INK = "#dddddd", "#222222"
Series = Mapping[str, Sequence[float]]  # values by group


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


def ticks(low: float, high: float, log: bool) -> list[float]:
    """Round numbers from low to high.

    >>> ticks(0.0, 1.0, False)
    [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]
    """
    if not log:
        step = 10 ** math.floor(math.log10(max(high - low, 1e-9)))
        step = next(step * part for part in (0.1, 0.2, 0.5, 1.0, 2.0) if (high - low) / (step * part) <= 7)
        first = math.ceil(low / step)
        return [k * step for k in range(first, math.floor(high / step) + 1)]
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    span = high / low
    fine, coarse = (1, 1.1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 4, 5, 6, 7, 8, 9), (1, 1.5, 2, 3, 5, 7)
    steps = fine if span < 2.5 else coarse if span < 12 else (1, 2, 5) if span < 200 else (1,)
    return [step * 10.0**decade for decade in decades for step in steps if low <= step * 10.0**decade <= high]


class _Axis:
    """From values to heights."""

    def __init__(self, low: float, high: float, log: bool, height: float) -> None:
        self._log, self._height = log, height
        self.low, self.high = low, high

    def __call__(self, value: float) -> float:
        clipped = min(max(value, self.low), self.high)
        scale = math.log if self._log else float
        share = (scale(clipped) - scale(self.low)) / (scale(self.high) - scale(self.low))
        return _TOP + self._height * (1 - share)


def _draw_box(box: Box, centre: float, width: float, axis: _Axis, colour: str, tip: str) -> str:
    top, bottom, middle = axis(box.q3), axis(box.q1), axis(box.median)
    high, low, half = axis(box.high), axis(box.low), width / 2
    caps = "".join(f"M{centre - half / 2:.1f} {y:.1f}h{half:.1f}" for y in (high, low))
    stems = f"M{centre:.1f} {high:.1f}V{top:.1f}M{centre:.1f} {bottom:.1f}V{low:.1f}"
    return (
        f"<g><title>{html.escape(tip)}</title>"
        f'<path d="{stems}{caps}" stroke="{_INK}" fill="none"/>'
        f'<rect x="{centre - half:.1f}" y="{top:.1f}" width="{width:.1f}" '
        f'height="{max(bottom - top, 1):.1f}" fill="{colour}" fill-opacity="0.55" stroke="{_INK}"/>'
        f'<path d="M{centre - half:.1f} {middle:.1f}h{width:.1f}" stroke="{_INK}" stroke-width="2.5"/></g>'
    )


def box_plot(
    series: Mapping[str, Series],
    title: str,
    x_label: str,
    y_label: str,
    log: bool = True,
    reference: float | None = 1.0,
    size: tuple[int, int] = (540, 320),
) -> str:
    """Boxes of each series side by side in each group; the dashed line is the reference."""
    width, height = size
    groups = list(dict.fromkeys(group for values in series.values() for group in values))
    boxes = {
        (name, group): (Box.of(values), len(values))
        for name, by_group in series.items()
        for group, values in by_group.items()
        if len(values)
    }
    if not boxes:
        return ""
    low = min([box.low for box, _ in boxes.values()] + ([reference] if reference is not None else []))
    high = max([box.high for box, _ in boxes.values()] + ([reference] if reference is not None else []))
    low, high = (low / 1.1, high * 1.1) if log else (min(low, 0.0), high * 1.05 or 1.0)
    axis = _Axis(low, high, log, height - _TOP - _BOTTOM)
    step = (width - _LEFT - _RIGHT) / len(groups)
    box_width = min(26.0, 0.8 * step / len(series))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" font-family="system-ui, sans-serif" font-size="11" fill="{_INK}">',
        f"<title>{html.escape(title)}</title>",
        f'<text x="{_LEFT}" y="14" font-size="13" font-weight="600">{html.escape(title)}</text>',
    ]
    for tick in ticks(low, high, log):
        y = axis(tick)
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{width - _RIGHT}" stroke="{_GRID}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:.3g}</text>')
    if reference is not None:
        y = axis(reference)
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{width - _RIGHT}" stroke="{_INK}" stroke-dasharray="5 3"/>')
    for place, group in enumerate(groups):
        centre = _LEFT + (place + 0.5) * step
        turned = f'transform="rotate(-40 {centre:.1f} {height - _BOTTOM + 14})" text-anchor="end"'
        parts.append(
            f'<text x="{centre:.1f}" y="{height - _BOTTOM + 14}" {turned}>{html.escape(group)}</text>'
        )
        for number, name in enumerate(series):
            if (name, group) in boxes:
                box, count = boxes[name, group]
                x = centre + (number - (len(series) - 1) / 2) * box_width
                tip = f"{name}, {group}: median {box.median:.3g}, {count} values"
                colour = COLOURS[number % len(COLOURS)]
                parts.append(_draw_box(box, x, 0.85 * box_width, axis, colour, tip))
    parts.append(
        f'<text x="{width / 2:.0f}" y="{height - 4}" text-anchor="middle">{html.escape(x_label)}</text>'
    )
    middle = (height - _BOTTOM + _TOP) / 2
    parts.append(
        f'<text x="14" y="{middle:.0f}" text-anchor="middle" transform="rotate(-90 14 {middle:.0f})">'
        f"{html.escape(y_label)}</text>"
    )
    if len(series) > 1:
        x = float(width - _RIGHT)
        for number, name in reversed(list(enumerate(series))):
            x -= 7.0 * len(name) + 24
            parts.append(
                f'<rect x="{x:.0f}" y="6" width="10" height="10" fill="{COLOURS[number % len(COLOURS)]}" '
                f'fill-opacity="0.55" stroke="{_INK}"/>'
                f'<text x="{x + 14:.0f}" y="15">{html.escape(name)}</text>'
            )
    return "".join([*parts, "</svg>"])


def drawn(
    series: Mapping[str, Series],
    title: str,
    x_label: str,
    y_label: str,
    caption: str,
    log: bool = True,
    reference: float | None = 1.0,
) -> Plot:
    """A box plot as a part of a document."""
    rows = []
    for name, by_group in series.items():
        for group, values in by_group.items():
            if len(values):
                box = Box.of(values)
                told = [f"{number:.3g}" for number in (box.median, box.q1, box.q3, box.low, box.high)]
                rows.append([group, name, *told, str(len(values))])
    headers = [x_label, "", "median", "quartile", "quartile", "5 %", "95 %", "values"]
    svg = box_plot(series, title, x_label, y_label, log, reference)
    return Plot(svg, caption, Table(headers, rows, title))


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
