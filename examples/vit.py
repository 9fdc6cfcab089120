#!/usr/bin/env python3
"""A small vision transformer with KSLinear for its linear layers, trained on pictures it draws itself.

    python examples/vit.py [--steps 100] [--device cuda] [--chain monarch]

The task: in which quarter of a noisy picture is the bright square?
"""

from __future__ import annotations

import argparse

import torch
from kronsparse.torch import KSLinear
from torch import Tensor, nn

SIDE, PATCH, WIDTH, HEADS, DEPTH = 16, 4, 64, 4, 2


class Block(nn.Module):
    """Attention and a two-layer network, each added to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.project = nn.Linear(WIDTH, WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, tokens, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.project(attended.transpose(1, 2).reshape(batch, tokens, WIDTH))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class VisionTransformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        tokens = (SIDE // PATCH) ** 2
        self.patches = nn.Conv2d(1, WIDTH, PATCH, PATCH)
        self.positions = nn.Parameter(0.02 * torch.randn(tokens, WIDTH))
        self.blocks = nn.Sequential(*[Block() for _ in range(DEPTH)])
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, pictures: Tensor) -> Tensor:
        x = self.patches(pictures).flatten(2).transpose(1, 2) + self.positions
        return self.head(self.blocks(x).mean(dim=1))


def swap_linear_layers(model: nn.Module, chain: str) -> None:
    """Replaces every nn.Linear inside the blocks by a KSLinear of the same sizes."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(module, Block) and isinstance(child, nn.Linear):
                layer = KSLinear(child.in_features, child.out_features, chain)
                layer.reset_parameters(variance_preserving=True)
                setattr(module, name, layer)


def draw(count: int, device: str) -> tuple[Tensor, Tensor]:
    """Noise with a brighter square in one quarter, and which quarter it is."""
    quarter = torch.randint(4, (count,), device=device)
    pictures = torch.randn(count, 1, SIDE, SIDE, device=device)
    half = SIDE // 2
    for index in range(4):
        row, column = half * (index // 2), half * (index % 2)
        pictures[quarter == index, :, row + 2 : row + 6, column + 2 : column + 6] += 3
    return pictures, quarter


def main() -> None:
    parser = argparse.ArgumentParser(description="a small ViT with KSLinear")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--chain", default="monarch")
    arguments = parser.parse_args()

    torch.manual_seed(0)
    model = VisionTransformer()
    before = sum(parameter.numel() for parameter in model.parameters())
    swap_linear_layers(model, arguments.chain)
    after = sum(parameter.numel() for parameter in model.parameters())
    print(f"parameters: {after} of {before}")
    model.to(arguments.device)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(arguments.steps):
        pictures, quarter = draw(64, arguments.device)
        loss = nn.functional.cross_entropy(model(pictures), quarter)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")


if __name__ == "__main__":
    main()
