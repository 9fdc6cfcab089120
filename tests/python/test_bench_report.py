"""Reports, in every form; the page in a browser; comparisons."""

import csv
import html.parser
import io
import math
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from bench_helpers import row, run_record, write
from kronsparse.bench import report
from kronsparse.bench.__main__ import main
from kronsparse.bench.problems.suites import SUITES
from kronsparse.bench.reporting import head_section, paper, paper_sections
from kronsparse.bench.reporting.document import to_html, to_markdown
from kronsparse.bench.reporting.plots import Box
from kronsparse.bench.reporting.verdict import summary
from kronsparse.bench.results.dataset import both_layouts, collect, halves_over_f32
from kronsparse.bench.results.rows import read_files
from kronsparse.bench.results.statistics import log_regression, median, wins
from kronsparse.chains import Pattern

SOURCE = Path(os.environ.get("KRONSPARSE_SOURCE", Path(__file__).parents[2]))
GPU_FILES = sorted((SOURCE / "results").glob("h200-targets*.jsonl"), reverse=True)
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000", "--dump-dom")
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def made_up_rows():
    """Every kind of record: two layouts, two dtypes, a loss, a wrong answer, energy, small batches."""
    rows = [run_record()]
    patterns = [str(one) for one in SUITES["sample"].patterns[:24]] + ["1x64x64x8", "8x64x64x1"]
    for dtype in ("f32", "f16"):
        for layout in ("batch_first", "batch_last"):
            for place, text in enumerate(patterns):
                pattern = Pattern.parse(text)
                bmm = 2.0 + 20 * pattern.h + (layout == "batch_first") + (pattern.d > 1)
                common = {"dtype": dtype, "layout": layout}
                ours = 5.0 if place == 3 else 1.5
                rows += [
                    row(text, "kronsparse", ours, predicted_s=1.2 * ours, **common),
                    row(text, "bmm", bmm, **common),
                    row(text, "einsum", 2 * bmm, **common),
                    row(text, "dense", 0.0, **common, status="skipped", reason="its weights would take 9 GB"),
                ]
    rows.append({**row("1x48x48x6", "strided", 1.0), "status": "wrong", "reason": "error 1"})
    for name, joules in (("kronsparse", 0.8), ("bmm", 1.0)):
        energy = row("1x64x64x8", name, 1.0, dtype="f32", record="energy", joules=joules, idle_w=75.0)
        rows.append(energy)
    for name, seconds in (("kronsparse", 3e-6), ("bmm", 5e-6)):
        small = {"record": "small", "weights_s": 1e-6, "bound_s": 4e-6}
        rows.append(row("64x64x64x1", name, seconds, **small))
    return rows


def with_sizes(rows):
    return [{**one, "bytes": 1e9, "flops": 1e10} if one["record"] == "row" else one for one in rows]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(to_html(report.build(with_sizes(made_up_rows()))))
    return path


WANTED = (
    *(
        "In short",
        "Overview",
        "Runs",
        "The paper's tables and figures",
        "Regression of log speed-up on log density and log h",
    ),
    *("Table 2: win rates, best of both layouts, f32 fp32", "Table 6: win rates in each layout, f32 fp32"),
    *("Table 9: win rates, best of both layouts, f16", "Table 10: win rates in each layout, f16"),
    *("Table 5: win rates by sparsity, f32 fp32", "Win rates by sparsity, f16"),
    *("Figure 4: share of bmm's time that its permutations take, f32 in batch_first", "Figure 6b: energy"),
    *("Figure 6a: speed-up against h, f32 fp32", "Figure 18: speed-up against h, f16"),
    *("Figure 8: sparsity of the grid's patterns", "Figure 11: sizes of the grid's matrices"),
    *("Figure 9: speed-up against h at a fixed sparsity, f32 fp32", "Ours over bmm by size, f16"),
    *("Figure 14: batch_first over batch_last",),
    *(
        "Figure 13: bmm over einsum and bsr by size, f32 fp32",
        "Figure 16: bmm over einsum and bsr by size, f16",
    ),
    *("Figure 10: share of bmm's time that its permutations take, f32",),
    *("Figure 17: share of bmm's time that its permutations take, f16",),
    *("Distance to the floor", "Where we lose", "Small batches, microseconds", "Failures"),
    *("Predictions of the cost model", "Every problem, times over the floor", "f16 batch_first"),
)


