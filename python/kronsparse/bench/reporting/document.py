"""A report as sections of text, tables and plots, and its two forms: Markdown, and one HTML page."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Table:
    """Cells are text; a number at the beginning of a cell is what a column is sorted by."""

    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    folded: bool = False  # long ones are closed until someone asks


@dataclass(frozen=True)
class Plot:
    """A picture for the page, and what it shows in numbers."""

    draw: Callable[[], Any] | None  # makes Bokeh's figure; nothing where there is nothing to show
    caption: str
    numbers: Table


@dataclass(frozen=True)
class Figures:
    """A few numbers that a reader sees first, each with what it is."""

    ones: Sequence[tuple[str, str]]


Block = str | Table | Plot | Figures


@dataclass(frozen=True)
class Section:
    """A title and what is under it, in order; a string is a paragraph, in which `code` may stand."""

    title: str
    blocks: Sequence[Block] = field(default_factory=list)


@dataclass(frozen=True)
class Document:
    """Sections under a title."""

    title: str
    sections: Sequence[Section]
    warnings: Sequence[str] = ()  # on top of the page: why its numbers are to be read with care


def markdown_table(table: Table) -> str:
    """The table as Markdown has it.

    >>> print(markdown_table(Table(["a", "b"], [["1", "2"]])))
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    lines = [f"| {' | '.join(cells)} |" for cells in [table.headers, *table.rows]]
    return "\n".join([lines[0], "|---" * len(table.headers) + "|", *lines[1:]])


def markdown_rows(text: str) -> list[dict[str, str]]:
    """The rows of the first table of a Markdown text, as dictionaries by its headings.

    >>> markdown_rows("A title\\n\\n| a | b |\\n|---|---|\\n| 1 | 2 |")
    [{'a': '1', 'b': '2'}]
    """
    lines = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    heads, _, *rows = [[cell.strip() for cell in line] for line in lines]
    return [dict(zip(heads, row, strict=True)) for row in rows]


def to_markdown(document: Document) -> str:
    """The document, of its plots the numbers."""
    parts = [f"# {document.title}", *(f"> **{text}**" for text in document.warnings)]
    for section in document.sections:
        parts.append(f"## {section.title}")
        for block in section.blocks:
            if isinstance(block, Plot):
                parts += [f"**{block.numbers.caption}.** {block.caption}", markdown_table(block.numbers)]
            elif isinstance(block, Figures):
                headers, cells = zip(*((told, number) for number, told in block.ones), strict=True)
                parts.append(markdown_table(Table(headers, [cells])))
            elif isinstance(block, Table):
                parts += [markdown_table(block), *([block.caption] if block.caption else [])]
            else:
                parts.append(block)
    return "\n\n".join(parts) + "\n"


_STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; margin: 2rem auto;
  max-width: 72rem; padding: 0 1rem; }
