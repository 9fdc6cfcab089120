"""The ways to multiply by one Kronecker-sparse factor, by name: ours and torch's own.

Each is a function (x, values, layout) -> y, for x (..., features) in batch_first and (features, ...) in
batch_last. ``kernel`` is kronsparse's; the others are what the paper's layer offers, for comparison and for
machines where the kernels cannot run.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from kronsparse.chains import Chain, Pattern, chain_text
from kronsparse.torch import _library, _operators

Product = Callable[[Tensor, Tensor, str], Tensor]

_LARGEST_COMPILED_EDGE = 64


def to_dense(factors: Sequence[Tensor]) -> Tensor:
    """The matrix that factors of shapes (a, b, c, d) make, left factor first; differentiable.

    >>> to_dense([torch.ones(2, 1, 1, 2)])
    tensor([[1., 0., 0., 0.],
            [0., 1., 0., 0.],
            [0., 0., 1., 0.],
            [0., 0., 0., 1.]])
    """
    product = _dense_factor(factors[-1])
    for values in reversed(factors[:-1]):
        product = by_einsum(product, values, "batch_last")
    return product


def _dense_factor(values: Tensor) -> Tensor:
    a, b, c, d = values.shape
    dense = torch.diag_embed(values.permute(0, 1, 3, 2).transpose(2, 3), dim1=2, dim2=4)  # a, b, d, c, d
    dense = torch.diag_embed(dense.movedim(0, -1), dim1=0, dim2=3)  # a, b, d, a, c, d
    return dense.reshape(a * b * d, a * c * d)


def _blocks(values: Tensor) -> Tensor:
    """(a·d, b, c): the dense products, one after the other."""
    a, b, c, d = values.shape
    return values.permute(0, 3, 1, 2).reshape(a * d, b, c)


def by_kernel(x: Tensor, values: Tensor, layout: str) -> Tensor:
    """kronsparse's own kernels."""
    _library.check_usable("backend: 'kernel'")
    return _operators.multiply(x, values, None, "none", layout, float32_mode())


def by_einsum(x: Tensor, values: Tensor, layout: str) -> Tensor:
    return _einsum(x, values, Pattern(*values.shape), layout)


def _einsum(x: Tensor, values: Tensor, pattern: Pattern, layout: str) -> Tensor:
    a, _, c, d = pattern
    if layout == "batch_first":
        y = torch.einsum("...icj,ibcj->...ibj", x.unflatten(-1, (a, c, d)), values)
        return y.flatten(-3)
    y = torch.einsum("icj...,ibcj->ibj...", x.unflatten(0, (a, c, d)), values)
    return y.flatten(0, 2)


def by_bmm(x: Tensor, values: Tensor, layout: str) -> Tensor:
    """A batched product between two permutations."""
    return _bmm(x, _blocks(values), Pattern(*values.shape), layout)


def _bmm(x: Tensor, blocks: Tensor, pattern: Pattern, layout: str) -> Tensor:
    a, b, c, d = pattern
    if layout == "batch_first":
        # Only c x d is transposed, inside samples: half the time of a permutation that moves samples too.
        permuted = x.reshape(-1, a, c, d).transpose(2, 3).reshape(-1, a * d, c).transpose(0, 1)
        y = torch.bmm(permuted, blocks.transpose(1, 2))
        return y.view(a, d, -1, b).permute(2, 0, 3, 1).reshape(*x.shape[:-1], a * b * d)
    permuted = x.reshape(a, c, d, -1).transpose(1, 2).reshape(a * d, c, -1)
    y = torch.bmm(blocks, permuted)
    return y.view(a, d, b, -1).transpose(1, 2).reshape(a * b * d, *x.shape[1:])


def by_bsr(x: Tensor, values: Tensor, layout: str) -> Tensor:
    """A block-sparse product between two permutations. No gradient."""
    _refuse_gradient("bsr", x, values)
    return _bsr(x, _bsr_matrix(values), Pattern(*values.shape), layout)


