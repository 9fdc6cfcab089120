"""The paper's tables and plots, from our results and beside its own numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from kronsparse.bench.problems.suites import SUITES, without_permutation
from kronsparse.bench.reporting import paper
from kronsparse.bench.reporting.document import Plot, Section, Table, anchor
from kronsparse.bench.reporting.plots import binned, drawn, histogram
from kronsparse.bench.results.dataset import GENERIC, SPECIALISED, Measured, both_layouts, of_kind
from kronsparse.bench.results.rows import OURS
from kronsparse.bench.results.statistics import Wins, log_correlation, log_regression, median, wins
from kronsparse.checks import LAYOUTS

# (one side, the other): the paper's three comparisons.
COMPARISONS = (
    ((OURS, *SPECIALISED), GENERIC),
    (("bmm",), ("einsum", "bsr", *GENERIC)),
    ((OURS,), (*SPECIALISED, *GENERIC)),
)
_CONVENTION = "Boxes: quartiles; whiskers: 5 and 95 %."
_BOTH = "best of both"
# The paper's numbers, by dtype and mode: what has none there keeps its plain title.
_NUMBERS = {
    ("both", "f32", "fp32"): "Table 2",
    ("layouts", "f32", "fp32"): "Table 6",
    ("both", "f16", ""): "Table 9",
    ("layouts", "f16", ""): "Table 10",
    ("sparsity", "f32", "fp32"): "Table 5",
    ("h", "f32", "fp32"): "Figure 6a",
    ("h", "f16", ""): "Figure 18",
    ("h at sparsity", "f32", "fp32"): "Figure 9",
    ("generic", "f32", "fp32"): "Figure 12",
    ("bmm", "f32", "fp32"): "Figure 13",
    ("generic", "f16", ""): "Figure 15",
    ("bmm", "f16", ""): "Figure 16",
    ("permutations", "f32", ""): "Figure 10",
    ("permutations", "f16", ""): "Figure 17",
}


def _titled(what: str, words: str, dtype: str, mode: str = "") -> str:
    """A title that begins with the paper's number.

    >>> _titled("sparsity", "win rates by sparsity", "f32", "fp32")
    'Table 5: win rates by sparsity, f32 fp32'
    >>> _titled("sparsity", "win rates by sparsity", "f16")
    'Win rates by sparsity, f16'
    """
    whole = f"{words}, {dtype} {mode}".strip()
    number = _NUMBERS.get((what, dtype, mode))
    return f"{number}: {whole}" if number else whole[0].upper() + whole[1:]


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
    if where == _BOTH:
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


def win_rates(measured: Sequence[Measured], dtype: str, mode: str) -> list[Section]:
    """How often one is faster than the other, and by how much in the median of those cases: for the better of
    both layouts, and in each of them."""
    met = {
        name: sum(one.rivals.get(name, math.inf) < math.inf for one in of_kind(measured, dtype, mode))
        for name in (*SPECIALISED, *GENERIC)
    }
    timed = ", ".join(f"{name} {count}" for name, count in met.items())
    caption = (
        f"Times faster: the median over the cases won. Problems each was timed on: {timed}; where one was "
        "left out, the others of its side stand for it."
    )
    of_paper = ["paper: wins", "paper: times faster"] if (dtype, LAYOUTS[0]) in paper.WINS else []
    headers = ["comparison", "layout", *of_paper, "wins", "times faster", "patterns"]
    sections = []
    for what, words, places in (
        ("both", "win rates, best of both layouts", (_BOTH,)),
        ("layouts", "win rates in each layout", LAYOUTS),
    ):
        rows = []
        for number, (left, right) in enumerate(COMPARISONS):
            for where in places:
                ones = _spread(measured, dtype, mode, where)
                found = wins((mine, theirs) for mine, theirs, _ in compared(ones, left, right, mode))
                published = paper.WINS.get((dtype, where))
                told = _of_paper(published[number]) if published else []
                rows.append([f"{_side(left)} < {_side(right)}", where, *told, *_of_ours(found)])
        sections.append(Section(_titled(what, words, dtype, mode), [Table(headers, rows, caption)]))
    return sections


Pair = tuple[float, float, Measured]


def _by_sparsity(pairs: Sequence[Pair]) -> list[tuple[paper.SparsityBin, list[Pair]]]:
    """The pairs of each of the paper's bins. Bounds are rounded; each belongs to the bin above it, and the
    last to its own."""
    found = []
    for bin_ in paper.SPARSITY_BINS:
        top = math.inf if bin_ is paper.SPARSITY_BINS[0] else bin_.high - 0.006
        mine = [
            (ours, theirs, one)
            for ours, theirs, one in pairs
            if bin_.low - 0.006 <= 100 * (1 - one.pattern.density) < top
        ]
        found.append((bin_, mine))
    return found


def sparsity_bins(measured: Sequence[Measured], dtype: str, mode: str) -> Section:
    """Over the best of the specialised ones, in the paper's bins of sparsity."""
    pairs = compared(_spread(measured, dtype, mode, _BOTH), [OURS], SPECIALISED, mode)
    is_published = (dtype, mode) == ("f32", "fp32")
    rows = []
    for bin_, mine in _by_sparsity(pairs):
        share, factor, count = _of_ours(wins((ours, theirs) for ours, theirs, _ in mine))
        correlation = log_correlation(
            [(one.pattern.h, theirs / ours) for ours, theirs, one in mine if max(ours, theirs) < math.inf]
        )
        told = [*_of_paper(bin_.wins), f"{bin_.correlation:.2f}", str(bin_.patterns)] if is_published else []
        mine_told = [share, factor, "-" if correlation is None else f"{correlation:.2f}", count]
        rows.append([f"{bin_.low} - {bin_.high} %", *told, *mine_told])
    names = ("wins", "times faster", "corr(log speed-up, log h)", "patterns")
    headers = ["sparsity", *(f"paper: {name}" for name in names if is_published), *names]
    caption = f"Over min {{{', '.join(SPECIALISED)}}}, best of both layouts."
    return Section(_titled("sparsity", "win rates by sparsity", dtype, mode), [Table(headers, rows, caption)])


