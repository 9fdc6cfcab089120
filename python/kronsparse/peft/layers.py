"""PEFT's layers with another forward. Needs peft."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from peft.tuners.boft import layer as boft  # type: ignore[import-not-found,unused-ignore]
from peft.tuners.lora import layer as lora  # type: ignore[import-not-found,unused-ignore]
from peft.tuners.oft import layer as oft  # type: ignore[import-not-found,unused-ignore]
from peft.tuners.tuners_utils import (  # type: ignore[import-not-found,unused-ignore]
    check_adapters_to_merge,
)
from torch import Tensor, nn

from kronsparse.peft.rotations import cayley, rotate, rotate_back, scaled
from kronsparse.torch.dense_layers import dense_from


class _Boft:
    """Common to BOFT's layers: no permutation matrices are kept, and none is multiplied by."""

    boft_R: Any  # noqa: N815 (PEFT's name)
    boft_s: Any
    boft_dropout: Any
    active_adapters: Any
    in_features: int

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """As in nn.Module, but for the permutations, which a new adapter brings."""
        if name != "boft_P":
            super().register_buffer(name, tensor, persistent)  # type: ignore[misc]

    @property
    def boft_P(self) -> Tensor:  # noqa: N802
        """PEFT's permutation matrices, made at each use: only foreign code asks for them."""
        name = next(iter(self.boft_R))
        return permutations(self, name)

    def _blocks(self, adapter: str, with_dropout: bool) -> Tensor:
        blocks = cayley(self.boft_R[adapter])
        return self.boft_dropout[adapter](blocks) if with_dropout else blocks

    def _adapters(self) -> list[str]:
        return [name for name in self.active_adapters if name in self.boft_R]

    def _matrix(self, adapter: str) -> Tensor:
        """The rotation that PEFT calls butterfly_oft_mat."""
        blocks = self._blocks(adapter, with_dropout=False)
        size = blocks.shape[1] * blocks.shape[2]
        eye = torch.eye(size, device=blocks.device, dtype=blocks.dtype)
        return rotate(eye, blocks).to(self.boft_R[adapter].dtype)


class BoftLinear(_Boft, boft.Linear):  # type: ignore[misc,unused-ignore]
    """BOFT's linear layer: x goes through the chain, then through the base layer."""

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if self.disable_adapters or self.merged:
            return super().forward(x, *args, **kwargs)  # type: ignore[no-any-return]
        dtype = x.dtype
        scale = None
        for adapter in reversed(self._adapters()):  # PEFT multiplies by the last one first
            x = rotate(x, self._blocks(adapter, with_dropout=True))
            of_adapter = self.boft_s[adapter].squeeze(-1)
            scale = of_adapter if scale is None else of_adapter * scale
        result = self.base_layer(x, *args, **kwargs)
        if scale is not None:
            result = scaled(result, scale, self.base_layer.bias)
        return result.to(dtype)  # type: ignore[no-any-return]

    def get_delta_weight(self, adapter: str) -> tuple[Tensor, Tensor]:
        """As PEFT's, for merging."""
        return self._matrix(adapter), self.boft_s[adapter]


class BoftConv2d(_Boft, boft.Conv2d):  # type: ignore[misc,unused-ignore]
    """BOFT's convolution: the rows of its matrix go through the chain."""

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if self.disable_adapters or self.merged:
            return super().forward(x, *args, **kwargs)  # type: ignore[no-any-return]
        dtype = x.dtype
        base = self.base_layer
        weight = self.get_base_weight()
        rows = weight.reshape(self.out_features, -1)
        scale = None
        for adapter in self._adapters():
            rows = rotate_back(rows, self._blocks(adapter, with_dropout=True))
            of_adapter = self.boft_s[adapter].transpose(0, 1)
            scale = of_adapter if scale is None else of_adapter * scale
        rows = rows if scale is None else rows * scale
        x, bias = self._cast_input_dtype(x, rows.dtype), self._cast_input_dtype(base.bias, rows.dtype)
        result = nn.functional.conv2d(
            x, rows.view(weight.shape), bias, padding=base.padding[0], stride=base.stride[0]
        )
        return result.to(dtype)

    def get_delta_weight(self, adapter: str) -> tuple[Tensor, Tensor]:
        """As PEFT's, for merging."""
        return self._matrix(adapter), self.boft_s[adapter].transpose(0, 1)


