"""Whose answer is right: errors against float64 on some of the samples, and what may be off by how much."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from kronsparse.bench.problems import Problem

TORCH_DTYPES = {
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f64": torch.float64,
    "complex64": torch.complex64,
    "complex128": torch.complex128,
}
# Half of the distance from 1 to the next number: the relative error of one rounding.
ROUNDING = {
    "f32": 2.0**-24,
    "tf32": 2.0**-11,
    "f16": 2.0**-11,
    "bf16": 2.0**-8,
    "f64": 2.0**-53,
    "complex64": 2.0**-24,
    "complex128": 2.0**-53,
}
SAMPLES_CHECKED = 64
# The library gets this many samples at once when its error is asked for: with as few as are
# checked it would split its sums, and be more exact than it is on a batch.
LIBRARY_SAMPLES = 1024
# Ours may be this many times as far from float64 as PyTorch's own product in the same dtype.
ERROR_RATIO = 2.0


@dataclass(frozen=True)
class Errors:
    """How far an answer is from the float64 one on the samples checked."""

    norm: float  # |y - expected| / |expected|, Frobenius
    worst: float  # largest |y - expected| / (|K| |x|), element by element
    finite: bool  # over the whole of y: false where an element is left that nobody wrote

    def describe(self) -> str:
        """For the reason of a wrong answer."""
        left = "" if self.finite else ", and elements nobody wrote or that are not finite"
        return f"error {self.norm:.3g} (worst {self.worst:.3g}){left}"


def is_right(ours: Errors, library: Errors, precision: str, plain_terms: int = 1) -> bool:
    """Ours against PyTorch's error, or against one rounding where PyTorch is luckier than that.

    A plain sum of so many terms, one after the other, is off by that times the root of their number.
    """
    least = ROUNDING[precision] * math.sqrt(plain_terms)
    norm_ok = ours.norm <= max(ERROR_RATIO * library.norm, least)
    return ours.finite and norm_ok and ours.worst <= max(ERROR_RATIO * library.worst, least)


def is_sound(theirs: Errors, problem: Problem) -> bool:
    """Whether the errors are within what any order of summation allows. PyTorch may also add up pieces in
    half precision: a setting, which it has on."""
    half = 0.0 if problem.dtype == "f32" else 4 * ROUNDING[problem.dtype]
    return theirs.finite and theirs.worst <= (problem.pattern.c + 5) * ROUNDING["f32"] + half


def wider_product(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """left @ right of doubles in NumPy's long double: its double, and what that leaves over."""
    wide = np.clongdouble if left.is_complex() else np.longdouble
    product = left.cpu().numpy().astype(wide) @ right.cpu().numpy().astype(wide)
    rounded = torch.from_numpy(product.astype(left.cpu().numpy().dtype))
    rest = torch.from_numpy((product - rounded.numpy()).astype(rounded.numpy().dtype))
    return rounded.to(left.device), rest.to(left.device)


class Checker:
    """Compares answers with float64 on some samples, and looks for elements nobody wrote."""

    def __init__(self, problem: Problem, x: Tensor, values: Tensor) -> None:
        self._pattern, self._batch_first = problem.pattern, problem.layout == "batch_first"
        self._batch = problem.batch
        ends = torch.tensor([0, self._batch - 1])
        others = torch.randint(self._batch, (min(SAMPLES_CHECKED, self._batch),))
        self._samples = torch.cat([ends, others]).to(x.device)
        self._x, self._values = x, values
        self._wide = torch.complex128 if x.dtype.is_complex else torch.float64
        rows = self._separated(self._sampled(x, self._samples).to(self._wide))
        blocks = values.to(self._wide).permute(0, 3, 2, 1)  # (a, d, c, b)
        product, rest = wider_product(rows, blocks) if x.dtype == self._wide else (rows @ blocks, None)
        self._expected = self._joined(product)
        self._rest = self._joined(rest) if rest is not None else 0.0
        self._scale = self._joined(rows.abs() @ blocks.abs())

    def _sampled(self, matrix: Tensor, samples: Tensor) -> Tensor:
        return matrix[samples] if self._batch_first else matrix[:, samples].t()

    def _separated(self, rows: Tensor) -> Tensor:
        a, _, c, d = self._pattern
        return rows.reshape(-1, a, c, d).permute(1, 3, 0, 2)  # (a, d, samples, c)

    def _joined(self, product: Tensor) -> Tensor:
        return product.permute(2, 0, 3, 1).reshape(product.shape[2], -1)

    def _errors(self, answer: Tensor, finite: bool) -> Errors:
        difference = answer.to(self._wide) - self._expected - self._rest
        norm = float(difference.norm() / self._expected.norm())
        return Errors(norm, float((difference.abs() / self._scale).max()), finite)

    def errors(self, y: Tensor) -> Errors:
        """The errors of an answer, which is shaped like y."""
        finite = bool(torch.isfinite(y.sum(dtype=y.dtype if y.dtype.is_complex else torch.float32)))
        return self._errors(self._sampled(y, self._samples), finite)

    def errors_of_torch(self) -> Errors:
        """The errors of PyTorch's product in the dtype of x, with its precision settings of the moment."""
        others = torch.arange(min(LIBRARY_SAMPLES, self._batch))
        samples = torch.cat([self._samples, others.to(self._samples)])
        product = self._separated(self._sampled(self._x, samples)) @ self._values.permute(0, 3, 2, 1)
        return self._errors(self._joined(product)[: len(self._samples)], finite=True)
