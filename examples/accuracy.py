#!/usr/bin/env python3
"""The price of products of factors in accuracy: a small vision transformer, dense and with KSLinear at three
budgets of parameters, each trained from scratch on pictures that this program draws.

    python examples/accuracy.py [--steps 400] [--device cuda] [--plot accuracy.svg] [--table accuracy.md]

It takes some minutes on two cores.

The task: a picture has two bright shapes among noise, each a bar, a cross, a square or a ring. Their pair of
kinds, the brighter one first, is the class, of sixteen. All models see the same pictures in the same order. A
table and a plot have accuracy on pictures that none was trained on, milliseconds of a frozen model for a
batch, and parameters of the linear layers.

Where `kronsparse.torch` has `convert`, the trained dense model is also converted at each budget and trained a
little more.
"""

from __future__ import annotations

import argparse
import copy
import html
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import kronsparse.torch
import torch
from kronsparse.chains import for_budget
from kronsparse.torch import KSLinear, freeze
from torch import Tensor, nn

SIDE, PATCH, WIDTH, HEADS, DEPTH, CLASSES = 16, 4, 64, 4, 2, 16
BUDGETS = (0.50, 0.25, 0.125)  # of the dense layers' parameters
RATE, BATCH = 4e-3, 64


class Block(nn.Module):
    """Attention and a two-layer network, each added to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.project = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, tokens, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.project(attended.transpose(1, 2).reshape(batch, tokens, WIDTH))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class VisionTransformer(nn.Module):
    """Patches, blocks, and the mean of all tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, WIDTH, PATCH, PATCH)
        self.positions = nn.Parameter(0.02 * torch.randn((SIDE // PATCH) ** 2, WIDTH))
        self.blocks = nn.Sequential(*[Block() for _ in range(DEPTH)])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, pictures: Tensor) -> Tensor:
        x = self.patches(pictures).flatten(2).transpose(1, 2) + self.positions
        return self.head(self.norm(self.blocks(x)).mean(dim=1))


def with_factors(model: nn.Module, budget: float) -> nn.Module:
    """The model with every linear layer of its blocks replaced by a product that has this share of its
    parameters."""
    for block in model.modules():
        for name, child in list(block.named_children()) if isinstance(block, Block) else []:
            if isinstance(child, nn.Linear):
                rows, cols = child.out_features, child.in_features
                chain = for_budget(rows, cols, int(budget * rows * cols))
                setattr(block, name, KSLinear(cols, rows, chain))
    return model


def linear_parameters(model: nn.Module) -> int:
    """Weights of the linear layers inside of blocks."""
    layers = [
        layer
        for block in model.modules()
        if isinstance(block, Block)
        for layer in block.children()
        if isinstance(layer, (nn.Linear, KSLinear))
    ]
    return sum(weight.numel() for layer in layers for weight in layer.parameters() if weight.dim() > 1)


def shapes() -> Tensor:
    """A bar, a cross, a square and a ring, 6 x 6 each."""
    found = torch.zeros(4, 6, 6)
    found[0, 2:4] = 1
    found[1, 2:4] = found[1, :, 2:4] = 1
    found[2, 1:5, 1:5] = 1
    found[3] = 1
    found[3, 2:4, 2:4] = found[3, 1:5, 1:5] = 0
    return found


def draw(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Pictures with two shapes in different halves, and their classes."""
    kinds = torch.randint(4, (count, 2), generator=generator)
    sides = torch.randint(2, (count,), generator=generator)  # the half of the brighter one
    rows = torch.randint(SIDE - 6, (count, 2), generator=generator)
    columns = torch.randint(SIDE // 2 - 6 + 1, (count, 2), generator=generator)
    pictures = 0.3 * torch.randn(count, 1, SIDE, SIDE, generator=generator)
    known = shapes()
    for which, brightness in enumerate((2.2, 1.2)):
        half = (sides if which == 0 else 1 - sides) * (SIDE // 2)
        for at in range(count):
            row, column = int(rows[at, which]), int(columns[at, which] + half[at])
            pictures[at, 0, row : row + 6, column : column + 6] += brightness * known[kinds[at, which]]
    return pictures, 4 * kinds[:, 0] + kinds[:, 1]


def train(model: nn.Module, batches: list[tuple[Tensor, Tensor]], rate: float) -> None:
    """One step a batch; the rate rises, then falls."""
    model.train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=len(batches) + 1)
    for pictures, classes in batches:
        loss = nn.functional.cross_entropy(model(pictures), classes)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()


@dataclass
class Line:
    """One model in the table."""

    name: str
    frozen: nn.Module
    parameters: int
    accuracy: float
    milliseconds: float = 0.0


def measure(name: str, model: nn.Module, pictures: Tensor, classes: Tensor) -> Line:
    """The accuracy of a model."""
    frozen = freeze(copy.deepcopy(model).eval())
    with torch.no_grad():
        guessed = torch.cat([frozen(some).argmax(dim=1) for some in pictures.split(256)])
    accuracy = 100 * float((guessed == classes).float().mean())
    return Line(name, frozen, linear_parameters(model), accuracy)


def time_by_turns(lines: list[Line], pictures: Tensor) -> None:
    """The median time of a batch for each model: by turns, so that a slow moment of the machine hits all."""
    runs: list[list[float]] = [[] for _ in lines]
    with torch.no_grad():
        for _ in range(25):
            for line, mine in zip(lines, runs, strict=True):
                _synchronise(pictures)
                begun = time.perf_counter()
                line.frozen(pictures[:BATCH])
                _synchronise(pictures)
                mine.append(time.perf_counter() - begun)
    for line, mine in zip(lines, runs, strict=True):
        line.milliseconds = 1e3 * statistics.median(mine[5:])


def _synchronise(tensor: Tensor) -> None:
    if tensor.is_cuda:
        torch.cuda.synchronize()


def table(lines: list[Line]) -> str:
    """In Markdown."""
    rows = [
        f"| {line.name} | {line.parameters:,} | {100 * line.parameters / lines[0].parameters:.1f} % | "
        f"{line.accuracy:.1f} % | {line.milliseconds:.2f} |"
        for line in lines
    ]
    head = f"| model | parameters | of dense | accuracy | ms for {BATCH} pictures |"
    return "\n".join([head, "|---|---|---|---|---|", *rows])


def plot(lines: list[Line]) -> str:
    """Accuracy against parameters as SVG; the area of a point is the model's time."""
    width, height, left, bottom = 560, 340, 60, 44
    lowest = 10 * (min(line.accuracy for line in lines) // 10)
    most = max(line.parameters for line in lines)
    slowest = max(line.milliseconds for line in lines)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="system-ui, sans-serif" font-size="11">',
        f'<text x="{left}" y="16" font-size="13">Accuracy and parameters; areas are time</text>',
    ]

    def x_of(parameters: float) -> float:
        return left + (width - left - 120) * parameters / most

    def y_of(accuracy: float) -> float:
        return 30 + (height - 30 - bottom) * (1 - (accuracy - lowest) / (100 - lowest))

    for tick in range(int(lowest), 101, 10):
        parts.append(f'<path d="M{left} {y_of(tick):.0f}H{width - 10}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 6}" y="{y_of(tick) + 4:.0f}" text-anchor="end">{tick} %</text>')
    for share in (0.25, 0.5, 0.75, 1.0):
        x = x_of(share * most)
        parts.append(f'<text x="{x:.0f}" y="{height - 24}" text-anchor="middle">{share:.0%}</text>')
    parts.append(f'<text x="{width // 2}" y="{height - 6}" text-anchor="middle">share of parameters</text>')
    for line in lines:
        x, y, radius = x_of(line.parameters), y_of(line.accuracy), 9 * (line.milliseconds / slowest) ** 0.5
        colour = "#0072b2" if line is lines[0] else "#e69f00" if "converted" not in line.name else "#009e73"
        parts.append(f'<circle cx="{x:.0f}" cy="{y:.0f}" r="{radius:.1f}" fill="{colour}"/>')
        parts.append(f'<text x="{x + 12:.0f}" y="{y + 4:.0f}">{html.escape(line.name)}</text>')
    return "".join([*parts, "</svg>\n"])


def converted(dense: nn.Module, budget: float, pictures: Tensor) -> nn.Module | None:
    """The trained model with its layers as their nearest products on these pictures, where this version
    can."""
    convert = getattr(kronsparse.torch, "convert", None)
    if convert is None:
        return None
    model: nn.Module = convert(dense, {"re:blocks[.].*": budget}, [pictures])
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description="accuracy, latency and parameters of a small ViT")
    parser.add_argument("--steps", type=int, default=400, help="steps of training, 64 pictures each")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--plot", type=Path, help="SVG file to write the plot to")
    parser.add_argument("--table", type=Path, help="Markdown file to write the table to")
    arguments = parser.parse_args()

    generator = torch.Generator().manual_seed(1)
    drawn = [draw(BATCH, generator) for _ in range(arguments.steps)]
    batches = [(one.to(arguments.device), kind.to(arguments.device)) for one, kind in drawn]
    pictures, classes = (one.to(arguments.device) for one in draw(2048, generator))
    lines: list[Line] = []

    def add(name: str, model: nn.Module) -> None:
        lines.append(measure(name, model, pictures, classes))
        print(f"{name}: {lines[-1].accuracy:.1f} %", flush=True)

    torch.manual_seed(0)
    dense = VisionTransformer().to(arguments.device)
    train(dense, batches, RATE)
    add("dense", dense)
    for budget in BUDGETS:
        torch.manual_seed(0)
        model = with_factors(VisionTransformer(), budget).to(arguments.device)
        train(model, batches, RATE)
        add(f"KS {budget:.1%}", model)
    for budget in BUDGETS:
        nearest = converted(dense, budget, batches[0][0])
        if nearest is not None:
            train(nearest, batches[: len(batches) // 3], RATE / 4)
            add(f"KS {budget:.1%}, converted", nearest)
    time_by_turns(lines, pictures)
    print(table(lines))
    if arguments.table:
        arguments.table.write_text(table(lines) + "\n")
    if arguments.plot:
        arguments.plot.write_text(plot(lines))


if __name__ == "__main__":
    main()
