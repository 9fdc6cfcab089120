"""Times whole chains: ours as the planner runs them, the same factors one by one, and the dense layer, all
against the fused floor.

The floor of a chain is the time to read x and write y once at the copy rate of the machine; in f32 it is also
at least three times the flops of the factors at the TF32 rate. Groups: `layers` (eight layers of ViT-S, GPT-2
and others), `further` (24 chains of widths 384 to 4096: Monarch, butterflies, BLAST), `small` (layers of two
factors at B = 1, 8, 64, in CUDA graphs, with weights that are out of the cache). Answers are compared with
float64 before anything is timed. The same command with the same --output goes on with the chains that are
left.

  kronsparse-bench chains --dtypes f16 --output chains.jsonl
  kronsparse-bench chains --groups small --dtypes f16
  kronsparse-bench chains --device cpu --batch 64 --limit 2
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace

import torch
from torch import Tensor

from kronsparse.bench.measuring.answers import ERROR_RATIO, ROUNDING, SAMPLES_CHECKED, TORCH_DTYPES
from kronsparse.bench.measuring.c_api import KronsparseError, Library, Plan, find_library
from kronsparse.bench.measuring.ceilings import Ceilings, tf32_allowed
from kronsparse.bench.measuring.contest import first_line
from kronsparse.bench.measuring.devices import (
    CpuDevice,
    Device,
    Rotation,
    begin_results,
    bound_call,
    open_device,
)
from kronsparse.bench.measuring.timing import Effort, Timing, interleaved
from kronsparse.bench.options import DEVICE_HELP, add_library, add_output, clock, count, duration, words
from kronsparse.bench.problems.chain_cases import GROUPS, ChainProblem, cases
from kronsparse.bench.problems.problem import DTYPES
from kronsparse.bench.reporting.chains_section import summary
from kronsparse.bench.results.rows import OURS, Results, Row
from kronsparse.chains import chain_text
from kronsparse.checks import LAYOUTS
from kronsparse.torch.backends import by_einsum, to_dense

UNFUSED, DENSE = "unfused", "dense"
EFFORT = Effort(run_s=0.3e-3, total_s=20e-3, fewest=7, most=25)
# Inputs of large batches are rotated until they are so many times the cache; weights of small ones likewise.
CACHES_OF_OPERANDS, MOST_OPERANDS = 4, 16
CACHES_OF_WEIGHTS, MOST_WEIGHTS = 2.2, 40
SMALL_RUNS = 11


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `chains`."""
    add = parser.add_argument
    add("--device", default="cuda:0", help=DEVICE_HELP)
    for name, allowed, default in (
        ("groups", GROUPS, GROUPS),
        ("dtypes", DTYPES, ("f16", "bf16", "f32")),
        ("layouts", LAYOUTS, LAYOUTS),
    ):
        told = f"{name} to run (default {','.join(default)})"
        add(f"--{name}", type=words(allowed), default=list(default), metavar="LIST", help=told)
    add("--batch", type=count, metavar="N", help="number of samples (default: each chain's own)")
    add("--limit", type=count, metavar="N", help="run the first N chains of each group")
    add("--budget", type=duration, default=math.inf, metavar="TIME", help="stop after this long, as in 90s")
    add("--impl", metavar="NAME", help="implementation or family that our plans are held to")
    add_library(parser)
    add_output(parser)


def problems(options: argparse.Namespace) -> Iterator[ChainProblem]:
    """In the order in which they are run. Small batches are timed as f16 batch_first is asked for."""
    for dtype in options.dtypes:
        for group in options.groups:
            layouts = options.layouts if group != "small" else options.layouts[:1]
            for layout in layouts:
                for case in cases([group])[: options.limit]:
                    batch = options.batch or case.batch
                    yield ChainProblem(replace(case, batch=batch), dtype, layout)


