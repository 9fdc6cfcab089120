"""PyTorch's ways to multiply by a Kronecker-sparse matrix, each in its best spellings.

A spelling prepares its weights once from the (a,b,c,d) values and returns the
product: a function of x, and of a y it may write its result to. The product
returns a contiguous tensor shaped like y, which is y itself wherever PyTorch
lets the caller choose the output.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

# True, and no news to a reader of benchmarks.
warnings.filterwarnings("ignore", message=".*is in beta state")

Product = Callable[[Tensor, Tensor], Tensor]
Prepare = Callable[[Tensor], Product]
Dimensions = tuple[int, int, int, int]

FAMILIES = ("bmm", "einsum", "bsr", "csr", "dense", "blocks", "strided", "transposing")  # and "compiled"


def _always(_: Dimensions) -> bool:
    return True


def _has_unit_d(dims: Dimensions) -> bool:
    return dims[3] == 1


def _has_wide_d(dims: Dimensions) -> bool:
    return dims[3] > 1


def _has_wide_blocks(dims: Dimensions) -> bool:
    """The blocks are neither K itself (a = 1) nor without zeros (d = 1)."""
    return dims[0] > 1 and dims[3] > 1


def _nnz(dims: Dimensions) -> int:
    return math.prod(dims)


def _nnz_as_dense(dims: Dimensions) -> int:
    a, _, _, d = dims
    return _nnz(dims) * a * d


def _nnz_as_dense_blocks(dims: Dimensions) -> int:
    return _nnz(dims) * dims[3]


@dataclass(frozen=True)
class Spelling:
    """One way to write one competitor."""

    family: str  # what the result tables call it: bmm, einsum, ...
    name: str
    layout: str
    prepare: Prepare
    applies: Callable[[Dimensions], bool]
    weights: Callable[[Dimensions], int]  # how many it multiplies each sample by, zeros included
    per_block: bool  # makes a·d calls or more: not for a GPU


SPELLINGS: list[Spelling] = []


def _spelling(
    family: str,
    layout: str,
    applies: Callable[[Dimensions], bool] = _always,
    weights: Callable[[Dimensions], int] = _nnz,
    per_block: bool = False,
) -> Callable[[Prepare], Prepare]:
    def register(prepare: Prepare) -> Prepare:
        name = prepare.__name__.removeprefix("first_").removeprefix("last_").replace("_", " ")
        SPELLINGS.append(Spelling(family, name, layout, prepare, applies, weights, per_block))
        return prepare

    return register


def spellings_for(layout: str, dims: Dimensions, families: Sequence[str]) -> list[Spelling]:
    """In the order of the families."""
    fitting = [one for one in SPELLINGS if one.layout == layout and one.applies(dims)]
    return [one for family in families for one in fitting if one.family == family]


def _compiled(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    # PyTorch compiles a function for eight shapes, then gives up and interprets it: forget the others.
    torch._dynamo.reset()
    return torch.compile(function, dynamic=False)


def _blocks(values: Tensor) -> Tensor:
    """(a·d, b, c): the dense products, one after the other."""
    a, b, c, d = values.shape
    return values.permute(0, 3, 1, 2).reshape(a * d, b, c).contiguous()


def _dense_blocks(values: Tensor) -> Tensor:
    """(a, b·d, c·d): the a diagonal blocks of K with the zeros inside them."""
    a, b, c, d = values.shape
    blocks = values.new_zeros(a, b, d, c, d)
    for j in range(d):
        blocks[:, :, j, :, j] = values[:, :, :, j]
    return blocks.reshape(a, b * d, c * d)


def _dense(values: Tensor) -> Tensor:
    """(a·b·d, a·c·d): K itself."""
    blocks = _dense_blocks(values)
    a, rows, cols = blocks.shape
    dense = values.new_zeros(a, rows, a, cols)
    for i in range(a):
        dense[i, :, i] = blocks[i]
    return dense.view(a * rows, a * cols)


def _csr(values: Tensor) -> Tensor:
    """K in CSR, made from its structure: K need not fit in memory as a dense matrix."""
    a, b, c, d = values.shape
    columns = torch.arange(a * c * d).view(a, 1, c, d).transpose(2, 3)  # of row (i, k, j): those of (i, :, j)
    starts = torch.arange(a * b * d + 1) * c
    return torch.sparse_csr_tensor(
        starts,
        columns.expand(a, b, d, c).reshape(-1),
        values.permute(0, 1, 3, 2).reshape(-1),
        size=(a * b * d, a * c * d),
        check_invariants=True,
    )


def _bsr(values: Tensor) -> Tensor:
    """The permuted, block-diagonal K in BSR. MKL takes square blocks only: the largest that tile b x c."""
    a, b, c, d = values.shape
    size = math.gcd(b, c)
    block_rows, block_cols = b // size, c // size
    first_col = (torch.arange(a * d) * block_cols).view(a * d, 1, 1)
    columns = (first_col + torch.arange(block_cols)).expand(a * d, block_rows, block_cols).reshape(-1)
    starts = torch.arange(a * d * block_rows + 1) * block_cols
    tiles = _blocks(values).view(a * d, block_rows, size, block_cols, size).transpose(2, 3)
    return torch.sparse_bsr_tensor(
        starts,
        columns,
        tiles.reshape(-1, size, size),
        size=(a * b * d, a * c * d),
        check_invariants=True,
    )


# ---- batch_first: x is (n, a·c·d), y is (n, a·b·d) ----


@_spelling("bmm", "batch_first", _has_wide_d)
def first_bmm_inner_permute(values: Tensor) -> Product:
    """The paper's: only c x d is transposed, the products read and write with a row stride."""
    a, b, c, d = values.shape
    weights = _blocks(values).transpose(1, 2)

    def product(x: Tensor, y: Tensor) -> Tensor:
        n = x.shape[0]
        permuted = x.view(n, a, c, d).transpose(2, 3).reshape(n, a * d, c).transpose(0, 1)
        result = torch.bmm(permuted, weights)
        y.view(n, a, b, d).copy_(result.view(a, d, n, b).permute(2, 0, 3, 1))
        return y

    return product


