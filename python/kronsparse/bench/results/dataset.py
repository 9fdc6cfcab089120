"""Results as problems: the rows of each problem joined, the best spelling of each rival picked."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kronsparse.bench.results.rows import OURS, Row
from kronsparse.bench.results.targets import ANYONE, EAGER
from kronsparse.chains import Pattern

# Names that older files use.
_RENAMED = {"csr": "sparse"}
# As the paper groups them.
SPECIALISED = ("bmm", "einsum", "bsr")
GENERIC = ("dense", "sparse")
_EAGER_FAMILIES = ("bmm", "einsum", "dense")


def mode_of(row: Row) -> str:
    """The mode of a row of ours, in older files left to be understood; others have none."""
    understood = "fp32" if row["dtype"] == "f32" and row["contender"] == OURS else ""
    return str(row.get("mode") or understood)


def family_of(row: Row) -> str:
    """A row's contender, by its name of today."""
    name = str(row["contender"])
    return _RENAMED.get(name, name)


@dataclass
class Measured:
    """One problem: seconds of ours by mode, of the best spelling of each rival, and what went wrong."""

    dtype: str
    layout: str
    pattern: Pattern
    batch: int
    floor_s: float = math.nan
    tensor_floor_s: float = math.nan  # of f32 by three products in TF32, where that rate is known
    seed: int | None = None  # that the suite `random` drew it from
    ours: dict[str, float] = field(default_factory=dict)  # by mode; infinite where ours failed
    rivals: dict[str, float] = field(default_factory=dict)  # infinite where left out as hopeless
    best_rows: dict[str, Row] = field(default_factory=dict)  # by rival, and "kronsparse <mode>" for ours
    failures: list[str] = field(default_factory=list)

    def add(self, row: Row) -> None:
        """Takes in a row of this problem."""
        family, mode = family_of(row), mode_of(row)
        self.floor_s = row.get("floor_s", self.floor_s)
        self.tensor_floor_s = row.get("tensor_floor_s", self.tensor_floor_s)
        self.seed = row.get("seed", self.seed)
        failed = row["status"] == "wrong" or (family == OURS and row["status"] != "ok")
        if failed:
            self.failures.append(f"{row['status']}: {row['problem']}: {row['spelling']}: {row['reason']}")
        seconds = row["median_s"] if row["status"] == "ok" else math.inf
        if family == OURS:
            self.ours[mode] = seconds
            self.best_rows[f"{OURS} {mode}".strip()] = row
        elif seconds < self.rivals.get(family, math.inf):
            self.rivals[family], self.best_rows[family] = seconds, row
        elif row["status"] == "skipped":
            self.rivals.setdefault(family, math.inf)

    def floor_of(self, mode: str) -> float:
        """The floor that the exams are held against: in the default mode of f32 tensor cores may take three
        products in TF32 instead of one of the FMA units.

        >>> Measured("f32", "batch_first", Pattern(1, 1, 1, 1), 1, 2.0, tensor_floor_s=1.0).floor_of("fp32")
        1.0
        """
        is_known = mode == "fp32" and math.isfinite(self.tensor_floor_s)
        return self.tensor_floor_s if is_known else self.floor_s

    def has_tensor_floor(self, mode: str) -> bool:
        """Whether that floor is known: older files did not measure the TF32 rate."""
        return mode != "fp32" or math.isfinite(self.tensor_floor_s)

    def implementation(self, mode: str) -> str:
        """The kernel that ran."""
        return str(self.best_rows[f"{OURS} {mode}".strip()].get("implementation", ""))

    def over_floor(self, mode: str) -> float:
        """Time of ours in that floor."""
        return self.ours[mode] / self.floor_of(mode)

    def finish(self) -> None:
        """Completes the problem when all its rows are there."""
        if self.pattern.d == 1 and self.layout == "batch_last" and "bmm" in self.rivals:
            self.rivals.setdefault("strided", self.rivals["bmm"])  # there bmm permutes nothing
        for name, families in ((EAGER, _EAGER_FAMILIES), (ANYONE, tuple(self.rivals))):
            times = [self.rivals[family] for family in families if family in self.rivals]
            if times and min(times) < math.inf:
                self.rivals[name] = min(times)

    @property
    def is_contested(self) -> bool:
        """Whether rivals beyond bmm, einsum and dense took part: only then the best of anything tells more
        than the best of those."""
        timed = {name for name in self.best_rows if not name.startswith(OURS)}
        return ANYONE in self.rivals and not timed <= set(_EAGER_FAMILIES)

    @property
    def winner(self) -> str:
        """The fastest rival, by its spelling."""
        rivals = {name: time for name, time in self.rivals.items() if name not in (EAGER, ANYONE)}
        best = min(rivals, key=lambda name: rivals[name])
        return str(self.best_rows.get(best, {}).get("spelling", best))

    def best_of(self, families: Iterable[str], mode: str = "") -> float | None:
        """The least time of these, ours included by its name; nothing where none was measured."""
        times = [self.ours.get(mode) if name == OURS else self.rivals.get(name) for name in families]
        known = [time for time in times if time is not None]
        return min(known) if known else None

    @property
    def text(self) -> str:
        """The problem in its text form, without a mode."""
        return f"{self.dtype} {self.layout} B={self.batch} {self.pattern}"


