"""Other spellings of the paper's competitors, and competitors it leaves out; each one short function."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from kronsparse.bench.rivals.spellings import Prepare, Product, Spelling, paper_weights
from kronsparse.chains import Pattern

VARIANTS: list[Spelling] = []


def _has_unit_d(pattern: Pattern) -> bool:
    return pattern.d == 1


def _has_wide_d(pattern: Pattern) -> bool:
    return pattern.d > 1


def _has_wide_blocks(pattern: Pattern) -> bool:
    """The blocks are neither K itself (a = 1) nor without zeros (d = 1)."""
    return pattern.a > 1 and pattern.d > 1


def _entries_of_blocks(pattern: Pattern) -> int:
    return pattern.nnz * pattern.d


def _variant(
    family: str,
    layout: str,
    applies: Callable[[Pattern], bool],
    weights: Callable[[Pattern], int] = lambda pattern: pattern.nnz,
    per_block: bool = False,
) -> Callable[[Prepare], Prepare]:
    def register(prepare: Prepare) -> Prepare:
        name = prepare.__name__.removeprefix("first_").removeprefix("last_").replace("_", " ")
        VARIANTS.append(Spelling(family, name, layout, prepare, applies, weights, per_block))
        return prepare

    return register


def _blocks(values: Tensor) -> Tensor:
    """(a·d, b, c): the dense products, one after the other."""
    return paper_weights("bmm", values)


def _dense_blocks(values: Tensor) -> Tensor:
    """(a, b·d, c·d): the a diagonal blocks of K with the zeros inside them."""
    a, b, c, d = values.shape
    blocks = values.new_zeros(a, b, d, c, d)
    for j in range(d):
        blocks[:, :, j, :, j] = values[:, :, :, j]
    return blocks.reshape(a, b * d, c * d)


# ---- batch_first: x is (n, a·c·d), y is (n, a·b·d) ----


@_variant("bmm", "batch_first", _has_wide_d)
def first_bmm_inner_permute_both(values: Tensor) -> Product:
    """The paper's, with the products writing sample by sample, so that the last copy stays inside samples."""
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


@_variant("bmm", "batch_first", _has_wide_d)
def first_bmm_whole_permute(values: Tensor) -> Product:
    """All of x permuted, so that each product reads a contiguous matrix."""
    a, b, c, d = values.shape
    weights = _blocks(values).transpose(1, 2).contiguous()

    def product(x: Tensor, y: Tensor) -> Tensor:
        n = x.shape[0]
        permuted = x.view(n, a, c, d).permute(1, 3, 0, 2).reshape(a * d, n, c)
        result = torch.bmm(permuted, weights)
        y.view(n, a, b, d).copy_(result.view(a, d, n, b).permute(2, 0, 3, 1))
        return y

    return product


@_variant("bmm", "batch_first", _has_unit_d)
def first_bmm_views(values: Tensor) -> Product:
    """Block-diagonal K: the permuted x and y are views."""
    a, b, c, _ = values.shape
    weights = _blocks(values).transpose(1, 2)

    def product(x: Tensor, y: Tensor) -> Tensor:
        n = x.shape[0]
        torch.bmm(x.view(n, a, c).transpose(0, 1), weights, out=y.view(n, a, b).transpose(0, 1))
        return y

    return product


def _by_transposing(product_last: Product) -> Product:
    """Through the other layout, whose products need no permutation: two plain matrix transposes."""

    def product(x: Tensor, y: Tensor) -> Tensor:
        result = product_last(x.t().contiguous(), y.new_empty(y.shape[1], y.shape[0]))
        y.copy_(result.t())
        return y

    return product


@_variant("transposing", "batch_first", _has_wide_d)
def first_bmm_by_transposing(values: Tensor) -> Product:
    """With a loop over i; on a CPU, whose calls cost little, over (i, j)."""
    return _by_transposing(
        last_bmm_strided_views(values) if values.is_cuda else last_mm_strided_views(values)
    )


