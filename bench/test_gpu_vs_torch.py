#!/usr/bin/env python3
"""The GPU benchmark without a GPU: python3 bench/test_gpu_vs_torch.py (needs torch and a built library).

The whole command is run on the CPU; the timing of a GPU is tried on a pretended one.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
import time
import unittest
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import gpu_report
import suites
import torch
from answers import Checker, Errors, shapes
from command import Results, read_rows
from devices import Ceilings, CudaDevice, Device, Rotation
from gpu_contest import Arena, Unit, draw_values, hold_device_contest, is_right, is_sound
from torch_contenders import FAMILIES, spellings_for

BENCH = Path(__file__).resolve().parent
DIMS = (2, 3, 5, 4)


def command(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    full = [sys.executable, str(BENCH / script), *arguments]
    return subprocess.run(full, capture_output=True, text=True, check=True)


class Command(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = Path(folder.name) / "rows.jsonl"

    def test_sweep_then_resume_then_report(self) -> None:
        options = ["--device", "cpu", "--batch", "32", "--dtypes", "f32", "--patterns", "2x8x8x4,1x8x16x1"]
        printed = command("gpu_vs_torch.py", *options, "--output", str(self.file))
        rows = read_rows(self.file)
        timed = {(row["pattern"], row["layout"], row["contender"]) for row in rows if "median_s" in row}
        for pattern in ("2x8x8x4", "1x8x16x1"):
            for layout in ("batch_first", "batch_last"):
                for contender in ("kronsparse", "bmm", "einsum", "dense"):
                    self.assertIn((pattern, layout, contender), timed)
        self.assertFalse([row for row in rows if row.get("status") == "wrong"])
        for row in rows:
            if row.get("status") == "ok":
                self.assertGreater(row["median_s"], 0)
                self.assertLess(row["error"], 1e-5)
                self.assertEqual(row["flops"], 2 * 32 * math.prod(map(int, row["pattern"].split("x"))))
        self.assertIn("## f32 fp32 batch_first", printed.stdout)

        with self.file.open("a") as file:
            file.write('{"record": "row", "prob')  # killed in the middle of a line
        again = command("gpu_vs_torch.py", *options, "--modes", "ieee", "--resume", str(self.file))
        self.assertIn("[  4/4]", again.stderr)
        again = command("gpu_vs_torch.py", *options, "--resume", str(self.file))
        self.assertIn("4 problems were done before", again.stderr)
        told = command("gpu_report.py", "--table", str(self.file)).stdout
        self.assertIn("## f32 ieee batch_last", told)
        self.assertIn("| 2x8x8x4 |", told)

    def test_small_batch(self) -> None:
        options = ["--device", "cpu", "--small-batch", "--dtypes", "f32", "--patterns", "4x8x8x1,1x8x8x4"]
        printed = command("gpu_vs_torch.py", *options, "--output", str(self.file)).stdout
        self.assertIn("faster than bmm on", printed)
        rows = [row for row in read_rows(self.file) if row["record"] == "small"]
        self.assertEqual({row["batch"] for row in rows}, {1, 8, 64})
        self.assertEqual({row["status"] for row in rows}, {"ok"})


class Answers(unittest.TestCase):
    def setUp(self) -> None:
        self.unit = Unit("f32", "batch_first", DIMS, 100)
        torch.manual_seed(1)
        self.x = torch.randn(shapes("batch_first", DIMS, 100)[0])
        self.values = (torch.rand(DIMS) * 2 - 1) / math.sqrt(DIMS[2])
        self.checker = Checker("batch_first", DIMS, self.x, self.values, 16)
        self.allowed = self.checker.errors_of_torch()

    def product(self) -> torch.Tensor:
        (einsum,) = spellings_for("batch_first", DIMS, ["einsum"])
        return einsum.prepare(self.values)(self.x, torch.empty(shapes("batch_first", DIMS, 100)[1]))

    def test_right(self) -> None:
        errors = self.checker.errors(self.product())
        self.assertTrue(is_right(errors, self.allowed, "f32") and is_sound(errors, self.unit))

    def test_wrong(self) -> None:
        for spoil in (
            lambda y: y.add_(1e-4),
            lambda y: y[0, 3].add_(0.1),
            lambda y: y[50, 3].fill_(math.nan),
        ):
            y = self.product()
            spoil(y)
            errors = self.checker.errors(y)
            self.assertFalse(is_right(errors, self.allowed, "f32") or is_sound(errors, self.unit))

    def test_less_exact_than_the_library(self) -> None:
        halved = Errors(2e-4, 1e-4, True)
        self.assertTrue(is_right(halved, halved, "f32"))
        self.assertFalse(is_right(Errors(5e-4, 1e-4, True), halved, "f32"))

    def test_plain_sums_may_be_off_by_the_root_of_their_length(self) -> None:
        exact = Errors(1e-8, 1e-8, True)
        self.assertFalse(is_right(Errors(6e-7, 3e-7, True), exact, "f32"))
        self.assertTrue(is_right(Errors(6e-7, 3e-7, True), exact, "f32", plain_terms=1024))
        self.assertFalse(is_right(Errors(3e-6, 3e-7, True), exact, "f32", plain_terms=1024))

    def test_layouts_agree_for_every_spelling(self) -> None:
        for layout in ("batch_first", "batch_last"):
            for dims in (DIMS, (3, 4, 4, 1)):
                x_shape, y_shape = shapes(layout, dims, 8)
                x, values = torch.randn(x_shape), torch.rand(dims)
                checker = Checker(layout, dims, x, values, 8)
                for spelling in spellings_for(layout, dims, FAMILIES):
                    if spelling.family not in ("bsr", "csr"):
                        y = spelling.prepare(values)(x, torch.full(y_shape, math.nan))
                        self.assertLess(checker.errors(y).norm, 1e-6, f"{layout} {spelling.name}")


class Suites(unittest.TestCase):
    def test_sample(self) -> None:
        self.assertEqual(len(set(suites.parse_patterns("sample"))), 64)

    def test_forms(self) -> None:
        for text in ("1x2x3x4,5x6x7x8", "(1,2,3,4) (5,6,7,8)", "1x2x3x4\n5x6x7x8"):
            self.assertEqual(suites.parse_patterns(text), [(1, 2, 3, 4), (5, 6, 7, 8)])
        with self.assertRaises(ValueError):
            suites.parse_patterns("nothing")

    def test_order(self) -> None:
        for count in (1, 2, 7, 64):
            self.assertEqual(sorted(suites.representative(range(count))), list(range(count)))
        self.assertEqual(suites.representative(range(8)), [0, 4, 2, 6, 1, 5, 3, 7])


class Report(unittest.TestCase):
    def test_counts_wins_and_losses(self) -> None:
        def row(pattern: str, contender: str, spelling: str, seconds: float) -> dict[str, object]:
            shared = {"record": "row", "layout": "batch_last", "batch": 8, "dtype": "f16", "mode": ""}
            named = {"contender": contender, "spelling": spelling, "implementation": "mma", "status": "ok"}
            problem = {"problem": f"f16 batch_last B=8 {pattern}", "pattern": pattern, "floor_s": 1.0}
            return {**shared, **named, **problem, "median_s": seconds}

        run = {
            "record": "run",
            "machine": {"gpu": "G", "compute_capability": "9.0"},
            "versions": {"kronsparse": "1", "torch": "2"},
            "commit": "c",
            "ceilings": {"copy_bytes": 1e12, "gemm_flops": {"f16": 1e12}},
        }
        rows = [run, row("1x2x2x1", "kronsparse", "kronsparse", 2.0), row("1x2x2x1", "bmm", "p", 9.0)]
        rows += [row("1x2x2x1", "bmm", "q", 1.0), row("1x4x4x2", "kronsparse", "kronsparse", 1.0)]
        rows += [row("1x4x4x2", "bmm", "p", 3.0), row("1x4x4x2", "strided", "s", 2.0)]
        text = "\n".join(gpu_report.summary(rows))
        self.assertIn("| **kronsparse** | 2 | 1.50 (target 1.8: reached)", text)
        self.assertIn("| bmm | 2 | 2.00 | 50% | 1.75 | 0.50 |", text)
        self.assertIn("| strided | 2 | 1.50 | 50% (target 65%: **missed**)", text)  # d = 1: bmm's own
        self.assertIn("slower than strided on 1: 1x2x2x1 0.50", text)
        rows.append(
            {**row("1x4x4x2", "kronsparse", "kronsparse", 0.0), "status": "wrong", "reason": "error 1"}
        )
        text = "\n".join(gpu_report.summary(rows))
        self.assertIn("| bmm | 2 | 2.00 | 0% |", text)  # a wrong answer is a loss
        self.assertIn("- wrong: f16 batch_last B=8 1x4x4x2: kronsparse: error 1", text)


class PretendedGpu(unittest.TestCase):
    """torch.cuda replaced: events take the host's time, a graph replays nothing."""

    def setUp(self) -> None:
        class Event:
            def __init__(self, enable_timing: bool) -> None:
                self.at = 0.0

            def record(self) -> None:
                self.at = time.perf_counter()

            def synchronize(self) -> None: ...

            def elapsed_time(self, end: Event) -> float:
                return (end.at - self.at) * 1e3

        self.sleeps: list[int] = []
        facts = {"major": 9, "minor": 0, "multi_processor_count": 132, "name": "Pretended"}
        properties = SimpleNamespace(L2_cache_size=1 << 16, total_memory=1 << 32, **facts)

        def sleep(cycles: int) -> None:
            self.sleeps.append(cycles)
            time.sleep(1e-4)

        for name, value in {
            "Event": Event,
            "_sleep": sleep,
            "set_device": lambda device: None,
            "get_device_properties": lambda device: properties,
            "memory_reserved": lambda: 0,
            "synchronize": lambda: None,
            "current_stream": lambda: SimpleNamespace(cuda_stream=0, wait_stream=lambda other: None),
            "Stream": lambda: SimpleNamespace(wait_stream=lambda other: None),
            "stream": lambda side: nullcontext(),
            "graph": lambda graph: nullcontext(),
            "CUDAGraph": lambda: SimpleNamespace(replay=lambda: "replayed"),
        }.items():
            patch = mock.patch.object(torch.cuda, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        self.device: Device = CudaDevice("cuda:0")
        self.device.torch = torch.device("cpu")

    def test_head_start_covers_the_launches(self) -> None:
        slow = Rotation([lambda: time.sleep(2e-3) or torch.empty(0)])
        self.device.seconds_of(slow)
        self.assertGreater(slow.enqueue_s, 1e-3)
        before = self.sleeps[-1]
        self.device.seconds_of(slow, 3)
        self.assertGreater(self.sleeps[-1], 10 * before)

    def test_captures_every_call_after_a_warm_up(self) -> None:
        calls = [mock.Mock() for _ in range(5)]
        self.assertEqual(self.device.replayable(calls)(), "replayed")
        self.assertEqual([call.call_count for call in calls], [2, 2, 2, 1, 1])

    def test_describes_itself(self) -> None:
        self.assertEqual(self.device.describe()["gpu"], "Pretended")

    def test_contest_rotates_buffers_larger_than_the_cache(self) -> None:
        ceilings = Ceilings(1e10, dict.fromkeys(("f32", "f16", "bf16", "tf32"), 1e10))
        unit = Unit("f32", "batch_last", DIMS, 64, ("fp32",))
        arena = Arena(self.device, ceilings, [unit])
        self.assertGreater(arena.sets(unit) * sum(unit.operand_bytes), 3 * (1 << 16))

        class FakePlan:
            implementation = "fake"

            def __enter__(self) -> FakePlan:
                return self

            def __exit__(self, *_: object) -> None: ...

            def bind(self, x: int, y: int, stream: int):
                return lambda: None  # writes nothing: the NaN must be found

        library = SimpleNamespace(plan=lambda *_: FakePlan())
        rows = hold_device_contest(arena, library, unit, ["bmm", "strided"], None)
        found = {row["contender"]: row["status"] for row in rows}
        self.assertEqual(found, {"kronsparse": "wrong", "bmm": "ok", "strided": "ok"})
        self.assertGreaterEqual(min(row["runs"] for row in rows if row["status"] == "ok"), 10)
        json.dumps(rows, allow_nan=False)


class File(unittest.TestCase):
    def test_appends_after_a_broken_line(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.jsonl"
            path.write_text('{"record": "run"}\n{"rec')
            Results(path).add("row", x=1)
            self.assertEqual(read_rows(path), [{"record": "run"}, {"record": "row", "x": 1}])

    def test_values(self) -> None:
        device = SimpleNamespace(torch=torch.device("cpu"))
        self.assertEqual(draw_values(Unit("bf16", "batch_first", DIMS, 1), device).dtype, torch.bfloat16)


if __name__ == "__main__":
    unittest.main()
