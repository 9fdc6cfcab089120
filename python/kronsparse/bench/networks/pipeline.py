"""A block of a vision transformer in both layouts: with samples outermost, as PyTorch has it, and with
features outermost throughout: layer norm, attention and GELU too."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from kronsparse.chains import Chain
from kronsparse.torch import KSLinear

LAYERS = ("query", "key", "value", "out", "up", "down")
ATTENTIONS = ("copied", "heads")


def layer_sizes(width: int) -> dict[str, tuple[int, int]]:
    """in_features and out_features of a block's layers, by name.

    >>> layer_sizes(8)["up"]
    (8, 32)
    """
    square = dict.fromkeys(LAYERS[:4], (width, width))
    return square | {"up": (width, 4 * width), "down": (4 * width, width)}


class LastLinear(nn.Module):
    """y = W x + bias for x (features, ...): nn.Linear with features outermost."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(weight, False), nn.Parameter(bias, False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias[:, None], self.weight, x.flatten(1)).view(-1, *x.shape[1:])


class FirstBlock(nn.Module):
    """x + attention(norm(x)), then x + network(norm(x)), for x (batch, tokens, features)."""

    def __init__(self, width: int, heads: int, layers: Mapping[str, nn.Module], norms: list[Tensor]) -> None:
        super().__init__()
        self.width, self.heads, self.eps = width, heads, 1e-12
        self.layers = nn.ModuleDict(dict(layers))
        self.norms = nn.ParameterList(nn.Parameter(one, False) for one in norms)

    def forward(self, x: Tensor) -> Tensor:
        w1, b1, w2, b2 = self.norms
        normed = functional.layer_norm(x, (self.width,), w1, b1, self.eps)
        x = x + self.layers["out"](self._attend(normed))
        normed = functional.layer_norm(x, (self.width,), w2, b2, self.eps)
        y: Tensor = x + self.layers["down"](_activated(self.layers["up"], normed))
        return y

    def _attend(self, x: Tensor) -> Tensor:
        q, k, v = (
            self.layers[name](x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for name in LAYERS[:3]
        )
        return functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


class LastBlock(nn.Module):
    """The same for x (features, batch, tokens).

    `attention` says how: "copied" turns queries, keys and values to (batch, heads, tokens, features) for
    torch's attention, and its result back; "heads" multiplies where they lie, one head after the other.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        layers: Mapping[str, nn.Module],
        norms: list[Tensor],
        attention: str = "copied",
    ) -> None:
        super().__init__()
        if attention not in ATTENTIONS:
            raise ValueError(f"attention: {attention!r} given, must be one of {', '.join(ATTENTIONS)}")
        self.width, self.heads, self.eps, self.attention = width, heads, 1e-12, attention
        self.layers = nn.ModuleDict(dict(layers))
        self.norms = nn.ParameterList(nn.Parameter(one, False) for one in norms)

    def forward(self, x: Tensor) -> Tensor:
        w1, b1, w2, b2 = self.norms
        normed = self._norm(x, w1, b1)
        q, k, v = (self.layers[name](normed).unflatten(0, (self.heads, -1)) for name in LAYERS[:3])
        attend = self._attend_copied if self.attention == "copied" else self._attend_by_heads
        x = x + self.layers["out"](attend(q, k, v))
        y: Tensor = x + self.layers["down"](_activated(self.layers["up"], self._norm(x, w2, b2)))
        return y

    def _norm(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Layer norm over the outermost dimension. Sums are in f32, as in torch's own."""
        wide = x.float() if x.dtype != torch.float64 else x
        variance, mean = torch.var_mean(wide, dim=0, correction=0, keepdim=True)
        scaled = (wide - mean) * torch.rsqrt(variance + self.eps)
        return (scaled * weight[:, None, None] + bias[:, None, None]).to(x.dtype)

    def _attend_copied(self, *operands: Tensor) -> Tensor:
        q, k, v = (
            one.permute(2, 0, 3, 1).contiguous() for one in operands
        )  # (batch, heads, tokens, features)
        attended = functional.scaled_dot_product_attention(q, k, v)
        return attended.permute(1, 3, 0, 2).flatten(0, 1).contiguous()

    def _attend_by_heads(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        # A head's (features, batch, tokens) are matrices of features x tokens whose rows lie batch·tokens
        # apart: libraries multiply them as they are.
        attended = torch.empty_like(q)
        scale = 1 / math.sqrt(q.shape[1])
        for head in range(self.heads):
            scores = torch.bmm(q[head].permute(1, 2, 0), k[head].transpose(0, 1))  # (batch, tokens, tokens)
            shares = torch.softmax(scores * scale, dim=-1)
            attended[head] = torch.bmm(v[head].transpose(0, 1), shares.transpose(1, 2)).transpose(0, 1)
        return attended.flatten(0, 1)


def _activated(up: nn.Module, x: Tensor) -> Tensor:
    """GELU of a layer, which a product of factors computes itself."""
    y: Tensor = up(x)
    return y if isinstance(up, KSLinear) and up.activation == "gelu" else functional.gelu(y)


def make_blocks(
    width: int,
    heads: int,
    chains: Mapping[str, Chain],
    device: torch.device,
    dtype: torch.dtype,
) -> dict[str, nn.Module]:
    """The block in both layouts, dense and of these chains, all with the same weights but for roundings.

    >>> from kronsparse.chains import monarch
    >>> chains = {name: monarch(rows, cols, 4) for name, (cols, rows) in layer_sizes(16).items()}
    >>> blocks = make_blocks(16, 2, chains, torch.device("cpu"), torch.float32)
    >>> print(*blocks, sep=", ")
    dense batch_first, dense batch_last, kernel batch_first, kernel batch_last, kernel batch_last heads
    >>> x = torch.randn(3, 5, 16)
    >>> first, last = (blocks[f"kernel batch_{one}"] for one in ("first", "last"))
    >>> torch.allclose(first(x), last(x.permute(2, 0, 1)).permute(1, 2, 0), atol=1e-5)
    True
    """
    options: dict[str, Any] = {"device": device, "dtype": dtype}
    norms = [0.1 * torch.randn(width, **options) + (place % 2 == 0) for place in range(4)]
    factors = {
        name: KSLinear(chain.cols, chain.rows, chain, **options).requires_grad_(False)
        for name, chain in chains.items()
    }

    def product(layout: str) -> dict[str, nn.Module]:
        made: dict[str, nn.Module] = {}
        for name, layer in factors.items():
            activation = "gelu" if name == "up" else None
            copied = KSLinear.from_factors(layer.factors, layer.bias, layout, "kernel", activation)
            made[name] = copied.requires_grad_(False).eval().freeze()
        return made

    firsts: dict[str, nn.Module] = {}
    lasts: dict[str, nn.Module] = {}
    for name, layer in factors.items():
        matrix = layer.float().to_dense().to(dtype) if dtype != torch.float64 else layer.to_dense()
        layer.to(dtype)
        assert layer.bias is not None
        linear = nn.Linear(layer.in_features, layer.out_features, **options).requires_grad_(False)
        linear.weight.copy_(matrix)
        linear.bias.copy_(layer.bias)
        firsts[name], lasts[name] = linear, LastLinear(matrix, layer.bias.detach())
    blocks: dict[str, nn.Module] = {
        "dense batch_first": FirstBlock(width, heads, firsts, norms),
        "dense batch_last": LastBlock(width, heads, lasts, norms),
        "kernel batch_first": FirstBlock(width, heads, product("batch_first"), norms),
        "kernel batch_last": LastBlock(width, heads, product("batch_last"), norms),
        "kernel batch_last heads": LastBlock(width, heads, product("batch_last"), norms, "heads"),
    }
    return {name: block.eval() for name, block in blocks.items()}


def reference_block(block: FirstBlock, dtype: torch.dtype) -> FirstBlock:
    """The block in a wider dtype, its products of factors multiplied out."""
    layers: dict[str, nn.Module] = {}
    for name in LAYERS:
        layer = block.layers[name]
        assert isinstance(layer, KSLinear) and layer.bias is not None
        linear = nn.Linear(layer.in_features, layer.out_features, device=layer.bias.device, dtype=dtype)
        wide = KSLinear.from_factors([one.to(dtype) for one in layer.factors]).requires_grad_(False)
        linear.requires_grad_(False).weight.copy_(wide.to_dense())
        linear.bias.copy_(layer.bias)
        layers[name] = linear
    return FirstBlock(block.width, block.heads, layers, [one.detach().to(dtype) for one in block.norms])
