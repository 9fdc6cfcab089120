"""The tables of `kronsparse-bench models`, and its part of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kronsparse.bench.reporting import paper
from kronsparse.bench.reporting.document import Plot, Section, Table, markdown_table
from kronsparse.bench.reporting.plots import bar_plot
from kronsparse.bench.results.rows import Row, is_cpu, last_run
from kronsparse.bench.results.targets import MODEL_TARGETS

TITLES = {
    "vit": "ViT-S/16, 128 images",
    "gpt2-prefill": "GPT-2 medium, prefill of 16 x 1024",
    "llama-prefill": "Llama-7B, four layers, prefill of 4 x 2048",
}
_RIVALS = ("auto", "kernel", "bmm", "rest")
_CAPTION = (
    "Times over that of the dense model. `auto` is a frozen layer as users have it, which takes the dense "
    "product where that is faster; `kernel` takes our kernels always; the limit is the time of everything "
    "that is not a replaced layer."
)


def cell_name(row: Mapping[str, Any]) -> str:
    """The words of a cell.

    >>> cell_name({"scene": "vit", "dtype": "f16", "set": "paper", "part": "model", "run": "graph"})
    'vit f16 paper model graph'
    """
    return " ".join(str(row[word]) for word in ("scene", "dtype", "set", "part", "run"))


def title_of(scene: str) -> str:
    """The scene in words.

    >>> title_of("gpt2-decode-16")
    'GPT-2 medium, decoding of 16 sequences'
    """
    if scene in TITLES:
        return TITLES[scene]
    model, _, batch = scene.partition("-decode-")
    name = TITLES.get(f"{model}-prefill", model).rpartition(", ")[0] or scene
    return f"{name}, decoding of {batch} {'sequence' if batch == '1' else 'sequences'}" if batch else scene


def latest_cells(rows: Sequence[Row], small: bool = False) -> list[Row]:
    """The last row of each cell and layer: of real models, or of small ones, which are no results."""
    found = [row for row in rows if row.get("record") == "cell" and bool(row.get("small")) == small]
    return list({row["name"]: row for row in found}.values())


def ratio(row: Row, name: str, dense: str = "dense") -> float | None:
    """A contender's time over the dense one's; nothing where one of them was not timed."""
    seconds = row["seconds"]
    return seconds[name] / seconds[dense] if name in seconds and dense in seconds else None


def _told(value: float | None, digits: int = 3) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _target(row: Row) -> str:
    goal = MODEL_TARGETS.get((row["scene"], row["set"], row["dtype"]))
    if goal is None or (row["part"], row["run"]) != ("model", "graph"):
        return ""
    reached = ratio(row, "auto")
    return f"{goal:.2f}: {'reached' if reached is not None and reached <= goal else '**missed**'}"


def ratios_table(rows: Sequence[Row], with_goals: bool = True) -> Table:
    """A line for each cell: times of everyone over the dense model's."""
    lines = []
    for row in rows:
        part = row.get("layer", row["part"])
        dense = row["seconds"].get("dense")
        cells = [title_of(row["scene"]), row["dtype"], row["set"], part, row["run"]]
        cells.append("-" if dense is None else f"{1e3 * dense:.4g}")
        cells += [_told(ratio(row, name)) for name in _RIVALS]
        taken = ", ".join(f"{name} {number}" for name, number in row.get("taken", {}).items())
        cells += [_target(row) if with_goals else "", taken]
        lines.append([*cells, "" if row["status"] == "ok" else f"{row['status']}: {row['reason']}"])
    headers = ["model", "dtype", "chains", "part", "run", "dense, ms", "auto", "kernel", "bmm", "limit"]
    return Table([*headers, "goal", "auto takes", ""], lines, _CAPTION)


