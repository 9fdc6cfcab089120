"""A run: the problems of a suite one after the other, the rows to the results file, until the time is up."""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Protocol

import torch

from kronsparse.bench.measuring import machine
from kronsparse.bench.measuring.arena import Arena
from kronsparse.bench.measuring.c_api import Library, find_library
from kronsparse.bench.measuring.ceilings import Ceilings, Probe
from kronsparse.bench.measuring.contest import Table, first_line, hold_contest
from kronsparse.bench.measuring.devices import CpuDevice, Device, check_continued, open_device
from kronsparse.bench.measuring.devices import machine as hardware_of
from kronsparse.bench.measuring.energy import open_meter
from kronsparse.bench.measuring.energy_contest import hold_energy_contest, idle_watts
from kronsparse.bench.measuring.small_batch import hold_small_contest
from kronsparse.bench.options import clock
from kronsparse.bench.problems.problem import Problem
from kronsparse.bench.problems.suites import PAPER_BATCH, Suite, representative
from kronsparse.bench.reporting.verdict import summary
from kronsparse.bench.results.rows import OURS, Results, Row, default_path, device_of, last_run, now
from kronsparse.bench.rivals.spellings import why_missing
from kronsparse.bench.run import ALL, COMPETITORS, COMPILED
from kronsparse.chains import Pattern

BUSY_LOAD = 0.5  # running threads of others that no benchmark should stand
STEADY = 1.1  # a larger change of the ceilings during a run spoils it
SILENCE_S = 20.0  # between lines of progress, where nobody watches
SMALLEST_BATCH = 49  # what the paper's batch can be halved to
LEAST_CASE_BATCH = 64  # what that of a random problem can be halved to
Hold = Callable[[Problem, Sequence[str]], list[Row]]


def say(text: str) -> None:
    """To whoever watches; results go to the file, the verdict to the output."""
    print(text, file=sys.stderr, flush=True)


def cpu_batch(problem: Problem, ceilings: Ceilings, floor_s: float, memory_bytes: float) -> int:
    """The paper's batch, halved or doubled until the floor in f32 is near this; other machines of the same
    speed come to the same batch."""

    def per_batch(batch: int) -> tuple[float, float]:
        trial = Problem("f32", problem.layout, problem.pattern, batch)
        return ceilings.floor(trial)[0], 3.0 * sum(trial.operand_bytes)

    batch = PAPER_BATCH
    while batch > SMALLEST_BATCH and (
        per_batch(batch)[0] > 1.5 * floor_s or per_batch(batch)[1] > 0.9 * memory_bytes
    ):
        batch //= 2
    while per_batch(batch)[0] < 0.75 * floor_s and per_batch(2 * batch)[1] < 0.9 * memory_bytes:
        batch *= 2
    return batch


def cpu_case_batch(problem: Problem, ceilings: Ceilings, floor_s: float, memory_bytes: float) -> int:
    """The batch of a random problem, halved until its floor in f32 is at most about this; 64 is the least."""
    batch = problem.batch
    while batch >= 2 * LEAST_CASE_BATCH:
        trial = Problem("f32", problem.layout, problem.pattern, batch)
        if ceilings.floor(trial)[0] <= 1.5 * floor_s and 3.0 * sum(trial.operand_bytes) < 0.9 * memory_bytes:
            break
        batch //= 2
    return batch


class Place(Protocol):
    """As much of a device as it takes to plan a run."""

    @property
    def name(self) -> str: ...
    @property
    def memory_bytes(self) -> float: ...


def plan_problems(
    options: argparse.Namespace, suite: Suite, device: Place, ceilings: Ceilings
) -> list[Problem]:
    """The problems in the order they are taken: any beginning is spread over all patterns."""
    dtypes = options.dtypes or (["f32"] if device.name == "cpu" and suite.kind == "time" else suite.dtypes)
    fitted = device.name == "cpu" and suite.kind != "small" and not options.batch
    listed: list[Problem | Pattern] = [*suite.problems, *suite.patterns]
    problems = []
    for pattern, case_batch in suite.cases[: options.limit]:
        for dtype in dtypes:
            for layout in options.layouts or suite.layouts:
                modes = tuple(options.modes) if dtype == "f32" else ("",)
                problem = Problem(dtype, layout, pattern, options.batch or case_batch, modes, suite.seed)
                if fitted:
                    wanted = cpu_case_batch(problem, ceilings, suite.cpu_floor_s, device.memory_bytes)
                    problem = replace(problem, batch=wanted)
                problems.append(problem)
    for chosen in representative(listed)[: options.limit]:
        if isinstance(chosen, Problem):
            problems.append(chosen)
            continue
        for pattern in [chosen, *([suite.companion(chosen)] if suite.companion else [])]:
            for dtype in dtypes:
                for layout in options.layouts or suite.layouts:
                    for batch in [options.batch] if options.batch else suite.batches:
                        modes = tuple(options.modes) if dtype == "f32" else ("",)
                        problem = Problem(dtype, layout, pattern, batch, modes)
                        if fitted:
                            wanted = cpu_batch(problem, ceilings, suite.cpu_floor_s, device.memory_bytes)
                            problem = Problem(dtype, layout, pattern, wanted, modes)
                        problems.append(problem)
    return problems


