"""The table of `peft`: training steps with adapters."""

from __future__ import annotations

from collections.abc import Sequence

from kronsparse.bench.reporting.document import Section, Table
from kronsparse.bench.reporting.exam_section import judged
from kronsparse.bench.results.rows import Row, is_cpu, last_run
from kronsparse.bench.results.targets import BOFT_GAIN, BOFT_MEMORY, BOFT_STEP


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


def peft_section(rows: Sequence[Row]) -> Section | None:
    """The table, its goals on a GPU, and what went wrong."""
    done = {row["contender"]: row for row in rows if row["record"] == "peft"}
    if not done:
        return None
    told = [f"{name}: {row['status']}." for name, row in done.items() if row["status"] != "ok"]
    timed = {name: row for name, row in done.items() if row["status"] == "ok"}
    for name, row in timed.items() if not is_cpu(last_run(rows)) else ():
        ours, lora = timed.get(f"{name.split(' ')[0]} ours", {}), timed.get("lora", {})
        if name.endswith(" ours") and lora:
            step, memory = (row[one] / lora[one] for one in ("step_s", "peak_bytes"))
            told.append(
                f"{name} over LoRA: time {judged(f'{step:.3f}', BOFT_STEP, step <= BOFT_STEP)}, "
                f"memory {judged(f'{memory:.3f}', BOFT_MEMORY, memory <= BOFT_MEMORY)}."
            )
        elif " peft" in name and ours:
            gain = row["step_s"] / ours["step_s"]
            told.append(f"{name} over ours: {judged(f'{gain:.2f}', BOFT_GAIN, gain >= BOFT_GAIN)}.")
    row = next(iter(done.values()))
    if "model" in row:
        told.insert(0, f"{row['model']}, {row['tokens'][0]} x {row['tokens'][1]} tokens.")
    return Section("Training steps with adapters", [peft_table(rows), *told])
