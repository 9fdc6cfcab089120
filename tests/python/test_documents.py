"""The documents of the repository: links and paths lead somewhere, the picture is what its script draws."""

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(os.environ.get("KRONSPARSE_SOURCE", Path(__file__).parents[2]))
DOCUMENTS = sorted(
    [*SOURCE.glob("*.md"), *(SOURCE / "results").glob("*.md"), *(SOURCE / "docs").rglob("*.md")]
)
FOLDERS = "bindings|cli|cmake|docs|examples|include|packaging|python|results|src|tests|tools"


def named(path):
    return str(path.relative_to(SOURCE))


def without_code(path):
    return re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def lead_nowhere(path):
    """Links to files that do not exist. Anchors are checked by `make docs`."""
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(path)):
        file = target.partition("#")[0]
        if file and not re.match(r"[a-z]+:", file) and not (path.parent / file).exists():
            yield target


def name_nothing(path):
    """Paths in backquotes that do not exist; an asterisk stands for any characters."""
    for text in re.findall(rf"`((?:{FOLDERS})/[\w./*-]+)`", without_code(path)):
        if not any(SOURCE.glob(text.rstrip("/"))):
            yield text


@pytest.mark.parametrize("path", DOCUMENTS, ids=named)
def test_links_and_paths(path):
    assert list(lead_nowhere(path)) == []
    assert list(name_nothing(path)) == []


def test_what_leads_nowhere_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("[a](none.md#b) [c](page.md) [d](https://example.org) `src/none.cpp` `src/*`\n")
    assert list(lead_nowhere(page)) == ["none.md#b"]
    assert list(name_nothing(page)) == ["src/none.cpp"]


def test_readme_is_short():
    assert len((SOURCE / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_the_picture_is_what_its_script_draws(tmp_path):
    script = SOURCE / "docs" / "images" / "draw.py"
    subprocess.run([sys.executable, str(script), str(tmp_path)], check=True)
    assert (tmp_path / "overview.svg").read_text() == script.with_name("overview.svg").read_text()


@pytest.fixture
def header_pages(monkeypatch):
    monkeypatch.syspath_prepend(str(SOURCE / "tools"))
    return importlib.import_module("docs_headers")


def test_the_page_of_c_has_every_function(header_pages):
    header = SOURCE / "include" / "kronsparse" / "kronsparse.h"
    page = header_pages.c_page(header)
    functions = re.findall(r"KRONSPARSE_API .*?(kronsparse_\w+)\(", header.read_text())
    assert len(functions) > 30
    assert [name for name in functions if f"\n### {name}\n" not in page and f"{name}(" not in page] == []


def test_the_page_of_cpp_has_comments_examples_and_public_members_only(header_pages):
    header = SOURCE / "include" / "kronsparse" / "plan.hpp"
    page = header_pages.cpp_page([header])
    for heading in (
        "## plan.hpp",
        "### Batch",
        "### Operands",
        "### Plan",
        "### PackedValues",
        "### steps_of",
    ):
        assert f"\n{heading}\n" in page
    assert "A chain made ready to run." in page and "[[nodiscard]] std::size_t packed_bytes() const;" in page
    assert "```cpp\nusing namespace kronsparse;\n" in page
    assert "private:" not in page and "state_" not in page and "NOLINT" not in page


def test_the_port_of_vcpkg_has_the_version():
    port = json.loads((SOURCE / "packaging" / "vcpkg" / "kronsparse" / "vcpkg.json").read_text())
    project = (SOURCE / "CMakeLists.txt").read_text(encoding="utf-8")
    assert port["version"] == re.search(r"kronsparse\s+VERSION ([\d.]+)", project)[1]
