"""The paper's tables and plots, from our results and beside its own numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kronsparse.bench import paper
from kronsparse.bench.dataset import GENERIC, SPECIALISED, Measured, both_layouts, of_kind
from kronsparse.bench.document import Section, Table
from kronsparse.bench.plots import binned, drawn
from kronsparse.bench.results import OURS
from kronsparse.bench.statistics import Wins, log_correlation, log_regression, median, wins
from kronsparse.bench.suites import without_permutation
from kronsparse.checks import LAYOUTS

# (one side, the other): the paper's three comparisons.
COMPARISONS = (
    ((OURS, *SPECIALISED), GENERIC),
    (("bmm",), ("einsum", "bsr", *GENERIC)),
    ((OURS,), (*SPECIALISED, *GENERIC)),
)
_CONVENTION = "Boxes: quartiles; whiskers: 5 and 95 %."
_SPREAD = (*LAYOUTS, "best of both")


def times(value: float | None) -> str:
    """A factor; of what was left out as hopeless only the reason is known."""
    if value is None:
        return "-"
    return f"{value:.2f}" if math.isfinite(value) else "(> 50 floors)"


def compared(
    ones: Sequence[Measured], left: Sequence[str], right: Sequence[str], mode: str
) -> list[tuple[float, float, Measured]]:
    """(time of the best on the left, on the right, problem) wherever both sides were measured."""
    found = []
    for one in ones:
        mine, theirs = one.best_of(left, mode), one.best_of(right, mode)
        if mine is not None and theirs is not None and min(mine, theirs) < math.inf:
            found.append((mine, theirs, one))
    return found


def _spread(measured: Sequence[Measured], dtype: str, mode: str, where: str) -> list[Measured]:
    if where == "best of both":
        paired = {one.pattern for one in of_kind(measured, dtype, mode, LAYOUTS[0])} & {
            one.pattern for one in of_kind(measured, dtype, mode, LAYOUTS[1])
        }
        return [one for one in both_layouts(measured, dtype) if one.pattern in paired and mode in one.ours]
    return of_kind(measured, dtype, mode, where)


def _of_paper(found: paper.Wins) -> list[str]:
    return [f"{found.percent:.1f} %", times(found.times)]


def _of_ours(found: Wins | None) -> list[str]:
    if found is None:
        return ["-", "-", "0"]
    return [f"{100 * found.share:.1f} %", times(found.median_when_won), str(found.problems)]


def _side(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"min {{{', '.join(names)}}}"


def win_rates(measured: Sequence[Measured], dtype: str, mode: str) -> Section:
    """How often one is faster than the other, and by how much in the median of those cases."""
    rows = []
    for number, (left, right) in enumerate(COMPARISONS):
        for where in _SPREAD:
            ones = _spread(measured, dtype, mode, where)
            found = wins((mine, theirs) for mine, theirs, _ in compared(ones, left, right, mode))
            published = paper.WINS.get((dtype, where))
            told = _of_paper(published[number]) if published else []
            rows.append([f"{_side(left)} < {_side(right)}", where, *told, *_of_ours(found)])
    met = {
        name: sum(one.rivals.get(name, math.inf) < math.inf for one in of_kind(measured, dtype, mode))
        for name in (*SPECIALISED, *GENERIC)
    }
    timed = ", ".join(f"{name} {count}" for name, count in met.items())
    of_paper = ["paper: wins", "paper: times faster"] if (dtype, LAYOUTS[0]) in paper.WINS else []
    headers = ["comparison", "layout", *of_paper, "wins", "times faster", "patterns"]
    caption = (
        f"Times faster: the median over the cases won. Problems each was timed on: {timed}; where one was "
        "left out, the others of its side stand for it."
    )
    return Section(f"Win rates, {dtype} {mode}".strip(), [Table(headers, rows, caption)])


def sparsity_bins(measured: Sequence[Measured], dtype: str, mode: str) -> Section:
    """Over the best of the specialised ones, in the paper's bins of sparsity."""
    pairs = compared(_spread(measured, dtype, mode, "best of both"), [OURS], SPECIALISED, mode)
    is_published = (dtype, mode) == ("f32", "fp32")
    rows = []
    for bin_ in paper.SPARSITY_BINS:
        # The paper's bounds are rounded; each belongs to the bin above it, and the last to its own.
        top = math.inf if bin_ is paper.SPARSITY_BINS[0] else bin_.high - 0.006
        mine = [
            (ours, theirs, one)
            for ours, theirs, one in pairs
            if bin_.low - 0.006 <= 100 * (1 - one.pattern.density) < top
        ]
        share, factor, count = _of_ours(wins((ours, theirs) for ours, theirs, _ in mine))
        correlation = log_correlation(
            [(one.pattern.h, theirs / ours) for ours, theirs, one in mine if ours < math.inf]
        )
        told = [*_of_paper(bin_.wins), f"{bin_.correlation:.2f}", str(bin_.patterns)] if is_published else []
        mine_told = [share, factor, "-" if correlation is None else f"{correlation:.2f}", count]
        rows.append([f"{bin_.low} - {bin_.high} %", *told, *mine_told])
    names = ("wins", "times faster", "corr(log speed-up, log h)", "patterns")
    headers = ["sparsity", *(f"paper: {name}" for name in names if is_published), *names]
    caption = f"Over min {{{', '.join(SPECIALISED)}}}, best of both layouts."
    return Section(f"Sparsity bins, {dtype} {mode}".strip(), [Table(headers, rows, caption)])


