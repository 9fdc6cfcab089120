"""The tables and sentences of `kronsparse-bench weights` and `models`."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from kronsparse.bench.reporting.document import Section, Table, markdown_table
from kronsparse.bench.results.rows import Row


def price_table(rows: Sequence[Row]) -> Table:
    """A line for each dtype, layout and batch: unfrozen over frozen."""
    groups: dict[tuple[str, str, int], list[Row]] = {}
    for row in rows:
        if row["record"] == "price" and row["status"] == "ok":
            groups.setdefault((row["dtype"], row["layout"], row["batch"]), []).append(row)
    lines = []
    for (dtype, layout, batch), found in groups.items():
        ratios = {row["problem"].split()[-1]: row["unfrozen_s"] / row["frozen_s"] for row in found}
        worst = max(ratios, key=ratios.__getitem__)
        told = (f"{statistics.median(ratios.values()):.3f}", f"{ratios[worst]:.3f}", worst)
        lines.append([f"{dtype} {layout} B={batch}", str(len(found)), *told])
    return Table(["", "patterns", "unfrozen / frozen", "at worst", "of"], lines)


def sentences(rows: Sequence[Row]) -> list[str]:
    """The host's part, and what is packed."""
    told = []
    for row in (row for row in rows if row["record"] == "host_times"):
        linear, ours = row["linear"], row["kslinear"]
        parts = [f"{name} {ours[name]:.1f} us (nn.Linear {linear[name]:.1f})" for name in linear]
        layer = f"a {row['size']}x{row['size']} `KSLinear` of two factors"
        frozen = f"frozen {row['frozen']['no_grad']:.1f} us"
        told.append(f"{row['dtype']}: a call of {layer} keeps the host {', '.join(parts)}; {frozen}")
    for row in (row for row in rows if row["record"] == "packed"):
        times = f"{row['packed'] / row['weights']:.2f} times the weights"
        first = (
            f"{statistics.median(row['first_us']):.0f} us in the median, {max(row['first_us']):.0f} at most"
        )
        told.append(
            f"{row['dtype']}: {row['batches']} batch sizes leave {times} packed; the first call with a size "
            f"keeps the host {first}"
        )
    return told


def summary(rows: Sequence[Row]) -> str:
    """All of it, in Markdown."""
    return "\n\n".join([markdown_table(price_table(rows)), *sentences(rows)])


def models_table(rows: Sequence[Row]) -> Table:
    """A line for each model beside its dense twin."""
    lines = []
    for row in (row for row in rows if row["record"] == "model"):
        dense, frozen = row["dense_s"], row["frozen_s"]
        taken = ", ".join(f"{name} {number}" for name, number in row["taken"].items())
        name = f"{row['model']} {row['dtype']} monarch({row['blocks']})"
        lines.append([name, f"{dense * 1e3:.2f}", f"{frozen * 1e3:.2f}", f"{frozen / dense:.3f}", taken])
    return Table(["model", "dense, ms", "auto, frozen", "over dense", "layers take"], lines)


def sections(rows: Sequence[Row]) -> list[Section]:
    """Those of a report: none for what was not measured."""
    prices, models = price_table(rows), models_table(rows)
    found = [Section("Weights that may change", [prices, *sentences(rows)])] if prices.rows else []
    return found + ([Section("Models", [models])] if models.rows else [])
