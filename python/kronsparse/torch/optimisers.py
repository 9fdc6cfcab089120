"""Muon for factors: each of their dense blocks is orthogonalised."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from kronsparse.checks import check_option

ADJUSTMENTS = ("original", "match_rms_adamw")


def blocks_of(values: Tensor) -> Tensor:
    """The dense blocks of a factor (a, b, c, d) as (a, d, b, c): a view. A matrix is one block.

    >>> blocks_of(torch.zeros(2, 3, 4, 5)).shape
    torch.Size([2, 5, 3, 4])
    """
    if values.dim() == 4:
        return values.permute(0, 3, 1, 2)
    if values.dim() == 2:
        return values
    raise ValueError(
        f"params: sizes {tuple(values.shape)} given, must be those of factors (a, b, c, d) or of matrices; "
        "biases and norms are for another optimiser"
    )


class KSMuon(Optimizer):
    """Muon for the factors of `KSLinear` and for matrices: the momentum of each b x c block is made
    orthogonal before a step. torch.optim.Muon takes matrices only, and is the same there.

    Arguments are those of torch.optim.Muon. Blocks whose smaller side is 1 are only normalised.

    >>> from kronsparse.torch import KSLinear
    >>> layer = KSLinear(64, 64)
    >>> optimiser = KSMuon(layer.factors, lr=0.02)
    >>> layer(torch.randn(8, 64)).square().mean().backward()
    >>> optimiser.step()
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        for name, given in (("lr", lr), ("weight_decay", weight_decay), ("momentum", momentum)):
            if not given >= 0:
                raise ValueError(f"{name}: {given} given, must be at least 0")
        check_option("adjust_lr_fn", adjust_lr_fn or "original", ADJUSTMENTS)
        defaults = {
            "lr": lr,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "nesterov": nesterov,
            "ns_coefficients": ns_coefficients,
            "eps": eps,
            "ns_steps": ns_steps,
            "adjust_lr_fn": adjust_lr_fn,
        }
        super().__init__(params, defaults)
        for group in self.param_groups:
            for parameter in group["params"]:
                blocks_of(parameter)
                if parameter.is_complex():
                    raise ValueError(f"params: dtype {parameter.dtype} given, must be real")

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One step."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._step(parameter, parameter.grad, group)
        return loss

    def _step(self, parameter: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(grad)
        momentum: Tensor = state["momentum_buffer"]
        momentum.lerp_(grad, 1 - group["momentum"])
        update = grad.lerp(momentum, group["momentum"]) if group["nesterov"] else momentum
        blocks = blocks_of(update)
        orthogonal = _orthogonalised(blocks, group["ns_coefficients"], group["ns_steps"], group["eps"])
        rows, cols = blocks.shape[-2:]
        ratio = math.sqrt(max(1, rows / cols))
        if group["adjust_lr_fn"] == "match_rms_adamw":
            ratio = 0.2 * math.sqrt(max(rows, cols))
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        blocks_of(parameter).add_(orthogonal.to(parameter.dtype), alpha=-group["lr"] * ratio)


def _orthogonalised(
    blocks: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float
) -> Tensor:
    """The iteration of Newton and Schulz, for all blocks at once."""
    a, b, c = coefficients
    x: Tensor = blocks.bfloat16()
    is_tall = x.shape[-2] > x.shape[-1]
    x = x.mT if is_tall else x
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if is_tall else x
