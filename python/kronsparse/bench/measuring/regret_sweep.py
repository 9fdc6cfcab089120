"""The part of `regret` after its options are read: the candidates of each problem, timed by turns."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import torch

from kronsparse.bench.measuring.arena import Arena
from kronsparse.bench.measuring.c_api import KronsparseError, Library, find_library
from kronsparse.bench.measuring.ceilings import Ceilings
from kronsparse.bench.measuring.contest import Contender, Contest, Table, first_line
from kronsparse.bench.measuring.devices import Device, open_device
from kronsparse.bench.measuring.devices import machine as hardware_of
from kronsparse.bench.measuring.small_batch import SmallContest, ours_of
from kronsparse.bench.measuring.sweep import Progress, earlier_ceilings, plan_problems, record_run, say
from kronsparse.bench.problems.problem import Problem
from kronsparse.bench.problems.suites import Suite
from kronsparse.bench.reporting.document import Document, to_markdown
from kronsparse.bench.reporting.regret_section import regret_section
from kronsparse.bench.results.rows import Results, Row, default_path, device_of

Enter = Callable[[str | None], Contender]  # an implementation, or as a plan chooses


def _enter_all(library: Library, problem: str, device: str, within: float, enter: Enter) -> list[str]:
    """The choice first, which may be a remembered one, then every other candidate that is not predicted to be
    too slow; those that are."""
    predicted = library.candidates(problem, device)
    least = min(predicted.values())
    choice = enter(None).implementation
    others = [name for name in predicted if name != choice]
    for name in others:
        if predicted[name] <= within * least:
            enter(name)
    return [name for name in others if predicted[name] > within * least]


def _time_by_turns(table: Table, problem: Problem, within: float) -> tuple[list[Contender], list[str]]:
    mode = problem.modes[0]
    with Contest(table, problem) as contest:

        def enter(implementation: str | None) -> Contender:
            contest.enter_ours(mode, implementation)
            return contest.contenders[-1]

        left_out = _enter_all(table.c_api, problem.text(mode), table.device.name, within, enter)
        contest.time()
        return contest.contenders, left_out


def _time_small(
    device: Device, ceilings: Ceilings, library: Library, problem: Problem, within: float
) -> tuple[list[Contender], list[str]]:
    contest, mode = SmallContest(device, ceilings, problem), problem.modes[0]
    found: list[Contender] = []

    def enter(implementation: str | None) -> Contender:
        with ExitStack() as plans:
            found.append(ours_of(contest, library, mode, implementation, plans))
            device.synchronize()  # before the plans go
        return found[-1]

    left_out = _enter_all(library, problem.text(mode), device.name, within, enter)
    return found, left_out


def regret_row(problem: Problem, mode: str, contenders: Sequence[Contender], left_out: Sequence[str]) -> Row:
    """The choice, which is the first, beside the best of all."""
    times = {one.implementation: one.timing.median_s for one in contenders if one.timing and one.was_right}
    told = {
        one.implementation or f"candidate {place}": {
            "status": one.status,
            "reason": one.reason,
            "predicted_s": one.predicted_s,
            "median_s": one.timing.median_s if one.timing and one.was_right else None,
        }
        for place, one in enumerate(contenders)
    }
    choice = contenders[0]
    row: Row = {
        **problem.fields(mode),
        "choice": choice.implementation,
        "tuned": choice.tuned,
        "candidates": told,
    }
    row |= {"not_timed": list(left_out), "status": choice.status}
    if choice.implementation in times:
        best = min(times, key=lambda name: times[name])
        row |= {"best": best, "best_s": times[best], "choice_s": times[choice.implementation]}
        row["regret"] = row["choice_s"] / row["best_s"]
    return row


def problems_of(
    options: argparse.Namespace, name: str, suite: Suite, device: Device, ceilings: Ceilings
) -> list[tuple[str, Problem]]:
    """The problems of a suite that fit, in the order they are taken."""
    asked = argparse.Namespace(
        dtypes=options.dtypes,
        layouts=options.layouts,
        modes=["fp32"],
        batch=options.batch,
        limit=None if suite.is_random else options.limit,
    )
    planned = plan_problems(asked, suite, device, ceilings)
    return [(name, problem) for problem in planned if Arena.fits(device, problem)]


def sweep(options: argparse.Namespace) -> int:
    """Measures everything that was not measured before, until the budget is spent; prints the table."""
    library = Library(find_library(options.shared_library))
    device = open_device(options.device)
    if device.name == "cpu":
        torch.set_num_threads(options.threads)
    hardware = hardware_of(device)
    results = Results(options.output or default_path("regret", hardware))
    earlier = earlier_ceilings(results, device_of({"machine": hardware, "threads": options.threads}))
    ceilings = record_run(results, "regret", options.seed, options.threads, device, hardware, library)
    problems = [
        one
        for name, suite in options.chosen.items()
        for one in problems_of(options, name, suite, device, earlier or ceilings)
    ]
    known = {(row["suite"], row["problem"]) for row in results.rows if row["record"] == "regret"}
    left = [(name, one) for name, one in problems if (name, one.text(one.modes[0])) not in known]
    arena = Arena(device, [one for name, one in left if options.chosen[name].kind == "time"])
    progress, begun = Progress(len(left)), time.monotonic()
    for done, (name, problem) in enumerate(left):
        now = time.monotonic()
        if done and now + (now - begun) / done > options.begun + options.budget:
            say(f"budget spent: {len(left) - done} of {len(left)} problems left out")
            break
        suite, mode = options.chosen[name], problem.modes[0]
        try:
            if suite.kind == "small":
                timed, left_out = _time_small(device, ceilings, library, problem, options.within)
            else:
                table = Table(arena, ceilings, library, effort=suite.effort)
                timed, left_out = _time_by_turns(table, problem, options.within)
        except (torch.OutOfMemoryError, KronsparseError) as error:
            results.add("left_out", problem=problem.text(mode), reason=first_line(error))
            continue
        results.add("regret", suite=name, **regret_row(problem, mode, timed, left_out))
        progress.tell(done + 1, [])
    section = regret_section(results.rows)
    if section is not None:
        print(to_markdown(Document(device_of(results.rows[0]), [section])))
    print(f"Rows are in {results.path}. Those of a GPU that results/ lacks are welcome: send the file in.")
    return 0
