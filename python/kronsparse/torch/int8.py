"""Weight-only int8: factors in a quarter of float32's memory."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from kronsparse.torch.linear import KSLinear

Model = TypeVar("Model", bound=nn.Module)


class Int8(nn.Module):
    """A parametrization: int8 values, and a scale for each row of each block."""

    def forward(self, values: Tensor, scale: Tensor) -> Tensor:
        return values.to(scale.dtype) * scale

    def right_inverse(self, factor: Tensor) -> tuple[Tensor, Tensor]:
        """The nearest int8 values, and their scales."""
        scale = factor.abs().amax(2, keepdim=True).clamp_min(torch.finfo(factor.dtype).tiny) / 127
        values = torch.round(factor.float() / scale.float()).clamp(-127, 127).to(torch.int8)
        return values, scale


def quantize_int8(model: Model) -> Model:
    """Keeps the factors of every KSLinear of a model as int8 with a scale for each row of a block, in place;
    returns the model. They are made whole at each call, so this saves memory, not time; it cannot be trained.

    Quantizers for nn.Linear, torchao's and torch.ao's, leave KSLinear as it is. If a layer has factors that
    are computed or complex, none is changed.

    >>> layer = KSLinear(64, 64)
    >>> x = torch.ones(1, 64)
    >>> before = layer(x)
    >>> torch.allclose(quantize_int8(layer)(x), before, atol=0.05)
    True
    >>> layer.parametrizations.factor0.original0.dtype
    torch.int8
    """
    layers = [(name, module) for name, module in model.named_modules() if isinstance(module, KSLinear)]
    if not layers:
        raise ValueError("model: has no KSLinear, must have one")
    for name, layer in layers:
        for factor in layer._factor_names:
            values = layer._parameters.get(factor)
            if values is None or not values.is_floating_point():
                raise ValueError(f"{name or 'model'}: its {factor} is computed or not real: must be neither")
    for _, layer in layers:
        layer.unfreeze()
        for factor in layer._factor_names:
            getattr(layer, factor).requires_grad_(False)
            parametrize.register_parametrization(layer, factor, Int8())
    return model
