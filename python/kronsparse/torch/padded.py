"""A KSLinear of a larger size for sizes that have too few divisors, a vocabulary of 50,257 for one."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from kronsparse.chains import ChainLike, padded_size
from kronsparse.checks import check_size
from kronsparse.torch.linear import KSLinear


class PaddedKSLinear(nn.Module):
    """y = W x + bias, W being the upper left part of a KSLinear whose sizes are multiples of `multiple`.

    Inputs are filled up with zeros, and outputs beyond `out_features` are left out. Other arguments are those
    of KSLinear, for layout "batch_first".

    >>> import torch
    >>> layer = PaddedKSLinear(768, 50257, 64, "monarch(blocks=64)")
    >>> layer.linear.out_features
    50304
    >>> layer(torch.ones(2, 768)).shape
    torch.Size([2, 50257])
    """

    def __init__(
        self, in_features: int, out_features: int, multiple: int, chain: ChainLike = "monarch", **options: Any
    ) -> None:
        super().__init__()
        check_size("in_features", in_features)
        check_size("out_features", out_features)
        if options.get("layout", "batch_first") != "batch_first":
            raise ValueError(f"layout: {options['layout']!r} given, must be 'batch_first'")
        self.in_features, self.out_features = int(in_features), int(out_features)
        inputs, outputs = padded_size(in_features, multiple), padded_size(out_features, multiple)
        self.linear = KSLinear(inputs, outputs, chain, **options)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-1:] != (self.in_features,):
            raise ValueError(f"x: sizes {tuple(x.shape)} given, the last must be {self.in_features}")
        y: Tensor = self.linear(functional.pad(x, (0, self.linear.in_features - self.in_features)))
        return y[..., : self.out_features]

    def to_dense(self) -> Tensor:
        """W, the out_features x in_features matrix; differentiable."""
        return self.linear.to_dense()[: self.out_features, : self.in_features]

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}"
