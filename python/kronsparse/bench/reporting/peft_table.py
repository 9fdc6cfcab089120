"""The table of `peft`: training steps with adapters."""

from __future__ import annotations

from collections.abc import Sequence

from kronsparse.bench.reporting.document import Table
from kronsparse.bench.results.rows import Row


def peft_table(rows: Sequence[Row]) -> Table:
    """A line for each contender."""
    done = {row["contender"]: row for row in rows if row["record"] == "peft"}
    lora = done.get("lora", {})
    lines = []
    for name, row in done.items():
        if "step_s" not in row:
            lines.append([name, row["status"], "", "", "", "", ""])
            continue
        ours = done.get(f"{name.split(' ')[0]} ours", {})
        gain = ""
        if "peft" in name and "step_s" in ours:
            gain = f"{row['step_s'] / ours['step_s']:.2f}"
        over = f"{row['step_s'] / lora['step_s']:.3f}" if "step_s" in lora else ""
        memory = f"{row['peak_bytes'] / 2**30:.2f}" if row["peak_bytes"] else ""
        more = f"{row['peak_bytes'] / lora['peak_bytes']:.3f}" if memory and lora.get("peak_bytes") else ""
        milliseconds = f"{1e3 * row['step_s']:.1f}"
        lines.append([name, milliseconds, over, gain, memory, more, row["implementation"]])
    heads = ["adapters", "step, ms", "over LoRA", "over ours", "memory, GiB", "over LoRA", "is"]
    return Table(heads, lines)
