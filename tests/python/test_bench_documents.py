"""Numbers of Markdown files that are made from results, and the report itself."""

import os
import re
from pathlib import Path

import pytest
from bench_helpers import row, run_record, write
from kronsparse.bench import report
from kronsparse.bench.__main__ import main
from kronsparse.bench.numbers import filled
from kronsparse.bench.reporting.document import to_markdown
from kronsparse.bench.reporting.number_tables import TABLES
from kronsparse.bench.results.rows import read_rows

SOURCE = Path(os.environ.get("KRONSPARSE_SOURCE", Path(__file__).parents[2]))
needs_results = pytest.mark.skipif(
    not (SOURCE / "results" / "README.md").exists(), reason="needs the results of the repository"
)


def documents():
    return [
        path for path in [SOURCE / "README.md", *sorted((SOURCE / "docs").rglob("*.md"))] if path.exists()
    ]


@needs_results
def test_the_numbers_of_the_documents_are_those_of_the_results(capsys):
    marked = [path for path in documents() if "<!-- numbers:" in path.read_text()]
    assert len(marked) >= 3
    assert main(["numbers", "--check", *map(str, marked)]) == 0, capsys.readouterr().out


@needs_results
def test_the_report_of_the_documents_is_what_its_command_makes(tmp_path):
    (command,) = re.findall(
        r"^    kronsparse-bench (report .*) --output docs/report$",
        (SOURCE / "results" / "README.md").read_text(),
        re.MULTILINE,
    )
    name, *patterns = command.split()
    files = [str(path) for one in patterns for path in sorted(SOURCE.glob(one))]
    assert main([name, *files, "--output", str(tmp_path / "report")]) == 0
    for ending in (".md", ".html"):
        expected = (SOURCE / "docs" / f"report{ending}").read_text()
        assert (tmp_path / f"report{ending}").read_text() == expected, ending


@needs_results
def test_an_opencl_device_has_a_section_and_goals_of_its_own():
    rows = read_rows(SOURCE / "results" / "h200-opencl.jsonl")
    f32 = [one for one in rows if one.get("dtype") == "f32"]
    halves = [
        {**one, "problem": one["problem"].replace("f32 ieee", "f16"), "dtype": "f16", "mode": ""}
        | {"median_s": one["median_s"] / 2}
        for one in f32
    ]
    text = to_markdown(report.build([rows[0], *f32, *halves]))
    section = text.split("## OpenCL\n")[1].split("\n## ")[0]
    assert "| f16 | batch_last | 64 | 0.50 | 0.5 |" in section and "time / f32's, median" in section
    assert "(target 2.2: " in text and "(target 1.6: " in text


@needs_results
def test_every_results_file_is_described_and_used():
    described = (SOURCE / "results" / "README.md").read_text()
    used = described + "".join(path.read_text() for path in documents() if path.name != "report.md")
    names = [path.name for path in (SOURCE / "results").iterdir() if path.name != "README.md"]
    assert [name for name in names if f"`{name}`" not in described] == []
    files = [name for name in names if name.endswith(".jsonl")]
    assert [name for name in files if f"results/{name}" not in used] == []


def test_tables_of_the_documents_are_whole():
    cut = re.compile(r"^\|.*\n\n\|.*\n(?!\|[-:| ]+$)", re.MULTILINE)  # rows without a heading of their own
    assert not [(path.name, found[0]) for path in documents() for found in cut.finditer(path.read_text())]


def test_the_map_names_every_module_of_the_benchmark():
    described = (SOURCE / "HACKING.md").read_text().split("\n  bench/ ", 1)[1].split("\ncli/", 1)[0]
    modules = {path.stem for path in Path(report.__file__).parent.glob("*.py")} - {"__init__"}
    assert modules <= set(re.findall(r"\w+", described))


@needs_results
def test_a_number_that_drifted_is_found(tmp_path, capsys):
    text = (SOURCE / "docs" / "performance.md").read_text()
    drifted = re.sub(r"(\| f16 batch_first \| 64 \|) [\d.]+ ", r"\1 9.99 ", text)
    assert drifted != text
    copy = tmp_path / "performance.md"
    copy.write_text(drifted)
    assert main(["numbers", "--check", str(copy), "--root", str(SOURCE)]) == 1
    assert "-| f16 batch_first | 64 | 9.99 " in capsys.readouterr().out
    assert main(["numbers", str(copy), "--root", str(SOURCE)]) == 0
    assert copy.read_text() == text


def test_numbers_inline_and_in_lines(tmp_path):
    write(tmp_path / "r.jsonl", [run_record(), row("1x4x4x2", "kronsparse", 1.0), row("1x4x4x2", "bmm", 2.0)])
    text = "on <!-- numbers: win-share f16 default batch_last bmm r.jsonl -->?<!-- end --> of them"
    assert "-->100 %<!-- end --> of them" in filled(text, tmp_path)
    lines = "<!-- numbers: gpu-summary r.jsonl -->\n<!-- end -->"
    assert "\n| f16 batch_last | 1 | 1.00 | on 100 % | 2.0 |  | on 42 % |\n<!-- end -->" in filled(
        lines, tmp_path
    )
    ceilings = "<!-- numbers: ceilings r.jsonl -->?<!-- end -->"
    assert "-->copy 1 TB/s, GEMM f32 1, f16 1 TFLOP/s<!-- end -->" in filled(ceilings, tmp_path)
    with pytest.raises(ValueError, match="no results file"):
        filled("<!-- numbers: gpu-summary none.jsonl --><!-- end -->", tmp_path)
    with pytest.raises(ValueError, match="'guess' given, must be one of"):
        filled("<!-- numbers: guess r.jsonl --><!-- end -->", tmp_path)


