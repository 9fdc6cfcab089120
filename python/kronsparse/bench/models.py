"""Times models and their parts beside their dense twins: transformers' own classes with random weights, their
linear layers replaced by products of factors.

Scenes: ViT-S/16 (128 images), GPT-2 medium (prefill of 16 x 1024 tokens; decoding of 1, 16, 128 sequences
with a cache) and four layers of Llama-7B (prefill of 4 x 2048; decoding). Sets of chains: `paper` (the
paper's patterns), `monarch16`, and those that `advise` chooses at the same parameters. Parts: the whole
model, a block, attention, feed-forward network, single layers without and with bias; `pipeline` is a block
in both layouts, `linear-share` the paper's Table 7. Runs: CUDA graphs, eager, compiled (by torch.compile,
then also in graphs), and profile. TF32 is off for everyone.

A cell is a scene, dtype, set, part and run. Every answer is compared with the dense product of its factors
in a wider dtype. Everything but the replaced layers is timed, too: no layer, however fast, can beat it. The
same command with the same --output goes on with the cells that are left.

  kronsparse-bench models --budget 3m --output models.jsonl
  kronsparse-bench models --only "vit f16 paper" --only "gpt2-prefill model graph"
  kronsparse-bench models --list
  kronsparse-bench models --device cpu --small --only "vit f32 paper model graph"
"""

from __future__ import annotations

import argparse
import copy
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from kronsparse.bench.measuring.answers import ERROR_RATIO, ROUNDING, TORCH_DTYPES
from kronsparse.bench.measuring.c_api import Library, find_library
from kronsparse.bench.measuring.ceilings import tf32_allowed
from kronsparse.bench.measuring.contest import first_line
from kronsparse.bench.measuring.devices import CpuDevice, Device, Rotation, begin_results, open_device
from kronsparse.bench.measuring.timing import Effort, Timing, interleaved
from kronsparse.bench.networks import scenes as zoo
from kronsparse.bench.networks.cells import Cell, cells
from kronsparse.bench.networks.pipeline import FirstBlock, layer_sizes, make_blocks, reference_block
from kronsparse.bench.networks.profiling import profiled
from kronsparse.bench.networks.replacing import CONTENDERS, REST, Replaced, taken_backends
from kronsparse.bench.networks.scenes import Inputs, Scene
from kronsparse.bench.options import DEVICE_HELP, add_library, add_output, clock, duration
from kronsparse.bench.reporting.models_section import summary
from kronsparse.bench.results.rows import Results, Row
from kronsparse.chains import chain_text

