"""Times on a device that is not here, told from its results files: the floor by its ceilings, times what the
nearest measured problems take of their floors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kronsparse.bench.problems.problem import Problem
from kronsparse.bench.results.dataset import latest, mode_of
from kronsparse.bench.results.rows import OURS, Row, check_one_device, device_of, last_run
from kronsparse.bench.results.targets import LAUNCH_S
from kronsparse.chains import Pattern

NEAREST = 5
_NEAR = 0.1  # octaves: nearer than this, all count alike

Kind = tuple[str, str, str]  # dtype, mode, layout


def _place(pattern: Pattern, batch: int) -> list[float]:
    return [math.log2(size) for size in (*pattern, batch)]


@dataclass
class Elsewhere:
    """The measurements of a device."""

    device: str
    copy_bytes: float
    gemm_flops: dict[str, float]
    places: dict[Kind, np.ndarray]  # of problems, in octaves of a, b, c, d and batch
    ratios: dict[Kind, np.ndarray]  # logarithms of time over floor

    @staticmethod
    def of(rows: Sequence[Row]) -> Elsewhere:
        """From the rows of results files of one device."""
        check_one_device(rows)
        known = [row for row in rows if row["record"] == "run" and "ceilings" in row]
        if not known:
            raise ValueError(
                "--like: these files hold no run with ceilings; `kronsparse-bench run` writes them"
            )
        ceilings = known[-1]["ceilings"]
        found = Elsewhere(device_of(last_run(rows)), ceilings["copy_bytes"], ceilings["gemm_flops"], {}, {})
        points: dict[Kind, list[tuple[list[float], float]]] = {}
        for row in latest(rows, "row"):
            if row["contender"] != OURS or row["status"] != "ok":
                continue
            pattern, kind = Pattern.parse(row["pattern"]), (row["dtype"], mode_of(row), row["layout"])
            floor_s = found.floor(Problem(row["dtype"], row["layout"], pattern, row["batch"]))
            ratio = math.log(row["median_s"] / floor_s)
            points.setdefault(kind, []).append((_place(pattern, row["batch"]), ratio))
        for kind, ones in points.items():
            found.places[kind] = np.array([place for place, _ in ones])
            found.ratios[kind] = np.array([ratio for _, ratio in ones])
        return found

    def floor(self, problem: Problem) -> float:
        """The least seconds by the ceilings of the device."""
        rate = self.gemm_flops.get(problem.dtype, self.gemm_flops["f32"])
        return max(problem.moved_bytes / self.copy_bytes, problem.flops / rate)

    def _ratio(self, kind: Kind, place: Sequence[float], without: int | None = None) -> float:
        """The logarithm of time over floor, from the nearest problems."""
        apart = np.linalg.norm(self.places[kind] - np.array(place), axis=1)
        if without is not None:
            apart[without] = math.inf
        nearest = np.argsort(apart)[:NEAREST]
        weights = 1 / (_NEAR + apart[nearest])
        return float((weights * self.ratios[kind][nearest]).sum() / weights.sum())

    def predict(self, problem: str) -> float:
        """Seconds of a problem in its text form; of a chain, those of its factors one by one."""
        words, _, chain = problem.rpartition(" ")
        total = 0.0
        for text in chain.split("*"):
            one = Problem.parse(f"{words} {text}")
            kind = (one.dtype, one.modes[0], one.layout)
            if kind not in self.places:
                held = ", ".join(sorted({" ".join(filter(None, kind)) for kind in self.places})) or "nothing"
                wanted = " ".join(filter(None, kind))
                raise ValueError(f"--like: no time of ours in {wanted}; the files have {held}")
            ratio = self._ratio(kind, _place(one.pattern, one.batch))
            total += max(LAUNCH_S, self.floor(one) * math.exp(ratio))
        return total

    def measured_problems(self) -> int:
        """How many times of ours there are."""
        return sum(len(ones) for ones in self.ratios.values())

    def error(self, dtype: str, mode: str, layout: str) -> float | None:
        """The share by which a measured problem is off in the median, told from all others; nothing where
        there are too few."""
        kind = (dtype, mode, layout)
        if kind not in self.places or len(self.places[kind]) <= NEAREST:
            return None
        off = [
            abs(self._ratio(kind, place, at) - self.ratios[kind][at])
            for at, place in enumerate(self.places[kind])
        ]
        return float(math.exp(np.median(off)) - 1)