def progress_line(rows: Sequence[Row]) -> str:
    """One contest in a line: ours and the best of the others, in floors; and what went wrong."""
    timed = [row for row in rows if row["status"] == "ok"]
    theirs = sorted((row for row in timed if row["contender"] != OURS), key=lambda row: row["median_s"])
    parts = [f"{rows[0]['problem']:<42} floor {rows[0]['floor_s'] * 1e3:8.4f} ms"]
    for row in [row for row in timed if row["contender"] == OURS]:
        how = " ".join(filter(None, (row["implementation"], row["mode"])))
        parts.append(f"ours {row['median_s'] / row['floor_s']:6.2f} ({how})")
    parts += [f"torch {row['median_s'] / row['floor_s']:6.2f} ({row['spelling']})" for row in theirs[:1]]
    parts += [f"{row['joules']:.3g} J ({row['contender']})" for row in timed if "joules" in row]
    parts += [f"{row['status'].upper()} {row['spelling']}: {row['reason']}" for row in rows if _failed(row)]
    return "  ".join(parts)


def _failed(row: Row) -> bool:
    return bool(row["status"] == "wrong" or (row["status"] != "ok" and row["contender"] == OURS))


class Progress:
    """Says how far it is and how long it will take: each problem on a terminal, else now and then."""

    def __init__(self, total: int) -> None:
        self._total, self._watched = total, sys.stderr.isatty()
        self._begun = self._said = time.monotonic()

    def tell(self, done: int, rows: Sequence[Row]) -> None:
        """After a problem."""
        now = time.monotonic()
        left = f"left {clock((now - self._begun) / done * (self._total - done))}"
        if rows and (self._watched or any(map(_failed, rows))):
            say(f"[{done:4}/{self._total}] {progress_line(rows)}  {left}")
        elif now - self._said > SILENCE_S or done == self._total:
            say(f"[{done:4}/{self._total}] {left}")
            self._said = now


def run_problems(
    problems: Sequence[Problem],
    families: Sequence[str],
    results: Results,
    kind: str,
    deadline: float,
    hold: Hold,
) -> int:
    """Contests what was not contested before, until the deadline; how many problems are left."""
    before = results.done(kind)
    left = []
    for problem in problems:
        texts = [problem.text(mode) for mode in problem.modes]
        missing = [name for name in families if any((text, name) not in before for text in texts)]
        if missing:
            left.append((problem, texts, missing))
    if len(left) < len(problems):
        say(f"{len(problems) - len(left)} of {len(problems)} problems were done before")
    progress, begun = Progress(len(left)), time.monotonic()
    for done, (problem, texts, missing) in enumerate(left):
        now = time.monotonic()
        # The first is measured whatever the budget: a run that measures nothing is of no use.
        if done and now + (now - begun) / done > deadline:
            say(f"budget spent: {len(left) - done} of {len(left)} problems left out")
            return len(left) - done
        try:
            rows = hold(problem, missing)
        except torch.OutOfMemoryError as error:
            results.add("left_out", problem=problem.text(), reason=first_line(error))
            say(f"left out: {problem.text()}: {first_line(error)}")
            continue
        ended = {"record": "done", "kind": kind, "problems": texts, "contenders": missing}
        results.add_rows([*rows, ended])
        progress.tell(done + 1, rows)
    return 0


def _too_large(problem: Problem, families: Sequence[str]) -> list[Row]:
    reason = {"status": "skipped", "reason": "x, y and a permuted copy of each would not fit in memory"}
    return [
        {"record": "row", **problem.fields(mode), "contender": name, "spelling": name, **reason}
        for mode in problem.modes
        for name in families
    ]


def record_run(
    results: Results,
    suite: str,
    seed: int | None,
    threads: int | None,
    device: Device,
    hardware: dict[str, object],
    library: Library,
) -> Ceilings:
    """Measures the ceilings and writes down when, where and with what this run is made."""
    load = machine.load()
    ceilings = Ceilings.measure(device)
    versions = {
        "kronsparse": library.version,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
    }
    results.add(
        "run",
        time=now(),
        suite=suite,
        **({"seed": seed} if seed is not None else {}),
        device=device.name,
        threads=threads if device.name == "cpu" else None,
        machine=hardware,
        versions=versions,
        commit=machine.commit(),
        ceilings=asdict(ceilings),
        load=load,
        options=machine.arguments(),
    )
    say(f"{device_of(results.rows[-1])}: rows to {results.path}; {ceilings}")
    if device.name == "cpu" and load > BUSY_LOAD:
        say(f"load {load:.1f} in the last minute: if other work goes on, the numbers will be worthless")
    return ceilings


