"""Compares two results files: what got faster or slower from A to B, beyond noise.

Exit code 0: nothing of ours got slower, wrong or lost; 1: something did; 2: the files share no problem. A
problem that was right in A and is not in B at all is lost, unless --subset is given.

Rivals that are the same in both files show how much times differ by themselves: what 95 % of them stay within
counts as noise, and their median as the machine's. A few beyond it are noise, too: it takes more of ours
than of the rivals, or one that is slower than any of them. Between files of one commit nothing can have got
slower.

  kronsparse-bench compare before.jsonl after.jsonl
  kronsparse-bench compare before.jsonl quick.jsonl --subset
  kronsparse-bench compare before.jsonl after.jsonl --contender bmm --noise 5
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kronsparse.bench.options import percentage
from kronsparse.bench.reporting.document import Table, markdown_table
from kronsparse.bench.reporting.verdict import machine_line
from kronsparse.bench.results.dataset import family_of, latest, mode_of
from kronsparse.bench.results.rows import OURS, Row, device_of, last_run, read_rows
from kronsparse.bench.results.statistics import median, percentile

NOISE_PERCENT = 3.0
MOST_NOISE = 0.25  # times that differ by more are for nobody to compare
ENOUGH_RIVALS = 8


@dataclass(frozen=True)
class Change:
    """One problem in both files."""

    problem: str
    before: Row
    after: Row
    noise: float  # as a share
    drift: float = 1.0  # time before over time after of what has not changed

    @property
    def ratio(self) -> float:
        """Time before over time after: above 1, it got faster."""
        if self.after["status"] != "ok":
            return 0.0
        return float(self.before["median_s"] / self.after["median_s"])

    @property
    def verdict(self) -> str:
        """Faster or slower only where the quartiles do not overlap and the medians are apart by more than
        the noise."""
        if self.after["status"] != "ok":
            return "broken"
        ratio = self.ratio / self.drift
        if ratio > 1 + self.noise and _quartile(self.after, 3) < _quartile(self.before, 1):
            return "faster"
        if ratio < 1 / (1 + self.noise) and _quartile(self.after, 1) > _quartile(self.before, 3):
            return "slower"
        return "same"


def _quartile(row: Row, which: int) -> float:
    name = f"q{which}_s"
    return float(row[name] if name in row else row["median_s"])


def _best(rows: Sequence[Row], contender: str) -> dict[str, Row]:
    """By problem and kind of measurement: the fastest spelling, or what went wrong with all of them."""
    found: dict[str, Row] = {}
    for record in ("row", "small"):
        for row in latest(rows, record):
            if family_of(row) != contender:
                continue
            name = row["problem"] if record == "row" else f"{row['problem']} (graph)"
            if contender == OURS and mode_of(row) not in ("", "fp32") and mode_of(row) not in name:
                name = f"{name} {mode_of(row)}"
            known = found.get(name)
            if known is None or _seconds(row) < _seconds(known):
                found[name] = row
    return found


def _seconds(row: Row) -> float:
    return float(row["median_s"]) if row["status"] == "ok" else math.inf


def unchanged(before: Sequence[Row], after: Sequence[Row], contender: str) -> list[float]:
    """Time before over time after of rivals that are the same in both files: not where torch is another."""
    versions = [last_run(rows).get("versions", {}).get("torch") for rows in (before, after)]
    if versions[0] != versions[1]:
        return []
    ratios = []
    for family in {family_of(row) for row in latest(before, "row")} - {contender, OURS}:
        old, new = _best(before, family), _best(after, family)
        for name in old.keys() & new.keys():
            if old[name]["status"] == new[name]["status"] == "ok":
                ratios.append(float(old[name]["median_s"] / new[name]["median_s"]))
    return ratios


@dataclass(frozen=True)
class Noise:
    """How much times differ without a change of the code."""

    share: float
    drift: float = 1.0
    told: str = ""
    beyond: float = 0.0  # the share of rivals that are slower by more than this
    slowest: float = math.inf  # the least time before over time after of them, without the drift

    def explains(self, slower: Sequence[float], compared: int) -> bool:
        """Whether so few of those compared have got slower, and by so little (time before over time after),
        as rivals do by themselves: three standard deviations are allowed.

        >>> noise = Noise(0.05, beyond=0.02, slowest=0.9)
        >>> noise.explains([0.92] * 6, 100), noise.explains([0.92] * 7, 100), noise.explains([0.8], 100)
        (True, False, False)
        """
        expected = self.beyond * compared
        most = expected + 3 * math.sqrt(expected * (1 - self.beyond))
        least = self.slowest * self.drift / (1 + NOISE_PERCENT / 100)
        return len(slower) <= most and min(slower, default=math.inf) >= least

    @staticmethod
    def of(before: Sequence[Row], after: Sequence[Row], contender: str, given: float | None) -> Noise:
        """As given, or by the rivals that have not changed where there are enough of them."""
        ratios = unchanged(before, after, contender)
        if given is not None or len(ratios) < ENOUGH_RIVALS:
            return Noise(NOISE_PERCENT / 100 if given is None else given / 100)
        drift = median(ratios)
        apart = [max(ratio / drift, drift / ratio) - 1 for ratio in ratios]
        share = min(MOST_NOISE, max(NOISE_PERCENT / 100, percentile(apart, 95)))
        told = (
            f"{len(ratios)} times of rivals, which have not changed, differ by {drift:.3f} in the median and "
            f"around it by up to {100 * percentile(apart, 95):.1f} % in 95 % of them: "
            f"noise is {100 * share:.1f} %."
        )
        slower = sum(ratio / drift < 1 / (1 + share) for ratio in ratios)
        return Noise(share, drift, told, max(1, slower) / len(ratios), min(ratios) / drift)


def same_commit(before: Sequence[Row], after: Sequence[Row]) -> bool:
    """Whether both files are of one commit, without changes."""
    commits = {str(row.get("commit")) for rows in (before, after) for row in rows if row["record"] == "run"}
    return len(commits) == 1 and not commits & {"unknown", "None"} and "+changes" not in commits.pop()


def changes(
    before: Sequence[Row], after: Sequence[Row], contender: str, noise: float, drift: float = 1.0
) -> tuple[list[Change], dict[str, Row]]:
    """Changes of problems that were right before, the worst first, and problems not measured again."""
    old, new = _best(before, contender), _best(after, contender)
    right = {name: row for name, row in old.items() if row["status"] == "ok"}
    found = [Change(name, row, new[name], noise, drift) for name, row in right.items() if name in new]
    missing = {name: row for name, row in right.items() if name not in new}
    return sorted(found, key=lambda change: change.ratio), missing


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `compare`."""
    parser.add_argument("before", type=Path, metavar="A", help="results file of before")
    parser.add_argument("after", type=Path, metavar="B", help="results file of after")
    parser.add_argument(
        "--contender", default=OURS, help=f"contender whose times are compared (default {OURS})"
    )
    parser.add_argument(
        "--noise",
        type=percentage,
        metavar="PERCENT",
        help="difference of medians that counts as noise, in percent (default: what rivals that have not "
        f"changed differ by, at least {NOISE_PERCENT:g})",
    )
    parser.add_argument("--all", action="store_true", help="list problems that stayed the same, too")
    parser.add_argument(
        "--subset",
        action="store_true",
        help="B holds a part of A's problems on purpose: missing ones are not lost",
    )


