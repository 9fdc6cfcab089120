"""Fills the numbers of Markdown files from results files, or checks that they are what the results say.

What stands between `<!-- numbers: NAME ARGUMENTS -->` and `<!-- end -->` is made by the table or number of
that name; arguments that name files may have asterisks and start from the top of the repository.

  kronsparse-bench numbers README.md docs/performance.md            writes them
  kronsparse-bench numbers --check README.md docs/performance.md    fails where they differ
"""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from kronsparse.bench.machine import REPOSITORY
from kronsparse.bench.number_tables import TABLES
from kronsparse.bench.results import Row, read_files

_BEGIN, _END = "<!-- numbers:", "<!-- end -->"
_MARKED = re.compile(rf"({_BEGIN} ([^>]*?) -->)((?:(?!{_BEGIN}).)*?)({_END})", re.DOTALL)
Make = Callable[[Sequence[Sequence[Row]], Sequence[str]], str]


def _files(pattern: str, root: Path) -> list[Path]:
    found = sorted(root.glob(pattern))
    if not found:
        raise ValueError(f"no results file {pattern!r} under {root}")
    return found


def made(marker: str, root: Path) -> str:
    """What belongs behind a marker, such as "targets results/h200-*.jsonl"."""
    name, *arguments = marker.split()
    if name not in TABLES:
        raise ValueError(f"{name!r} is none of {', '.join(TABLES)}")
    files = [_files(one, root) for one in arguments if one.endswith(".jsonl")]
    words = [one for one in arguments if not one.endswith(".jsonl")]
    return TABLES[name]([read_files(paths) for paths in files], words)


def _check_markers(text: str) -> None:
    """Refuses a marker without its end, which would otherwise be sought in the prose behind it."""
    rest = _MARKED.sub(lambda found: "\n" * found[0].count("\n"), text)
    for number, line in enumerate(rest.split("\n"), 1):
        for marker, other in ((_BEGIN, _END), (_END, f"{_BEGIN} NAME ARGUMENTS -->")):
            if marker in line:
                raise ValueError(f"line {number}: {marker!r} without {other!r}")


def filled(text: str, root: Path) -> str:
    """The text with all its numbers made anew."""
    _check_markers(text)

    def fill(found: re.Match[str]) -> str:
        content = made(found[2], root)
        around = "\n" if "\n" in content or "\n" in found[3] else ""
        return f"{found[1]}{around}{content}{around}{found[4]}"

    return _MARKED.sub(fill, text)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `numbers`."""
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE.md")
    parser.add_argument("--check", action="store_true", help="change nothing; exit code 1 where they differ")
    parser.add_argument("--root", type=Path, default=REPOSITORY or Path.cwd(), help="where results/ lies")


def main(options: argparse.Namespace) -> int:
    """Rewrites the files, or says where they differ; the exit code."""
    stale = 0
    for path in options.files:
        before = path.read_text()
        try:
            after = filled(before, options.root)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        if after == before:
            continue
        stale += 1
        if options.check:
            old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
            print(
                "".join(difflib.unified_diff(old, new, str(path), f"{path}, from the results", n=0)), end=""
            )
        else:
            path.write_text(after)
            print(f"{path} rewritten")
    return 1 if options.check and stale else 0