BEGIN, END = "<!-- numbers: win-share f16 default batch_last bmm r.jsonl -->", "<!-- end -->"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"one {BEGIN}?\nprose\ntwo {BEGIN}?{END}\n", "line 1: '<!-- numbers:' without '<!-- end -->'"),
        (f"one {BEGIN}?{END}\ntwo {BEGIN}?\n", "line 2: '<!-- numbers:' without"),
        (f"{BEGIN}\n?\n{END}\nprose\n{END}\n", "line 5: '<!-- end -->' without"),
        (f"<!-- numbers:win-share -->?{END}\n", "line 1: '<!-- numbers:' without"),
    ],
)
def test_markers_come_in_pairs(tmp_path, capsys, text, told):
    write(tmp_path / "r.jsonl", [run_record(), row("1x4x4x2", "kronsparse", 1.0), row("1x4x4x2", "bmm", 2.0)])
    page = tmp_path / "page.md"
    page.write_text(text)
    for options in ([], ["--check"]):
        assert main(["numbers", str(page), "--root", str(tmp_path), *options]) == 1
        assert f"page.md: {told}" in capsys.readouterr().err
    assert page.read_text() == text


def test_the_table_of_a_kernel():
    large = [row("1x4x4x2", "kronsparse", 3.0, floor_s=2.0), row("1x4x4x4", "kronsparse", 5.0, floor_s=2.0)]
    small = row("1x4x4x2", "kronsparse", 1.0, record="small", bound_s=2.0, problem="small")
    told = TABLES["kernel"]([[*large, small]], ["mma"])
    assert "| f16 batch_last, B = 8 | 3 |" not in told  # the two yardsticks do not mix
    assert "| f16 batch_last, B = 8 | 2 | 2.00 x floor | 2.50 (1x4x4x4) |" in told
    assert "| f16 batch_last, B = 8 | 1 | 0.50 x goal | 0.50 (1x4x4x2) |" in told
    with pytest.raises(ValueError, match="'simt' was chosen for no problem"):
        TABLES["kernel"]([large], ["simt"])


def test_the_table_of_accuracy(tmp_path):
    head = "# Errors\n\n| | data | terms | ours | PyTorch | ours / PyTorch | kernels |\n" + "|---" * 7 + "|\n"
    lines = [
        f"| f16 | {data} | {terms} | 1e-0{terms} | 1 | {ratio} | mma |"
        for data, terms, ratio in (("normal", 4, 0.5), ("normal", 5, 1.25), ("positive", 4, 1.0))
    ]
    (tmp_path / "a.md").write_text(head + "\n".join(lines) + "\n\nAll within the bound.\n")
    text = filled("<!-- numbers: accuracy a.md -->\n<!-- end -->", tmp_path)
    assert "| f16 | 1e-04, 1e-05 | 1e-04 | 1.25 |" in text


def test_sentences_of_weights_and_models():
    times = (("batch_first", "1x4x4x2", 2.0), ("batch_first", "1x4x4x4", 4.0), ("batch_last", "1x4x4x2", 9.0))
    price = {"record": "price", "status": "ok", "dtype": "f16", "batch": 8, "frozen_s": 1.0}
    prices = [
        {**price, "layout": layout, "problem": name, "unfrozen_s": seconds} for layout, name, seconds in times
    ]
    told = TABLES["weights-sentence"]([prices], ["f16", "batch_first"])
    assert told == "3.00 (4.00) at B = 8"
    models = [
        {"record": "model", "model": "vit", "dtype": "f16", "dense_s": 1.0, "frozen_s": seconds}
        for seconds in (0.5, 1.25)
    ]
    assert TABLES["models-sentence"]([models], []) == "f16: vit 0.50 to 1.25"


def test_the_table_of_small_batches():
    small = {"record": "small", "weights_s": 1e-6, "bound_s": 4e-6}
    times = (("kronsparse", 3e-6, 1), ("bmm", 5e-6, 1), ("kronsparse", 6e-6, 8))
    rows = [
        row("64x64x64x1", name, seconds, batch=batch, problem=f"{batch}", **small)
        for name, seconds, batch in times
    ]
    assert "| 64x64x64x1 | 3.0 / 6.0 | 5.0 / - | 4.0 |" in TABLES["small-batch"]([rows], [])
    told = TABLES["small-sentence"]([rows], [])
    assert (
        told
        == "1.7 times faster than bmm in the median at B = 1; faster on 1 of 1, within the goal on 1 of 2"
    )