def main(options: argparse.Namespace) -> int:
    """Measures, and prints the table. Returns 1 where one of our answers was wrong."""
    device = open_device(options.device)
    library = Library(find_library(options.shared_library))
    if options.impl:
        library.check_implementation(options.impl, device.name)
    begun = time.monotonic()
    results = begin_results("chains", device, options.output)
    ceilings = Ceilings.measure(device)
    results.add("ceilings", **asdict(ceilings))
    print(f"ceilings: {ceilings}", file=sys.stderr, flush=True)
    table = Table(device, ceilings, library, options.impl)
    _run(table, results, options, begun)
    print(summary(results.rows))
    return int(any(row.get("status") == "wrong" for row in results.rows if row["record"] == "chain"))


def _known_by(row: Row) -> tuple[str, str, str]:
    """A chain that was measured: a run that goes on leaves it out."""
    return row["group"], row["problem"], row.get("forced", "")


def _run(table: Table, results: Results, options: argparse.Namespace, begun: float) -> None:
    forced = table.implementation or ""
    known = {_known_by(row) for row in results.rows if row["record"] == "chain"}
    left = [one for one in problems(options) if (one.case.group, one.text, forced) not in known]
    for done, problem in enumerate(left):
        # The first is measured whatever the budget: a run that measures nothing is of no use.
        if done and time.monotonic() - begun > options.budget:
            print(f"--budget: stopped before {problem.text}; {len(left) - done} are left", file=sys.stderr)
            return
        row = {**hold(table, problem), **({"forced": forced} if forced else {})}
        results.add_rows([row])
        told = ", ".join(f"{name} {seconds * 1e3:.4f} ms" for name, seconds in row["seconds"].items())
        when = clock(time.monotonic() - begun)
        print(f"{when} {row['problem']}: {row['status']} {told}", file=sys.stderr, flush=True)
        table.device.tidy()


@dataclass
class Table:
    """The things that every contest needs."""

    device: Device
    ceilings: Ceilings
    native: Library
    implementation: str | None = None


Call = Callable[[], Tensor]


