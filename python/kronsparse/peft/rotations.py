"""The arithmetic of orthogonal fine-tuning: Cayley's map, and rotations as chains.

BOFT with m factors of n/b blocks b x b rotates x by B_0' ... B_(m-1)', where B_i is a permuted block diagonal
matrix. Features are numbered by (outer, bits, t), t < b/2 being the place in half a block; B_i mixes t and
bit i. Once t has been moved in front of the lower bits, each B_i is the Kronecker-sparse factor (n/(b·2^i),
b, b, 2^i), and hands t on to the next one in its place: only the first needs a permutation of x, and none
where m is 1. OFT is one factor (n/b, b, b, 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from kronsparse.torch import _library
from kronsparse.torch._operators import needs_grad
from kronsparse.torch.functional import apply


class _Cayley(torch.autograd.Function):
    """(I - S)(I + S)^-1 = 2 (I + S)^-1 - I for the skew part S of each matrix: one inverse, and its gradient
    by two products. I + S always has an inverse, so nothing has to be asked of the device."""

    @staticmethod
    def forward(ctx: Any, data: Tensor) -> Tensor:
        skew = 0.5 * (data - data.mT)
        skew.diagonal(dim1=-2, dim2=-1).add_(1)
        inverse: Tensor = torch.linalg.inv_ex(skew)[0]
        rotation = 2 * inverse
        rotation.diagonal(dim1=-2, dim2=-1).sub_(1)
        ctx.save_for_backward(rotation)  # the output, not the inverse: it has a gradient of its own
        return rotation

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        inverse: Tensor = 0.5 * ctx.saved_tensors[0].mT
        inverse.diagonal(dim1=-2, dim2=-1).add_(0.5)
        of_skew: Tensor = inverse @ g @ inverse  # times -2, which the difference below makes -1
        return of_skew.mT - of_skew


def cayley(data: Tensor) -> Tensor:
    """Orthogonal matrices of the skew parts of these, computed in float32 at least.

    >>> rotation = cayley(torch.randn(5, 4, 4, dtype=torch.float64))
    >>> torch.allclose(rotation @ rotation.mT, torch.eye(4, dtype=torch.float64))
    True
    """
    with torch.autocast(data.device.type, enabled=False):
        wide = data if data.dtype == torch.float64 else data.float()
        rotation: Tensor = _Cayley.apply(wide)  # type: ignore[no-untyped-call]
        return rotation


def factors_of(blocks: Tensor, dtype: torch.dtype | None = None) -> list[Tensor]:
    """The values of the chain that rotates x by m factors of blocks (m, n/b, b, b): x @ B_(m-1) ... @ B_0.
    Casting and moving are one copy.

    >>> [tuple(values.shape) for values in factors_of(torch.ones(3, 8, 4, 4))]
    [(8, 4, 4, 1), (4, 4, 4, 2), (2, 4, 4, 4)]
    """
    m, count, b, _ = blocks.shape
    dtype = dtype or blocks.dtype
    if m == 1:
        return [_copied(blocks[0].transpose(1, 2), dtype).unsqueeze(-1)]
    factors = []
    for level in range(m):
        inner = 1 << level
        # outer, block, then inputs (half, t) and outputs (half, t)
        split = blocks[level].view(count // inner, inner, 2, b // 2, 2, b // 2)
        inputs = (2, 3) if level == m - 1 else (3, 2)
        moved = _copied(split.permute(0, 4, 5, *inputs, 1), dtype)
        factors.append(moved.view(count // inner, b, b, inner))
    return factors


def _copied(values: Tensor, dtype: torch.dtype) -> Tensor:
    return values.to(dtype, memory_format=torch.contiguous_format).contiguous()


def rotate(x: Tensor, blocks: Tensor) -> Tensor:
    """x @ B_(m-1) ... @ B_0 for features in the last dimension, in the dtype of x.

    >>> x = torch.randn(3, 32)
    >>> eye = torch.eye(4).expand(2, 8, 4, 4)
    >>> torch.allclose(rotate(x, eye), x)
    True
    """
    m, count, b, _ = blocks.shape
    factors = factors_of(blocks, x.dtype)
    if m == 1:
        return _multiply(x, factors)
    inner = 1 << (m - 1)
    swap = (count // inner * 2, inner, b // 2)
    if needs_grad(x, *factors) and not torch.compiler.is_compiling():
        rotated: Tensor = _SwapAndMultiply.apply(x, swap, *factors)  # type: ignore[no-untyped-call]
        return rotated
    return _multiply(_swapped(x, swap), factors)


def rotate_back(x: Tensor, blocks: Tensor) -> Tensor:
    """x @ B_0' ... @ B_(m-1)', which undoes `rotate` where blocks are orthogonal.

    >>> x, blocks = torch.randn(3, 32), cayley(torch.randn(2, 8, 4, 4))
    >>> torch.allclose(rotate_back(rotate(x, blocks), blocks), x, atol=1e-5)
    True
    """
    m, count, b, _ = blocks.shape
    y = _multiply(x, [values.transpose(1, 2) for values in reversed(factors_of(blocks, x.dtype))])
    inner = 1 << (m - 1)
    return y if m == 1 else _swapped(y, (count // inner * 2, b // 2, inner))


def _swapped(x: Tensor, sizes: tuple[int, int, int]) -> Tensor:
    """Features, of these three sizes, with the last two in each other's place."""
    swapped: Tensor = x.unflatten(-1, sizes).transpose(-1, -2).flatten(-3)
    return swapped