class Reader(html.parser.HTMLParser):
    """Titles, counts of elements, and everything that a page would fetch."""

    def __init__(self):
        super().__init__()
        self.titles, self.counts, self.fetched, self._in_title = [], {}, [], False

    def handle_starttag(self, tag, attributes):
        self.counts[tag] = self.counts.get(tag, 0) + 1
        self._in_title = tag == "h2"
        for name, value in attributes:
            if name in ("src", "href") and not (value or "").startswith("#"):
                self.fetched.append(value)

    def handle_data(self, data):
        if self._in_title:
            self.titles.append(data)
            self._in_title = False


def test_the_page_has_everything_and_fetches_nothing(page):
    reader = Reader()
    reader.feed(page.read_text())
    assert [title for title in WANTED if title not in reader.titles] == []
    assert reader.fetched == [] and "@import" not in page.read_text()
    assert not re.search(r"url\(['\"]?(https?:|//)", page.read_text())
    assert page.read_text().count('<div class="plot" id="plot-') >= 8 and reader.counts["table"] >= 15
    assert "@media print" in page.read_text()


def test_the_markdown_has_the_same(page):
    text = to_markdown(report.build(made_up_rows()))
    for title in WANTED:
        assert f"## {title}\n" in text
    assert "| f32 fp32 | batch_last | - | - | 100 % | 20 % | 1 |" in text  # the paper's has both layouts
    assert "(less energy on 72 % of the patterns, 15 % in the median); here batch_last alone was" in text
    assert "| 99.48 - 99.93 % | 100.0 % | 1.84 | 0.91 | 102 |" in text
    assert "wrong: f16 batch_last B=8 1x48x48x6: strided: error 1" in text
    lost = re.search(r"## Where we lose\n\n(.*?)\n## ", text, re.DOTALL)[1]
    assert "1x64x64x32" in lost and "1x96x96x64" not in lost


def table_of(text, title):
    """The cells of the first table under a title."""
    section = text.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in rows]


def test_the_numbers_in_the_tables():
    text = to_markdown(report.build(made_up_rows()))
    won = {
        tuple(cells[:2]): cells[4:]
        for cells in table_of(text, "Table 6: win rates in each layout, f32 fp32")[1:]
    }
    ours = "kronsparse < min {bmm, einsum, bsr, dense, sparse}"
    assert won[ours, "batch_last"][0] == "96.2 %" and won[ours, "batch_last"][2] == "26"  # 25 of 26
    assert won["bmm < min {einsum, bsr, dense, sparse}", "batch_first"][:2] == ["100.0 %", "2.00"]
    counted = sum(int(cells[-1]) for cells in table_of(text, "Table 5: win rates by sparsity, f32 fp32")[1:])
    assert counted == sum(Pattern.parse(one["pattern"]).density < 1 for one in made_up_rows()[1:104:4])
    # bmm takes 3.625 s on 1x64x64x8 and 2.625 s on 8x64x64x1.
    tenth = table_of(text, "Figure 10: share of bmm's time that its permutations take, f32")
    assert {cells[0]: cells[2] for cells in tenth[1:3]}["batch_last"] == "28 %"
    fourteenth = table_of(text, "Figure 14: batch_first over batch_last")
    ratios = {tuple(cells[:2]): cells[3] for cells in fourteenth[1:4]}
    assert ratios["f32 fp32", "kronsparse"] == "1.00" and float(ratios["f32 fp32", "bmm"]) > 1.2
    predicted = table_of(text, "Predictions of the cost model")
    assert predicted[1][2:6] == ["1.20", "1.20", "1.20", "100 %"]
    by_size = (
        text.split("**Speed-up of kronsparse over bmm, f32 fp32.**", 1)[1].split("\n\n")[1].splitlines()[2:]
    )
    assert all(float(line.split("|")[3]) > 1.3 for line in by_size)  # medians: how much faster ours is