def latest(rows: Iterable[Row], record: str) -> list[Row]:
    """The rows of this kind; of one that several runs wrote, the last."""
    found: dict[tuple[str, ...], Row] = {}
    for row in rows:
        if row.get("record") == record:
            found[row["problem"], mode_of(row), row["contender"], row["spelling"]] = row
    return list(found.values())


Key = tuple[str, str, Pattern, int]  # what a problem is known by


def _tensor_floor(row: Row, ceilings: Row) -> float:
    """Three products in TF32, or the bytes."""
    by_flops = 3 * row["flops"] / ceilings["gemm_flops"]["tf32"]
    return float(max(row["bytes"] / ceilings["copy_bytes"], by_flops))


def _keyed(rows: Iterable[Row]) -> Iterable[tuple[Key, Row]]:
    """The times in these rows, each with its problem, and with what the record of its run tells of it."""
    run: Row = {}
    for row in rows:
        if row.get("record") == "run":
            run = row
        if row.get("record") != "row":
            continue
        told: Row = {"commit": run.get("commit", ""), "time": run.get("time", "")}
        ceilings = run.get("ceilings", {})
        if row["dtype"] == "f32" and "tf32" in ceilings.get("gemm_flops", {}) and "bytes" in row:
            told["tensor_floor_s"] = _tensor_floor(row, ceilings)
        yield (row["dtype"], row["layout"], Pattern.parse(row["pattern"]), row["batch"]), {**row, **told}


def collect(rows: Iterable[Row]) -> list[Measured]:
    """The problems that were timed, in order. What several runs measured is taken from the last, as it was
    measured."""
    last: dict[tuple[object, ...], tuple[Key, Row]] = {}
    for key, row in _keyed(rows):
        last[key, mode_of(row), family_of(row), row["spelling"]] = (key, row)
    found: dict[Key, Measured] = {}
    for key, row in last.values():
        found.setdefault(key, Measured(*key)).add(row)
    for one in found.values():
        one.finish()
    return sorted(found.values(), key=lambda one: (one.dtype, one.layout, one.pattern, one.batch))


def kinds(measured: Sequence[Measured]) -> list[tuple[str, str]]:
    """(dtype, mode) of everything ours was measured in, f32 first."""
    found = {(one.dtype, mode) for one in measured for mode in one.ours}
    order = {name: place for place, name in enumerate(("f32", "f16", "bf16", "fp32", "ieee", "tf32", ""))}
    return sorted(found, key=lambda kind: (order.get(kind[0], 9), order.get(kind[1], 9)))


def both_layouts(measured: Sequence[Measured], dtype: str) -> list[Measured]:
    """As the paper counts: for every pattern and contender the better of the two layouts."""
    found: dict[tuple[Pattern, int], Measured] = {}
    for one in measured:
        if one.dtype != dtype:
            continue
        key = (one.pattern, one.batch)
        best = found.setdefault(key, Measured(dtype, "best of both", *key, floor_s=one.floor_s))
        for mode, seconds in one.ours.items():
            best.ours[mode] = min(seconds, best.ours.get(mode, math.inf))
        for name, seconds in one.rivals.items():
            best.rivals[name] = min(seconds, best.rivals.get(name, math.inf))
    return list(found.values())


def halves_over_f32(measured: Sequence[Measured], dtype: str, layout: str) -> list[float]:
    """Ours in half precision over ours in f32, where both were measured: by turns, or else each by itself."""
    floats = {(one.pattern, one.batch): one.ours["fp32"] for one in of_kind(measured, "f32", "fp32", layout)}
    ratios = []
    for one in of_kind(measured, dtype, "", layout):
        row, apart_s = one.best_rows[OURS], floats.get((one.pattern, one.batch))
        if "over_f32" in row:
            ratios.append(row["over_f32"])
        elif "f32_median_s" in row:  # by turns, in older files
            ratios.append(row["median_s"] / row["f32_median_s"])
        elif apart_s:
            ratios.append(one.ours[""] / apart_s)
    return ratios


def of_kind(measured: Sequence[Measured], dtype: str, mode: str, layout: str = "") -> list[Measured]:
    """The problems on which ours was measured in this dtype and mode, in one layout or in any."""
    return [
        one
        for one in measured
        if one.dtype == dtype and mode in one.ours and (not layout or one.layout == layout)
    ]
