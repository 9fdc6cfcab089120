"""The pictures of the report, drawn by Bokeh, whose script goes into the page: it needs no network.

Imported only where a page is made.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from bokeh.embed import json_item  # type: ignore[import-not-found,import-untyped,unused-ignore]
from bokeh.layouts import column, row  # type: ignore[import-not-found,import-untyped,unused-ignore]
from bokeh.models import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
    BasicTickFormatter,
    CDSView,
    CheckboxButtonGroup,
    ColumnDataSource,
    CustomJS,
    CustomJSFilter,
    CustomJSTicker,
    Div,
    FactorRange,
    HoverTool,
    Legend,
    LegendItem,
    Select,
    Span,
)
from bokeh.plotting import figure  # type: ignore[import-not-found,import-untyped,unused-ignore]
from bokeh.resources import Resources  # type: ignore[import-not-found,import-untyped,unused-ignore]

# Okabe and Ito's colours, told apart by the colour-blind.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
TOOLS = "pan,wheel_zoom,box_zoom,reset,save"
CHOICES_OF_D = ("all", "1", "2 to 7", "8 to 31", "32 and more")
_NARROW, _PER_FACTOR = 520, 15  # two of them fit beside each other
_WIDE = 1060
# Ticks of a logarithmic axis, few enough to be read: 1, 2, 5, 10 over decades, more of them over less, and
# equal steps where the axis is nearly linear.
_TICKS = """
const {start, end} = cb_data, ratio = end / start, ticks = [];
if (!(start > 0 && ratio > 1)) return ticks;
if (ratio < 2.5) {
  const rough = (end - start) / 6, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find(one => one * power >= rough);
  for (let at = Math.ceil(start / step); at * step <= end; at++)
    ticks.push(Number((at * step).toPrecision(6)));
  return ticks;
}
const digits = ratio > 1e4 ? [1] : ratio > 12 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 6, 8];
for (let power = Math.floor(Math.log10(start)); power <= Math.log10(end); power++)
  for (const digit of digits) {
    const value = Number((digit * 10 ** power).toPrecision(6));
    if (value >= start && value <= end) ticks.push(value);
  }
