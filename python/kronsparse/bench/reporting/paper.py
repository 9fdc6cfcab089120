"""The numbers of "Fast Inference with Kronecker-Sparse Matrices" (ICML 2025) that ours are set beside.

Time on an A100 (40 GB), energy on a V100, PyTorch 2.2. Its `kernel` is what `kronsparse` is here.
"""

from __future__ import annotations

from typing import NamedTuple


class Wins(NamedTuple):
    """How often one is faster than the other, in percent, and by how much in the median of those cases."""

    percent: float
    times: float | None


class SparsityBin(NamedTuple):
    """A row of the table by sparsity: FP32, best of both layouts, over the best of bmm, einsum and bsr."""

    low: float  # percent
    high: float
    wins: Wins
    patterns: int
    correlation: float  # of log speedup and log h


# By (dtype, layout), in the order of the comparisons in `paper_sections.COMPARISONS`.
WINS: dict[tuple[str, str], tuple[Wins, Wins, Wins]] = {
    ("f32", "best of both"): (Wins(98.1, 6.5), Wins(90.0, 1.36), Wins(85.5, 1.39)),
    ("f32", "batch_first"): (Wins(97.61, 18.50), Wins(94.1, 1.44), Wins(20.41, 1.26)),
    ("f32", "batch_last"): (Wins(98.09, 6.53), Wins(89.47, 1.66), Wins(85.49, 1.39)),
    ("f16", "best of both"): (Wins(85.7, 8.14), Wins(80.7, 1.52), Wins(37.8, 1.51)),
    ("f16", "batch_first"): (Wins(83.18, 6.31), Wins(82.25, 1.54), Wins(0.0, None)),
    ("f16", "batch_last"): (Wins(85.34, 8.14), Wins(79.48, 2.65), Wins(41.78, 1.56)),
}
SPARSITY_BINS = (
    SparsityBin(99.48, 99.93, Wins(100.0, 1.84), 102, 0.91),
    SparsityBin(98.96, 99.48, Wins(93.1, 1.41), 101, 0.82),
    SparsityBin(97.92, 98.96, Wins(79.6, 1.38), 108, 0.83),
    SparsityBin(95.83, 97.92, Wins(81.5, 1.41), 92, 0.80),
    SparsityBin(87.49, 95.83, Wins(89.5, 1.30), 114, 0.80),
    SparsityBin(49.99, 87.49, Wins(86.0, 1.23), 86, 0.76),
)
# log speedup = intercept + density·log(density) + h·log(h), FP32.
REGRESSION = {"intercept": 1.69, "density": -0.031, "h": 0.325, "adjusted R²": 0.697}
ENERGY_WINS = Wins(72.0, None)
ENERGY_MEDIAN_SAVING_PERCENT = 15.0
# Share of bmm's time that its permutations take, from the smallest to the largest h, in percent.
PERMUTATION_SHARE = {"f32": (10.0, 50.0), "f16": (40.0, 80.0)}
FIRST_OVER_LAST = 2.0  # of the kernel, FP32, median


class Latency(NamedTuple):
    """Time over that of the dense model, FP32, batch_first."""

    bmm: float
    kernel: float
    sparsity: float = 0.0  # percent


class LinearShare(NamedTuple):
    """A vision transformer's forward pass, and the linear layers of its feed-forward networks."""

    model_s: float
    linear_s: float
    percent: float


# Table 3, by scene of `kronsparse-bench models`; GPT-2 on an RTX 6000.
TRANSFORMERS = {"vit": Latency(0.89, 0.78, 57.1), "gpt2-prefill": Latency(0.88, 0.84, 24.8)}
# Table 7.
LINEAR_SHARES = {
    ("ViT-S/16", "f16"): LinearShare(0.014, 0.0046, 31),
    ("ViT-S/16", "f32"): LinearShare(0.090, 0.04, 46),
    ("ViT-B/16", "f16"): LinearShare(0.036, 0.015, 42),
    ("ViT-B/16", "f32"): LinearShare(0.30, 0.16, 54),
    ("ViT-L/16", "f16"): LinearShare(0.11, 0.050, 46),
    ("ViT-L/16", "f32"): LinearShare(1.0, 0.58, 58),
    ("ViT-H/14", "f16"): LinearShare(0.31, 0.16, 53),
    ("ViT-H/14", "f32"): LinearShare(2.6, 1.6, 61),
}
# Table 8; parts of blocks by their names in `kronsparse-bench models`.
VIT_PARTS = {
    "N x N": Latency(0.82, 0.50),
    "N x N + bias": Latency(0.97, 0.66),
    "4N x N": Latency(0.80, 0.78),
    "4N x N + bias": Latency(0.93, 0.90),
    "N x 4N": Latency(0.91, 0.58),
    "N x 4N + bias": Latency(0.94, 0.61),
    "ffn": Latency(0.91, 0.77),
    "attention": Latency(0.87, 0.79),
    "block": Latency(0.90, 0.78),
    "model": Latency(0.89, 0.78),
}
# Everything in the paper that was measured, or that its grid is described by.
ITEMS = {
    "Table 2": "how often one is faster than the other, FP32, best of both layouts",
    "Table 3": "latency of transformers over dense, FP32",
    "Table 5": "win rates by sparsity, FP32",
    "Table 6": "as Table 2, in each layout",
    "Table 7": "time of linear layers in vision transformers",
    "Table 8": "parts of ViT-S/16 over dense, FP32",
    "Table 9": "as Table 2, FP16",
    "Table 10": "as Table 6, FP16",
    "Figure 4": "share of bmm's time that its permutations take, FP32, batch_first",
    "Figure 6a": "speed-up against h, FP32",
    "Figure 6b": "energy against d·h, FP32",
    "Figure 8": "sparsity of the grid's patterns",
    "Figure 9": "speed-up against h at a fixed sparsity, FP32",
    "Figure 10": "as Figure 4, in both layouts",
    "Figure 11": "sizes of the grid's matrices",
    "Figure 12": "specialised over generic ones, by size, FP32",
    "Figure 13": "bmm over einsum and bsr, by size, FP32",
    "Figure 14": "batch_first over batch_last, FP32 and FP16",
    "Figure 15": "as Figure 12, FP16",
    "Figure 16": "as Figure 13, FP16",
    "Figure 17": "as Figure 10, FP16",
    "Figure 18": "as Figure 6a, FP16",
}
# The grid: its sparsity and its sizes as the paper tells them.
GRID_SPARSITY = {"median": 97.9, "first quartile": 91.7}  # percent
GRID_SIZES = {"first quartile": 4.2e6, "third quartile": 6.0e8}  # entries
