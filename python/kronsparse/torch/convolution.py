"""KSConv1x1: a chain over the channels of images."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from kronsparse.chains import ChainLike
from kronsparse.torch.dense_layers import layer_from
from kronsparse.torch.linear import KSLinear


class KSConv1x1(KSLinear):
    """y[n, :, h, w] = W x[n, :, h, w] + bias: a drop-in for nn.Conv2d with a kernel of 1 x 1.

    x is (N, C, H, W) or (C, H, W). Tensors in `torch.channels_last` are read where they lie; others are
    copied to channels_last once, and the result stays so for the next layer. Arguments are those of KSLinear
    but for the layout.

    >>> layer = KSConv1x1(64, 128, "monarch(blocks=8)")
    >>> layer(torch.randn(2, 64, 7, 7)).shape
    torch.Size([2, 128, 7, 7])
    """

    replaced = "Conv2d"

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        chain: ChainLike = "monarch",
        bias: bool = True,
        backend: str = "auto",
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        activation: str | None = None,
    ) -> None:
        super().__init__(
            in_channels, out_channels, chain, bias, "batch_first", backend, device, dtype, activation
        )

    @classmethod
    def from_conv(cls, conv: nn.Conv2d, chain: ChainLike | int = "monarch", **options: Any) -> KSConv1x1:
        """A layer in place of an nn.Conv2d with a kernel of 1 x 1; options are those of `from_linear`.

        >>> KSConv1x1.from_conv(nn.Conv2d(64, 64, 1), "butterfly").in_features
        64
        """
        plain = conv.kernel_size == conv.stride == conv.dilation == (1, 1) and conv.padding == (0, 0)
        if not plain or conv.groups != 1:
            raise ValueError(
                f"conv: {conv} given, must have a kernel and a stride of 1, one group and no padding"
            )
        linear: Any
        with torch.device("meta"):
            linear = nn.Linear(conv.in_channels, conv.out_channels, conv.bias is not None)
        linear.weight = nn.Parameter(conv.weight.detach().flatten(1), conv.weight.requires_grad)
        if conv.bias is not None:
            linear.bias = conv.bias
        fitted = layer_from(linear.train(conv.training), chain, **options).layer
        made = cls(
            conv.in_channels,
            conv.out_channels,
            fitted.chain,
            conv.bias is not None,
            fitted.backend,
            "meta",
            conv.weight.dtype,
            fitted.activation,
        )
        for name, parameter in fitted.named_parameters():
            setattr(made, name, nn.Parameter(parameter.detach(), parameter.requires_grad))
        made.train(conv.training)
        return made

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() not in (3, 4) or x.shape[-3] != self.in_features:
            raise ValueError(
                f"x: sizes {tuple(x.shape)} given, must be (N, {self.in_features}, H, W) or without N"
            )
        return super().forward(_channels_last(x)).movedim(-1, -3)


def _channels_last(x: Tensor) -> Tensor:
    """(..., H, W, C) without gaps."""
    moved = x.movedim(-3, -1)
    return moved if moved.is_contiguous() else moved.contiguous()