return ticks;
"""


def _colour(place: int) -> str:
    return COLOURS[place % len(COLOURS)]


def _figure(title: str, width: int, y_label: str, **options: Any) -> Any:
    width = max(width, 90 + int(7.5 * len(title)))  # a title is never cut off
    plot = figure(title=title, width=width, height=340, tools=TOOLS, toolbar_location="right", **options)
    plot.toolbar.autohide = True
    plot.yaxis.axis_label = y_label
    plot.yaxis.minor_tick_line_color = None
    plot.title.text_font_size = "13px"
    return plot


def _tell_numbers(axis: Any) -> None:
    """Plain numbers along a logarithmic axis, close enough that one can read between them."""
    axis.formatter = BasicTickFormatter(use_scientific=False)
    axis.minor_tick_line_color = None
    axis.ticker = CustomJSTicker(major_code=_TICKS)


def _add_legend(plot: Any, glyphs: Mapping[str, Any]) -> None:
    """Between title and picture, where it hides neither."""
    if len(glyphs) > 1:
        items = [LegendItem(label=name, renderers=[glyph]) for name, glyph in glyphs.items()]
        legend = Legend(items=items, orientation="horizontal", click_policy="hide", border_line_color=None)
        legend.ncols = min(6, len(items))
        plot.add_layout(legend, "above")


def _add_reference(plot: Any, reference: float | None) -> None:
    if reference is not None:
        line = Span(location=reference, dimension="width", line_dash="dashed", line_color="#222222")
        plot.add_layout(line)


def _factored(
    title: str, groups: Sequence[str], series: Sequence[str], y_label: str, **options: Any
) -> tuple[Any, dict[tuple[str, str], Any]]:
    """A figure with a place for each series in each group, and the places."""
    alone = len(series) == 1
    places = {(name, group): group if alone else (group, name) for group in groups for name in series}
    factors = FactorRange(factors=list(places.values()), range_padding=0.02)
    width = max(_NARROW, 130 + (34 if alone else _PER_FACTOR * len(series) + 12) * len(groups))
    plot = _figure(title, width, y_label, x_range=factors, **options)
    plot.xaxis.major_label_orientation = 0.7
    if not alone:  # the legend tells series apart
        plot.xaxis.major_label_text_font_size = "0px"
        plot.xaxis.major_tick_line_color = None
        plot.xaxis.group_label_orientation = 0.7
        plot.xaxis.group_text_font_style = "normal"
        plot.xaxis.separator_line_color = None
    plot.xgrid.grid_line_color = None
    return plot, places


def box_figure(
    boxes: Mapping[tuple[str, str], tuple[Any, int]],
    title: str,
    x_label: str,
    y_label: str,
    log: bool,
    reference: float | None,
) -> Any:
    """Boxes of each series side by side in each group."""
    series = list(dict.fromkeys(name for name, _ in boxes))
    groups = list(dict.fromkeys(group for _, group in boxes))
    kind = {"y_axis_type": "log"} if log else {}
    plot, places = _factored(title, groups, series, y_label, **kind)
    plot.xaxis.axis_label = x_label
    glyphs = {}
    for number, name in enumerate(series):
        mine = [(group, *boxes[name, group]) for group in groups if (name, group) in boxes]
        data = {
            "place": [places[name, group] for group, _, _ in mine],
            "group": [group for group, _, _ in mine],
            "name": [name] * len(mine),
            "number": [count for _, _, count in mine],
        }
        for value in ("low", "q1", "median", "q3", "high"):
            data[value] = [getattr(box, value) for _, box, _ in mine]
        source = ColumnDataSource(data)
        line = {"source": source, "line_color": "#222222"}
        stems = plot.segment("place", "low", "place", "q1", **line)
        plot.segment("place", "q3", "place", "high", **line)
        filled = {"fill_color": _colour(number), "fill_alpha": 0.6, **line}
        glyphs[name] = plot.vbar("place", 0.8, "q3", "q1", **filled)
        plot.scatter("place", "median", marker="dash", size=14, line_width=3, **line)
        told = [("", "@name @group"), ("median", "@median{0.000}"), ("quartiles", "@q1{0.000} to @q3{0.000}")]
        told += [("5 to 95 %", "@low{0.000} to @high{0.000}"), ("values", "@number")]
        plot.add_tools(HoverTool(renderers=[glyphs[name], stems], tooltips=told))
    if log:
        _tell_numbers(plot.yaxis)
    _add_reference(plot, reference)
    _add_legend(plot, glyphs)
    return plot


def bar_figure(
    bars: Mapping[str, Mapping[str, float]],
    groups: Sequence[str],
    title: str,
    y_label: str,
    reference: float | None,
    stacked: bool,
    highest: float | None,
) -> Any:
    """Bars side by side in each group, or one on top of the other."""
    plot, places = _factored(title, groups, ["all"] if stacked else list(bars), y_label)
    glyphs, below = {}, dict.fromkeys(groups, 0.0)
    tops = []
    for number, (name, heights) in enumerate(bars.items()):
        present = [group for group in groups if group in heights]
        bottoms = [below[group] if stacked else 0.0 for group in present]
        data = {
            "place": [places["all" if stacked else name, group] for group in present],
            "group": present,
            "name": [name] * len(present),
            "height": [heights[group] for group in present],
            "bottom": bottoms,
            "top": [bottom + heights[group] for bottom, group in zip(bottoms, present, strict=True)],
        }
        tops += data["top"]
        filled = {"fill_color": _colour(number), "fill_alpha": 0.75, "line_color": None}
        glyphs[name] = plot.vbar("place", 0.85, "top", "bottom", source=ColumnDataSource(data), **filled)
        told = [("", "@name @group"), (y_label, "@height{0.000}")]
        plot.add_tools(HoverTool(renderers=[glyphs[name]], tooltips=told))
        for group in present:
            below[group] += heights[group]
    plot.y_range.start = 0
    top = 1.05 * max([*tops, reference or 0.0])
    plot.y_range.end = min(top, highest) if highest else top
    _add_reference(plot, reference)
    _add_legend(plot, glyphs)
    return plot


_SHOWN = """
const {dtype, layout, d} = source.data, shown = [];
const bounds = [[1, Infinity], [1, 1], [2, 7], [8, 31], [32, Infinity]][ds.options.indexOf(ds.value)];
for (let at = 0; at < d.length; at++)
  shown.push(dtypes.active.includes(dtypes.labels.indexOf(dtype[at]))
    && layouts.active.includes(layouts.labels.indexOf(layout[at]))
    && d[at] >= bounds[0] && d[at] <= bounds[1]);
