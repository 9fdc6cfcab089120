"""Fills in the numbers of Markdown files from results files, or checks that they agree with the results.

The text between `<!-- numbers: NAME ARGUMENTS -->` and `<!-- end -->` is made by the table or sentence of
that name. Arguments that end in .jsonl or .md are results files: paths from the top of the repository, in
which an asterisk stands for any characters.

  kronsparse-bench numbers README.md docs/performance.md            rewrites the files
  kronsparse-bench numbers --check README.md docs/performance.md    exits with 1 where they differ
"""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Sequence
from pathlib import Path

from kronsparse.bench.measuring.machine import REPOSITORY
from kronsparse.bench.reporting.document import markdown_rows
from kronsparse.bench.reporting.number_tables import TABLES
from kronsparse.bench.results.rows import Row, read_files

_BEGIN, _END = "<!-- numbers:", "<!-- end -->"
_MARKED = re.compile(rf"({_BEGIN} ([^>]*?) -->)((?:(?!{_BEGIN}).)*?)({_END})", re.DOTALL)
_RESULTS = (".jsonl", ".md")


def _files(pattern: str, root: Path) -> list[Path]:
    found = sorted(root.glob(pattern))
    if not found:
        raise ValueError(f"no results file {pattern!r} under {root}")
    return found


def _read(paths: Sequence[Path]) -> list[Row]:
    """The rows of results files; `accuracy` writes Markdown, all other commands JSON lines."""
    if paths[0].suffix == ".md":
        return [row for path in paths for row in markdown_rows(path.read_text())]
    return read_files(paths)


def made(marker: str, root: Path) -> str:
    """The text that belongs behind a marker, such as "targets results/h200-*.jsonl"."""
    name, *arguments = marker.split()
    if name not in TABLES:
        raise ValueError(f"{name!r} given, must be one of {', '.join(TABLES)}")
    files = [_files(one, root) for one in arguments if one.endswith(_RESULTS)]
    words = [one for one in arguments if not one.endswith(_RESULTS)]
    return TABLES[name]([_read(paths) for paths in files], words)


def _check_markers(text: str) -> None:
    """Refuses a marker without its end, which would otherwise be sought in the prose behind it."""
    rest = _MARKED.sub(lambda found: "\n" * found[0].count("\n"), text)
    for number, line in enumerate(rest.split("\n"), 1):
        for marker, other in ((_BEGIN, _END), (_END, f"{_BEGIN} NAME ARGUMENTS -->")):
            if marker in line:
                raise ValueError(f"line {number}: {marker!r} without {other!r}")


def filled(text: str, root: Path) -> str:
    """Returns the text with all its numbers made anew."""
    _check_markers(text)

    def fill(found: re.Match[str]) -> str:
        content = made(found[2], root)
        around = "\n" if "\n" in content or "\n" in found[3] else ""
        return f"{found[1]}{around}{content}{around}{found[4]}"

    return _MARKED.sub(fill, text)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `numbers`."""
    add = parser.add_argument
    add("files", type=Path, nargs="+", metavar="FILE.md", help="Markdown files to fill in or to check")
    add("--check", action="store_true", help="change nothing; exit with 1 where a file differs")
    root = "the folder that the paths of results files start from (default: the top of the repository)"
    add("--root", type=Path, default=REPOSITORY or Path.cwd(), metavar="DIR", help=root)


def main(options: argparse.Namespace) -> int:
    """Rewrites the files, or prints where they differ. Returns the exit code."""
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
