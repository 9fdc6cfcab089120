"""A problem to be measured, with the numbers that follow from it alone."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from kronsparse.chains import Pattern
from kronsparse.checks import LAYOUTS

DTYPES = ("f32", "f16", "bf16")
MODES = ("fp32", "ieee", "tf32")  # of f32
ITEM_BYTES = {"f32": 4, "f16": 2, "bf16": 2}
_FIELDS = {
    "operation": "multiply",
    "dtype": "|".join(DTYPES),
    "mode": "|".join(MODES),
    "layout": "|".join(LAYOUTS),
    "batch": r"B=[1-9]\d*",
    "pattern": r"\d.*",  # what follows is for Pattern.parse to refuse
}
_TIMED = (
    f"the benchmark times products of dtype ({', '.join(DTYPES)}), mode of f32 ({', '.join(MODES)}), layout "
    f"({', '.join(LAYOUTS)}), B=n from 1 on and axbxcxd, without strides, bias or activation"
)


@dataclass(frozen=True)
class Problem:
    """A product, in all the modes that are contested at once.

    >>> problem = Problem("f32", "batch_first", Pattern(2, 8, 4, 3), 100, ("fp32", "ieee"))
    >>> problem.text("ieee")
    'f32 ieee batch_first B=100 2x8x4x3'
    """

    dtype: str
    layout: str
    pattern: Pattern
    batch: int
    modes: tuple[str, ...] = ("",)  # "" where the dtype has none
    seed: int | None = None  # that the suite `random` drew it from

    @classmethod
    def parse(cls, text: str) -> Problem:
        """Reads the text form of a problem, its words in any order, and refuses what is not timed here.

        >>> Problem.parse("batch_last f16 B=64 2x3x4x5").text()
        'f16 batch_last B=64 2x3x4x5'
        """
        found: dict[str, str] = {}
        for word in text.split():
            field = next((name for name, form in _FIELDS.items() if re.fullmatch(form, word)), None)
            if field is None:
                raise ValueError(f"problem: {word!r} in {text!r} given; {_TIMED}")
            if field in found:
                raise ValueError(f"problem: {word!r} in {text!r} gives the {field} a second time")
            found[field] = word
        for field in ("dtype", "layout", "batch", "pattern"):
            if field not in found:
                raise ValueError(f"problem: {text!r} lacks the {field}")
        dtype, mode = found["dtype"], found.get("mode", "fp32")
        if dtype != "f32" and mode != "fp32":
            raise ValueError(f"problem: mode {mode} in {text!r} given with {dtype}, allowed with f32 only")
        batch = int(found["batch"].removeprefix("B="))
        modes = (mode,) if dtype == "f32" else ("",)
        return cls(dtype, found["layout"], Pattern.parse(found["pattern"]), batch, modes)

    def text(self, mode: str = "") -> str:
        """The text form every part of kronsparse reads; the default mode goes without saying."""
        words = [self.dtype, mode if mode != "fp32" else "", self.layout]
        return " ".join([*filter(None, words), f"B={self.batch}", str(self.pattern)])

    @property
    def shapes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """The shapes of x and of y."""
        rows, cols = self.pattern.rows, self.pattern.cols
        if self.layout == "batch_first":
            return (self.batch, cols), (self.batch, rows)
        return (cols, self.batch), (rows, self.batch)

    @property
    def operand_bytes(self) -> tuple[int, int]:
        """The bytes of x and of y."""
        size = ITEM_BYTES[self.dtype]
        x_shape, y_shape = self.shapes
        return math.prod(x_shape) * size, math.prod(y_shape) * size

    @property
    def weight_bytes(self) -> int:
        """The bytes of the values."""
        return self.pattern.nnz * ITEM_BYTES[self.dtype]

    @property
    def moved_bytes(self) -> float:
        """The bytes of x, y and the values, each once."""
        return float(sum(self.operand_bytes) + self.weight_bytes)

    @property
    def flops(self) -> float:
        """The flops of all products, two for each."""
        return 2.0 * self.batch * self.pattern.nnz

    def fields(self, mode: str = "") -> dict[str, Any]:
        """Its part of a row of the results file."""
        return {
            "problem": self.text(mode),
            "layout": self.layout,
            "pattern": str(self.pattern),
            "batch": self.batch,
            "dtype": self.dtype,
            "mode": mode,
            "h": self.pattern.h,
            "sparsity": 1.0 - self.pattern.density,
            "flops": self.flops,
            "bytes": self.moved_bytes,
            **({"seed": self.seed} if self.seed is not None else {}),
        }