@_variant("transposing", "batch_first", _has_wide_blocks)
def first_bmm_by_j_by_transposing(values: Tensor) -> Product:
    """With a loop over j."""
    return _by_transposing(last_bmm_strided_views_by_j(values))


@_variant("strided", "batch_first", lambda _: True, per_block=True)
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


@_variant("bsr", "batch_first", lambda _: True)
def first_bsr_linear(values: Tensor) -> Product:
    """For linear, which permutes inside samples only."""
    a, b, c, d = values.shape
    weights = paper_weights("bsr", values)

    def product(x: Tensor, y: Tensor) -> Tensor:
        n = x.shape[0]
        permuted = x.view(n, a, c, d).transpose(2, 3).reshape(n, a * c * d)
        result = torch.nn.functional.linear(permuted, weights)
        return result.view(n, a, d, b).transpose(2, 3).reshape(y.shape)

    return product


@_variant("blocks", "batch_first", _has_wide_blocks, weights=_entries_of_blocks)
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


@_variant("blocks", "batch_first", _has_wide_blocks, weights=_entries_of_blocks)
def first_dense_blocks_as_one(values: Tensor) -> Product:
    """One batched dense product on views, zeros of I_d multiplied: nothing is permuted."""
    a, b, c, d = values.shape
    weights = _dense_blocks(values).transpose(1, 2)

    def product(x: Tensor, y: Tensor) -> Tensor:
        n = x.shape[0]
        torch.bmm(x.view(n, a, c * d).transpose(0, 1), weights, out=y.view(n, a, b * d).transpose(0, 1))
        return y

    return product


@_variant("einsum", "batch_first", lambda _: True)
def first_einsum_as_given(values: Tensor) -> Product:
    """The paper's, which permutes the values at each call."""
    a, _, c, d = values.shape
    return lambda x, y: torch.einsum("nicj,ibcj->nibj", x.view(-1, a, c, d), values).reshape(y.shape)


# ---- batch_last: x is (a·c·d, n), y is (a·b·d, n) ----


@_variant("bmm", "batch_last", _has_unit_d)
def last_bmm_views(values: Tensor) -> Product:
    """Block-diagonal K: nothing to permute."""
    a, b, c, _ = values.shape
    weights = _blocks(values)

    def product(x: Tensor, y: Tensor) -> Tensor:
        n = x.shape[1]
        torch.bmm(weights, x.view(a, c, n), out=y.view(a, b, n))
        return y

    return product


@_variant("strided", "batch_last", _has_wide_d)
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


@_variant("strided", "batch_last", _has_wide_blocks)
def last_bmm_strided_views_by_j(values: Tensor) -> Product:
    """No permutation: for each j one bmm over i, on views whose rows are d·n apart."""
    a, b, c, d = values.shape
    weights = values.permute(3, 0, 1, 2).contiguous()

    def product(x: Tensor, y: Tensor) -> Tensor:
        n = x.shape[1]
        x4, y4 = x.view(a, c, d, n), y.view(a, b, d, n)
        for j in range(d):
            torch.bmm(weights[j], x4[:, :, j], out=y4[:, :, j])
        return y

    return product


@_variant("strided", "batch_last", lambda _: True, per_block=True)
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


@_variant("blocks", "batch_last", _has_wide_blocks, weights=_entries_of_blocks)
def last_dense_blocks(values: Tensor) -> Product:
    """One batched dense product, zeros of I_d multiplied: nothing is permuted."""
    a, b, c, d = values.shape
    weights = _dense_blocks(values)

    def product(x: Tensor, y: Tensor) -> Tensor:
        n = x.shape[1]
        torch.bmm(weights, x.view(a, c * d, n), out=y.view(a, b * d, n))
        return y

    return product


@_variant("einsum", "batch_last", lambda _: True)
def last_einsum_as_given(values: Tensor) -> Product:
    """The paper's, which permutes the values at each call."""
    a, _, c, d = values.shape
    return lambda x, y: torch.einsum("icjn,ibcj->ibjn", x.view(a, c, d, -1), values).reshape(y.shape)