@_spelling("bmm", "batch_first", _has_wide_d)
def first_bmm_inner_permute_both(values: Tensor) -> Product:
    """As above, with the products writing sample by sample, so that the last copy stays inside samples."""
    a, b, c, d = values.shape
    weights = _blocks(values).transpose(1, 2)

    def product(x: Tensor, y: Tensor) -> Tensor:
        n = x.shape[0]
        permuted = x.view(n, a, c, d).transpose(2, 3).reshape(n, a * d, c)
        result = x.new_empty(n, a * d, b)
        torch.bmm(permuted.transpose(0, 1), weights, out=result.transpose(0, 1))
        y.view(n, a, b, d).copy_(result.view(n, a, d, b).transpose(2, 3))
        return y

    return product


@_spelling("bmm", "batch_first", _has_wide_d)
def first_bmm_whole_permute(values: Tensor) -> Product:
    a, b, c, d = values.shape
    weights = _blocks(values).transpose(1, 2).contiguous()

    def product(x: Tensor, y: Tensor) -> Tensor:
        n = x.shape[0]
        permuted = x.view(n, a, c, d).permute(1, 3, 0, 2).reshape(a * d, n, c)
        result = torch.bmm(permuted, weights)
        y.view(n, a, b, d).copy_(result.view(a, d, n, b).permute(2, 0, 3, 1))
        return y

    return product


@_spelling("transposing", "batch_first", _has_wide_d)
def first_bmm_by_transposing(values: Tensor) -> Product:
    """Through the other layout, whose products need no permutation: two plain matrix transposes."""
    product_last = last_bmm_strided_views(values) if values.is_cuda else last_mm_strided_views(values)

    def product(x: Tensor, y: Tensor) -> Tensor:
        result = product_last(x.t().contiguous(), y.new_empty(y.shape[1], y.shape[0]))
        y.copy_(result.t())
        return y

    return product