def earlier_ceilings(results: Results, now: str) -> Ceilings | None:
    """The ceilings of the run that this one continues, which must be of the same device."""
    if not results.rows:
        return None
    last_run(results.rows)  # refuses what is no file of ours
    check_continued(results, now)
    known = [row for row in results.rows if row["record"] == "run" and "ceilings" in row]
    return Ceilings.of_record(known[-1]) if known else None


def present_families(
    options: argparse.Namespace, usual: Sequence[str], device: Place, is_absent: bool = False
) -> list[str]:
    """Who takes part: those asked for, who must be there, or the usual ones that are; on a GPU that is absent
    all of them."""
    asked = options.competitors
    if asked and ALL in asked:
        asked, usual = None, [one for one in COMPETITORS if one not in COMPILED]
    is_cuda = device.name.startswith("cuda")
    wanted = [*(asked or usual), *(COMPILED if options.compiled else ())]
    families = []
    for name in dict.fromkeys(OURS if name == "ours" else name for name in wanted):
        reason = "" if is_absent else why_missing(name, is_cuda)
        if reason and asked:
            raise ValueError(f"--competitors {name}: {reason}")
        if reason and is_cuda:
            say(f"without {name}: {reason}")
        if not reason:
            families.append(name)
    return families


def _holder(
    options: argparse.Namespace,
    kind: str,
    device: Device,
    ceilings: Ceilings,
    library: Library,
    problems: Sequence[Problem],
) -> Hold:
    """The function that measures one problem in this kind of run."""
    if kind == "small":
        return partial(hold_small_contest, device, ceilings, library, options.impl)
    suite: Suite = options.suite_found
    probe = Probe(device) if suite.cpu_own_ceilings and isinstance(device, CpuDevice) else None
    table = Table(Arena(device, problems), ceilings, library, options.impl, suite.effort, probe)
    if kind == "time":
        return partial(hold_contest, table)
    meter = open_meter(device.name, device.uuid)
    idle_w = idle_watts(meter, device)
    say(f"idle {idle_w:.1f} W by {meter.name}")
    return partial(hold_energy_contest, table, meter, idle_w, options.windows)


def sweep(options: argparse.Namespace) -> int:
    """Everything a `run` does after its options are read."""
    suite: Suite = options.suite_found
    kind = suite.kind
    library = Library(find_library(options.shared_library))
    device = open_device(options.device, library)
    if device.name == "cpu":
        torch.set_num_threads(options.threads)
    # Both refuse before anything is measured.
    if options.impl:
        library.check_implementation(options.impl, device.name)
    if kind == "energy":
        open_meter(device.name, device.uuid)
    hardware = hardware_of(device)
    results = Results(options.output or default_path(options.suite, hardware))
    earlier = earlier_ceilings(results, device_of({"machine": hardware, "threads": options.threads}))
    ceilings = record_run(results, options.suite, suite.seed, options.threads, device, hardware, library)

    usual = suite.cpu_contenders if device.name == "cpu" and suite.cpu_contenders else suite.contenders
    usual = device.contenders or usual
    families = present_families(options, usual, device)
    # A run that goes on must come to the same batches as before.
    problems = plan_problems(options, suite, device, earlier or ceilings)
    fitting = [problem for problem in problems if Arena.fits(device, problem)]
    too_large = [problem for problem in problems if not Arena.fits(device, problem)]
    if suite.is_random:
        reason = "x, y, the values and copies of them would not fit in memory"
        known = {row["problem"] for row in results.rows if row["record"] == "left_out"}
        for problem in too_large:
            if problem.text() not in known:
                results.add("left_out", problem=problem.text(), reason=reason)
        if too_large:
            say(f"{len(too_large)} of {len(problems)} problems left out: {reason}")
    else:
        results.add_rows(row for one in too_large for row in _too_large(one, families))

    deadline = options.begun + options.budget
    hold = _holder(options, kind, device, ceilings, library, fitting)
    done_as = " ".join(filter(None, (kind, options.impl)))  # forced implementations are measured apart
    left = run_problems(fitting, families, results, done_as, deadline, hold)

    again = Ceilings.measure(device, runs=3)
    results.add("end", ceilings=asdict(again), seconds=time.monotonic() - options.begun, left=left)
    drift = max(
        again.gemm_rate("f32") / ceilings.gemm_rate("f32"), ceilings.gemm_rate("f32") / again.gemm_rate("f32")
    )
    if drift > STEADY:
        has_own = suite.cpu_own_ceilings and device.name == "cpu"
        advice = "times of different problems do not compare" if has_own else "do not trust these numbers"
        say(f"the machine was not steady (its GEMM rate changed by {drift:.2f}x): {advice}")
    print("\n".join(summary(results.rows)))
    return 0
