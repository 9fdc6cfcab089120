"""Whose answer is right: operands' shapes, and errors against float64 on some of the samples."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch_contenders import Dimensions

TORCH_DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
# Half of the distance from 1 to the next number: the relative error of one rounding.
ROUNDING = {"f32": 2.0**-24, "tf32": 2.0**-11, "f16": 2.0**-11, "bf16": 2.0**-8}
# The library gets this many samples at once when its error is asked for: with as few as are
# checked it would split its sums, and be more exact than it is on a batch.
LIBRARY_SAMPLES = 1024


def shapes(layout: str, dims: Dimensions, batch: int) -> tuple[tuple[int, int], tuple[int, int]]:
    a, b, c, d = dims
    if layout == "batch_first":
        return (batch, a * c * d), (batch, a * b * d)
    return (a * c * d, batch), (a * b * d, batch)


@dataclass(frozen=True)
class Errors:
    """How far an answer is from the float64 one on the samples checked."""

    norm: float  # |y - expected| / |expected|, Frobenius
    worst: float  # largest |y - expected| / (|K| |x|), element by element
    finite: bool  # over the whole of y: false where an element is left that nobody wrote


def summation_limit(c: int, dtype: str) -> float:
    """What `worst` stays below with any order of c additions in f32 and one rounding to the dtype."""
    return (c + 2) * ROUNDING["f32"] + (ROUNDING[dtype] if dtype != "f32" else 0.0)


class Checker:
    """Compares answers with float64 on some samples, and looks for elements nobody wrote."""

    def __init__(self, layout: str, dims: Dimensions, x: Tensor, values: Tensor, samples: int) -> None:
        self._dims, self._batch_first = dims, layout == "batch_first"
        batch = x.shape[0] if self._batch_first else x.shape[1]
        ends = torch.tensor([0, batch - 1])
        self._samples = torch.cat([ends, torch.randint(batch, (samples - 2,))]).to(x.device)
        self._x, self._values = x, values
        rows = self._separated(self._sampled(x, self._samples).double())
        blocks = values.double().permute(0, 3, 2, 1)  # (a, d, c, b)
        self._expected = self._joined(rows @ blocks)
        self._scale = self._joined(rows.abs() @ blocks.abs())

    def _sampled(self, matrix: Tensor, samples: Tensor) -> Tensor:
        return matrix[samples] if self._batch_first else matrix[:, samples].t()

    def _separated(self, rows: Tensor) -> Tensor:
        a, _, c, d = self._dims
        return rows.reshape(-1, a, c, d).permute(1, 3, 0, 2)  # (a, d, samples, c)

    def _joined(self, product: Tensor) -> Tensor:
        return product.permute(2, 0, 3, 1).reshape(product.shape[2], -1)

    def _errors(self, answer: Tensor, finite: bool) -> Errors:
        difference = answer.double() - self._expected
        norm = float(difference.norm() / self._expected.norm())
        return Errors(norm, float((difference.abs() / self._scale).max()), finite)

    def errors(self, y: Tensor) -> Errors:
        finite = bool(torch.isfinite(y.sum(dtype=torch.float32)))
        return self._errors(self._sampled(y, self._samples), finite)

    def errors_of_torch(self) -> Errors:
        """Of PyTorch's own product in the dtype of x, with its precision settings of the moment."""
        others = torch.arange(min(LIBRARY_SAMPLES, max(self._x.shape[0 if self._batch_first else 1], 1)))
        samples = torch.cat([self._samples, others.to(self._samples)])
        product = self._separated(self._sampled(self._x, samples)) @ self._values.permute(0, 3, 2, 1)
        return self._errors(self._joined(product)[: len(self._samples)], finite=True)