def test_every_item_of_the_paper_is_listed_with_a_link(page):
    text = to_markdown(report.build(made_up_rows()))
    listed = table_of(text, "The paper's tables and figures")[1:]
    assert len(listed) == 22 and len(paper.ITEMS) == 22
    missing = {"Table 3", "Table 7", "Table 8", "Figure 12", "Figure 15"}
    assert {cells[0] for cells in listed if cells[2] == "not measured here"} == missing
    whole = page.read_text()
    linked = re.findall(r'<td class="left[^"]*"><a href="#([^"]+)">', whole)
    assert len(linked) >= 17 and all(f'<section id="{one}">' in whole for one in linked)
    titles = re.findall(r"^## (.*)$", text, re.MULTILINE)
    numbered = [title.split(":")[0] for title in titles if re.match(r"(Table|Figure) \d+\w?: ", title)]
    order = list(paper.ITEMS)
    assert numbered == sorted(numbered, key=order.index) and len(set(numbered)) == len(numbered)


def test_energy_in_both_layouts_has_the_paper_s_numbers_beside():
    rows = [run_record()]
    for layout, joules in (("batch_first", 0.9), ("batch_last", 0.8)):
        for name, factor in (("kronsparse", 1.0), ("bmm", 1.25)):
            more = {"record": "energy", "joules": factor * joules, "idle_w": 75.0, "layout": layout}
            rows.append(row("1x64x64x8", name, 1.0, dtype="f32", **more))
    text = to_markdown(report.build(rows))
    lines = table_of(text, "Figure 6b: energy")[1:4]
    assert [line[1] for line in lines] == ["batch_first", "batch_last", "best of both"]
    assert lines[2][2:] == ["72 %", "15 %", "100 %", "20 %", "1"] and lines[0][2] == "-"
    assert "1 patterns, for each the better of both layouts." in text


def test_the_grid_is_the_paper_s():
    eighth, eleventh = paper_sections.grid_sparsity(), paper_sections.grid_sizes()
    assert [line[1:] for line in eighth.blocks[0].rows] == [["97.9 %", "97.9 %"], ["91.7 %", "91.7 %"]]
    assert eleventh.blocks[0].rows[0][1] == "4.2e+06"
    counts = [
        sum(int(line[1]) for line in plot.numbers.rows) for plot in (eighth.blocks[2], eleventh.blocks[1])
    ]
    assert counts == [605, 627]


def test_boxes_are_the_paper_s():
    assert Box.of(range(101)) == Box(5, 25, 50, 75, 95)


def test_the_csv_has_every_row():
    rows = list(csv.DictReader(io.StringIO(report.to_csv(made_up_rows()))))
    assert len(rows) == 2 * 2 * 26 * 4 + 1 + 2 + 2
    assert {one["record"] for one in rows} == {"row", "small", "energy"}
    assert {one["status"] for one in rows} == {"ok", "skipped", "wrong"}