def _multiply(x: Tensor, factors: Sequence[Tensor]) -> Tensor:
    usable = not _library.why_unusable and x.device.type in ("cpu", "cuda")
    contiguous = [values.contiguous() for values in factors]
    return apply(x.contiguous(), contiguous, None, None, "batch_first", "kernel" if usable else "bmm")


class _SwapAndMultiply(torch.autograd.Function):
    """Several factors, with nothing kept but x, which layers on the same x share: moving it and multiplying
    by the factors are passes over memory, cheaper to repeat than m copies of x are to keep."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, swap: tuple[int, int, int], *factors: Tensor) -> Tensor:
        ctx.save_for_backward(x, *factors)
        device = x.device.type
        ctx.swap = swap
        ctx.autocast = (device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device))
        return _multiply(_swapped(x, swap), factors)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        needs = ctx.needs_input_grad[:1] + ctx.needs_input_grad[2:]
        again = torch.is_grad_enabled()  # gradients of gradients are asked for
        inputs = (
            saved
            if again
            else [one.detach().requires_grad_(need) for one, need in zip(saved, needs, strict=True)]
        )
        device, dtype, enabled = ctx.autocast
        with torch.enable_grad(), torch.autocast(device, dtype, enabled):
            y = _multiply(_swapped(inputs[0], ctx.swap), inputs[1:])
        wanted = [one for one, need in zip(inputs, needs, strict=True) if need]
        found = iter(torch.autograd.grad(y, wanted, g, create_graph=again))
        of_x, *of_factors = (next(found) if need else None for need in needs)
        return of_x, None, *of_factors


class _Scaled(torch.autograd.Function):
    """y·scale with a scale of more digits than y, rounded once; nothing is kept in the wider dtype."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, scale: Tensor) -> Tensor:
        ctx.save_for_backward(y, scale)
        return torch.mul(y, scale, out=torch.empty_like(y))

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None]:
        y, scale = ctx.saved_tensors
        needs_y, needs_scale = ctx.needs_input_grad
        of_y = None
        if needs_y:
            again = torch.is_grad_enabled()
            of_y = (g * scale).to(g.dtype) if again else torch.mul(g, scale, out=torch.empty_like(g))
        of_scale = (g * y).flatten(0, -2).sum(0, dtype=scale.dtype) if needs_scale else None
        return of_y, of_scale


def scaled(y: Tensor, scale: Tensor, bias: Tensor | None) -> Tensor:
    """(y - bias)·scale + bias in the dtype of y, for a scale of each feature.

    >>> scaled(torch.tensor([[3.0]]), torch.tensor([2.0]), torch.tensor([1.0]))
    tensor([[5.]])
    """
    if y.dtype == scale.dtype or torch.compiler.is_compiling() or y.dtype == torch.float64:
        made = (y * scale).to(y.dtype)
    else:
        made = _Scaled.apply(y, scale)  # type: ignore[no-untyped-call]
    return made if bias is None else made + (bias - bias * scale).to(y.dtype)
