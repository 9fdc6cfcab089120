"""A rival: one plain kernel in Triton for both layouts, as anyone would write it.

A program computes one tile of samples and outputs of one product (i, j). Programs of neighbouring j follow
each other, so that in batch_first those who read the same sectors of x run together. Values lie as
(a, d, b, c), prepared once. f32 is computed by three products in TF32. Imported only where triton is
installed.
"""

# No `from __future__ import annotations`: Triton reads the annotations of a kernel.
import math
from collections.abc import Callable
from typing import Any

import torch
import triton  # type: ignore[import-not-found,import-untyped,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,import-untyped,unused-ignore]
from torch import Tensor

from kronsparse.bench.measuring.devices import seconds_by_events

# Samples, outputs and terms of a tile, warps, stages.
TILES = (
    (128, 32, 32, 4, 3),
    (64, 64, 64, 4, 3),
    (128, 64, 32, 4, 3),
    (128, 128, 32, 8, 3),
    (128, 128, 64, 8, 3),
    (256, 64, 32, 8, 3),
)
Tile = tuple[int, int, int, int, int]
_best: dict[tuple[object, ...], Tile] = {}


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def _multiply(  # type: ignore[no-untyped-def]
    x,
    w,
    y,
    batch,
    b,
    c,
    d,
    x_sample,
    x_feature,
    y_sample,
    y_feature,
    SAMPLES: tl.constexpr,  # noqa: N803
    OUTPUTS: tl.constexpr,  # noqa: N803
    TERMS: tl.constexpr,  # noqa: N803
    PRECISION: tl.constexpr,  # noqa: N803
):
    program = tl.program_id(0)
    j = program % d
    rest = program // d
    output_tiles = tl.cdiv(b, OUTPUTS)
    tiles = tl.cdiv(batch, SAMPLES) * output_tiles
    i = (rest // tiles).to(tl.int64)
    tile = rest % tiles
    n = (tile // output_tiles) * SAMPLES + tl.arange(0, SAMPLES)
    k = (tile % output_tiles) * OUTPUTS + tl.arange(0, OUTPUTS)
    terms = tl.arange(0, TERMS)
    x_rows = x + (i * c * d + j) * x_feature + n[:, None].to(tl.int64) * x_sample  # (samples, 1)
    w_columns = w + (i * d + j) * b * c + k[None, :].to(tl.int64) * c  # (1, outputs)
    total = tl.zeros((SAMPLES, OUTPUTS), tl.float32)
    for first in range(0, c, TERMS):
        t = first + terms
        x_tile = tl.load(
            x_rows + t[None, :].to(tl.int64) * d * x_feature,
            mask=(n[:, None] < batch) & (t[None, :] < c),
            other=0.0,
        )
        w_tile = tl.load(w_columns + t[:, None], mask=(k[None, :] < b) & (t[:, None] < c), other=0.0)
        total = tl.dot(x_tile, w_tile, total, input_precision=PRECISION)
    place = y + (i * b * d + j) * y_feature + n[:, None].to(tl.int64) * y_sample
    tl.store(
        place + k[None, :].to(tl.int64) * d * y_feature,
        total.to(y.dtype.element_ty),
        mask=(n[:, None] < batch) & (k[None, :] < b),
    )


def launch(w: Tensor, x: Tensor, y: Tensor, layout: str, tile: Tile) -> None:
    """Multiplies once; w is (a, d, b, c)."""
    a, d, b, c = w.shape
    batch_first = layout == "batch_first"
    batch = x.shape[0] if batch_first else x.shape[1]
    strides = (x.stride(0), 1, y.stride(0), 1) if batch_first else (1, x.stride(0), 1, y.stride(0))
    samples, outputs, terms, warps, stages = tile
    programs = d * a * math.ceil(batch / samples) * math.ceil(b / outputs)
    precision = "tf32x3" if x.dtype == torch.float32 else "ieee"
    sizes = {"SAMPLES": samples, "OUTPUTS": outputs, "TERMS": terms, "PRECISION": precision}
    options: dict[str, Any] = {**sizes, "num_warps": warps, "num_stages": stages}
    _multiply[(programs,)](x, w, y, batch, b, c, d, *strides, **options)


def fitting_tiles(outputs: int) -> list[Tile]:
    """The tiles worth a try: twice as many outputs as there are would be zeros.

    >>> [tile[1] for tile in fitting_tiles(40)]
    [32, 64, 64, 64]
    """
    return [tile for tile in TILES if tile[1] < 2 * max(32, outputs)]


def _tuned(w: Tensor, x: Tensor, y: Tensor, layout: str) -> Tile:
    """The fastest tile for these sizes: those that a GPU has no room for are passed over."""
    key = (layout, x.dtype, tuple(w.shape), tuple(x.shape), x.device)
    if key not in _best:
        found: dict[Tile, float] = {}
        reasons: list[str] = []
        for tile in fitting_tiles(w.shape[2]):
            try:
                found[tile] = seconds_by_events(lambda tile=tile: launch(w, x, y, layout, tile))  # type: ignore[misc]
            except Exception as error:  # out of resources, or a compiler's own
                reasons.append(str(error).split("\n")[0])
        if not found:
            raise RuntimeError(f"triton: no tile runs here: {reasons[0]}")
        _best[key] = min(found, key=lambda tile: found[tile])
    return _best[key]


def prepared(values: Tensor, layout: str) -> Callable[[Tensor, Tensor], Tensor]:
    """The product with these values; tiles are tried out at the first call with a batch."""
    w = values.permute(0, 3, 1, 2).contiguous()

    def product(x: Tensor, y: Tensor) -> Tensor:
        launch(w, x, y, layout, _tuned(w, x, y, layout))
        return y

    return product
