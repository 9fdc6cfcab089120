"""Replaces the forward of PEFT's layers, and puts it back."""

from __future__ import annotations

import importlib.util
from types import ModuleType
from typing import Any, TypeVar

from torch import Tensor, nn

Model = TypeVar("Model", bound=nn.Module)


def need_peft() -> None:
    """Says what to install where peft is missing."""
    if importlib.util.find_spec("peft") is None:
        raise ModuleNotFoundError("kronsparse.peft needs peft: pip install peft")


def accelerate(model: Model) -> Model:
    """Makes the BOFT and OFT layers of a PEFT model multiply by chains, in place, and returns the model.

    Parameters, checkpoints, merging, dropout and several adapters are PEFT's own, and results are equal up to
    rounding. PEFT's BOFT multiplies by dense n x n matrices and keeps m permutation matrices of n x n float32
    for each layer; here a layer multiplies by m factors of b x b blocks, and keeps none. BOFT's linear and
    convolutional layers and OFT's linear layers are replaced; others stay. Adapters that are added later are
    accelerated, too, in layers that were.

    An example is in the cookbook of the documentation (PEFT).
    """
    need_peft()
    from kronsparse.peft.layers import ACCELERATED

    found = 0
    for module in model.modules():
        kind = ACCELERATED.get(type(module))
        if kind is not None:
            module._buffers.pop("boft_P", None)
            module._non_persistent_buffers_set.discard("boft_P")
            _become(module, kind)
        found += kind is not None or type(module) in ACCELERATED.values()
    if not found:
        raise ValueError(
            "model: has no BOFT or OFT layer of PEFT that can be replaced, must have a linear one, or a "
            "convolution with BOFT"
        )
    return model


def restore(model: Model) -> Model:
    """Undoes `accelerate`, in place, and returns the model."""
    need_peft()
    from kronsparse.peft.layers import ACCELERATED, permutations

    before = {ours: theirs for theirs, ours in ACCELERATED.items()}
    for module in model.modules():
        kind = before.get(type(module))
        if kind is None:
            continue
        _become(module, kind)
        adapters: Any = getattr(module, "boft_R", None)
        if adapters:
            module.register_buffer("boft_P", permutations(module, next(iter(adapters))), persistent=False)
    return model


def _become(module: nn.Module, kind: type[nn.Module]) -> None:
    module.__class__ = kind
    if "_old_forward" in module.__dict__:  # a hook of accelerate calls this one
        module.__dict__["_old_forward"] = kind.forward.__get__(module, kind)


class _BlockDiagonal:
    """PEFT's extension for BOFT with several factors, in torch: what it compiles for CUDA."""

    @staticmethod
    def forward(blocks: Tensor) -> list[Tensor]:
        n, count, size, _ = blocks.shape
        made = blocks.new_zeros(n, count, size, count, size)
        made.diagonal(dim1=1, dim2=3).copy_(blocks.permute(0, 2, 3, 1))
        return [made.view(n, count * size, count * size)]

    @staticmethod
    def backward(g: Tensor, blocks: Tensor) -> list[Tensor]:
        n, count, size, _ = blocks.shape
        split = g.reshape(n, count, size, count, size)
        return [split.diagonal(dim1=1, dim2=3).permute(0, 3, 1, 2).contiguous()]


def prepare() -> None:
    """Lets PEFT make BOFT layers of two factors and more without a compiler.

    PEFT compiles an extension for CUDA when it makes a BOFT layer. Where that fails, it goes on with one
    factor, whatever was asked for. This gives it the same in torch; call it before `get_peft_model`.
    """
    need_peft()
    from peft.tuners.boft import layer  # type: ignore[import-not-found,unused-ignore]

    made: ModuleType = layer
    if made._FBD_CUDA is None:
        made._FBD_CUDA = _BlockDiagonal()  # type: ignore[attr-defined]
