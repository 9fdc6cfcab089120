"""Adapters that a training step is timed with: PEFT's, ours, and, where peft is not installed, copies of the
arithmetic of its BOFT and LoRA layers."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from kronsparse.peft.acceleration import _BlockDiagonal
from kronsparse.peft.rotations import cayley, rotate, scaled

TARGETS = ("q_proj", "v_proj")
SPREAD = 0.02  # of the adapters' values: a rotation that is none would hide mistakes


class _Boft(nn.Module):
    """A frozen linear layer behind a rotation, with parameters as PEFT has them, in float32."""

    def __init__(self, base: nn.Linear, factors: int, size: int) -> None:
        super().__init__()
        self.base = base
        count, device = base.in_features // size, base.weight.device
        self.blocks = nn.Parameter(SPREAD * torch.randn(factors, count, size, size, device=device))
        self.scale = nn.Parameter(1 + SPREAD * torch.randn(base.out_features, 1, device=device))


class OurBoft(_Boft):
    """As `kronsparse.peft.accelerate` makes it."""

    def forward(self, x: Tensor) -> Tensor:
        return scaled(self.base(rotate(x, cayley(self.blocks))), self.scale.squeeze(-1), self.base.bias)


class _FastBlockDiagonal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, blocks: Tensor) -> Tensor:
        ctx.save_for_backward(blocks)
        return _BlockDiagonal.forward(blocks)[0]

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return _BlockDiagonal.backward(g, *ctx.saved_tensors)[0]


class CopiedBoft(_Boft):
    """The arithmetic of peft 0.21's BOFT: dense permutations and rotations of n x n. Block-diagonal matrices
    are put together by its extension for CUDA, or block by block where that was not compiled."""

    permutations: Tensor

    def __init__(self, base: nn.Linear, factors: int, size: int, is_compiled: bool = True) -> None:
        super().__init__(base, factors, size)
        self.is_compiled = is_compiled
        features = base.in_features
        made = torch.zeros(factors, features, features, device=base.weight.device)
        for level in range(factors):
            order = torch.arange(features)
            if factors > 1:  # place (half, block, t) holds element (block, half, t)
                order = order.view(-1, 1 << level, 2, size // 2).transpose(1, 2).reshape(-1)
            made[level, torch.arange(features), order] = 1
        self.register_buffer("permutations", made, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        factors, count, size, _ = self.blocks.shape
        data = self.blocks.view(-1, size, size)
        skew = 0.5 * (data - data.transpose(1, 2))
        eye = torch.eye(size, device=x.device).expand_as(skew)
        orthogonal = torch.linalg.solve(eye + skew, eye - skew, left=False).view(factors, count, size, size)
        rotation = torch.eye(count * size, device=x.device, dtype=x.dtype)
        if self.is_compiled:
            diagonal = _FastBlockDiagonal.apply(orthogonal).to(x)  # type: ignore[no-untyped-call]
        else:
            diagonal = torch.block_diag(*torch.unbind(orthogonal.squeeze(0))).unsqueeze(0).to(x)
        permutations = self.permutations.to(x)
        matrices = torch.bmm(permutations, torch.bmm(diagonal, permutations.permute(0, 2, 1)))
        matrix = matrices[0]
        for level in range(1, factors):
            matrix = matrices[level] @ matrix
        rotation = matrix @ rotation
        scale = self.scale * torch.ones_like(self.scale, dtype=x.dtype)
        y = self.base(x @ rotation.to(x.dtype))
        bias = self.base.bias
        y = y if bias is None else y - bias
        y = y * scale.squeeze(-1)
        y = y if bias is None else y + bias
        return y.to(x.dtype)  # type: ignore[no-any-return]


class CopiedLora(nn.Module):
    """The arithmetic of peft 0.21's LoRA, with adapters in float32 as it makes them for bfloat16 models."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base
        device = base.weight.device
        self.a = nn.Parameter(SPREAD * torch.randn(rank, base.in_features, device=device))
        self.b = nn.Parameter(SPREAD * torch.randn(base.out_features, rank, device=device))

    def forward(self, x: Tensor) -> Tensor:
        y = self.base(x)
        low = nn.functional.linear(x.to(self.a.dtype), self.a)
        return (y + nn.functional.linear(low, self.b) * 1.0).to(y.dtype)  # type: ignore[no-any-return]


def has_peft() -> bool:
    """Whether peft can be imported."""
    return importlib.util.find_spec("peft") is not None


def adapt(model: nn.Module, contender: str, size: int, rank: int, copied: bool) -> tuple[nn.Module, str]:
    """The model with adapters of a contender, and what they are: "boft1 ours", "boft1 peft", "boft1 peft
    uncompiled", "lora"."""
    kind, _, whose = contender.partition(" ")
    seed = torch.initial_seed()
    torch.manual_seed(1)
    try:
        model.requires_grad_(False)
        if copied:
            return _with_copies(model, kind, whose, size, rank)
        return _with_peft(model, kind, whose, size, rank)
    finally:
        torch.manual_seed(seed)


def _with_copies(model: nn.Module, kind: str, whose: str, size: int, rank: int) -> tuple[nn.Module, str]:
    make: Callable[[nn.Linear], nn.Module]
    if kind == "lora":
        make, told = (lambda base: CopiedLora(base, rank)), "a copy of its arithmetic: peft is not installed"
    elif whose == "ours":
        make, told = (lambda base: OurBoft(base, int(kind[4:]), size)), "kronsparse.peft"
    else:
        make = lambda base: CopiedBoft(base, int(kind[4:]), size, whose == "peft")  # noqa: E731
        told = "a copy of its arithmetic: peft is not installed"
    for name, module in list(model.named_modules()):
        parent, _, child = name.rpartition(".")
        if child in TARGETS and isinstance(module, nn.Linear):
            setattr(model.get_submodule(parent), child, make(module))
    return model, told


def _with_peft(model: nn.Module, kind: str, whose: str, size: int, rank: int) -> tuple[nn.Module, str]:
    import peft  # type: ignore[import-not-found,unused-ignore]

    from kronsparse.peft import accelerate, prepare

    version = f"peft {importlib.metadata.version('peft')}"
    config: Any
    if kind == "lora":
        config = peft.LoraConfig(r=rank, lora_alpha=rank, target_modules=list(TARGETS))
    else:
        prepare()  # else it needs a compiler, or has one factor
        config = peft.BOFTConfig(
            boft_block_size=size,
            boft_block_num=0,
            boft_n_butterfly_factor=int(kind[4:]),
            target_modules=list(TARGETS),
        )
    made: Any = peft.get_peft_model(model, config)  # type: ignore[arg-type,unused-ignore]
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if parameter.requires_grad:
                parameter.copy_(SPREAD * torch.randn(parameter.shape).to(parameter) + ("boft_s" in name))
    if whose == "ours":
        return accelerate(made), f"kronsparse.peft on {version}"
    if whose == "peft uncompiled":
        for module in made.modules():
            if hasattr(module, "fbd_cuda_available"):
                module.fbd_cuda_available = False
    return made, version
