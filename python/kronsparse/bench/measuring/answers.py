"""Whose answer is right: errors against float64 on some of the samples, and what may be off by how much."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from kronsparse.bench.problems.problem import Problem

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
# The library gets this many samples at once when its error is asked for, small batches several times over:
# on fewer it would split its sums, and be more exact than it is on a batch. That may take this many times the
# numbers that are compared.
LIBRARY_SAMPLES, LIBRARY_NUMBERS = 1024, 16
# Numbers of x, values and y that are compared with float64, by kind of device. A larger problem is
# compared on some of its products (i, j), and on some outputs of each: the first and the last always.
MOST_COMPARED = {"cpu": 1 << 22, "cuda": 1 << 26}
OUTPUTS_COMPARED = 256
# Ours may be this many times as far from float64 as PyTorch's own product in the same dtype.
ERROR_RATIO = 2.0
# The ratio of two norms over N roundings each varies by its 1/sqrt(N)th part, in the logarithm. Ours is wrong
# where it is beyond so many of these: by chance once in some 2,000 times.
DEVIATIONS = 3.3
# Three products of TF32 are as exact on a short sum as on one of this many terms, where they are within the
# ratio. A plain sum of t terms of random data is off by SUM_ERROR·sqrt(t) roundings, measured with 2 to 256.
SHORT_SUM, SUM_ERROR = 64, 0.3


@dataclass(frozen=True)
class Errors:
    """How far an answer is from the float64 one on the samples checked."""

    norm: float  # |y - expected| / |expected|, Frobenius
    worst: float  # largest |y - expected| / (|K| |x|), element by element
    finite: bool  # over the whole of y: false where an element is left that nobody wrote
    outputs: int = 1 << 30  # numbers compared, each of them once

    def describe(self) -> str:
        """For the reason of a wrong answer."""
        left = "" if self.finite else ", and elements nobody wrote or that are not finite"
        return f"error {self.norm:.3g} (worst {self.worst:.3g}){left}"


def is_right(
    ours: Errors, library: Errors, precision: str, plain_terms: int = 1, short: bool = False
) -> bool:
    """Ours against PyTorch's error, or against one rounding where PyTorch is luckier than that.

    A plain sum of so many terms, one after the other, is off by that times the root of their number; one
    of three TF32 products that is `short`, by what one of SHORT_SUM terms may be. Where few outputs are
    compared, the ratio may be larger by chance.
    """
    roundings = max(math.sqrt(plain_terms), short * ERROR_RATIO * SUM_ERROR * math.sqrt(SHORT_SUM))
    chance = math.exp(DEVIATIONS / math.sqrt(ours.outputs))

    def is_small(mine: float, theirs: float) -> bool:
        return mine <= chance * max(ERROR_RATIO * theirs, ROUNDING[precision] * roundings)

    return ours.finite and is_small(ours.norm, library.norm) and is_small(ours.worst, library.worst)


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


def _most_compared(device: torch.device) -> int:
    return MOST_COMPARED["cpu" if device.type == "cpu" else "cuda"]


def _picked(count: int, wanted: int, device: torch.device) -> Tensor:
    """All of so many, or else the first, the last and others at random."""
    if wanted >= count:
        return torch.arange(count, device=device)
    others = torch.randperm(count - 2)[: max(0, wanted - 2)] + 1
    return torch.cat([torch.tensor([0, count - 1]), others]).to(device)


class Checker:
    """Compares answers with float64 on some samples, and looks for elements nobody wrote."""

    def __init__(self, problem: Problem, x: Tensor, values: Tensor) -> None:
        self._pattern, self._batch_first = problem.pattern, problem.layout == "batch_first"
        self._batch = problem.batch
        device = x.device
        ends = torch.tensor([0, self._batch - 1])
        others = torch.randint(self._batch, (min(SAMPLES_CHECKED, self._batch),))
        self._samples = torch.cat([ends, others]).to(device)
        self._pick(device)
        self._x, self._values = x, values
        self._wide = torch.complex128 if x.dtype.is_complex else torch.float64
        rows = self._inputs(self._samples).to(self._wide)
        blocks = self._blocks().to(self._wide)
        product, rest = wider_product(rows, blocks) if x.dtype == self._wide else (rows @ blocks, None)
        self._expected = product
        self._rest = rest if rest is not None else 0.0
        self._scale = rows.abs() @ blocks.abs()

    def _pick(self, device: torch.device) -> None:
        """Which products (i, j), and which outputs k of each, are compared."""
        a, b, c, d = self._pattern
        most, samples = _most_compared(device), len(self._samples)

        def of_product(outputs: int) -> int:
            return samples * c + outputs * c + samples * outputs

        is_whole = a * d * of_product(b) <= most
        outputs = b if is_whole else min(b, OUTPUTS_COMPARED)
        products = a * d if is_whole else max(2, most // of_product(outputs))
        self._k = _picked(b, outputs, device)
        picked = _picked(a * d, products, device)
        self._i, self._j = picked // d, picked % d

    def _inputs(self, samples: Tensor) -> Tensor:
        """(products, samples, c): the rows of x that the products compared read."""
        a, _, c, d = self._pattern
        i, j = self._i[:, None], self._j[:, None]
        if self._batch_first:
            return self._x.view(-1, a, c, d)[samples, i, :, j]
        return self._x.view(a, c, d, -1)[i, :, j, samples]

    def _blocks(self) -> Tensor:
        """(products, c, outputs)"""
        if len(self._k) == self._pattern.b:
            return self._values[self._i, :, :, self._j].transpose(1, 2)
        return self._values[self._i[:, None], self._k, :, self._j[:, None]].transpose(1, 2)

    def _outputs(self, y: Tensor) -> Tensor:
        """(products, samples, outputs)"""
        a, b, _, d = self._pattern
        i, j, samples = self._i[:, None, None], self._j[:, None, None], self._samples[:, None]
        if self._batch_first:
            return y.view(-1, a, b, d)[samples, i, self._k, j]
        return y.view(a, b, d, -1)[i, self._k, j, samples]

    def _errors(self, answer: Tensor, finite: bool) -> Errors:
        difference = answer.to(self._wide) - self._expected - self._rest
        norm = float(difference.norm() / self._expected.norm())
        outputs = len(self._samples.unique()) * len(self._i) * len(self._k)
        return Errors(norm, float((difference.abs() / self._scale).max()), finite, outputs)

    def errors(self, y: Tensor) -> Errors:
        """The errors of an answer, which is shaped like y."""
        finite = bool(torch.isfinite(y.sum(dtype=y.dtype if y.dtype.is_complex else torch.float32)))
        return self._errors(self._outputs(y), finite)

    def errors_of_torch(self) -> Errors:
        """The errors of PyTorch's product in the dtype of x, with its precision settings of the moment."""
        _, b, c, _ = self._pattern
        most = LIBRARY_NUMBERS * _most_compared(self._x.device) // (len(self._i) * (b + c))
        others = torch.arange(min(LIBRARY_SAMPLES, max(most, len(self._samples)))) % self._batch
        samples = torch.cat([self._samples, others.to(self._samples)])
        product = self._inputs(samples) @ self._blocks()
        return self._errors(product[:, : len(self._samples)], finite=True)
