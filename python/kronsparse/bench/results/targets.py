"""The speeds this project promises, and whether results keep the promise."""

from __future__ import annotations

from dataclasses import dataclass, field

# The bound on small batches: a launch, and one and a half times the reading of the weights.
LAUNCH_S, WEIGHT_FACTOR = 2.5e-6, 1.5


def small_batch_bound(weights_s: float) -> float:
    """The goal of a small batch whose weights take so long to read once, in seconds."""
    return LAUNCH_S + WEIGHT_FACTOR * weights_s


@dataclass(frozen=True)
class Target:
    """The goals of one dtype, mode and layout, over all patterns."""

    floors: float  # the median of time / floor may be at most this
    wins: dict[str, float] = field(default_factory=dict)  # by rival: the share of patterns that must be won
    speedups: dict[str, float] = field(default_factory=dict)  # by rival: the least median


EAGER = "best of bmm, einsum, dense"
ANYONE = "best of anything"
_HALF_FIRST = Target(2.3, {EAGER: 0.92}, {EAGER: 2.2, "compiled": 1.4})
_HALF_LAST = Target(1.8, {EAGER: 0.92, "strided": 0.65}, {EAGER: 2.2})
# By dtype, mode, layout.
GPU_TARGETS = {
    ("f16", "", "batch_first"): _HALF_FIRST,
    ("bf16", "", "batch_first"): _HALF_FIRST,
    ("f16", "", "batch_last"): _HALF_LAST,
    ("bf16", "", "batch_last"): _HALF_LAST,
    ("f32", "fp32", "batch_first"): Target(1.3, {EAGER: 0.95}, {EAGER: 1.8}),
    ("f32", "fp32", "batch_last"): Target(1.1, {EAGER: 0.95, "strided": 0.8}, {EAGER: 1.8}),
    ("f32", "ieee", "batch_first"): Target(1.8, {EAGER: 0.85}),
    ("f32", "ieee", "batch_last"): Target(1.35, {EAGER: 0.85}),
}
# Of OpenCL on an H200. The floor of half types is no goal there: they are held against f32 (opencl_section).
OPENCL_TARGETS = {
    ("f32", "ieee", "batch_first"): Target(2.2),
    ("f32", "ieee", "batch_last"): Target(1.6),
}


@dataclass(frozen=True)
class Exam:
    """The goals of one dtype, mode and layout on the paper's grid, or on problems that nobody tuned for."""

    median: float  # of time / floor, at most
    p95: float | None = None  # 95 % of the problems stay within it
    wins: float | None = None  # the share that must be faster than every rival
    least: float | None = None  # the time of the best rival over ours, at worst


# By dtype, mode, layout; f32 is held against three products in TF32.
GRID_EXAMS = {
    ("f16", "", "batch_first"): Exam(1.7, wins=0.97),
    ("f16", "", "batch_last"): Exam(1.2, wins=0.85),
    ("f32", "fp32", "batch_first"): Exam(1.9, wins=1.0),
    ("f32", "fp32", "batch_last"): Exam(1.5, wins=0.95),
}
GPU_EXAMS = {
    **{(dtype, "", "batch_first"): Exam(2.2, 5, 0.92, 0.7) for dtype in ("f16", "bf16")},
    **{(dtype, "", "batch_last"): Exam(1.7, 4, 0.85, 0.7) for dtype in ("f16", "bf16")},
    ("f32", "fp32", "batch_first"): Exam(2.4, 5, 0.95, 0.7),
    ("f32", "fp32", "batch_last"): Exam(1.9, 4, 0.9, 0.7),
}
CPU_EXAMS = {
    **{(dtype, "", "batch_first"): Exam(3.0, least=0.8) for dtype in ("f16", "bf16")},
    **{(dtype, "", "batch_last"): Exam(2.0, least=0.8) for dtype in ("f16", "bf16")},
}
CPU_TARGETS = {
    ("f32", "fp32", "batch_first"): Target(1.6, speedups={ANYONE: 2.0}),
    ("f32", "fp32", "batch_last"): Target(1.35, speedups={ANYONE: 1.2}),
}
# On a CPU no pattern may be slower than PyTorch by more than this, and halves no slower than f32 but for
# what two medians of the same code differ by.
CPU_LOWEST_SPEEDUP = 0.8
CPU_HALF_NOISE = 1.05

# Chains on an H200: the geometric mean of time / fused floor over eight layers, the median speed-up over the
# same factors one by one on 24 further chains, and the time over the sum of two kernels at small batches.
CHAIN_FLOORS = {"f16": 2.0, "bf16": 2.0, "f32": 2.2}
FURTHER_SPEEDUP = 1.5
SMALL_CHAINS = 0.85
# Whole models in CUDA graphs over their dense twins, by scene, set of chains and dtype.
MODEL_TARGETS = {
    ("vit", "paper", "f32"): 0.40,
    ("vit", "paper", "f16"): 0.85,
    ("vit", "paper", "bf16"): 0.85,
    ("gpt2-prefill", "monarch16", "f32"): 0.29,
    ("gpt2-prefill", "monarch16", "f16"): 0.78,
    ("gpt2-prefill", "paper", "f32"): 0.78,
    ("llama-prefill", "monarch16", "f16"): 0.43,
    ("llama-decode-1", "monarch16", "f16"): 0.50,
}
# The time of the choice over that of the best candidate, on a GPU.
REGRET_MEDIAN, REGRET_P95 = 1.01, 1.10
# A training step with our BOFT over that with LoRA: time and memory, at most; PEFT's own over ours, at least.
BOFT_STEP, BOFT_MEMORY, BOFT_GAIN = 1.3, 1.05, 4.0