h1 { font-size: 1.7rem; } h2 { font-size: 1.25rem; margin-top: 2.5rem; border-bottom: 1px solid #ccc; }
nav { columns: 3 16rem; } nav a { display: block; }
table { border-collapse: collapse; margin: 1rem 0 .3rem; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .6rem; text-align: right; border-bottom: 1px solid #ddd; white-space: nowrap; }
.left { text-align: left; } td.long { white-space: normal; min-width: 16rem; }
th { border-bottom: 2px solid #444; cursor: pointer; white-space: normal; vertical-align: bottom; }
th:focus { outline: 2px solid #0072b2; }
th[aria-sort=ascending]::after { content: " \\25B4"; } th[aria-sort=descending]::after { content: " \\25BE"; }
.wide { overflow-x: auto; } .caption, figcaption { color: #444; font-size: .9rem; margin-bottom: 1rem; }
figure { display: inline-block; margin: 1rem 1rem 1rem 0; max-width: 100%; vertical-align: top; }
figcaption { width: 0; min-width: 100%; }
.plot { overflow-x: auto; }
.warning { background: #fff3cd; border-left: 4px solid #d55e00; padding: .4rem .8rem; font-weight: 600; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .8rem; }
.figures div { border: 1px solid #ccc; padding: .5rem .7rem; font-size: .85rem; color: #444; }
.figures b { display: block; font-size: 1.6rem; color: #0072b2; }
code { background: #f2f2f2; padding: 0 .2rem; }
@page { size: A4 landscape; margin: 12mm; }
@media print {
  body { margin: 0; max-width: none; font-size: 10pt; padding: 0; } nav, summary { display: none; }
  figure, tr, .figures { break-inside: avoid; } h2 { break-after: avoid; margin-top: 1.5rem; }
  table { font-size: 8pt; } th, td { padding: .1rem .35rem; } th, td { white-space: normal; }
  th:first-child, td:first-child { min-width: 9rem; }
  .wide, .plot { overflow: visible; } .plot { zoom: .85; }
  details:not([open]) { display: none; }
}
"""
_SCRIPT = """
for (const header of document.querySelectorAll("th")) {
  const sort = () => {
    const table = header.closest("table"), body = table.tBodies[0], column = header.cellIndex;
    const down = header.getAttribute("aria-sort") !== "descending";
    const value = row => {
      const text = row.cells[column].textContent.trim(), number = parseFloat(text.replace(/^[^0-9.+-]*/, ""));
      return Number.isNaN(number) || column === 0 ? text : number;
    };
    const order = (p, q) => typeof p === "number" && typeof q === "number" ? p - q
      : String(p).localeCompare(String(q), undefined, { numeric: true });
    const rows = [...body.rows].sort((p, q) => (down ? -1 : 1) * order(value(p), value(q)));
    for (const other of table.querySelectorAll("th")) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", down ? "descending" : "ascending");
    body.append(...rows);
  };
  header.addEventListener("click", sort);
  header.addEventListener("keydown", event => { if (event.key === "Enter") sort(); });
}
document.documentElement.dataset.ready = "yes";
"""


def _text(text: str) -> str:
    """Escaped, with `code`, **bold** and [links](#to-sections) as Markdown has them."""
    escaped = html.escape(text, quote=False)
    escaped = re.sub(r"`([^`]+)`", r"<code>\1</code>", escaped)
    escaped = re.sub(r"\[([^]]+)\]\((#[\w-]+)\)", r'<a href="\2">\1</a>', escaped)
    return re.sub(r"\*\*([^*]+)\*\*", r"<b>\1</b>", escaped)


def anchor(title: str) -> str:
    """The name that links to a section have, in the page as in Markdown.

    >>> anchor("Figure 8: the grid's patterns, f32 batch_first")
    'figure-8-the-grids-patterns-f32-batch_first'
    """
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


_LONG = 40  # characters


def _is_text(cells: Sequence[str]) -> bool:
    """Whether a column holds words, but for a few cells; numbers stand at the right."""
    told = [cell for cell in cells if cell not in ("", "-")]
    return 2 * sum(bool(re.match(r"[^\d\W]|\[|`", cell)) for cell in told) > len(told)


def _kind(cells: Sequence[str]) -> str:
    """The classes of a column after the first: words stand at the left, long ones in several lines."""
    if not _is_text(cells):
        return ""
    return ' class="left long"' if max(map(len, cells)) > _LONG else ' class="left"'


def _html_table(table: Table) -> str:
    columns = zip(*table.rows, strict=True) if table.rows else [()] * len(table.headers)
    kinds = [_kind(cells) if at else ' class="left"' for at, cells in enumerate(columns)]
    heads = zip(table.headers, kinds, strict=True)
    head = "".join(f'<th tabindex="0"{kind}>{_text(cell)}</th>' for cell, kind in heads)
    rows = (
        "".join(f"<td{kind}>{_text(cell)}</td>" for cell, kind in zip(row, kinds, strict=True))
        for row in table.rows
    )
    body = "\n".join(f"<tr>{row}</tr>" for row in rows)
    caption = f'<p class="caption">{_text(table.caption)}</p>' if table.caption else ""
    whole = (
        f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{caption}'
    )
    if not table.folded:
        return whole
    return f"<details><summary>{len(table.rows)} rows</summary>{whole}</details>"


class _Pictures:
    """The plots of a page, numbered as they come."""

    def __init__(self) -> None:
        self.items: list[str] = []

    def place(self, plot: Plot) -> str:
        """The element that a plot is put into."""
        if plot.draw is None:
            return ""
        from kronsparse.bench.reporting import figures

        name = f"plot-{len(self.items) + 1}"
        self.items.append(figures.item(plot.draw(), name))
        return f'<div class="plot" id="{name}"></div>'

    def scripts(self) -> str:
        """Bokeh and the pictures; nothing without a plot."""
        if not self.items:
            return ""
        from kronsparse.bench.reporting import figures

        # No text of a page may end its script.
        drawn = ",\n".join(one.replace("</", "<\\/") for one in self.items)
        return (
            f"<script>{figures.script()}</script>\n"
            f"<script>for (const item of [{drawn}]) Bokeh.embed.embed_item(item);</script>\n"
        )


def _html_block(block: Block, pictures: _Pictures) -> str:
    if isinstance(block, Table):
        return _html_table(block)
    if isinstance(block, Plot):
        rows = _html_table(block.numbers) if block.numbers.rows else ""
        numbers = f"<details><summary>numbers</summary>{rows}</details>" if rows else ""
        picture = pictures.place(block)
        return f"<figure>{picture}<figcaption>{_text(block.caption)} {numbers}</figcaption></figure>"
    if isinstance(block, Figures):
        cards = "".join(f"<div><b>{_text(number)}</b>{_text(told)}</div>" for number, told in block.ones)
        return f'<div class="figures">{cards}</div>'
    return f"<p>{_text(block)}</p>"


def to_html(document: Document) -> str:
    """One page that needs nothing but itself."""
    pictures = _Pictures()
    warnings = "".join(f'<p class="warning">{_text(text)}</p>' for text in document.warnings)
    links = "".join(
        f'<a href="#{anchor(section.title)}">{_text(section.title)}</a>' for section in document.sections
    )
    sections = "\n".join(
        f'<section id="{anchor(section.title)}"><h2>{_text(section.title)}</h2>\n'
        + "\n".join(_html_block(block, pictures) for block in section.blocks)
        + "</section>"
        for section in document.sections
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{html.escape(document.title)}</title>\n"
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>\n'
        f"<body><h1>{_text(document.title)}</h1>{warnings}<details><summary>Contents</summary><nav>{links}</nav></details>\n{sections}\n"
        f"{pictures.scripts()}<script>{_SCRIPT}</script></body></html>\n"
    )