class ChainContest:
    """One problem: operands, weights, who takes part."""

    def __init__(self, table: Table, problem: ChainProblem) -> None:
        self.table, self.problem = table, problem
        self.chain = problem.case.chain
        self.is_first = problem.layout == "batch_first"
        self.kind = TORCH_DTYPES[problem.dtype]
        self.plans = ExitStack()
        torch.manual_seed(1)

    def draw(self) -> list[Tensor]:
        """Factors that leave the variance of x as it is: long chains neither vanish nor overflow."""
        where = self.table.device.torch
        return [
            (torch.rand(pattern, device=where) * 2 - 1).mul(math.sqrt(3 / pattern.c)).to(self.kind)
            for pattern in self.chain
        ]

    def normal(self, features: int) -> Tensor:
        """An operand, standard normal."""
        return torch.randn(self.problem.shape(features), device=self.table.device.torch).to(self.kind)

    def empty(self, features: int) -> Tensor:
        """Memory for an operand."""
        return torch.empty(self.problem.shape(features), device=self.table.device.torch, dtype=self.kind)

    def plan(self, chain: Sequence[object], factors: Sequence[Tensor]) -> Plan:
        """Ours for these factors."""
        device = self.table.device
        device.synchronize()  # the factors must be there: a plan reads them on a stream of its own
        text, addresses = self.problem.text_of(chain), [device.address(one) for one in factors]
        made = self.table.native.plan(text, addresses, self.table.implementation, device.name)
        return self.plans.enter_context(made)

    def run(self, plan: Plan, x: Tensor, y: Tensor) -> Call:
        """A call of a plan on the stream of the moment."""
        return bound_call(self.table.device, plan, x, y)

    def unfused(self, plans: Sequence[Plan], x: Tensor, y: Tensor) -> Call:
        """The plans of single factors, left factor first, one after the other."""
        calls, source = [], x
        for plan, pattern in zip(reversed(plans), reversed(self.chain), strict=True):
            target = y if plan is plans[0] else self.empty(pattern.rows)
            calls.append(self.run(plan, source, target))
            source = target

        def call() -> Tensor:
            for one in calls:
                one()
            return y

        return call

    def dense(self, matrix: Tensor, x: Tensor, y: Tensor) -> Call:
        """The library's product with the whole matrix."""
        if self.is_first:
            return lambda: torch.mm(x, matrix.t(), out=y)
        return lambda: torch.mm(matrix, x, out=y)

    def members(self, factors: Sequence[Tensor]) -> dict[str, Callable[[Tensor, Tensor], Call]]:
        """Who takes part with these factors: a call for each pair of operands."""
        fused = self.plan(self.chain, factors)
        single = [self.plan([one], [values]) for one, values in zip(self.chain, factors, strict=True)]
        is_slow = isinstance(self.table.device, CpuDevice) and self.kind != torch.float32
        self.names = {OURS: fused.implementation, UNFUSED: " + ".join(one.implementation for one in single)}
        found: dict[str, Callable[[Tensor, Tensor], Call]] = {
            OURS: lambda x, y: self.run(fused, x, y),
            UNFUSED: lambda x, y: self.unfused(single, x, y),
        }
        if not is_slow:  # torch may have no fast product of halves on a CPU
            matrix = to_dense([values.float() for values in factors]).to(self.kind)
            found[DENSE] = lambda x, y: self.dense(matrix, x, y)
        return found

    def checker(self, factors: Sequence[Tensor], x: Tensor) -> Callable[[Tensor], float]:
        """Errors in norm, of some samples, against float64."""
        batch = self.problem.case.batch
        picked = torch.randint(batch, (min(SAMPLES_CHECKED, batch),))
        self.samples = torch.cat([torch.tensor([0, batch - 1]), picked]).to(x.device)
        rows = self._sampled(x).double()
        exact = rows
        for values in reversed(factors):
            exact = by_einsum(exact, values.double(), "batch_first")
        theirs = self._sampled(x)
        for values in reversed(factors):
            theirs = by_einsum(theirs, values, "batch_first")
        self.torch_error = _distance(theirs, exact)

        def error(y: Tensor) -> float:
            # An element that nobody wrote is left as NaN.
            whole = torch.isfinite(y.sum(dtype=torch.float32))
            return _distance(self._sampled(y), exact) if bool(whole) else math.inf

        return error

    def _sampled(self, operand: Tensor) -> Tensor:
        return operand[self.samples] if self.is_first else operand[:, self.samples].t()

    @property
    def allowed(self) -> float:
        """The largest error: twice that of torch's products of the same factors in the same dtype, or one
        rounding for each factor. A CPU adds up term by term."""
        is_cpu = isinstance(self.table.device, CpuDevice)
        terms = max(pattern.c for pattern in self.chain) if is_cpu else 1
        least = ROUNDING[self.problem.dtype] * math.sqrt(len(self.chain) * terms)
        return max(ERROR_RATIO * self.torch_error, least)


def _distance(given: Tensor, exact: Tensor) -> float:
    return float((given.double() - exact).norm() / exact.norm())


def hold(table: Table, problem: ChainProblem) -> Row:
    """The row of one problem."""
    case = problem.case
    floor_s, bound = problem.floor(table.ceilings)
    row: Row = {
        "record": "chain",
        "problem": problem.text,
        "group": case.group,
        "name": case.name,
        "chain": chain_text(case.chain),
        "dtype": problem.dtype,
        "layout": problem.layout,
        "batch": case.batch,
        "status": "ok",
        "reason": "",
        "seconds": {},
        "errors": {},
        "floor_s": floor_s,
        "floor_bound": bound,
        "flops": problem.flops,
        "bytes": problem.operand_bytes,
    }
    contest = ChainContest(table, problem)
    with contest.plans, tf32_allowed(False), torch.no_grad():
        try:
            row["predicted_s"] = table.native.predict(problem.text, table.implementation, table.device.name)
            timings = (_small if case.group == "small" else _large)(contest, row)
        except KronsparseError as error:
            return row | {"status": "unavailable", "reason": first_line(error)}
        finally:
            table.device.synchronize()  # before the plans go
    row["seconds"] = {name: timing.median_s for name, timing in timings.items()}
    row["quartiles"] = {name: [timing.q1_s, timing.q3_s] for name, timing in timings.items()}
    return row