def regression(measured: Sequence[Measured], kinds: Sequence[tuple[str, str]]) -> Section:
    """log speed-up on log density and log h."""
    published = paper.REGRESSION
    rows = [
        ["paper, FP32", "603"]
        + [f"{published[name]:.3f}" for name in ("intercept", "density", "h")]
        + ["-", f"{published['adjusted R²']:.3f}"]
    ]
    for dtype, mode in kinds:
        pairs = compared(_spread(measured, dtype, mode, "best of both"), [OURS], SPECIALISED, mode)
        points = [
            (theirs / ours, one.pattern.density, one.pattern.h)
            for ours, theirs, one in pairs
            if one.pattern.density < 1 and max(ours, theirs) < math.inf
        ]
        fit = log_regression(points)
        if fit:
            numbers = (fit.intercept, *fit.slopes, fit.r2, fit.adjusted_r2)
            rows.append(
                [f"{dtype} {mode}".strip(), str(fit.problems), *(f"{number:.3f}" for number in numbers)]
            )
    headers = ["", "patterns", "intercept", "log density", "log h", "R²", "adjusted R²"]
    caption = (
        f"log(min {{{', '.join(SPECIALISED)}}} / ours) by least squares, best of both layouts, without "
        "patterns of density 1."
    )
    return Section("Regression of log speed-up on log density and log h", [Table(headers, rows, caption)])


def speedup_by_h(measured: Sequence[Measured], kinds: Sequence[tuple[str, str]]) -> Section:
    """Box plots against h(b,c)."""
    plots = []
    for dtype, mode in kinds:
        pairs = compared(_spread(measured, dtype, mode, "best of both"), [OURS], SPECIALISED, mode)
        points = [
            (one.pattern.h, theirs / ours) for ours, theirs, one in pairs if max(ours, theirs) < math.inf
        ]
        if points:
            title = f"Speed-up over min {{{', '.join(SPECIALISED)}}}, {dtype} {mode}".strip()
            caption = f"{len(points)} patterns, best of both layouts. {_CONVENTION}"
            series = {"speed-up": binned(points)}
            plots.append(drawn(series, title, "h(b,c) = (b+c)/(bc), from", "speed-up", caption))
    return Section("Speed-up against h(b,c)", plots)


