"""The results file: one JSON object a line, only ever appended to.

Records: `run` (machine, versions, commit, ceilings), `row` (one contender on one problem), `small` (the same
for small batches), `energy`, `done` (contenders of a problem that need not be repeated), `left_out`, `end`.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Row = dict[str, Any]
OURS = "kronsparse"

_MEASURED = ("problem", "dtype", "layout", "pattern", "batch", "contender", "spelling", "status", "reason")
# Implementations that have another name now.
_FORMER_NAMES = {
    "resident": "weights-stay",
    "narrow": "sums-stay",
    "stream": "x-stays-wgmma",
    "skinny": "x-stays-mma",
}
_NAMING = ("implementation", "choice", "best")  # the fields of a record that name one
_NEEDED = {"run": ("machine",), **dict.fromkeys(("row", "small", "energy"), _MEASURED)}


def default_path(suite: str, hardware: dict[str, object]) -> Path:
    """A new file under results/ of the current folder."""
    device = str(hardware.get("gpu") or hardware["cpu"])
    named = (re.sub(r"\(r\)|\(tm\)|cpu|@.*", "", device.lower()), Path(suite).stem.lower())
    slug = "-".join(re.sub(r"[^a-z0-9]+", "-", name).strip("-")[:40] for name in named)
    return Path("results") / f"{slug}-{time.strftime('%Y%m%d-%H%M%S')}.jsonl"


def _record(line: str) -> Row | None:
    try:
        found = json.loads(line)
    except json.JSONDecodeError:
        return None
    return found if isinstance(found, dict) and "record" in found else None


def _missing(row: Row) -> list[str]:
    """The fields that a record of its kind must have and this one lacks."""
    needed = _NEEDED.get(row["record"], ()) if isinstance(row["record"], str) else ()
    timed = ("median_s",) if needed is _MEASURED and row.get("status") == "ok" else ()
    return [name for name in (*needed, *timed) if name not in row]


def _with_names_of_today(row: Row) -> Row:
    """
    >>> _with_names_of_today({"record": "small", "implementation": "narrow"})["implementation"]
    'sums-stay'
    >>> _with_names_of_today({"record": "regret", "candidates": {"skinny": {}}})["candidates"]
    {'x-stays-mma': {}}
    """
    renamed: Row = {name: _FORMER_NAMES.get(row[name], row[name]) for name in _NAMING if name in row}
    if "candidates" in row:
        candidates = row["candidates"].items()
        renamed["candidates"] = {_FORMER_NAMES.get(name, name): one for name, one in candidates}
    return {**row, **renamed}


def read_rows(path: Path) -> list[Row]:
    """The records of a file. Of a killed run's last line a part may be left, at the end of the file or before
    the run that went on; anything else that is no record is refused."""
    if path.is_dir() or path.is_char_device() or path.is_block_device():  # a device may have no end
        raise ValueError(f"{path}: a folder or a device, must be a file")
    try:
        text = path.read_text()
    except UnicodeDecodeError:
        raise ValueError(f"{path}: no results file: it holds bytes that are no text") from None
    found = [_record(line) for line in text.splitlines()]
    for number, row in enumerate(found, 1):
        if row is not None:
            if missing := _missing(row):
                raise ValueError(f"{path}:{number}: record {row['record']!r} without {', '.join(missing)}")
            continue
        is_last = number == len(found)
        left_over = not text.endswith("\n") if is_last else (found[number] or {}).get("record") == "run"
        if not left_over:
            raise ValueError(f'{path}:{number}: no record of kronsparse-bench, a JSON object with a "record"')
    return [_with_names_of_today(row) for row in found if row is not None]


def now() -> str:
    """The moment as the record of a run has it, in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def by_time(rows: Iterable[Row]) -> list[Row]:
    """The runs, each with what it wrote, in the order they were made, so that newer ones count. Older files
    do not tell when: their runs come first, in the order given.

    >>> runs = [{"record": "run", "time": "2026-02"}, {"record": "row"}, {"record": "run", "time": "2026-01"}]
    >>> [row.get("time") for row in by_time(runs)]
    ['2026-01', '2026-02', None]
    """
    runs: list[list[Row]] = [[]]
    for row in rows:
        if row.get("record") == "run":
            runs.append([])
        runs[-1].append(row)
    ordered = sorted(runs, key=lambda run: str(run[0].get("time", "")) if run else "")
    return [row for run in ordered for row in run]


def read_files(paths: Iterable[Path]) -> list[Row]:
    """The records of several files, run by run in the order they were made."""
    return by_time(row for path in paths for row in read_rows(path))


def last_run(rows: Iterable[Row]) -> Row:
    """The record of the last run; without one this is no results file."""
    runs = [row for row in rows if row.get("record") == "run"]
    if not runs:
        raise ValueError("no record of a run: this is no file of kronsparse-bench")
    return runs[-1]


def is_cpu(run: Row) -> bool:
    """Whether a run was made without a GPU."""
    return "gpu" not in run["machine"] or run["machine"]["gpu"].startswith("none")


def is_opencl(run: Row) -> bool:
    """Whether a run was made through OpenCL.

    >>> is_opencl({"device": "opencl:1"})
    True
    """
    return str(run.get("device", "")).startswith("opencl")


def device_of(run: Row) -> str:
    """The device that a run was made on: a GPU, or a CPU with so many threads.

    >>> device_of({"machine": {"cpu": "Xeon"}, "threads": 2})
    'Xeon, 2 threads'
    """
    hardware = run["machine"]
    return f"{hardware['cpu']}, {run.get('threads') or '?'} threads" if is_cpu(run) else str(hardware["gpu"])


def check_one_device(rows: Iterable[Row]) -> None:
    """Refuses rows of several devices: medians over them would be of none."""
    devices = list(dict.fromkeys(device_of(row) for row in rows if row["record"] == "run"))
    if len(devices) > 1:
        raise ValueError(f"results of {len(devices)} devices given ({'; '.join(devices)}), must be of one")


class Results:
    """A file being written, with what was in it before."""

    last_written: Path | None = None  # of this process, for whoever stops it

    def __init__(self, path: Path) -> None:
        self.path = path
        self.path.parent.mkdir(parents=True, exist_ok=True)
        existing = path if path.exists() else path.parent
        if not os.access(existing, os.W_OK):  # before minutes are spent
            raise PermissionError(f"--output {path}: {existing} cannot be written")
        self.rows: list[Row] = read_rows(path) if path.exists() else []
        # The end of a line that was cut off. It goes into the file with the first record: should this run
        # be refused, the file stays as it was, and can be read.
        is_cut_off = path.exists() and path.stat().st_size and not path.read_bytes().endswith(b"\n")
        self._ending = "\n" if is_cut_off else ""

    def add(self, record: str, **fields: object) -> None:
        """Appends one record."""
        self.add_rows([{"record": record, **fields}])

    def add_rows(self, rows: Iterable[Row]) -> None:
        """Appends records, in one write."""
        added = list(rows)
        if not added:
            return
        self.rows += added
        Results.last_written = self.path
        with self.path.open("a") as file:
            file.write(self._ending + "".join(json.dumps(row) + "\n" for row in added))
        self._ending = ""

    def done(self, suite_kind: str) -> set[tuple[str, str]]:
        """(problem, contender) of everything that was measured before, in this kind of measurement."""
        return {
            (problem, contender)
            for row in self.rows
            if row["record"] == "done" and row.get("kind") == suite_kind
            for problem in row["problems"]
            for contender in row["contenders"]
        }
