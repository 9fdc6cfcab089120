"""Lists chains for a layer, ranked by their predicted time on a device.

They use at most the given number of parameters, and at least half of it.

With --results, predictions are corrected: a problem that was measured counts with its time (so does a whole
chain), any other with its predicted time multiplied by the median of measured / predicted over problems of
the same kind.

With --like, the layer is planned for the device of these results files, which need not be here: times come
from its ceilings and from the measured problems that are nearest.

  kronsparse-bench advise --in 4096 --out 4096 --dtype f16 --parameters 10%
  kronsparse-bench advise --in 4096 --out 11008 --parameters 2000000 --device cpu --results results/mine.jsonl
  kronsparse-bench advise --in 4096 --out 4096 --like results/h200-grid.jsonl
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kronsparse.bench.measuring.c_api import Library, find_library
from kronsparse.bench.measuring.machine import default_device
from kronsparse.bench.options import DEVICE_HELP, add_library, count
from kronsparse.bench.problems.problem import DTYPES, MODES, Problem
from kronsparse.bench.problems.proposals import Proposal, proposals
from kronsparse.bench.reporting.document import Table, markdown_table
from kronsparse.bench.results.dataset import latest
from kronsparse.bench.results.elsewhere import Elsewhere
from kronsparse.bench.results.rows import OURS, Row, read_files
from kronsparse.bench.results.statistics import median
from kronsparse.chains import Chain, chain_text, dense
from kronsparse.checks import LAYOUTS

# The least share of the parameters that a chain uses: one with fewer is faster, and can do less.
USED_AT_LEAST = 0.5
# Times that differ by a smaller share are no ranking.
TOLD_APART = 0.01
Predict = Callable[[str], float]  # seconds of a problem in its text form


@dataclass
class Experience:
    """Measured times of problems, and factors by which the cost model is off."""

    measured: dict[str, float] = field(default_factory=dict)
    factors: dict[str, float] = field(default_factory=dict)  # by dtype, mode and layout

    @staticmethod
    def of(rows: Iterable[Row]) -> Experience:
        """From the rows of results files."""
        found = Experience()
        ratios: dict[str, list[float]] = {}
        known = list(rows)
        for row in known:
            if row.get("record") == "chain" and row["status"] == "ok" and OURS in row["seconds"]:
                found.measured[row["problem"]] = row["seconds"][OURS]
        for row in latest(known, "row"):
            if row["contender"] == OURS and row["status"] == "ok":
                found.measured[row["problem"]] = row["median_s"]
                if row.get("predicted_s"):
                    kind = _kind(row["problem"])
                    ratios.setdefault(kind, []).append(row["median_s"] / row["predicted_s"])
        found.factors = {kind: median(values) for kind, values in ratios.items()}
        return found


def _kind(problem: str) -> str:
    """The words of a problem before its batch: dtype, mode, layout."""
    return problem.split(" B=")[0]


@dataclass(frozen=True)
class Layer:
    """The layer that a chain is wanted for."""

    rows: int
    cols: int
    dtype: str
    mode: str
    layout: str
    batch: int


@dataclass(frozen=True)
class Advice:
    """A chain, and the seconds expected of it and of the dense layer."""

    proposal: Proposal
    seconds: float
    speedup: float
    measured: int  # how many of its factors were measured


def _seconds(chain: Chain, layer: Layer, predict: Predict, experience: Experience) -> tuple[float, int]:
    total, measured = 0.0, 0
    texts = [Problem(layer.dtype, layer.layout, one, layer.batch).text(layer.mode) for one in chain]
    whole = f"{texts[0].rpartition(' ')[0]} {chain_text(chain)}"
    if whole in experience.measured:
        return experience.measured[whole], len(chain)
    if not experience.measured.keys() & set(texts):
        # As one problem: a plan may compute factors together.
        return predict(whole) * experience.factors.get(_kind(whole), 1.0), 0
    for text in texts:
        if text in experience.measured:
            total += experience.measured[text]
            measured += 1
        else:
            total += predict(text) * experience.factors.get(_kind(text), 1.0)
    return total, measured


def advise(
    layer: Layer, most_parameters: int, predict: Predict, experience: Experience | None = None
) -> list[Advice]:
    """Chains for the layer that use at least half of the parameters, the fastest first."""
    known = experience or Experience()
    dense_s, _ = _seconds(dense(layer.rows, layer.cols), layer, predict, known)
    found = []
    for proposal in proposals(layer.rows, layer.cols, most_parameters):
        if proposal.parameters < USED_AT_LEAST * most_parameters:
            continue
        seconds, measured = _seconds(proposal.chain, layer, predict, known)
        found.append(Advice(proposal, seconds, dense_s / seconds, measured))
    # Equally fast chains: the one of the highest rank first.
    return sorted(found, key=lambda advice: (advice.seconds, -advice.proposal.rank))


def as_table(found: Sequence[Advice]) -> Table:
    """As the command prints it."""
    headers = [
        "chain",
        "what",
        "parameters",
        "density",
        "h",
        "rank",
        "predicted us",
        "speed-up over dense",
        "from",
    ]
    rows = [
        [
            str(one.proposal),
            one.proposal.name,
            str(one.proposal.parameters),
            f"{100 * one.proposal.density:.2f} %",
            f"{one.proposal.h:.4f}",
            str(one.proposal.rank),
            f"{1e6 * one.seconds:.1f}",
            f"{one.speedup:.2f}",
            f"{one.measured} of {len(one.proposal.chain)} measured" if one.measured else "predicted",
        ]
        for one in found
    ]
    return Table(headers, rows)


def not_told_apart(found: Sequence[Advice]) -> str:
    """A sentence on the lines whose times are too near to each other to rank them; nothing without such."""
    groups: list[list[int]] = []
    for line, one in enumerate(found, 1):
        if groups and one.seconds < (1 + TOLD_APART) * found[groups[-1][0] - 1].seconds:
            groups[-1].append(line)
        else:
            groups.append([line])
    alike = " and ".join(f"lines {group[0]} to {group[-1]}" for group in groups if len(group) > 1)
    share = f"{100 * TOLD_APART:g} %"
    return f"Of {alike} the times differ by less than {share}: choose by rank, or measure." if alike else ""


def parameters(text: str, layer_entries: int) -> int:
    """A number, or a share of the dense layer's, as in 10%.

    >>> parameters("10%", 5000)
    500
    """
    try:
        given = int(float(text[:-1]) / 100 * layer_entries) if text.endswith("%") else int(text)
    except (ValueError, OverflowError):
        raise ValueError(f"--parameters: {text!r} is neither a number nor a share such as 10%") from None
    if given < 1:
        raise ValueError(f"--parameters: {text!r} given, {given} parameters, must be at least 1")
    return given


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `advise`."""
    add = parser.add_argument
    add("--in", dest="cols", type=count, required=True, metavar="N", help="features of the layer's input")
    add("--out", dest="rows", type=count, required=True, metavar="N", help="features of the layer's output")
    add("--dtype", choices=DTYPES, default="f16", help="dtype of the layer (default f16)")
    add("--mode", choices=MODES, default="fp32", help="how f32 may be computed (default fp32)")
    add("--layout", choices=LAYOUTS, default="batch_first", help="layout of the batch (default batch_first)")
    add("--batch", type=count, default=4096, metavar="N", help="number of samples (default 4096)")
    add(
        "--parameters",
        default="25%",
        help="maximum number of parameters, or their share of the dense layer's (default 25%%)",
    )
    add("--rank", type=int, default=0, metavar="N", help="minimum rank of the matrix (default 0)")
    add("--device", default=default_device(), help=DEVICE_HELP)
    add(
        "--results",
        type=Path,
        nargs="+",
        default=[],
        help="results files of this device, to correct predictions",
    )
    like = "results files of a device that need not be here, to plan for it by what was measured there"
    add("--like", type=Path, nargs="+", default=[], metavar="FILE", help=like)
    add("--top", type=count, default=15, metavar="N", help="number of chains to list (default 15)")
    add_library(parser)