@_spelling("bmm", "batch_first", _has_unit_d)
def first_bmm_views(values: Tensor) -> Product:
    """Block-diagonal K: the permuted x and y are views."""
    a, b, c, _ = values.shape
    weights = _blocks(values).transpose(1, 2)

    def product(x: Tensor, y: Tensor) -> Tensor:
        n = x.shape[0]
        torch.bmm(x.view(n, a, c).transpose(0, 1), weights, out=y.view(n, a, b).transpose(0, 1))
        return y

    return product


@_spelling("strided", "batch_first", per_block=True)
def first_mm_strided_views(values: Tensor) -> Product:
    """One product per block, on views; for d > 1 PyTorch copies each view by itself."""
    a, b, c, d = values.shape
    weights = _blocks(values).view(a, d, b, c)

    def product(x: Tensor, y: Tensor) -> Tensor:
        n = x.shape[0]
        x4, y4 = x.view(n, a, c, d), y.view(n, a, b, d)
        for i in range(a):
            for j in range(d):
                torch.mm(x4[:, i, :, j], weights[i, j].t(), out=y4[:, i, :, j])
        return y

    return product


@_spelling("compiled", "batch_first")
def first_bmm_compiled(values: Tensor) -> Product:
    a, b, c, d = values.shape
    blocks = _blocks(values).transpose(1, 2)

    def multiply(x: Tensor, weights: Tensor) -> Tensor:
        n = x.shape[0]
        permuted = x.view(n, a, c, d).transpose(2, 3).reshape(n, a * d, c).transpose(0, 1)
        return torch.bmm(permuted, weights).view(a, d, n, b).permute(2, 0, 3, 1).reshape(n, a * b * d)

    compiled = _compiled(multiply)
    return lambda x, y: compiled(x, blocks)


@_spelling("einsum", "batch_first")
def first_einsum(values: Tensor) -> Product:
    a, _, c, d = values.shape

    def product(x: Tensor, y: Tensor) -> Tensor:
        n = x.shape[0]
        return torch.einsum("nacd,abcd->nabd", x.view(n, a, c, d), values).reshape(y.shape)

    return product


@_spelling("bsr", "batch_first")
def first_bsr_linear(values: Tensor) -> Product:
    a, b, c, d = values.shape
    weights = _bsr(values)

    def product(x: Tensor, y: Tensor) -> Tensor:
        n = x.shape[0]
        permuted = x.view(n, a, c, d).transpose(2, 3).reshape(n, a * c * d)
        result = functional.linear(permuted, weights)
        return result.view(n, a, d, b).transpose(2, 3).reshape(y.shape)

    return product


@_spelling("csr", "batch_first")
def first_csr_linear(values: Tensor) -> Product:
    weights = _csr(values)
    return lambda x, y: functional.linear(x, weights).contiguous()


@_spelling("csr", "batch_first")
def first_csr_transposed(values: Tensor) -> Product:
    weights = _csr(values)
    return lambda x, y: torch.mm(weights, x.t().contiguous()).t().contiguous()


@_spelling("dense", "batch_first", weights=_nnz_as_dense)
def first_dense_linear(values: Tensor) -> Product:
    weights = _dense(values)
    return lambda x, y: functional.linear(x, weights)


@_spelling("blocks", "batch_first", _has_wide_blocks, weights=_nnz_as_dense_blocks)
def first_dense_blocks(values: Tensor) -> Product:
    """One dense product per i, zeros of I_d multiplied: nothing is permuted."""
    a, b, c, d = values.shape
    weights = _dense_blocks(values)

    def product(x: Tensor, y: Tensor) -> Tensor:
        for i in range(a):
            rows, cols = slice(i * b * d, (i + 1) * b * d), slice(i * c * d, (i + 1) * c * d)
            torch.mm(x[:, cols], weights[i].t(), out=y[:, rows])
        return y

    return product


# ---- batch_last: x is (a·c·d, n), y is (a·b·d, n) ----


@_spelling("bmm", "batch_last", _has_wide_d)
def last_bmm_permute(values: Tensor) -> Product:
    a, b, c, d = values.shape
    weights = _blocks(values)

    def product(x: Tensor, y: Tensor) -> Tensor:
        n = x.shape[1]
        permuted = x.view(a, c, d, n).transpose(1, 2).reshape(a * d, c, n)
        result = torch.bmm(weights, permuted)
        y.view(a, b, d, n).copy_(result.view(a, d, b, n).transpose(1, 2))
        return y

    return product


