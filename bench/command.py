"""What the commands of this folder share: options that are lists, and the results file."""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import process

Row = dict[str, Any]


def words(allowed: Sequence[str]) -> Callable[[str], list[str]]:
    """For argparse: a list with commas, of these words."""

    def parse(text: str) -> list[str]:
        given = text.split(",")
        unknown = [word for word in given if word not in allowed]
        if unknown:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(allowed)}")
        return given

    return parse


def minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def default_path(command: str, hardware: str) -> Path:
    slug = re.sub(r"[^a-z0-9]+", "-", re.sub(r"\(r\)|\(tm\)|cpu|@.*", "", hardware.lower())).strip("-")
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return process.REPOSITORY / "results" / f"{command}-{slug}-{stamp}.jsonl"


def read_rows(path: Path) -> list[Row]:
    rows = []
    for line in path.read_text().splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue  # the last words of a run that was killed
    return rows


class Results:
    """A results file, only ever appended to: a record of the run, then a row per contender and problem."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.rows: list[Row] = read_rows(path) if path.exists() else []
        if path.exists() and path.stat().st_size and not path.read_bytes().endswith(b"\n"):
            with path.open("a") as file:
                file.write("\n")

    def add(self, record: str, **fields: object) -> None:
        self.add_rows([{"record": record, **fields}])

    def add_rows(self, rows: Iterable[Row]) -> None:
        added = list(rows)
        self.rows += added
        with self.path.open("a") as file:
            file.write("".join(json.dumps(row) + "\n" for row in added))