def main(options: argparse.Namespace) -> int:
    """Prints the advice; 0."""
    mode = options.mode if options.dtype == "f32" else ""
    layer = Layer(options.rows, options.cols, options.dtype, mode, options.layout, options.batch)
    most = parameters(options.parameters, options.rows * options.cols)
    if options.like:
        rows = read_files([*options.like, *options.results])
        there = Elsewhere.of(rows)
        predict, where = there.predict, f"{there.device}, from {there.measured_problems()} measured problems"
        off = there.error(layer.dtype, mode, layer.layout)
        if off is not None:
            where += f"; told from the others, a measured one is off by {100 * off:.0f} % in the median"
        # Factors of chains are there already: what counts besides is that a problem was measured itself.
        known = Experience(Experience.of(rows).measured)
    else:
        library = Library(find_library(options.shared_library))
        where, known = options.device, Experience.of(read_files(options.results))

        def predict(problem: str) -> float:
            return library.predict(problem, device=options.device)

    found = advise(layer, most, predict, known)
    found = [one for one in found if one.proposal.rank >= options.rank]
    wanted = f"{math.ceil(USED_AT_LEAST * most)} to {most} parameters"
    if not found:
        rank = f" and rank {options.rank} or more" if options.rank else ""
        raise ValueError(f"no chain for {layer.rows}x{layer.cols} has {wanted}{rank}")
    shown = found[: options.top]
    print(markdown_table(as_table(shown)))
    print(f"\n{len(found)} chains of {wanted}; {layer.rows}x{layer.cols}, {where}")
    if not_told_apart(shown):
        print(not_told_apart(shown))
    return 0
