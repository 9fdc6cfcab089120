"""The public headers as pages of the site: each comment as text, the declaration under it as code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

_NAME = re.compile(
    r"\b(?:class|struct|enum class)\s+(?:KRONSPARSE_API\s+)?(\w+)|\busing (\w+) =|(\w+)\s*\(|(\w+)\s*[;={]"
)
_SKIPPED = re.compile(r"#|namespace |extern |}  // namespace|class \w+;$|}$")


class Item(NamedTuple):
    """A comment and what it stands above."""

    comment: list[str]
    code: list[str]

    @property
    def name(self) -> str:
        found = _NAME.search(re.sub(r"\[\[nodiscard\]\] |template <.*?> ?|friend ", "", " ".join(self.code)))
        return next(filter(None, found.groups()), "") if found else ""


def cpp_page(headers: Sequence[Path]) -> str:
    """The C++ API: a section for each header."""
    parts = [
        "# C++\n\nThe page [C++](../cpp.md) shows how these are used together. Every example here is a test. "
        "`#include <kronsparse/kronsparse.hpp>` has all of them, in the namespace `kronsparse`.\n"
    ]
    for header in headers:
        lines = header.read_text(encoding="utf-8").splitlines()
        start = lines.index("#pragma once")
        intro = [line.lstrip("/ ") for line in lines[:start]]
        parts.append(f"## {header.name}\n\n" + "\n".join(intro).strip() + "\n")
        parts += _sections(_items(lines[start:]), "cpp")
    return "\n".join(parts)


def c_page(header: Path) -> str:
    """The C API, as one list."""
    lines = header.read_text(encoding="utf-8").splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith("#"))
    intro = " ".join(line.strip("/* ") for line in lines[:first])
    start = lines.index('extern "C" {')
    parts = [f"# C\n\nThe page [C](../c.md) shows how these are used together.\n\n{intro.strip()}\n"]
    return "\n".join(parts + _sections(_items(_joined_comments(lines[start:])), "c"))


def _joined_comments(lines: Iterable[str]) -> Iterator[str]:
    """Lines in which comments of C, where they begin a line, are written as `///`."""
    is_open = False
    for line in lines:
        if is_open or (line.startswith("/*") and not line.startswith("/**")):
            is_open = "*/" not in line
            yield "/// " + re.sub(r"^/?\*+ ?|^ \* ?|\s*\*/$", "", line).strip()
        else:
            yield line


def _items(lines: Iterable[str]) -> Iterator[Item]:
    """Comments with the declarations that follow them, up to an empty line or the next comment."""
    comment: list[str] = []
    code: list[str] = []
    depth = 0
    for line in [*lines, ""]:
        is_comment = line.startswith("///")
        if depth == 0 and code and (is_comment or not line.strip()):
            yield Item(comment, _public(code))
            comment, code = [], []
        if depth == 0 and is_comment:
            comment.append(line[3:])
        elif code or (line.strip() and not _SKIPPED.match(line)):
            code.append(line)
            depth += line.count("{") + line.count("(") - line.count("}") - line.count(")")


def _public(code: Sequence[str]) -> list[str]:
    """A declaration without the private part of its class, and without words for linters."""
    text = re.sub(r"\n\n? private:\n.*\n};", "\n};", "\n".join(code), flags=re.DOTALL)
    return [line for line in text.splitlines() if "// NOLINT" not in line]


def _sections(items: Iterable[Item], language: str) -> list[str]:
    """Headings of what was just named are left out: overloads stand together."""
    parts, previous = [], ""
    for item in items:
        name = item.name
        if name and name != previous:
            parts.append(f"### {name}\n")
        previous = name
        parts.append(_text(item.comment, language))
        parts.append(f"```{language}\n" + "\n".join(item.code) + "\n```\n")
    return parts


def _text(comment: Sequence[str], language: str) -> str:
    """A comment as Markdown: examples are indented by five there, lists are lines that begin with a word and
    a colon, and only backquotes mean something."""
    lines: list[str] = []
    in_code = in_list = False
    for line in [*comment, ""]:
        is_code = line.startswith("     ") and (in_code or not lines or not lines[-1].strip())
        if is_code != in_code:
            lines.append(f"```{language}" if is_code else "```")
        in_code = is_code
        if is_code:
            lines.append(line[5:])
            continue
        begins = re.match(r" \w+: ", line) is not None
        if begins and not in_list:
            lines.append("")
        in_list = begins or (in_list and line.startswith("   "))
        lines.append(("- " if begins else "  " if in_list else "") + _escaped(line.strip()))
    return "\n".join(lines)


def _escaped(line: str) -> str:
    parts = line.split("`")
    parts[::2] = [re.sub(r"([*<>_\[\]])", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts)