def _bsr_edge(b: int, c: int, on_gpu: bool) -> int:
    """Of the square blocks that a dense block is cut into. MKL and cuSPARSE take no oblong ones. Where edges
    are powers of two, torch compiles a kernel for whole blocks on a GPU; of 256 that did not end in minutes.

    >>> _bsr_edge(96, 384, on_gpu=True), _bsr_edge(1024, 256, on_gpu=True), _bsr_edge(1024, 256, on_gpu=False)
    (96, 64, 256)
    """
    edge = math.gcd(b, c)
    is_power_of_two = edge & (edge - 1) == 0
    return min(edge, _LARGEST_COMPILED_EDGE) if on_gpu and is_power_of_two else edge


def _bsr_matrix(values: Tensor) -> Tensor:
    """The permuted factor, whose a·d dense blocks lie on its diagonal, in square blocks."""
    a, b, c, d = values.shape
    device = values.device
    edge = _bsr_edge(b, c, device.type == "cuda")
    block_rows, block_cols = b // edge, c // edge
    first_col = (torch.arange(a * d, device=device) * block_cols).view(a * d, 1, 1)
    cols = (first_col + torch.arange(block_cols, device=device)).expand(a * d, block_rows, block_cols)
    row_starts = torch.arange(a * d * block_rows + 1, device=device) * block_cols
    squares = _blocks(values).view(a * d, block_rows, edge, block_cols, edge).transpose(2, 3)
    with _quiet():
        return torch.sparse_bsr_tensor(
            row_starts,
            cols.reshape(-1),
            squares.reshape(-1, edge, edge).contiguous(),  # cuSPARSE takes no views
            size=(a * b * d, a * c * d),
            check_invariants=False,
        )


def _bsr(x: Tensor, matrix: Tensor, pattern: Pattern, layout: str) -> Tensor:
    a, b, c, d = pattern
    if layout == "batch_first":
        permuted = x.reshape(-1, a, c, d).permute(1, 3, 2, 0).reshape(a * d * c, -1)
        y = torch.mm(matrix, permuted)
        return y.view(a, d, b, -1).permute(3, 0, 2, 1).reshape(*x.shape[:-1], a * b * d)
    permuted = x.reshape(a, c, d, -1).transpose(1, 2).reshape(a * d * c, -1)
    y = torch.mm(matrix, permuted)
    return y.view(a, d, b, -1).transpose(1, 2).reshape(a * b * d, *x.shape[1:])


def by_sparse(x: Tensor, values: Tensor, layout: str) -> Tensor:
    """The factor as a compressed sparse row matrix. No gradient."""
    _refuse_gradient("sparse", x, values)
    return _sparse(x, _csr_matrix(values), Pattern(*values.shape), layout)


def _csr_matrix(values: Tensor) -> Tensor:
    a, b, c, d = values.shape
    rows, cols = a * b * d, a * c * d
    device = values.device
    crow = torch.arange(0, rows * c + 1, c, device=device)
    i = torch.arange(a, device=device).view(a, 1, 1, 1)
    j = torch.arange(d, device=device).view(1, 1, d, 1)
    k = torch.arange(c, device=device).view(1, 1, 1, c)
    col = (i * c * d + k * d + j).expand(a, b, d, c).reshape(-1)
    with _quiet():
        data = values.transpose(2, 3).reshape(-1)
        return torch.sparse_csr_tensor(crow, col, data, size=(rows, cols), check_invariants=False)


def _sparse(x: Tensor, matrix: Tensor, pattern: Pattern, layout: str) -> Tensor:
    if layout == "batch_first":
        y = torch.mm(matrix, x.reshape(-1, pattern.cols).t())
        return y.t().reshape(*x.shape[:-1], pattern.rows)
    return torch.mm(matrix, x.reshape(pattern.cols, -1)).reshape(pattern.rows, *x.shape[1:])


def by_dense(x: Tensor, values: Tensor, layout: str) -> Tensor:
    """The factor with its zeros."""
    return multiply_dense(x, _dense_factor(values), layout)


def multiply_dense(x: Tensor, matrix: Tensor, layout: str) -> Tensor:
    if layout == "batch_first":
        return torch.nn.functional.linear(x, matrix)
    return (matrix @ x.flatten(1)).view(matrix.shape[0], *x.shape[1:]) if x.dim() > 1 else matrix @ x