def regression(measured: Sequence[Measured], kinds: Sequence[tuple[str, str]]) -> Section:
    """log speed-up on log density and log h."""
    published = paper.REGRESSION
    rows = [
        ["paper, FP32", "603"]
        + [f"{published[name]:.3f}" for name in ("intercept", "density", "h")]
        + ["-", f"{published['adjusted R²']:.3f}"]
    ]
    for dtype, mode in kinds:
        pairs = compared(_spread(measured, dtype, mode, _BOTH), [OURS], SPECIALISED, mode)
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


def speedup_by_h(measured: Sequence[Measured], dtype: str, mode: str) -> Section | None:
    """Box plots against h(b,c)."""
    pairs = _finite(compared(_spread(measured, dtype, mode, _BOTH), [OURS], SPECIALISED, mode))
    if not pairs:
        return None
    title = f"Speed-up over min {{{', '.join(SPECIALISED)}}}, {dtype} {mode}".strip()
    caption = f"{len(pairs)} patterns, for each the better of both layouts. {_CONVENTION}"
    series = {"speed-up": binned([(one.pattern.h, theirs / ours) for ours, theirs, one in pairs])}
    plot = drawn(series, title, "h(b,c) = (b+c)/(bc), from", "speed-up", caption)
    return Section(_titled("h", "speed-up against h", dtype, mode), [plot])


def _finite(pairs: Sequence[Pair]) -> list[Pair]:
    return [(mine, theirs, one) for mine, theirs, one in pairs if max(mine, theirs) < math.inf]


def speedup_at_sparsity(measured: Sequence[Measured], dtype: str, mode: str) -> Section | None:
    """Box plots against h(b,c), one for each of the paper's bins of sparsity."""
    pairs = _finite(compared(_spread(measured, dtype, mode, _BOTH), [OURS], SPECIALISED, mode))
    plots = []
    for bin_, mine in _by_sparsity(pairs):
        if mine:
            title = f"Sparsity {bin_.low} - {bin_.high} %, {dtype} {mode}".strip()
            caption = f"{len(mine)} patterns, for each the better of both layouts. {_CONVENTION}"
            points = [(one.pattern.h, theirs / ours) for ours, theirs, one in mine]
            series = {"speed-up": binned(points, 8)}
            plots.append(drawn(series, title, "h(b,c), from", "speed-up", caption))
    title = _titled("h at sparsity", "speed-up against h at a fixed sparsity", dtype, mode)
    return Section(title, plots) if plots else None


def grid_sparsity() -> Section:
    """The sparsity of the patterns of the paper's grid: it follows from the grid alone."""
    patterns = SUITES["paper-time"].patterns
    # With the dense ones the median would be 96.9 %: the paper leaves them out.
    values = [100 * (1 - pattern.density) for pattern in patterns if pattern.density < 1]
    told = paper.GRID_SPARSITY
    rows = [
        ["median", f"{told['median']} %", f"{median(values):.1f} %"],
        ["first quartile", f"{told['first quartile']} %", f"{float(np.percentile(values, 25)):.1f} %"],
    ]
    box = drawn(
        {"sparsity": {"all": values}},
        "Sparsity of the grid's patterns",
        "patterns",
        "percent",
        _CONVENTION,
        log=False,
        reference=None,
    )
    edges = [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 98, 99, 100]
    left_out = len(patterns) - len(values)
    caption = (
        f"{len(values)} patterns, without {left_out} dense ones. Bins are narrower where most of them are."
    )
    bars = histogram(values, edges, "Patterns by sparsity", " %", caption)
    blocks: list[str | Table | Plot] = [Table(["sparsity", "paper", "grid"], rows), box, bars]
    return Section("Figure 8: sparsity of the grid's patterns", blocks)