def main(options: argparse.Namespace) -> int:
    """Prints the comparison. Returns the exit code."""
    before, after = read_rows(options.before), read_rows(options.after)
    for name, rows in (("A", before), ("B", after)):
        print(f"{name}: {machine_line(last_run(rows))}")
    devices = [device_of(last_run(rows)) for rows in (before, after)]
    if devices[0] != devices[1]:
        print(f"\nA and B are of different devices ({'; '.join(devices)}): what differs may be the machine.")
    noise = Noise.of(before, after, options.contender, options.noise)
    if noise.told:
        print(f"\n{noise.told}")
    found, missing = changes(before, after, options.contender, noise.share, noise.drift)
    if not found:
        print(f"no problem of {options.contender} is in both files")
        return 2
    verdicts = [change.verdict for change in found]
    shown = [change for change in found if options.all or change.verdict != "same"]
    lines = [
        [
            change.problem,
            f"{change.before['median_s'] * 1e3:.4f}",
            f"{change.after['median_s'] * 1e3:.4f}" if change.after["status"] == "ok" else "-",
            f"{change.ratio:.3f}" if change.ratio else "-",
            change.verdict if change.verdict != "broken" else f"broken: {change.after['reason']}",
        ]
        for change in shown
    ]
    if not options.subset:
        lines += [
            [name, f"{row['median_s'] * 1e3:.4f}", "-", "-", "not measured in B"]
            for name, row in missing.items()
        ]
    if lines:
        print("\n" + markdown_table(Table(["problem", "A ms", "B ms", "A / B", "verdict"], lines)))
    counted = ", ".join(f"{verdicts.count(name)} {name}" for name in ("faster", "slower", "broken", "same"))
    timed = [change.ratio for change in found if change.ratio]
    middle = f"; A / B in the median {median(timed):.3f}" if timed else ""
    lost = f"; {len(missing)} not measured in B" if missing else ""
    print(f"\n{len(found)} problems in both: {counted}{middle}{lost}")
    failing = {"slower", "broken"}
    slower = [change.ratio for change in found if change.verdict == "slower"]
    if slower and noise.explains(slower, len(found)):
        print("What is slower is as little, and by as little, as with rivals that have not changed: noise.")
        failing = {"broken"}
    if options.contender == OURS and same_commit(before, after):
        print("A and B are of one commit: what is slower is noise, and does not count.")
        failing = {"broken"}
    return 1 if failing & set(verdicts) or (missing and not options.subset) else 0
