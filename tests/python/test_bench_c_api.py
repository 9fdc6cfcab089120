"""The ctypes structures have the fields of the C header: a field too few is memory overwritten."""

import ctypes
import os
import re
from pathlib import Path

import pytest
from kronsparse.bench.measuring import c_api

SOURCE = Path(os.environ.get("KRONSPARSE_SOURCE", Path(__file__).parents[2]))
HEADER = SOURCE / "include" / "kronsparse" / "kronsparse.h"


def fields_in_header(name: str) -> list[str]:
    text = HEADER.read_text()
    body = re.search(rf"typedef struct {name} {{(.*?)}} {name};", text, re.DOTALL)
    assert body is not None, f"{HEADER} has no struct {name}"
    declarations = re.sub(r"/\*.*?\*/", "", body.group(1), flags=re.DOTALL).split(";")
    names = []
    for declaration in declarations:
        names += [
            re.findall(r"\w+", re.sub(r"\[.*?\]", "", part))[-1]
            for part in declaration.split(",")
            if part.strip()
        ]
    return names


@pytest.mark.parametrize("name", ["pattern", "problem", "device", "operands", "candidate"])
def test_structures_are_those_of_the_header(name):
    structure = getattr(c_api, f"_{name.capitalize()}")
    assert [field[0] for field in structure._fields_] == fields_in_header(f"kronsparse_{name}")


def test_remembered_times_are_told_from_predictions(monkeypatch, tmp_path):
    monkeypatch.setenv("KRONSPARSE_CACHE_DIR", str(tmp_path))
    library, problem = c_api.Library(c_api.find_library()), "f32 batch_first B=3 1x3x5x7"
    names = list(library.candidates(problem))
    assert not any(library.was_tuned(problem, name) for name in names)
    library._call("kronsparse_tune", ctypes.byref(library._parse(problem)), b"cpu", 1)
    assert [name for name in names if library.was_tuned(problem, name)] == [names[0]]
    assert not library.was_tuned("f32 batch_first B=4 1x3x5x7", names[0])