def permutation_share(measured: Sequence[Measured]) -> Section | None:
    """(time of bmm on (a,b,c,d) - time on (ad,b,c,1)) / time on (a,b,c,d)."""
    by_key = {(one.dtype, one.layout, one.pattern, one.batch): one for one in measured}
    rows: list[list[str]] = []
    plots = []
    for dtype in ("f32", "f16", "bf16"):
        series = {}
        for layout in LAYOUTS:
            points = []
            for (kind, where, pattern, batch), one in by_key.items():
                twin = by_key.get((kind, where, without_permutation(pattern), batch))
                if (kind, where) != (dtype, layout) or pattern.d == 1 or twin is None:
                    continue
                whole, products = one.rivals.get("bmm", math.inf), twin.rivals.get("bmm", math.inf)
                if max(whole, products) < math.inf:
                    points.append((pattern.h, 100 * (whole - products) / whole))
            if points:
                series[layout] = binned(points)
                groups = list(series[layout].values())
                published = paper.PERMUTATION_SHARE.get(dtype)
                told = f"{published[0]:.0f} - {published[1]:.0f} %" if published else "-"
                shares = [f"{median([y for _, y in points]):.0f} %"]
                shares += [f"{median(group):.0f} %" for group in (groups[0], groups[-1])]
                rows.append([dtype, layout, told, *shares, str(len(points))])
        if series:
            title = f"Share of bmm's time that its permutations take, {dtype}"
            caption = f"By bmm on (a,b,c,d) and on (ad,b,c,1). {_CONVENTION}"
            plots.append(drawn(series, title, "h(b,c), from", "percent", caption, log=False, reference=None))
    if not rows:
        return None
    headers = ["dtype", "layout", "paper: least to largest h", "median", "least h", "largest h", "patterns"]
    return Section("Permutation share of bmm", [Table(headers, rows), *plots])


def first_over_last(measured: Sequence[Measured], kinds: Sequence[tuple[str, str]]) -> Section:
    """Time in batch_first over time in batch_last, for everyone."""
    rows, plots = [], []
    for dtype, mode in kinds:
        lasts = {(one.pattern, one.batch): one for one in of_kind(measured, dtype, mode, "batch_last")}
        firsts = of_kind(measured, dtype, mode, "batch_first")
        ratios: dict[str, list[float]] = {}
        for name in (OURS, *SPECIALISED, *GENERIC):
            for one in firsts:
                other = lasts.get((one.pattern, one.batch))
                pair = (one.best_of([name], mode), other.best_of([name], mode) if other else None)
                if pair[0] is not None and pair[1] is not None and max(pair[0], pair[1]) < math.inf:
                    ratios.setdefault(name, []).append(pair[0] / pair[1])
        for name, values in ratios.items():
            told = f"about {paper.FIRST_OVER_LAST:g}" if (name, dtype, mode) == (OURS, "f32", "fp32") else "-"
            rows.append([f"{dtype} {mode}".strip(), name, told, f"{median(values):.2f}", str(len(values))])
        if ratios:
            title = f"Time in batch_first / time in batch_last, {dtype} {mode}".strip()
            caption = f"Above the line batch_last is faster. {_CONVENTION}"
            plots.append(drawn({"ratio": ratios}, title, "contender", "ratio", caption))
    headers = ["", "contender", "paper: median", "median", "patterns"]
    return Section("batch_first over batch_last", [Table(headers, rows), *plots])


def speedup_by_size(measured: Sequence[Measured], kinds: Sequence[tuple[str, str]]) -> Section:
    """Specialised over generic, and bmm over its like, by the size of the matrix."""
    plots = []
    pairs_of = {
        "min {ours, bmm, einsum, bsr} over min {dense, sparse}": COMPARISONS[0],
        "bmm over min {einsum, bsr}": (("bmm",), ("einsum", "bsr")),
        "ours over bmm": ((OURS,), ("bmm",)),
    }
    for dtype, mode in kinds:
        for title, (left, right) in pairs_of.items():
            by_decade: dict[str, list[float]] = {}
            pairs = compared(_spread(measured, dtype, mode, "best of both"), left, right, mode)
            for mine, theirs, one in sorted(
                pairs, key=lambda pair: pair[2].pattern.rows * pair[2].pattern.cols
            ):
                if max(mine, theirs) < math.inf:
                    decade = int(math.log10(one.pattern.rows * one.pattern.cols))
                    by_decade.setdefault(f"1e{decade} - 1e{decade + 1}", []).append(theirs / mine)
            if by_decade:
                whole = f"{title}, {dtype} {mode}".strip()
                caption = f"Best of both layouts; where both were timed. {_CONVENTION}"
                plots.append(
                    drawn({"speed-up": by_decade}, whole, "entries of the matrix", "speed-up", caption)
                )
    return Section("Speed-up against size", plots)