def pipeline_table(rows: Sequence[Row]) -> Table:
    """A block in both layouts, over the dense one in batch_first."""
    names = list(
        dict.fromkeys(name for row in rows for name in row["seconds"] if name != "dense batch_first")
    )
    lines = []
    for row in rows:
        dense = row["seconds"].get("dense batch_first")
        cells = [row["dtype"], row["set"], row["run"], "-" if dense is None else f"{1e3 * dense:.4g}"]
        lines.append([*cells, *(_told(ratio(row, name, "dense batch_first")) for name in names)])
    caption = (
        "Times over that of the dense block in batch_first. In batch_last features are outermost throughout: "
        "layer norm, attention, GELU. Attention turns queries, keys and values for torch's own, or "
        "multiplies them as they lie, one head after the other (`heads`)."
    )
    return Table(["dtype", "chains", "run", "dense batch_first, ms", *names], lines, caption)


def _timed(rows: Sequence[Row], *parts: str, small: bool = False) -> list[Row]:
    found = [
        row for row in latest_cells(rows, small) if row["status"] != "skipped" and row["run"] != "profile"
    ]
    return [row for row in found if row["part"] in parts]


def whole_models(rows: Sequence[Row]) -> list[Row]:
    """The rows of whole models in CUDA graphs."""
    return [row for row in _timed(rows, "model") if row["run"] == "graph"]


def summary(rows: Sequence[Row]) -> str:
    """All of it, in Markdown."""
    with_goals = not is_cpu(last_run(rows))
    parts = []
    for small in (False, True):
        tables = []
        if timed := _timed(rows, "model", "block", "ffn", "attention", "layer", small=small):
            tables.append(ratios_table(timed, with_goals and not small))
        if piped := _timed(rows, "pipeline", small=small):
            tables.append(pipeline_table(piped))
        if shares := _timed(rows, "linear-share", small=small):
            tables.append(linear_share_table(shares))
        if tables:
            parts += ["Small models, to try the command:"] * small + list(map(markdown_table, tables))
    return "\n\n".join(parts)


def _bars(rows: Sequence[Row], scene: str) -> list[Plot]:
    """Blocks and what they consist of, a plot for each dtype and set, in graphs."""
    plots = []
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row["run"] == "graph":
            found.setdefault((row["dtype"], row["set"]), []).append(row)
    order = ("layer", "attention", "ffn", "block", "model")
    for (dtype, set_name), ones in found.items():
        ones = sorted(ones, key=lambda row: order.index(row["part"]))
        bars: dict[str, dict[str, float]] = {}
        for name in _RIVALS:
            for row in ones:
                height = ratio(row, name)
                if height is not None:
                    bars.setdefault(name, {})[str(row.get("layer", row["part"]))] = height
        title = f"{title_of(scene)}, {dtype}, {set_name}: time over dense"
        caption = "In CUDA graphs. The dashed line is the dense model; `rest` is what is not replaced."
        if bars:
            plots.append(bar_plot(bars, title, "time / dense", caption, highest=2.5))
    return plots


def _profiles(rows: Sequence[Row]) -> list[Plot]:
    plots = []
    for row in rows:
        contenders = row["profile"]
        kinds = list(dict.fromkeys(kind for found in contenders.values() for kind in found))
        bars = {
            kind: {name: 1e3 * found[kind] for name, found in contenders.items() if kind in found}
            for kind in kinds
        }
        title = f"{title_of(row['scene'])}, {row['dtype']}, {row['set']}: where the time goes"
        caption = "Time of kernels in one eager call of the whole model, by kinds of kernels."
        plots.append(bar_plot(bars, title, "ms", caption, None, stacked=True))
    return plots


def sections(rows: Sequence[Row]) -> list[Section]:
    """Those of a report: none where no model was timed."""
    found, with_goals = [], not is_cpu(last_run(rows))
    timed = _timed(rows, "model", "block", "ffn", "attention", "layer")
    if whole := whole_models(rows):
        found.append(Section("Models: whole ones in CUDA graphs", [ratios_table(whole, with_goals)]))
    for scene in dict.fromkeys(row["scene"] for row in timed):
        ones = [row for row in timed if row["scene"] == scene]
        blocks: list[str | Table | Plot] = [*_bars(ones, scene)]
        table = ratios_table(ones, with_goals)
        blocks.append(Table(table.headers, table.rows, table.caption, folded=True))
        found.append(Section(f"Models: {title_of(scene)}", blocks))
    profiles = [row for row in latest_cells(rows) if row["run"] == "profile" and "profile" in row]
    if profiles:
        found.append(Section("Models: where the time goes", _profiles(profiles)))
    if piped := _timed(rows, "pipeline"):
        found.append(Section("Models: a block with features outermost", [pipeline_table(piped)]))
    return found


