"""The rivals' ways to multiply by a Kronecker-sparse matrix: the paper's, others, and their best spellings.

A spelling prepares its weights once from the (a,b,c,d) values and returns the product: a function of x, and
of a y it may write its result to. The product returns a contiguous tensor shaped like y, which is y itself
wherever PyTorch lets the caller choose the output.

The paper's own are those of `kronsparse.torch`; variants of them are in `variants`.
"""

from __future__ import annotations

import functools
import importlib.util
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kronsparse.chains import Pattern

with warnings.catch_warnings():
    # The benchmark reaches the kernels through the C API, and torch's operators need not be built.
    warnings.simplefilter("ignore", RuntimeWarning)
    from kronsparse.torch.backends import STEPS, Steps

# True, and no news to a reader of benchmarks.
warnings.filterwarnings("ignore", message=".*is in beta state")

Product = Callable[[Tensor, Tensor], Tensor]
Prepare = Callable[[Tensor], Product]


def _always(_: Pattern) -> bool:
    return True


def _nnz(pattern: Pattern) -> int:
    return pattern.nnz


def _entries(pattern: Pattern) -> int:
    return pattern.rows * pattern.cols


@dataclass(frozen=True)
class Spelling:
    """One way to write one competitor."""

    family: str  # what the result tables call it: bmm, einsum, ...
    name: str
    layout: str
    prepare: Prepare
    applies: Callable[[Pattern], bool] = _always
    weights: Callable[[Pattern], int] = _nnz  # how many it multiplies each sample by, zeros included
    per_block: bool = False  # makes a·d calls or more: not for a GPU


def paper_weights(family: str, values: Tensor) -> Tensor:
    """The values as one of the paper's competitors prepares them."""
    return STEPS[family].prepare(values)


def _of_steps(steps: Steps, layout: str) -> Prepare:
    def prepare(values: Tensor) -> Product:
        pattern, weights = Pattern(*values.shape), steps.prepare(values)
        return lambda x, y: steps.multiply(x, weights, pattern, layout).contiguous()

    return prepare


@functools.lru_cache(maxsize=1)
def _compiled_for(layout: str, pattern: Pattern) -> dict[Steps, Callable[[Tensor, Tensor], Tensor]]:
    """The functions compiled for one pattern. PyTorch compiles a function for eight shapes, then gives up and
    interprets it: those of other patterns are forgotten."""
    torch._dynamo.reset()
    return {}


def _compiled_once(steps: Steps, layout: str, pattern: Pattern) -> Callable[[Tensor, Tensor], Tensor]:
    """The product of one pattern, whatever the values."""

    def multiply(x: Tensor, w: Tensor) -> Tensor:
        return steps.multiply(x, w, pattern, layout).contiguous()

    known = _compiled_for(layout, pattern)
    if steps not in known:
        known[steps] = torch.compile(multiply, dynamic=False)
    return known[steps]


def _compiled(steps: Steps, layout: str) -> Prepare:
    def prepare(values: Tensor) -> Product:
        weights = steps.prepare(values)
        compiled = _compiled_once(steps, layout, Pattern(*values.shape))
        return lambda x, y: compiled(x, weights)

    return prepare


def _ksmm(layout: str) -> Prepare:
    """The paper's own kernel, where its package is installed."""

    def prepare(values: Tensor) -> Product:
        from ksmm_py.layer.kronecker_sparse.interface import (  # type: ignore[import-not-found]
            KSLinear,
        )

        layer = KSLinear(
            [tuple(values.shape)],
            weights=[values],
            bias=False,
            algo="kernel",
            dtype=values.dtype,
            bs_last=layout == "batch_last",
            device=values.device,
        )

        def product(x: Tensor, y: Tensor) -> Tensor:
            with torch.no_grad():
                result: Tensor = layer(x)
            return result

        return product

    return prepare


def _triton(layout: str) -> Prepare:
    """Our own plain kernel in Triton."""

    def prepare(values: Tensor) -> Product:
        from kronsparse.bench.rivals import triton_rival

        return triton_rival.prepared(values, layout)

    return prepare


def _cutensor(layout: str, order: str) -> Prepare:
    """cuTENSOR's contraction, with values in this order."""

    def prepare(values: Tensor) -> Product:
        from kronsparse.bench.rivals import cutensor_rival

        return cutensor_rival.prepared(values, layout, order)

    return prepare


@functools.cache
def _known() -> list[Spelling]:
    from kronsparse.bench.rivals.variants import VARIANTS

    known = []
    for layout in ("batch_first", "batch_last"):
        for family, steps in STEPS.items():
            weights = _entries if family == "dense" else _nnz
            known.append(Spelling(family, family, layout, _of_steps(steps, layout), weights=weights))
        known += [one for one in VARIANTS if one.layout == layout]
        known.append(Spelling("compiled", "bmm compiled", layout, _compiled(STEPS["bmm"], layout)))
        einsum = _compiled(STEPS["einsum"], layout)
        known.append(Spelling("compiled-einsum", "einsum compiled", layout, einsum))
        known.append(Spelling("triton", "triton", layout, _triton(layout)))
        for order in ("abcd", "adbc"):
            known.append(Spelling("cutensor", f"cutensor {order}", layout, _cutensor(layout, order)))
        known.append(Spelling("ksmm", "ksmm", layout, _ksmm(layout)))
    return known


# In the order in which they are tried: the quick ones first, so that hopeless ones are seen to be so.
FAMILIES = (
    *("bmm", "einsum", "strided", "transposing", "blocks", "dense", "bsr", "sparse"),
    *("triton", "cutensor", "compiled", "compiled-einsum", "ksmm"),
)
# These need an NVIDIA GPU, and a package that may not be installed.
GPU_FAMILIES = ("triton", "cutensor", "ksmm")


def why_missing(family: str, is_cuda: bool) -> str:
    """Why nobody of a family can take part on a device; or nothing.

    >>> why_missing("bmm", is_cuda=False)
    ''
    >>> why_missing("triton", is_cuda=False)
    'triton needs an NVIDIA GPU'
    """
    if family not in GPU_FAMILIES:
        return ""
    if not is_cuda:
        return f"{family} needs an NVIDIA GPU"
    if family == "cutensor":
        from kronsparse.bench.rivals.cutensor_rival import LIBRARY_NAME, PACKAGES, find_cutensor

        return "" if find_cutensor() else f"{LIBRARY_NAME} was not found: pip install {PACKAGES[0]}"
    module = {"triton": "triton", "ksmm": "ksmm_py"}[family]
    return "" if importlib.util.find_spec(module) else f"the package {module} is not installed"


def spellings_for(layout: str, pattern: Pattern, families: Sequence[str]) -> list[Spelling]:
    """The spellings of these families that apply to the pattern."""
    fitting = [one for one in _known() if one.layout == layout and one.applies(pattern)]
    return [one for family in FAMILIES if family in families for one in fitting if one.family == family]