def _checked(contest: ChainContest, row: Row, name: str, error: float) -> bool:
    """Writes the error down; False where the answer is wrong, who is then not timed."""
    row["errors"][name] = error if math.isfinite(error) else None
    row["allowed"] = contest.allowed
    # The dense matrix was rounded, too, which is not held against it.
    limit = contest.allowed if name != DENSE else math.inf
    if error <= limit and math.isfinite(error):
        return True
    if name != DENSE:
        row["status"] = "wrong"
    row["reason"] = f"{row['reason']} {name}: error {error:.3g}, {limit:.3g} allowed".strip()
    return False


def _large(contest: ChainContest, row: Row) -> dict[str, Timing]:
    device, chain = contest.table.device, contest.chain
    wanted = math.ceil(CACHES_OF_OPERANDS * device.cache_bytes / contest.problem.operand_bytes)
    operands = [
        (contest.normal(chain.cols), contest.empty(chain.rows))
        for _ in range(max(1, min(MOST_OPERANDS, wanted)))
    ]
    factors = contest.draw()
    error_of = contest.checker(factors, operands[0][0])
    rotations: dict[str, Rotation] = {}
    members = contest.members(factors)
    row["implementations"] = contest.names
    for name, member in members.items():
        calls = [member(x, y) for x, y in operands]
        operands[0][1].fill_(math.nan)
        if _checked(contest, row, name, error_of(calls[0]())):
            rotations[name] = Rotation(calls)
    for rotation in rotations.values():
        device.seconds_of(rotation, 2)  # knows afterwards how long a call takes to enqueue
    schedules = [EFFORT.schedule(device.seconds_of(rotation, 3)) for rotation in rotations.values()]
    timings = interleaved(list(rotations.values()), schedules, device.seconds_of)
    return dict(zip(rotations, timings, strict=True))


def _small(contest: ChainContest, row: Row) -> dict[str, Timing]:
    """Calls with weights of their own, in one graph for each member."""
    device, chain = contest.table.device, contest.chain
    x, y = contest.normal(chain.cols), contest.empty(chain.rows)
    weight_bytes = sum(pattern.nnz for pattern in chain) * contest.kind.itemsize
    copies = max(1, min(MOST_WEIGHTS, math.ceil(CACHES_OF_WEIGHTS * device.cache_bytes / weight_bytes)))
    weights = [contest.draw() for _ in range(copies)]
    error_of = contest.checker(weights[0], x)
    by_name: dict[str, list[Call]] = {}
    for factors in weights:
        for name, member in contest.members(factors).items():
            by_name.setdefault(name, []).append(member(x, y))
    row["implementations"], row["copies"] = contest.names, copies
    replays: dict[str, Callable[[], object]] = {}
    lengths: dict[str, int] = {}
    for name, calls in by_name.items():
        y.fill_(math.nan)
        if not _checked(contest, row, name, error_of(calls[0]())):
            continue
        rounds = math.ceil(device.replayed_calls / len(calls))
        in_graph = list(calls) * rounds
        replays[name], lengths[name] = device.replayable(in_graph), len(in_graph)
        device.seconds_of(replays[name])
    seconds: dict[str, list[float]] = {name: [] for name in replays}
    for _ in range(SMALL_RUNS):
        for name, replay in replays.items():
            seconds[name].append(device.seconds_of(replay) / lengths[name])
    return {name: Timing.of(mine, lengths[name]) for name, mine in seconds.items()}