return shown;
"""


def roofline_figure(points: Mapping[str, Sequence[Any]], title: str) -> Any:
    """Every problem as a point: flops per byte against time over the floor; pointing at one names it, buttons
    above choose dtypes, layouts and d."""
    source = ColumnDataSource({name: list(values) for name, values in points.items()})
    kinds, layouts = (list(dict.fromkeys(points[name])) for name in ("dtype", "layout"))
    colours = {kind: _colour(place) for place, kind in enumerate(kinds)}
    markers = dict(zip(layouts, ("circle", "triangle"), strict=False))
    source.data["colour"] = [colours[kind] for kind in points["dtype"]]
    source.data["marker"] = [markers[layout] for layout in points["layout"]]
    dtype_buttons = CheckboxButtonGroup(labels=kinds, active=list(range(len(kinds))))
    layout_buttons = CheckboxButtonGroup(labels=layouts, active=list(range(len(layouts))))
    d_choice = Select(options=list(CHOICES_OF_D), value="all", width=110)
    given = {"dtypes": dtype_buttons, "layouts": layout_buttons, "ds": d_choice}
    view = CDSView(filter=CustomJSFilter(args=given, code=_SHOWN))
    plot = _figure(title, _WIDE, "time / floor", x_axis_type="log", y_axis_type="log")
    plot.height = 440
    _tell_numbers(plot.xaxis)
    _tell_numbers(plot.yaxis)
    plot.xaxis.axis_label = "flops per byte of x, y and values"
    dots = plot.scatter(
        "intensity",
        "floors",
        source=source,
        view=view,
        color="colour",
        marker="marker",
        size=6,
        alpha=0.55,
        line_color=None,
    )
    told = [("", "@problem"), ("time / floor", "@floors{0.00}"), ("kernel", "@kernel"), ("ms", "@ms{0.0000}")]
    told += [("best rival", "@rival (@speedup{0.00} x our time)"), ("commit", "@commit")]
    plot.add_tools(HoverTool(renderers=[dots], tooltips=told))
    _add_reference(plot, 1.0)
    for widget, changed in ((dtype_buttons, "active"), (layout_buttons, "active"), (d_choice, "value")):
        widget.js_on_change(changed, CustomJS(args={"source": source}, code="source.change.emit();"))
    key = (
        ", ".join(f'<span style="color:{colours[kind]}">&#9632;</span> {kind}' for kind in kinds)
        + "; "
        + ", ".join(f"{'&#9679;' if markers[one] == 'circle' else '&#9650;'} {one}" for one in layouts)
    )
    return column(row(dtype_buttons, layout_buttons, Div(text="d:"), d_choice), Div(text=key), plot)


def script() -> str:
    """Bokeh's own, to be put into a page."""
    resources = Resources(mode="inline", components=["bokeh", "bokeh-widgets"])
    return "\n".join(resources.js_raw)


def item(picture: Any, name: str) -> str:
    """A picture as JSON for the element of this name. Bokeh numbers things as they are made in a process:
    here each picture counts from one, so that a page is the same whenever it is made."""
    text = json.dumps(json_item(picture, name))
    numbers = {old: f"{name}-{at}" for at, old in enumerate(dict.fromkeys(re.findall(r'"(p\d+)"', text)), 1)}
    return re.sub(r'"(p\d+)"', lambda found: f'"{numbers[found[1]]}"', text)