def _of_run(rows: Sequence[Row], **wanted: str) -> list[Row]:
    return [row for row in latest_cells(rows) if all(row[name] == one for name, one in wanted.items())]


def table3(rows: Sequence[Row]) -> Section | None:
    """Whole models over dense, the paper's patterns, f32."""
    lines = []
    for scene, published in paper.TRANSFORMERS.items():
        for row in _of_run(rows, scene=scene, set="paper", dtype="f32", part="model"):
            if ratio(row, "kernel") is None:
                continue
            told = [f"{published.sparsity:.1f} %", f"{published.bmm:.2f}", f"{published.kernel:.2f}"]
            mine = [
                f"{100 * row['model_sparsity']:.1f} %",
                *(_told(ratio(row, one), 2) for one in _RIVALS[2::-1]),
            ]
            lines.append([title_of(scene), row["run"], *told, *mine])
    if not lines:
        return None
    of_paper = ["paper: sparsity", "paper: bmm / dense", "paper: kernel / dense"]
    headers = ["model", "run", *of_paper, "sparsity", "bmm / dense", "kernel / dense", "auto / dense"]
    caption = (
        "Latency over the dense model's, batch_first, TF32 off. Sparsity: weights of the whole model saved."
    )
    return Section("Table 3: latency of transformers over dense, f32", [Table(headers, lines, caption)])


def linear_share_table(rows: Sequence[Row]) -> Table:
    """Dense vision transformers, and the linear layers of their feed-forward networks."""
    lines = []
    for row in rows:
        published = paper.LINEAR_SHARES.get((row["scene"], row["dtype"]))
        told = [f"{published.model_s:g}", f"{published.percent:.0f} %"] if published else ["-", "-"]
        whole, linear = row["seconds"]["model"], row["seconds"]["ffn"]
        lines.append([row["scene"], row["dtype"], *told, f"{whole:.4f}", f"{100 * linear / whole:.0f} %"])
    headers = [
        "model",
        "dtype",
        "paper: complete, s",
        "paper: linear in FFNs",
        "complete, s",
        "linear in FFNs",
    ]
    return Table(headers, lines, "128 images of 224 x 224, eager; the paper's on an A100.")


def table7(rows: Sequence[Row]) -> Section | None:
    """The share of linear layers of feed-forward networks in vision transformers."""
    found = [row for row in _timed(rows, "linear-share") if len(row["seconds"]) == 2]
    title = "Table 7: time of linear layers in vision transformers"
    return Section(title, [linear_share_table(found)]) if found else None


def table8(rows: Sequence[Row]) -> Section | None:
    """Parts of ViT-S/16 over dense, the paper's patterns, f32."""
    width = 384
    names = {
        "N x N": f"{width}x{width}",
        "N x N + bias": f"{width}x{width}+bias",
        "4N x N": f"{4 * width}x{width}",
        "4N x N + bias": f"{4 * width}x{width}+bias",
        "N x 4N": f"{width}x{4 * width}",
        "N x 4N + bias": f"{width}x{4 * width}+bias",
    }
    cells = _of_run(rows, scene="vit", set="paper", dtype="f32")
    lines = []
    for run in dict.fromkeys(row["run"] for row in cells):
        by_part = {row.get("layer", row["part"]): row for row in cells if row["run"] == run}
        for name, published in paper.VIT_PARTS.items():
            row = by_part.get(names.get(name, name))
            if row is None or ratio(row, "kernel") is None:
                continue
            told = [f"{published.bmm:.2f}", f"{published.kernel:.2f}"]
            lines.append(
                [name, run, *told, *(_told(ratio(row, one), 2) for one in ("bmm", "kernel", "auto"))]
            )
    if not lines:
        return None
    of_paper = ["paper: bmm / dense", "paper: kernel / dense"]
    headers = ["part of ViT-S/16", "run", *of_paper, "bmm / dense", "kernel / dense", "auto / dense"]
    return Section("Table 8: parts of ViT-S/16 over dense, f32", [Table(headers, lines)])
