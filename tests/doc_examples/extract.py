#!/usr/bin/env python3
"""Turns the examples of the documentation into programs.

Two kinds of examples: in a header, after an empty line of a comment, the lines
that begin with `///     `; in a Markdown file, the blocks fenced as ```cpp or ```c. Each becomes one
file of C++ with assert() alive, or of C.

  extract.py list  FILES...            one file name per line: <name>.cpp or <name>.c
  extract.py write DIRECTORY FILES...  writes the programs into the directory
  extract.py rule  FILES...            checks that what needs an example has one

The rule: in a header, an exported class, struct or function whose comment
takes three lines or more must have an example among them (exit status 1
otherwise). One that is explained in less only gets a warning; enumerations,
aliases and plain aggregates that are not exported need none.
"""

import pathlib
import re
import sys
from typing import NamedTuple

PROLOGUE = """\
// An example of {origin}; made by tests/doc_examples/extract.py.
#undef NDEBUG
#include <cassert>
#include <complex>
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "kronsparse/kronsparse.hpp"

"""

DECLARATION = re.compile(
    r"\b(?:class|struct|enum class)\s+(?:KRONSPARSE_API\s+)?(\w+)|(\w+)\s*\(|\b(\w+)\s*[;={]"
)


class Example(NamedTuple):
    file: str  # <name>.cpp or <name>.c
    origin: str  # file:line
    line: int
    code: str

    def program(self, path):
        # Errors of the compiler then name the line of the documentation.
        located = f'#line {self.line} "{path}"\n{self.code}\n'
        if self.file.endswith(".c"):
            return located
        text = PROLOGUE.format(origin=self.origin)
        if re.search(r"\bint main\s*\(", self.code):
            return text + located
        return text + "int main() {\n" + located + "}\n"


class Comment(NamedTuple):
    declaration: str  # the line that follows
    entity: str
    line: int
    lines: list

    def examples(self):
        """Pairs of an offset into the lines and the lines of code from there."""
        code = []
        for offset, line in enumerate([*self.lines, ""]):
            if line.startswith("     ") and (code or self.lines[offset - 1].strip() == ""):
                code.append(line[5:])
            elif code:
                yield offset - len(code), code
                code = []


def comments(path):
    """The /// comments of a header, each with what it documents."""
    block = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        stripped = line.strip()
        if stripped.startswith("///") and not stripped.startswith("///<"):
            block.append(stripped[3:])
            continue
        if block:
            found = DECLARATION.search(stripped.replace("[[nodiscard]] ", ""))
            entity = next((group for group in found.groups() if group), "") if found else ""
            yield Comment(stripped, entity, number - len(block), block)
            block = []


def header_examples(path):
    for comment in comments(path):
        for first, code in comment.examples():
            yield f"{path.stem}_{comment.entity}", "cpp", comment.line + first, "\n".join(code)


def markdown_examples(path):
    text = path.read_text(encoding="utf-8")
    for block in re.finditer(r"^```(cpp|c)\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        yield path.stem.lower(), block[1], text.count("\n", 0, block.start()) + 2, block[2].rstrip()


def examples(paths):
    used = {}
    for path in paths:
        found = markdown_examples(path) if path.suffix == ".md" else header_examples(path)
        for name, ending, line, code in found:
            used[name] = used.get(name, 0) + 1
            unique = name if used[name] == 1 else f"{name}_{used[name]}"
            yield path, Example(f"{unique}.{ending}", f"{path.name}:{line}", line, code)


def check_rule(paths):
    missing = 0
    for path in paths:
        if path.suffix == ".md":
            continue
        for comment in comments(path):
            exported = "KRONSPARSE_API" in comment.declaration
            if not exported or any(comment.examples()):
                continue
            needs_one = len(comment.lines) >= 3
            missing += needs_one
            print(
                f"{path}:{comment.line}: {'error' if needs_one else 'warning'}: "
                f"{comment.entity} has no example"
            )
    return missing


def main(arguments):
    command, *rest = arguments
    if command == "list":
        for _, example in examples(map(pathlib.Path, rest)):
            print(example.file)
    elif command == "write":
        directory = pathlib.Path(rest[0])
        directory.mkdir(parents=True, exist_ok=True)
        for path, example in examples(map(pathlib.Path, rest[1:])):
            target = directory / example.file
            program = example.program(path)
            # Untouched when the same: only examples that changed compile again.
            if not target.exists() or target.read_text(encoding="utf-8") != program:
                target.write_text(program, encoding="utf-8")
    elif command == "rule":
        return 1 if check_rule(map(pathlib.Path, rest)) else 0
    else:
        print(__doc__)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