def test_the_page_in_a_browser(page):
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip(f"needs one of {', '.join(BROWSERS)}")
    script = """
    <script>
      const table = document.querySelector("#where-we-lose table"), header = table.querySelectorAll("th")[1];
      header.click();
      const texts = [...table.tBodies[0].rows].map(row => parseFloat(row.cells[1].textContent));
      document.body.dataset.sorted = String(texts.every((value, at) => !at || texts[at - 1] >= value));
      document.body.dataset.direction = header.getAttribute("aria-sort");
      setTimeout(() => {
        const plots = [...document.querySelectorAll("div.plot")];
        document.body.dataset.drawn = String(plots.every(plot => plot.getBoundingClientRect().height > 100));
        document.body.dataset.width = String(document.documentElement.scrollWidth <= window.innerWidth);
        const head = Bokeh.documents.find(one => [...one.all_models].some(model => model.type === "Select"));
        const models = [...head.all_models], find = type => models.filter(model => model.type === type);
        const shown = () => [...find("CDSView")[0].indices].length;
        const whole = shown();
        find("CheckboxButtonGroup").find(one => one.labels.includes("batch_last")).active = [0];
        setTimeout(() => { document.body.dataset.filtered = `${shown()} of ${whole}`; }, 500);
      }, 2000);
    </script>"""
    opened = page.with_name("tested.html")
    opened.write_text(page.read_text().replace("</body>", f"{script}</body>"))
    done = subprocess.run(
        [browser, *FLAGS, f"--user-data-dir={page.parent / 'profile'}", opened.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
    )
    dom = done.stdout
    assert 'data-ready="yes"' in dom, done.stderr[-500:]
    for title in WANTED:
        assert title.replace("<", "&lt;") in dom
    assert 'data-sorted="true"' in dom and 'data-direction="descending"' in dom
    assert 'data-drawn="true"' in dom and 'data-width="true"' in dom
    assert 'data-filtered="52 of 104"' in dom, "the buttons above the first plot"


def test_wins_losses_and_targets():
    rows = [run_record(), row("1x2x2x1", "kronsparse", 2.0), row("1x2x2x1", "bmm", 9.0, spelling="p")]
    rows += [row("1x2x2x1", "bmm", 1.0, spelling="q"), row("1x4x4x2", "kronsparse", 1.0)]
    rows += [row("1x4x4x2", "bmm", 3.0), row("1x4x4x2", "strided", 2.0)]
    text = "\n".join(summary(rows))
    assert "| **kronsparse** | 2 | 1.50 (target 1.8: reached)" in text
    assert "| bmm | 2 | 2.00 | 50% | 1.75 | 0.50 |" in text
    assert "| strided | 2 | 1.50 | 50% (target 65%: **missed**)" in text  # d = 1: bmm's own
    assert "Slower than strided on 1: 1x2x2x1 0.50." in text
    rows.append({**row("1x4x4x2", "kronsparse", 0.0), "status": "wrong", "reason": "error 1"})
    text = "\n".join(summary(rows))
    assert "| bmm | 2 | 2.00 | 0% |" in text  # a wrong answer is a loss
    assert "wrong: f16 batch_last B=8 1x4x4x2: kronsparse: error 1" in text
    assert "target" not in "\n".join(summary([run_record(suite="llm"), *rows[1:]]))
    assert "target 1.8" in "\n".join(summary([*rows, run_record(suite="small-batch")]))  # any order


def test_the_better_of_both_layouts():
    times = {("kronsparse", "batch_first"): 4.0, ("kronsparse", "batch_last"): 1.0}
    times |= {("bmm", "batch_first"): 2.0, ("bmm", "batch_last"): 3.0}
    rows = [row("1x4x4x2", name, seconds, layout=layout) for (name, layout), seconds in times.items()]
    (best,) = both_layouts(collect(rows), "f16")
    assert best.ours[""] == 1.0 and best.rivals["bmm"] == 2.0


def test_times_are_as_measured_and_the_last_count():
    earlier = [run_record(), row("1x4x4x2", "kronsparse", 2.0), row("1x4x4x2", "strided", 6.0)]
    later = [run_record(commit="d"), row("1x4x4x2", "kronsparse", 1.0), row("1x4x4x2", "bmm", 4.0)]
    (one,) = collect([*earlier, *later])
    assert one.ours[""] == 1.0 and one.best_rows["kronsparse"]["commit"] == "d"
    assert one.rivals["strided"] == 6.0 and one.best_rows["strided"]["commit"] == "c"  # nothing is scaled
    wrong = {**row("1x4x4x2", "kronsparse", 0.0), "status": "wrong", "reason": "error 1"}
    (one,) = collect([*earlier, *later, run_record(), wrong])
    assert one.ours[""] == math.inf and one.rivals["bmm"] == 4.0 and one.failures


def test_older_files_do_not_hide_newer_ones(tmp_path):
    new = [run_record(time="2026-11-18T10:00:00Z"), row("1x4x4x2", "kronsparse", 1.0)]
    old = [run_record(time="2026-11-17T10:00:00Z"), row("1x4x4x2", "kronsparse", 9.0)]
    undated = [run_record(), row("1x4x4x2", "kronsparse", 5.0)]
    for files in ((new, old, undated), (undated, old, new)):
        paths = [Path(write(tmp_path / f"{at}.jsonl", rows)) for at, rows in enumerate(files)]
        (one,) = collect(read_files(paths))
        assert one.ours[""] == 1.0


def test_the_head_has_a_sentence_six_numbers_and_a_plot():
    rows = with_sizes(made_up_rows())
    head = report.build(rows).sections[0]
    sentence, numbers, plot = head.blocks
    assert head.title == "In short" and sentence.startswith("On G kronsparse takes 1.50 times")
    assert len(numbers.ones) == 6 and "n = 26" in numbers.ones[0][1]
    assert [number for number, _ in numbers.ones[:4]] == ["1.50"] * 4
    points = head_section._points(collect(rows))
    assert numbers.ones[4] == ("96%", "of problems faster than the best of bmm, einsum, dense, n = 104")
    more = [*rows, *with_sizes([row("1x48x48x6", "triton", 0.75, layout="batch_first")])]
    assert report.build(more).sections[0].blocks[1].ones[4:] == [
        ("0%", "of problems faster than the best of anything, n = 1"),
        ("0.50", "worst: time of the best rival / ours, n = 104"),
    ]
    assert len(points["problem"]) == 104 and points["rival"][0] == "bmm" and points["intensity"][0] == 10.0
    assert plot.numbers.rows[0][2] == "26"


def test_runs_are_listed_and_warned_of():
    told = {"time": "2026-11-18T10:00:00Z", "load": 3.2, "options": ["run", "--suite", "sample"]}
    cpu = run_record(machine={"cpu": "C"}, threads=2, suite="sample", **told)
    ended = {"record": "end", "ceilings": {"copy_bytes": 1e12, "gemm_flops": {"f32": 2e12}}, "left": 7}
    rows = [cpu, row("1x4x4x2", "kronsparse", 1.0), {"record": "done"}, ended]
    document = report.build(rows)
    (line,) = document.sections[-1].blocks[0].rows
    assert line[:3] == ["2026-11-18T10:00:00Z", "c", "`run --suite sample`"] and line[5:] == ["3.2", "1"]
    partial, loaded, steady = document.warnings
    assert partial == "Partial: 7 problems of sample were left out when its time was up."
    assert "load up to 3.2" in loaded and "changed from 1 to 2 TFLOP/s" in steady
    assert '<p class="warning">Partial: 7' in to_html(document) and "> **Partial: 7" in to_markdown(document)
    assert "was stopped before its end" in head_section.warnings(rows[:-1])[0]
    assert report.build(made_up_rows()).warnings == []


def test_a_report_without_bokeh_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(report.importlib.util, "find_spec", lambda name: None)
    path = write(tmp_path / "rows.jsonl", made_up_rows())
    assert main(["report", path, "--output", str(tmp_path / "page")]) == 1
    assert "pip install bokeh==3.8.2" in capsys.readouterr().err and not (tmp_path / "page.md").exists()
    assert main(["report", path, "--summary"]) == 0


def test_halves_are_held_against_f32_of_their_own_minute():
    cpu = run_record(machine={"cpu": "C"}, suite="cpu-targets", threads=2)
    apart = [row("1x4x4x2", "kronsparse", 2.0, dtype="f32"), row("1x4x4x2", "kronsparse", 3.0)]
    assert halves_over_f32(collect([cpu, *apart]), "f16", "batch_last") == [1.5]
    older = [apart[0], row("1x4x4x2", "kronsparse", 3.0, f32_median_s=4.0)]
    assert halves_over_f32(collect([cpu, *older]), "f16", "batch_last") == [0.75]
    by_turns = [apart[0], row("1x4x4x2", "kronsparse", 3.0, over_f32=0.75)]
    assert halves_over_f32(collect([cpu, *by_turns]), "f16", "batch_last") == [0.75]
    told = "\n".join(summary([cpu, *apart]))
    assert "f16 over f32, ours, median 1.50, worst 1.50 (target no slower: **missed** on 1 of 1)" in told
    assert "worst 0.75 (target no slower: reached)" in "\n".join(summary([cpu, *by_turns]))


def test_statistics():
    assert median([1, math.inf, 2]) == 2
    found = wins([(1.0, 3.0), (math.inf, 1.0), (2.0, 1.0)])
    assert found.share == pytest.approx(1 / 3) and found.least == 0 and found.median_when_won == 3
    points = [(2.0 * x**0.5 * y**-0.25, x, y) for x in (0.1, 0.2, 0.5) for y in (0.01, 0.02, 0.04)]
    fit = log_regression(points)
    assert fit.slopes == pytest.approx((0.5, -0.25)) and fit.r2 == pytest.approx(1)
    assert fit.intercept == pytest.approx(math.log(2))


def test_the_paper_s_bins_hold_its_patterns():
    """Its tables are over the patterns of this grid: most counts agree to the last pattern."""
    sparsities = [100 * (1 - one.density) for one in SUITES["paper-time"].patterns if one.density < 1]
    for bin_ in paper.SPARSITY_BINS[1:5]:
        counted = sum(bin_.low - 0.006 <= value < bin_.high - 0.006 for value in sparsities)
        assert counted == bin_.patterns


@pytest.mark.skipif(not GPU_FILES, reason="needs the results of the repository")
def test_the_results_of_the_repository_can_be_read():
    for path in sorted((SOURCE / "results").glob("*.jsonl")):
        text = to_markdown(report.build(read_files([path])))
        titles = (
            "Overview",
            "Small batches",
            "Training",
            "Figure 6b",
            "Figure 10",
            "Weights",
            "Models",
            "Chains",
            "Problems nobody tuned for",
        )
        assert any(f"## {title}" in text for title in titles), path
    told = "\n".join(summary(read_files(GPU_FILES)))
    assert "| **kronsparse** | 64 | 1.89 (target 2.3: reached)" in told


def test_results_of_layers_alone_have_a_summary(tmp_path, capsys):
    run = run_record(suite="layers")
    del run["ceilings"]
    seconds = {"step_s": {"kernel": 1.0, "bmm": 2.0}, "forward_s": {"kernel": 1.0}}
    layer = {"record": "layer", "problem": "f16 layer", "dtype": "f16", "status": "ok", **seconds}
    layers = [run, {**layer, "bare_s": 1.0, "adjoint_s": 1.0, "gradient_s": 1.0}]
    assert main(["report", "--summary", write(tmp_path / "layers.jsonl", layers)]) == 0
    assert "faster than bmm 2.00 times" in capsys.readouterr().out
    text = to_markdown(report.build([*made_up_rows(), *layers]))
    assert "Ceilings: copy 1 TB/s" in text and "## Training" in text


def test_steps_with_adapters_are_reported_with_their_goals():
    run = run_record(suite="peft")
    common = {"record": "peft", "status": "ok", "model": "llama", "tokens": [4, 768], "implementation": "it"}
    times = {
        "lora": (1.0, 100),
        "boft1 ours": (1.25, 104),
        "boft2 ours": (1.5, 106),
        "boft2 peft": (4.5, 150),
    }
    rows = [
        {**common, "contender": name, "step_s": seconds, "peak_bytes": memory}
        for name, (seconds, memory) in times.items()
    ]
    wrong = {"record": "peft", "contender": "boft1 peft", "status": "wrong"}
    text = to_markdown(report.build([run, *rows, wrong]))
    assert (
        "boft1 ours over LoRA: time 1.250 (target 1.3: reached), memory 1.040 (target 1.05: reached)." in text
    )
    assert "boft2 ours over LoRA: time 1.500 (target 1.3: **missed**), memory 1.060 (target 1.05" in text
    assert "boft2 peft over ours: 3.00 (target 4: **missed**)." in text and "boft1 peft: wrong." in text
    assert "No answer was wrong" not in text and "llama, 4 x 768 tokens." in text


@pytest.mark.parametrize("name", ["mine", "mine.html", "mine.csv", "mine.v2"])
def test_a_report_may_be_named_with_its_ending(tmp_path, name):
    rows = write(tmp_path / "rows.jsonl", made_up_rows())
    assert main(["report", rows, "--output", str(tmp_path / "made" / name)]) == 0
    stem = name if name == "mine.v2" else "mine"
    assert {path.name for path in (tmp_path / "made").iterdir()} == {
        f"{stem}{ending}" for ending in (".html", ".md", ".csv")
    }


def on_cpu(threads):
    return run_record(machine={"cpu": "C"}, threads=threads)


@pytest.mark.parametrize(
    ("others", "told"),
    [
        (on_cpu(2), "results of 2 devices given (G; C, 2 threads), must be of one"),
        (run_record(machine={"cpu": "C", "gpu": "H"}), "results of 2 devices given (G; H), must be of one"),
    ],
)
def test_a_report_is_of_one_device(tmp_path, monkeypatch, capsys, others, told):
    monkeypatch.chdir(tmp_path)
    files = [write(tmp_path / "a.jsonl", made_up_rows()), write(tmp_path / "b.jsonl", [others])]
    for options in ([], ["--summary"]):
        assert main(["report", *files, *options]) == 1
        assert told in capsys.readouterr().err
    assert not (tmp_path / "report.md").exists()


# ---- compare ----


@pytest.fixture
def before(tmp_path):
    rows = [
        run_record(commit="a+changes"),
        row("1x2x2x1", "kronsparse", 1.0),
        row("1x4x4x2", "kronsparse", 1.0),
    ]
    return rows, write(tmp_path / "a.jsonl", rows)


@pytest.mark.parametrize(
    ("changed", "code", "told"),
    [
        ({"median_s": 1.0}, 0, "0 faster, 0 slower, 0 broken, 2 same"),
        ({"median_s": 0.5, "q1_s": 0.49, "q3_s": 0.51}, 0, "1 faster, 0 slower, 0 broken, 1 same"),
        ({"median_s": 1.5, "q1_s": 1.49, "q3_s": 1.51}, 1, "0 faster, 1 slower, 0 broken, 1 same"),
        ({"median_s": 1.5, "q1_s": 0.9, "q3_s": 2.0}, 0, "0 faster, 0 slower, 0 broken, 2 same"),  # noise
        ({"median_s": 1.02, "q1_s": 1.015, "q3_s": 1.03}, 0, "0 slower"),  # less than the noise allowed
        ({"status": "wrong", "reason": "error 1"}, 1, "1 broken"),
    ],
)
def test_compare(before, tmp_path, capsys, changed, code, told):
    rows, path = before
    after = write(tmp_path / "b.jsonl", [*rows[:2], {**rows[2], **changed}])
    assert main(["compare", path, after]) == code
    assert told in capsys.readouterr().out


def test_what_was_not_measured_again_is_lost_unless_that_was_said(before, tmp_path, capsys):
    rows, path = before
    after = write(tmp_path / "b.jsonl", rows[:2])
    assert main(["compare", path, after]) == 1
    told = capsys.readouterr().out
    assert re.search(r"f16 batch_last B=8 1x4x4x2 .*not measured in B", told)
    assert "1 problems in both" in told and "; 1 not measured in B" in told
    assert main(["compare", path, after, "--subset"]) == 0
    assert main(["compare", after, path]) == 0
    wrong = write(tmp_path / "c.jsonl", [*rows[:2], {**rows[2], "status": "wrong", "reason": "error 1"}])
    assert main(["compare", wrong, after]) == 0, "there was nothing to lose"


def test_compare_of_files_that_share_nothing(before, tmp_path):
    other = write(tmp_path / "b.jsonl", [run_record(), row("9x9x9x9", "kronsparse", 1.0)])
    assert main(["compare", before[1], other]) == 2


def test_compare_says_that_devices_differ(before, tmp_path, capsys):
    rows, path = before
    assert main(["compare", path, write(tmp_path / "b.jsonl", [on_cpu(2), *rows[1:]])]) == 0
    assert "A and B are of different devices (G; C, 2 threads)" in capsys.readouterr().out
    assert main(["compare", path, path]) == 0
    assert "different devices" not in capsys.readouterr().out


def test_compare_refuses_what_is_no_results_file(before, tmp_path, capsys):
    assert main(["compare", before[1], write(tmp_path / "b.jsonl", [])]) == 1
    assert "no record of a run" in capsys.readouterr().err


def with_rivals(noise, ours, **changes):
    """Twenty problems; every second time of the rival is off by this factor."""
    rows = [run_record(**changes)]
    for at in range(20):
        seconds = ours if at == 3 else 1.0
        rows.append(row(f"{at + 1}x4x4x2", "kronsparse", seconds))
        rows.append(row(f"{at + 1}x4x4x2", "bmm", noise if at % 2 else 1.0))
    return rows


@pytest.mark.parametrize(
    ("noise", "commit", "code", "told"),
    [
        (1.0, "b", 1, "1 slower"),
        (1.12, "b", 0, "0 slower"),  # rivals show that times differ by themselves
        (1.0, "a", 0, "A and B are of one commit: what is slower is noise"),
        (1.0, "a+changes", 1, "1 slower"),
    ],
)
def test_compare_does_not_fail_on_noise(tmp_path, capsys, noise, commit, code, told):
    first = write(tmp_path / "a.jsonl", with_rivals(1.0, 1.0, commit="a"))
    second = write(tmp_path / "b.jsonl", with_rivals(noise, 1.1, commit=commit))
    assert main(["compare", first, second]) == code
    assert told in capsys.readouterr().out
    if commit == "b":  # noise that is given counts
        assert main(["compare", first, second, "--noise", "3"]) == 1


@pytest.mark.parametrize(("slow", "ratio", "code"), [(2, 1.2, 0), (2, 1.5, 1), (12, 1.2, 1)])
def test_compare_takes_a_few_outliers_for_noise(tmp_path, capsys, slow, ratio, code):
    files = []
    for name in ("a", "b"):
        rows = [run_record(commit=name)]
        for at in range(100):
            is_after = name == "b"
            ours = ratio if is_after and at < slow else 1.0
            rows.append(row(f"{at + 1}x4x4x2", "kronsparse", ours))
            rows.append(row(f"{at + 1}x4x4x2", "bmm", 1.25 if is_after and at in (7, 70) else 1.0))
        files.append(write(tmp_path / name, rows))
    assert main(["compare", *files]) == code
    printed = capsys.readouterr().out
    assert f"{slow} slower" in printed and ("rivals that have not changed: noise" in printed) == (code == 0)


def test_compare_allows_for_a_slower_machine(tmp_path, capsys):
    first = with_rivals(1.0, 1.0, commit="a")
    slower = [
        {**one, **{name: 1.2 * one[name] for name in ("median_s", "q1_s", "q3_s")}} for one in first[1:]
    ]
    files = [
        write(tmp_path / "a.jsonl", first),
        write(tmp_path / "b.jsonl", [run_record(commit="b"), *slower]),
    ]
    assert main(["compare", *files]) == 0
    assert "differ by 0.833 in the median" in capsys.readouterr().out