BACKENDS: dict[str, Product] = {
    "kernel": by_kernel,
    "bmm": by_bmm,
    "bsr": by_bsr,
    "einsum": by_einsum,
    "dense": by_dense,
    "sparse": by_sparse,
}


class Steps(NamedTuple):
    """A backend of torch's in two steps: weights are prepared once, products are made of them often."""

    prepare: Callable[[Tensor], Tensor]
    multiply: Callable[[Tensor, Tensor, Pattern, str], Tensor]  # of x and what was prepared


# For who multiplies by the same values again and again: the benchmark.
STEPS = {
    "bmm": Steps(lambda values: _blocks(values).contiguous(), _bmm),
    "bsr": Steps(_bsr_matrix, _bsr),
    "einsum": Steps(lambda values: values, _einsum),
    "dense": Steps(_dense_factor, lambda x, matrix, _, layout: multiply_dense(x, matrix, layout)),
    "sparse": Steps(_csr_matrix, _sparse),
}


def _refuse_gradient(backend: str, *tensors: Tensor) -> None:
    if _operators.needs_grad(*tensors):
        raise NotImplementedError(
            f"backend: {backend!r} has no gradient; use kernel, bmm, einsum or dense, or torch.no_grad()"
        )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """torch says of compressed sparse tensors that they are in beta."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is in beta state")
        yield


# Compiled code holds the answer, and is compiled again when the setting changes: torch guards it.
@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def float32_mode() -> str:
    """What torch.set_float32_matmul_precision allows: one TF32 product unless it is "highest"."""
    return "fp32" if torch.get_float32_matmul_precision() == "highest" else "tf32"


class Choice(NamedTuple):
    """What "auto" takes, and why."""

    backend: str
    reason: str


def choose(chain: Chain, dtype: torch.dtype, layout: str, device: torch.device, batch: int = 4096) -> Choice:
    """`kernel`, or `dense` where the product of the factors is predicted to be slower than one dense product.

    Both times come from the kernels' cost model; that of `dense` includes multiplying the factors out, which
    training needs at every step.

    >>> choose((Pattern(64, 64, 64, 1),), torch.float32, "batch_first", torch.device("cpu")).backend
    'kernel'
    """
    if _library.why_unusable:
        return Choice("bmm", f"the kernels cannot be used: {_library.why_unusable}")
    if device.type not in ("cpu", "cuda"):
        return Choice("bmm", f"there are no kernels for {device.type}")
    rows, cols = chain[0].rows, chain[-1].cols
    whole = Pattern(1, rows, cols, 1)
    try:
        kernel = sum(_seconds(pattern, batch, dtype, layout, device) for pattern in chain)
        multiplied_out = sum(_seconds(pattern, cols, dtype, "batch_last", device) for pattern in chain[:-1])
        dense = _seconds(whole, batch, dtype, layout, device) + multiplied_out
    except (ValueError, RuntimeError, ImportError) as error:  # the module that predicts may be unusable alone
        return Choice("kernel", f"no prediction: {error}")
    times = f"{1e6 * kernel:.3g} us for {chain_text(chain)}, {1e6 * dense:.3g} us for dense {rows}x{cols}"
    backend = "dense" if len(chain) > 1 and dense < kernel else "kernel"
    return Choice(backend, f"predicted for a batch of {batch} {layout} on {device}: {times}")


DTYPE_NAMES = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.complex64: "complex64",
    torch.complex128: "complex128",
}


def _seconds(pattern: Pattern, batch: int, dtype: torch.dtype, layout: str, device: torch.device) -> float:
    from kronsparse import _native

    if dtype not in DTYPE_NAMES:
        raise ValueError(f"dtype: {dtype} given, must be one of {', '.join(map(str, DTYPE_NAMES))}")
    place = "cpu" if device.type == "cpu" else f"cuda:{device.index or 0}"
    found = _native.candidates(f"{DTYPE_NAMES[dtype]} {layout} B={batch} {pattern}", place)
    return min((seconds for _, refusal, seconds in found if not refusal), default=math.inf)