OURS = ("auto", "kernel")  # contenders that are ours
CHECKED = ("dense", "auto", "kernel", "bmm")
LEAST_ROUNDINGS = 4  # that an answer may be off by, however near the dense one is
ROWS_CHECKED = 64  # of a single layer, beside the first and the last
CACHES_TO_EXCEED, MOST_INPUTS = 2, 8  # of the inputs of single layers


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `models`."""
    add = parser.add_argument
    add("--device", default="cuda:0", help=DEVICE_HELP)
    add(
        "--only",
        action="append",
        metavar="WORDS",
        help='cells that have all these words, as in "vit f16 graph"; may be given several times',
    )
    add("--budget", type=duration, default=math.inf, metavar="TIME", help="stop after this long, as in 3m")
    add("--milliseconds", type=float, default=30.0, metavar="N", help="time for each contender (default 30)")
    add("--small", action="store_true", help="small models, to try the command on a CPU")
    add("--list", action="store_true", help="print the cells in their order, and measure nothing")
    add_library(parser)
    add_output(parser)


def main(options: argparse.Namespace) -> int:
    """Measures, and prints the tables. Returns 1 where an answer was wrong."""
    scenes = zoo.small_scenes() if options.small else zoo.scenes()
    wanted = [
        cell for cell in cells(scenes) if not options.only or any(cell.has(words) for words in options.only)
    ]
    if not wanted:
        raise ValueError(f"--only: no cell has all the words of {' or of '.join(map(repr, options.only))}")
    if options.list:
        print("\n".join(map(str, wanted)))
        return 0
    begun = time.monotonic()
    device = open_device(options.device)
    library = Library(find_library(options.shared_library))
    results = begin_results("models", device, options.output, ["transformers", "triton"])
    effort = Effort(run_s=0.5e-3, total_s=1e-3 * options.milliseconds, fewest=5, most=40)
    studio = Studio(device, effort, scenes, lambda text: library.predict(text, device=device.name))
    _run(studio, results, wanted, begun, options)
    print(summary(results.rows))
    return int(any(row.get("status") == "wrong" for row in results.rows))


def _run(
    studio: Studio, results: Results, wanted: Sequence[Cell], begun: float, options: argparse.Namespace
) -> None:
    done = {str(row["cell"]) for row in results.rows if row["record"] == "cell"}
    left = [cell for cell in wanted if str(cell) not in done]
    for place, cell in enumerate(left):
        elapsed = time.monotonic() - begun
        # The first is measured whatever the budget: a run that measures nothing is of no use.
        if place and elapsed > options.budget:
            print(f"--budget: stopped before {cell}; {len(left) - place} are left", file=sys.stderr)
            return
        for row in studio.rows(cell, options.small):
            results.add("cell", **row, **({"small": True} if options.small else {}))
            told = ", ".join(f"{name} {1e3 * one:.4g}" for name, one in row["seconds"].items())
            print(f"{clock(elapsed)} {row['name']}: {row['status']} ms: {told}", file=sys.stderr, flush=True)
        studio.device.tidy()


Call = Callable[[], Tensor]


@dataclass
class Subject:
    """Something to be timed: the calls of each contender, rotated, and how far its answers may be off."""

    calls: dict[str, list[Callable[..., Tensor]]]
    modules: dict[str, nn.Module]  # for what compiles them
    inputs: dict[str, list[Inputs]]
    error_of: Callable[[str, Tensor], float]
    allowed: Callable[[float], float]  # from the error of the dense form
    checked: Sequence[str] = CHECKED
    dense: str = "dense"
    compiled: dict[str, Callable[..., Any]] = field(default_factory=dict)


class Studio:
    """The device, the effort, and the model that was built last: cells follow each other by model."""

    def __init__(
        self, device: Device, effort: Effort, scenes: Mapping[str, Scene], predict: zoo.Predict
    ) -> None:
        self.device, self.effort, self.scenes, self.predict = device, effort, scenes, predict
        self._key: tuple[str, ...] = ()
        self._made: tuple[Replaced, dict[str, nn.Module], Inputs] | None = None

    def rows(self, cell: Cell, small: bool = False) -> list[Row]:
        """Those of a cell: one, or of single layers one for each."""
        torch.manual_seed(1)
        makers = {"layer": self._layers, "pipeline": self._pipeline}
        with tf32_allowed(False), torch.no_grad():
            if cell.part == "linear-share":
                return [self._linear_share(cell, small)]
            return makers.get(cell.part, self._part)(cell)

    def _common(self, cell: Cell, **more: Any) -> Row:
        row: Row = {"cell": str(cell), "name": str(cell), "scene": cell.scene, "dtype": cell.dtype}
        row |= {"set": cell.set_name, "part": cell.part, "run": cell.run, "status": "ok", "reason": ""}
        return row | {"seconds": {}, "errors": {}} | more

    def _model(self, cell: Cell) -> tuple[Replaced, dict[str, nn.Module], Inputs]:
        key = (cell.scene, cell.dtype, cell.set_name)
        if self._made is None or key != self._key:
            self._made = None  # before the next takes its memory
            scene, kind, where = self.scenes[cell.scene], TORCH_DTYPES[cell.dtype], self.device.torch
            dense = zoo.build(scene, where, kind)
            chains = zoo.chains_for(scene, dense, cell.set_name, cell.dtype, self.predict)
            replaced = Replaced(dense, chains)
            forms = {name: replaced.form(name) for name in CONTENDERS}
            self._key, self._made = key, (replaced, forms, zoo.inputs_of(scene, where, kind))
        return self._made

    def _part(self, cell: Cell) -> list[Row]:
        scene = self.scenes[cell.scene]
        replaced, forms, inputs = self._model(cell)
        weights, dense_weights = replaced.parameters
        whole = sum(one.numel() for one in replaced.dense.parameters())
        row = self._common(
            cell,
            samples=scene.samples,
            layers=len(replaced.chains),
            chains={f"{one.rows}x{one.cols}": chain_text(one) for one in replaced.chains.values()},
            sparsity=1 - weights / dense_weights,
            model_sparsity=(dense_weights - weights) / whole,
        )
        where = ""
        if cell.part != "model":
            names = zoo.part_names(replaced.dense)
            if cell.part not in names:
                return [row | {"status": "skipped", "reason": f"{cell.part} is no module of its own there"}]
            where = names[cell.part]
            inputs = zoo.inputs_of_part(replaced.dense, where, inputs)
        modules = {name: form.get_submodule(where) for name, form in forms.items()}
        if not any(name.startswith(where) for name in replaced.chains):
            return [row | {"status": "skipped", "reason": "none of its layers is replaced"}]
        if cell.run == "profile":
            on_gpu = not isinstance(self.device, CpuDevice)
            modules.pop(REST)
            row["profile"] = {
                name: profiled(partial(inputs.call, one), on_gpu) for name, one in modules.items()
            }
            return [row]
        reference = replaced.reference(_wider(cell.dtype)).get_submodule(where)
        error_of = self._errors(reference, inputs, scene.batch, cell.dtype)
        factors = math.sqrt(replaced.longest)
        subject = Subject(
            {name: [partial(inputs.call, one)] for name, one in modules.items()},
            modules,
            {name: [inputs] for name in modules},
            lambda _, answer: error_of(answer),
            lambda dense: max(ERROR_RATIO * factors * dense, LEAST_ROUNDINGS * ROUNDING[cell.dtype]),
        )
        del reference
        return self._measured(cell, subject, row)

    def _errors(
        self, reference: nn.Module, inputs: Inputs, batch: int, dtype: str, others: int = 0
    ) -> Callable[[Tensor], float]:
        """In norm, of the first, the last and so many other samples, against the dense product in a wider
        dtype."""
        ends = torch.tensor([0, batch - 1])
        picked = torch.cat([ends, torch.randint(batch, (others,))]).to(self.device.torch)
        exact = inputs.picked(picked, batch, _wider(dtype)).call(reference).double()

        def error_of(answer: Tensor) -> float:
            if not bool(torch.isfinite(answer.sum(dtype=torch.float32))):
                return math.inf
            return float((answer[picked].double() - exact).norm() / exact.norm())

        return error_of

    def _layers(self, cell: Cell) -> list[Row]:
        scene = self.scenes[cell.scene]
        replaced, _, _ = self._model(cell)
        rows = []
        for chain in dict.fromkeys(replaced.chains.values()):
            for has_bias in (False, True):
                name = f"{chain.rows}x{chain.cols}{'+bias' if has_bias else ''}"
                row = self._common(
                    cell,
                    samples=scene.samples,
                    layers=1,
                    layer=name,
                    chains={f"{chain.rows}x{chain.cols}": chain_text(chain)},
                    sparsity=1 - chain.nnz / (chain.rows * chain.cols),
                )
                row["name"] = f"{cell} {name}"
                kind: dict[str, Any] = {"device": self.device.torch, "dtype": TORCH_DTYPES[cell.dtype]}
                linear = nn.Sequential(nn.Linear(chain.cols, chain.rows, has_bias, **kind)).requires_grad_(
                    False
                )
                alone = Replaced(linear, {"0": chain})
                x_bytes = scene.samples * chain.cols * kind["dtype"].itemsize
                wanted = math.ceil(CACHES_TO_EXCEED * self.device.cache_bytes / x_bytes)
                shape = (scene.samples, chain.cols)
                inputs = [
                    Inputs((torch.randn(shape, device=kind["device"]).to(kind["dtype"]),), {})
                    for _ in range(max(1, min(MOST_INPUTS, wanted)))
                ]
                modules = {name: alone.form(name) for name in CHECKED}
                exact = self._errors(
                    alone.reference(_wider(cell.dtype)), inputs[0], scene.samples, cell.dtype, ROWS_CHECKED
                )
                factors = math.sqrt(len(chain))
                subject = Subject(
                    {who: [partial(one.call, module) for one in inputs] for who, module in modules.items()},
                    modules,
                    dict.fromkeys(modules, inputs),
                    lambda _, answer, exact=exact: exact(answer),  # type: ignore[misc]
                    lambda dense, factors=factors: max(  # type: ignore[misc]
                        ERROR_RATIO * factors * dense, LEAST_ROUNDINGS * ROUNDING[cell.dtype]
                    ),
                )
                rows += self._measured(cell, subject, row)
        return rows

    def _pipeline(self, cell: Cell) -> list[Row]:
        """A block in both layouts."""
        scene, kind, where = self.scenes[cell.scene], TORCH_DTYPES[cell.dtype], self.device.torch
        chains = {}
        for name, (cols, rows) in layer_sizes(scene.width).items():
            chain = zoo.SETS[cell.set_name](scene, cols, rows)
            assert chain is not None  # both sets have one for every layer of a vision transformer
            chains[name] = chain
        modules = make_blocks(scene.width, scene.heads, chains, where, kind)
        x = torch.randn(scene.batch, scene.tokens, scene.width, device=where).to(kind)
        first, last = Inputs((x,), {}), Inputs((x.permute(2, 0, 1).contiguous(),), {})
        inputs = {name: [last if "batch_last" in name else first] for name in modules}
        block = modules["kernel batch_first"]
        assert isinstance(block, FirstBlock)
        exact = self._errors(reference_block(block, _wider(cell.dtype)), first, scene.batch, cell.dtype)
        row = self._common(
            cell,
            samples=scene.samples,
            layers=len(chains),
            chains={f"{one.rows}x{one.cols}": chain_text(one) for one in chains.values()},
        )
        subject = Subject(
            {name: [partial(inputs[name][0].call, module)] for name, module in modules.items()},
            modules,
            inputs,
            lambda name, answer: exact(answer.permute(1, 2, 0) if "batch_last" in name else answer),
            lambda dense: max(2 * ERROR_RATIO * dense, LEAST_ROUNDINGS * ROUNDING[cell.dtype]),
            list(modules),
            "dense batch_first",
        )
        return self._measured(cell, subject, row)

    def _linear_share(self, cell: Cell, small: bool) -> Row:
        """A dense vision transformer, and the linear layers of its feed-forward networks alone."""
        scene, kind, where = zoo.vision_scene(cell.scene, small), TORCH_DTYPES[cell.dtype], self.device.torch
        self._made = None
        model, inputs = zoo.build(scene, where, kind), zoo.inputs_of(scene, where, kind)
        sizes = [(scene.width, scene.inner), (scene.inner, scene.width)] * scene.depth
        options: dict[str, Any] = {"bias": False, "device": where, "dtype": kind}
        network = nn.Sequential(*(nn.Linear(*pair, **options) for pair in sizes)).requires_grad_(False)
        x = torch.randn(scene.batch, scene.tokens, scene.width, device=where).to(kind)
        calls = [Rotation([partial(inputs.call, model)]), Rotation([partial(network, x)])]
        row = self._common(cell, samples=scene.samples)
        row["seconds"] = {
            name: timing.median_s
            for name, timing in zip(("model", "ffn"), self._timings(calls, in_a_row=True), strict=True)
        }
        return row

    def _timings(self, calls: Sequence[Rotation], in_a_row: bool) -> list[Timing]:
        """By turns. A graph costs the host nothing; other calls take as long as their caller waits."""
        timed = self.device.seconds_in_a_row if in_a_row else self.device.seconds_of
        for call in calls:
            for _ in range(2):
                call()
        schedules = [self.effort.schedule(timed(call, 1)) for call in calls]
        return interleaved(calls, schedules, timed)

    def _measured(self, cell: Cell, subject: Subject, row: Row) -> list[Row]:
        """The row of a run; of a compiled one also that in a graph."""
        if cell.run.startswith("compiled"):
            torch._dynamo.reset()  # it compiles one function a few times only, then runs it uncompiled
        rows = [row]
        if cell.run == "compiled":
            in_graph = {"run": "compiled-graph", "name": row["name"].replace("compiled", "compiled-graph")}
            rows.append(copy.deepcopy(row) | in_graph)
        for one in rows:
            self._measure(one["run"], subject, one)
            if "auto" in subject.modules:
                one["taken"] = taken_backends(subject.modules["auto"], one["samples"])
        return rows

    def _measure(self, run: str, subject: Subject, row: Row) -> None:
        """Checks everyone, then times all by turns. Who fails is named, and left out."""
        ready: dict[str, Rotation] = {}
        ratios: dict[str, int] = {}
        for name in subject.calls:
            if run.startswith("compiled") and name == "auto":
                continue  # compiled, it is the kernel
            try:
                call, answer, calls = self._prepared(run, subject, name)
                if name in subject.checked and not self._is_right(subject, name, answer, row):
                    continue
            except Exception as error:  # out of memory, or what a compiler throws
                self._drop(row, name, "unavailable", f"{type(error).__name__}: {first_line(error)}")
                continue
            ready[name], ratios[name] = call, calls
        in_a_row = not run.endswith("graph")
        timings = dict(zip(ready, self._timings(list(ready.values()), in_a_row), strict=True))
        row["seconds"] = {name: timing.median_s / ratios[name] for name, timing in timings.items()}
        row["quartiles"] = {
            name: [timing.q1_s / ratios[name], timing.q3_s / ratios[name]] for name, timing in timings.items()
        }

    def _prepared(self, run: str, subject: Subject, name: str) -> tuple[Rotation, Tensor, int]:
        """A call as the run has it, its first answer, and the number of calls that it stands for."""
        calls = subject.calls[name]
        if run.startswith("compiled"):
            if name not in subject.compiled:
                calls[0]()  # chooses and packs, which is not to be compiled
                subject.compiled[name] = torch.compile(subject.modules[name], dynamic=False)
            calls = [partial(one.call, subject.compiled[name]) for one in subject.inputs[name]]
        if not run.endswith("graph"):
            return Rotation(calls), calls[0](), 1
        for call in calls[:2]:
            call()  # choosing and packing come before a graph
        answers: list[Tensor] = []

        def first() -> Tensor:
            answers[:] = [calls[0]()]
            return answers[0]

        replay = self.device.replayable([first, *calls[1:]])
        replay()
        return Rotation([replay]), answers[0], len(calls)  # type: ignore[list-item]

    def _is_right(self, subject: Subject, name: str, answer: Tensor, row: Row) -> bool:
        error = subject.error_of(name, answer)
        row["errors"][name] = error if math.isfinite(error) else None
        if name == subject.dense:
            row["allowed"] = subject.allowed(error)
        allowed = row.get("allowed", math.inf)
        if math.isfinite(error) and (error <= allowed or name == subject.dense):
            return True
        self._drop(row, name, "wrong", f"error {error:.3g}, {allowed:.3g} allowed")
        return False

    @staticmethod
    def _drop(row: Row, name: str, status: str, reason: str) -> None:
        row["reason"] = f"{row['reason']}; {name} {status}: {reason}".removeprefix("; ")
        if name != REST and (status == "wrong" or any(one in name for one in OURS)):
            row["status"] = "wrong" if "wrong" in (status, row["status"]) else status


def _wider(dtype: str) -> torch.dtype:
    """That of references: far more exact than the dtype, and no slower than need be."""
    return torch.float64 if dtype == "f32" else torch.float32
