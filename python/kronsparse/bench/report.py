"""Makes a report of results files: one HTML page that needs no network, the same in Markdown, and a CSV.

kronsparse-bench report results/h200-*.jsonl --output docs/report    report.html, report.md, report.csv
kronsparse-bench report results/grid.jsonl --summary                 prints the verdict only
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import io
import re
from collections.abc import Sequence
from pathlib import Path

from kronsparse.bench.errors import RefusalError
from kronsparse.bench.reporting import (
    chains_section,
    models_section,
    opencl_section,
    own_sections,
    paper_sections,
    weights_table,
)
from kronsparse.bench.reporting.document import Document, Section, to_html, to_markdown
from kronsparse.bench.reporting.energy_section import energy
from kronsparse.bench.reporting.exam_section import grid_section, random_section
from kronsparse.bench.reporting.head_section import in_short, runs_section, warnings
from kronsparse.bench.reporting.layer_table import training
from kronsparse.bench.reporting.peft_table import peft_section
from kronsparse.bench.reporting.regret_section import regret_section
from kronsparse.bench.reporting.verdict import small_sections, summary, target_sections, targets_of
from kronsparse.bench.results.dataset import Measured, collect, family_of, kinds, latest, mode_of
from kronsparse.bench.results.rows import Row, check_one_device, last_run, read_files

CSV_COLUMNS = (
    *("record", "dtype", "mode", "layout", "batch", "pattern", "contender", "spelling", "implementation"),
    *(
        "status",
        "reason",
        "median_s",
        "q1_s",
        "q3_s",
        "runs",
        "calls",
        "floor_s",
        "floor_bound",
        "predicted_s",
    ),
    *("error", "h", "sparsity", "bytes", "flops", "joules", "watts", "idle_w", "bound_s"),
)
ENDINGS = (".html", ".md", ".csv")
BOKEH = "bokeh==3.8.2"  # as in pyproject.toml


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `report`."""
    parser.add_argument("results", type=Path, nargs="+", help="results files of one device")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("report"),
        metavar="FILE",
        help="name of the report, with or without an ending (default report)",
    )
    parser.add_argument("--title", help="title of the report (default: the name of the device)")
    parser.add_argument(
        "--summary", action="store_true", help="print the verdict on the targets, and write nothing"
    )


def build(rows: Sequence[Row], title: str | None = None) -> Document:
    """The report as a document."""
    run = last_run(rows)
    everything = collect(rows)
    measured = [one for one in everything if one.seed is None]
    found = kinds(measured)
    hardware = run["machine"].get("gpu", run["machine"]["cpu"])
    main = [kind for kind in found if kind[1] in ("", "fp32")]  # what the paper's tables are about
    of_paper = _paper(rows, measured, main)
    sections: list[Section | None] = []
    if everything and kinds(everything):
        sections.append(in_short(rows, measured if found else everything))
    if found:
        sections.append(own_sections.overview(rows, measured, found))
    sections += [grid_section(rows, measured), random_section(rows, everything)]
    sections += [paper_sections.contents(of_paper), *of_paper] if of_paper else []
    if found:
        sections.append(own_sections.floor_distance(measured, found))
        sections.append(own_sections.where_we_lose(measured, found))
    sections += [*chains_section.sections(rows), *models_section.sections(rows)]
    sections += opencl_section.sections(rows)
    sections += [*small_sections(rows), training(rows), *weights_table.sections(rows)]
    if found and targets_of(rows):
        sections += target_sections(rows, measured)
    if found:
        sections.append(own_sections.predictions(measured, found))
    sections.append(regret_section(rows))
    sections.append(peft_section(rows))
    if everything:
        sections.append(own_sections.failures(everything))
        sections.append(own_sections.every_problem(everything, kinds(everything)))
    sections.append(runs_section(rows))
    whole = [one for one in sections if one is not None]
    return Document(title or f"kronsparse on {hardware}", whole, warnings(rows))


def _paper(
    rows: Sequence[Row], measured: Sequence[Measured], main: Sequence[tuple[str, str]]
) -> list[Section]:
    """The paper's tables and figures, by number; what it has not beside what is like it."""
    sections: list[Section | None] = [models_section.table3(rows), models_section.table7(rows)]
    sections.append(models_section.table8(rows))
    for kind in main:
        sections += [
            *paper_sections.win_rates(measured, *kind),
            paper_sections.sparsity_bins(measured, *kind),
        ]
        sections += [paper_sections.speedup_by_h(measured, *kind)]
        sections += paper_sections.speedup_by_size(measured, *kind)
    if ("f32", "fp32") in main:
        sections.append(paper_sections.speedup_at_sparsity(measured, "f32", "fp32"))
    if main:
        sections += [
            paper_sections.regression(measured, main),
            paper_sections.first_over_last(measured, main),
        ]
        sections += [paper_sections.grid_sparsity(), paper_sections.grid_sizes()]
    sections += [*paper_sections.permutation_share(measured), energy(rows)]
    return sorted((one for one in sections if one is not None), key=_by_number)


def _by_number(section: Section) -> tuple[bool, bool, int, str]:
    """Tables before figures, both by number; after them what has none, in the order it came."""
    number = re.match(r"(Table|Figure) (\d+)(\w?): ", section.title)
    return (False, number[1] == "Figure", int(number[2]), number[3]) if number else (True, False, 0, "")


def to_csv(rows: Sequence[Row]) -> str:
    """Every row, of which several runs wrote one the last, with the names of today."""
    text = io.StringIO()
    writer = csv.DictWriter(text, CSV_COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for record in ("row", "small", "energy"):
        for row in latest(rows, record):
            writer.writerow({**row, "contender": family_of(row), "mode": mode_of(row)})
    return text.getvalue()


def main(options: argparse.Namespace) -> int:
    """Writes the three files, or prints the verdict; 0."""
    rows = read_files(options.results)
    check_one_device(rows)
    if options.summary:
        print("\n".join(summary(rows)))
        return 0
    if importlib.util.find_spec("bokeh") is None:
        raise RefusalError(f"the page's plots need Bokeh: pip install {BOKEH}; --summary does without")
    document = build(rows, options.title)
    output = options.output.with_suffix("") if options.output.suffix in ENDINGS else options.output
    output.parent.mkdir(parents=True, exist_ok=True)
    texts = (to_html(document), to_markdown(document), to_csv(rows))
    for ending, text in zip(ENDINGS, texts, strict=True):
        path = output.with_name(output.name + ending)
        path.write_text(text)
        print(path)
    return 0