def permutations(layer: Any, adapter: str) -> Tensor:
    """PEFT's buffer boft_P of a layer."""
    m, count, size, _ = layer.boft_R[adapter].shape
    features = count * size
    made = torch.zeros(m, features, features)
    for level in range(m):
        order = layer.block_butterfly_perm(features, count >> level, size // 2, m - 1)
        made[level, torch.arange(features), order] = 1
    return made.to(layer.boft_R[adapter].device)


class OftLinear(oft.Linear):  # type: ignore[misc,unused-ignore]
    """OFT's linear layer: x is rotated in its own dtype."""

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if self.disable_adapters or self.merged:
            return super().forward(x, *args, **kwargs)  # type: ignore[no-any-return]
        dtype = x.dtype
        for adapter in self.active_adapters:
            if adapter in self.oft_R:
                x = rotate(x, _oft_blocks(self.oft_R[adapter]).unsqueeze(0))
        return self.base_layer(x.to(dtype), *args, **kwargs).to(dtype)  # type: ignore[no-any-return]


def _oft_blocks(rotation: Any) -> Tensor:
    """All blocks of an OFTRotationModule, as its own forward computes them."""
    if rotation.coft:
        with torch.no_grad():
            rotation.weight.copy_(rotation._project_batch(rotation.weight, eps=rotation.eps))
    blocks: Tensor = rotation._cayley_batch(
        rotation.weight, rotation.block_size, rotation.use_cayley_neumann, rotation.num_cayley_neumann_terms
    )
    if rotation.block_share:
        blocks = blocks.expand(rotation.in_features // rotation.block_size, -1, -1)
    return blocks


ACCELERATED: dict[type[nn.Module], type[nn.Module]] = {
    boft.Linear: BoftLinear,
    boft.Conv2d: BoftConv2d,
    oft.Linear: OftLinear,
}


_DRAWN = (True, False, "gaussian", "orthogonal", "eva", None)


class KSLinearLora(lora.Linear):  # type: ignore[misc,unused-ignore]
    """LoRA on top of a KSLinear. A sum of a chain and a product of low rank is no chain, so a merged layer is
    dense, and exact; unmerging brings the chain back."""

    base_layer: nn.Module

    def __init__(self, base_layer: nn.Module, *args: Any, **kwargs: Any) -> None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Unsupported layer type .*KSLinear")
            super().__init__(base_layer, *args, **kwargs)

    def update_layer(self, adapter_name: str, *args: Any, config: Any, **kwargs: Any) -> None:
        """As PEFT's, for LoRA that is added to the layer and needs nothing else of it."""
        if config.init_lora_weights not in _DRAWN:
            raise ValueError(
                f"init_lora_weights: {config.init_lora_weights!r} given for a KSLinear, must not change the "
                "matrix of the base layer, which is a product of factors: True, False, 'gaussian', "
                "'orthogonal' or 'eva'"
            )
        super().update_layer(adapter_name, *args, config=config, **kwargs)

    @property
    def lora_variants(self) -> dict[tuple[str, ...], Any]:
        """LoRA alone: others read or change the matrix of the base layer."""
        return {(): None}

    def resolve_lora_variant(self, *args: Any, **kwargs: Any) -> Any:
        """As PEFT's, with a message that says why."""
        try:
            return super().resolve_lora_variant(*args, **kwargs)
        except ValueError as error:
            raise ValueError(
                f"config: {error}; a KSLinear takes LoRA and rsLoRA alone: DoRA and others read or change "
                "the matrix of the layer, which is a product of factors"
            ) from None

    def merge(self, safe_merge: bool = False, adapter_names: list[str] | None = None) -> None:
        """As PEFT's; the base layer is an nn.Linear meanwhile."""
        names = [name for name in check_adapters_to_merge(self, adapter_names) if name in self.lora_A]
        if not names:
            return
        chain: Any = self.base_layer
        if not self.merged:
            self.base_layer = dense_from(chain)
            self.__dict__["_chain"] = chain  # no part of the state while it waits
        try:
            super().merge(safe_merge, names)
        finally:
            if not self.merged:
                self.base_layer = self.__dict__.pop("_chain")

    def unmerge(self) -> None:
        """As PEFT's, without an error of rounding."""
        chain = self.__dict__.pop("_chain", None)
        if chain is None:
            super().unmerge()
            return
        self.merged_adapters.clear()
        self.base_layer = chain
