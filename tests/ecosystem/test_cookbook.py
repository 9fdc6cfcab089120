"""Every example of docs/cookbook/ runs."""

import os
import re
from pathlib import Path

import pytest

SOURCE = Path(os.environ.get("KRONSPARSE_SOURCE", Path(__file__).parents[2]))
PAGES = sorted((SOURCE / "docs" / "cookbook").glob("*.md"))


def examples():
    for path in PAGES:
        blocks = re.findall(
            r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
        )
        assert blocks, f"{path.name} has no example"
        for place, code in enumerate(blocks):
            yield pytest.param(code, id=f"{path.stem}-{place}")


@pytest.mark.parametrize("code", list(examples()))
def test_example(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "an example", "exec"), {"__name__": "example"})