def grid_sizes() -> Section:
    """The sizes of the matrices of the paper's grid."""
    values = [float(pattern.rows * pattern.cols) for pattern in SUITES["paper-time"].patterns]
    quartiles = np.percentile(values, [25, 75])
    rows = [
        [name, f"{told:.1e}", f"{found:.1e}"]
        for (name, told), found in zip(paper.GRID_SIZES.items(), quartiles, strict=True)
    ]
    edges = [10.0**power for power in range(3, 12)]
    caption = f"{len(values)} patterns; rows times columns."
    bars = histogram(values, edges, "Patterns by entries of the matrix", "", caption)
    blocks: list[str | Table | Plot] = [Table(["entries", "paper", "grid"], rows), bars]
    return Section("Figure 11: sizes of the grid's matrices", blocks)


def contents(sections: Sequence[Section]) -> Section:
    """Every measured table and figure of the paper, with a link to what stands for it here."""
    titles = [section.title for section in sections]
    rows = []
    for name, shows in paper.ITEMS.items():
        title = next((one for one in titles if one.startswith(f"{name}: ")), None)
        rows.append([name, shows, f"[{title}](#{anchor(title)})" if title else "not measured here"])
    caption = (
        "Tables 1 and 4 and Figures 1, 2, 3, 5 and 7 show no measurements. Sections without a number are "
        "not in the paper."
    )
    return Section("The paper's tables and figures", [Table(["paper", "shows", "here"], rows, caption)])


def permutation_share(measured: Sequence[Measured]) -> list[Section]:
    """(time of bmm on (a,b,c,d) - time on (ad,b,c,1)) / time on (a,b,c,d), a section for each dtype."""
    by_key = {(one.dtype, one.layout, one.pattern, one.batch): one for one in measured}
    sections = []
    for dtype in ("f32", "f16", "bf16"):
        series: dict[str, dict[str, list[float]]] = {}
        rows: list[list[str]] = []
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
                rows.append([layout, told, *shares, str(len(points))])
        if not rows:
            continue
        headers = ["layout", "paper: least to largest h", "median", "least h", "largest h", "patterns"]
        words = "share of bmm's time that its permutations take"
        if dtype == "f32" and LAYOUTS[0] in series:
            first = {LAYOUTS[0]: series[LAYOUTS[0]]}
            title = f"Figure 4: {words}, f32 in batch_first"
            sections.append(Section(title, [_permutation_plot(first, f"{words}, f32 batch_first")]))
        blocks: list[str | Table | Plot] = [
            Table(headers, rows),
            _permutation_plot(series, f"{words}, {dtype}"),
        ]
        sections.append(Section(_titled("permutations", words, dtype), blocks))
    return sections


def _permutation_plot(series: Mapping[str, Mapping[str, Sequence[float]]], words: str) -> Plot:
    title = words[0].upper() + words[1:]
    caption = f"By bmm on (a,b,c,d) and on (ad,b,c,1). {_CONVENTION}"
    return drawn(series, title, "h(b,c), from", "percent", caption, log=False, reference=None)


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
    return Section("Figure 14: batch_first over batch_last", [Table(headers, rows), *plots])


def speedup_by_size(measured: Sequence[Measured], dtype: str, mode: str) -> list[Section]:
    """Specialised over generic, and bmm over its like, by the size of the matrix."""
    sections = []
    for what, words, (left, right) in (
        ("generic", "specialised over generic by size", COMPARISONS[0]),
        ("bmm", "bmm over einsum and bsr by size", (("bmm",), ("einsum", "bsr"))),
        ("ours", "ours over bmm by size", ((OURS,), ("bmm",))),
    ):
        by_decade: dict[str, list[float]] = {}
        pairs = _finite(compared(_spread(measured, dtype, mode, _BOTH), left, right, mode))
        for mine, theirs, one in sorted(pairs, key=lambda pair: pair[2].pattern.rows * pair[2].pattern.cols):
            decade = int(math.log10(one.pattern.rows * one.pattern.cols))
            by_decade.setdefault(f"1e{decade} - 1e{decade + 1}", []).append(theirs / mine)
        if by_decade:
            whole = f"Speed-up of {_side(left)} over {_side(right)}, {dtype} {mode}".strip()
            caption = f"For each the better of both layouts; where both were timed. {_CONVENTION}"
            plot = drawn({"speed-up": by_decade}, whole, "entries of the matrix", "speed-up", caption)
            sections.append(Section(_titled(what, words, dtype, mode), [plot]))
    return sections