@_spelling("bmm", "batch_last", _has_unit_d)
def last_bmm_views(values: Tensor) -> Product:
    a, b, c, _ = values.shape
    weights = _blocks(values)

    def product(x: Tensor, y: Tensor) -> Tensor:
        n = x.shape[1]
        torch.bmm(weights, x.view(a, c, n), out=y.view(a, b, n))
        return y

    return product


@_spelling("strided", "batch_last", _has_wide_d)
def last_bmm_strided_views(values: Tensor) -> Product:
    """No permutation: for each i one bmm over j, on views whose rows are d·n apart."""
    a, b, c, d = values.shape
    weights = _blocks(values).view(a, d, b, c)

    def product(x: Tensor, y: Tensor) -> Tensor:
        n = x.shape[1]
        x4, y4 = x.view(a, c, d, n), y.view(a, b, d, n)
        for i in range(a):
            torch.bmm(weights[i], x4[i].transpose(0, 1), out=y4[i].transpose(0, 1))
        return y

    return product


@_spelling("strided", "batch_last", per_block=True)
def last_mm_strided_views(values: Tensor) -> Product:
    """No permutation: one product per (i, j), on views whose rows are d·n apart."""
    a, b, c, d = values.shape
    weights = _blocks(values).view(a, d, b, c)

    def product(x: Tensor, y: Tensor) -> Tensor:
        n = x.shape[1]
        x4, y4 = x.view(a, c, d, n), y.view(a, b, d, n)
        for i in range(a):
            for j in range(d):
                torch.mm(weights[i, j], x4[i, :, j], out=y4[i, :, j])
        return y

    return product


@_spelling("compiled", "batch_last")
def last_bmm_compiled(values: Tensor) -> Product:
    a, b, c, d = values.shape
    blocks = _blocks(values)

    def multiply(x: Tensor, weights: Tensor) -> Tensor:
        n = x.shape[1]
        permuted = x.view(a, c, d, n).transpose(1, 2).reshape(a * d, c, n)
        return torch.bmm(weights, permuted).view(a, d, b, n).transpose(1, 2).reshape(a * b * d, n)

    compiled = _compiled(multiply)
    return lambda x, y: compiled(x, blocks)


@_spelling("einsum", "batch_last")
def last_einsum(values: Tensor) -> Product:
    a, _, c, d = values.shape

    def product(x: Tensor, y: Tensor) -> Tensor:
        n = x.shape[1]
        return torch.einsum("acdn,abcd->abdn", x.view(a, c, d, n), values).reshape(y.shape)

    return product


@_spelling("bsr", "batch_last")
def last_bsr_mm(values: Tensor) -> Product:
    a, b, c, d = values.shape
    weights = _bsr(values)

    def product(x: Tensor, y: Tensor) -> Tensor:
        n = x.shape[1]
        permuted = x.view(a, c, d, n).transpose(1, 2).reshape(a * c * d, n)
        result = torch.mm(weights, permuted)
        return result.view(a, d, b, n).transpose(1, 2).reshape(y.shape)

    return product


@_spelling("csr", "batch_last")
def last_csr_mm(values: Tensor) -> Product:
    weights = _csr(values)
    return lambda x, y: torch.mm(weights, x, out=y)


@_spelling("dense", "batch_last", weights=_nnz_as_dense)
def last_dense_mm(values: Tensor) -> Product:
    weights = _dense(values)
    return lambda x, y: torch.mm(weights, x, out=y)


@_spelling("blocks", "batch_last", _has_wide_blocks, weights=_nnz_as_dense_blocks)
def last_dense_blocks(values: Tensor) -> Product:
    a, b, c, d = values.shape
    weights = _dense_blocks(values)

    def product(x: Tensor, y: Tensor) -> Tensor:
        n = x.shape[1]
        torch.bmm(weights, x.view(a, c * d, n), out=y.view(a, b * d, n))
        return y

    return product
