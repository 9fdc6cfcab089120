"""Linear layers of a model, found and replaced: by products of factors, and by the forms these are timed
beside."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from kronsparse.chains import Chain
from kronsparse.torch import KSLinear, freeze
from kronsparse.torch.backends import STEPS, to_dense

REST = "rest"  # everything but the replaced layers
CONTENDERS = ("dense", "auto", "kernel", "bmm", REST)


def sizes_of(layer: nn.Module) -> tuple[int, int] | None:
    """in_features and out_features of nn.Linear, and of GPT-2's layer, whose weight is transposed.

    >>> sizes_of(nn.Linear(8, 16)), sizes_of(nn.GELU())
    ((8, 16), None)
    """
    if isinstance(layer, nn.Linear):
        return layer.in_features, layer.out_features
    if type(layer).__name__ == "Conv1D":
        weight: Any = layer.weight
        return int(weight.shape[0]), int(weight.shape[1])
    return None


def linear_layers(model: nn.Module) -> dict[str, tuple[int, int]]:
    """in_features and out_features of every linear layer, by its name in the model.

    >>> linear_layers(nn.Sequential(nn.Linear(8, 16), nn.GELU()))
    {'0': (8, 16)}
    """
    found = {name: sizes_of(layer) for name, layer in model.named_modules()}
    return {name: sizes for name, sizes in found.items() if sizes is not None}


def sharing_copy(model: nn.Module) -> nn.Module:
    """A copy whose layers can be replaced, with the parameters and buffers of the model itself."""
    kept = {id(one): one for one in (*model.parameters(), *model.buffers())}
    copied: nn.Module = copy.deepcopy(model, kept)
    return copied


def replace_layer(model: nn.Module, name: str, layer: nn.Module) -> None:
    """Puts the layer in the place of the one of that name."""
    parent, _, last = name.rpartition(".")
    setattr(model.get_submodule(parent), last, layer)


class BmmLinear(nn.Module):
    """A product of factors by torch.bmm between permutations, its weights prepared beforehand."""

    def __init__(self, layer: KSLinear) -> None:
        super().__init__()
        self.chain, self.bias = layer.chain, layer.bias
        with torch.no_grad():
            self.blocks = [STEPS["bmm"].prepare(values.detach()) for values in layer.factors]

    def forward(self, x: Tensor) -> Tensor:
        for pattern, blocks in zip(reversed(self.chain), reversed(self.blocks), strict=True):
            x = STEPS["bmm"].multiply(x, blocks, pattern, "batch_first")
        return x if self.bias is None else x + self.bias


class Nothing(nn.Module):
    """A layer that takes no time: its output was there before it was called."""

    def __init__(self, layer: KSLinear) -> None:
        super().__init__()
        self.out_features = layer.out_features
        self._made: dict[tuple[int, ...], Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        shape = (*x.shape[:-1], self.out_features)
        if shape not in self._made:
            self._made[shape] = 0.02 * torch.randn(shape, device=x.device, dtype=x.dtype)
        return self._made[shape]


class Replaced:
    """A model in which some linear layers are products of factors, in every form that is timed.

    The factors are drawn anew. The model itself gets their dense products for weights, so that all forms
    compute the same but for roundings.
    """

    def __init__(self, dense: nn.Module, chains: Mapping[str, Chain]) -> None:
        self.dense, self.chains = dense, dict(chains)
        self.layers: dict[str, KSLinear] = {}
        for name, chain in self.chains.items():
            linear = dense.get_submodule(name)
            weight: Any = linear.weight
            bias: Any = getattr(linear, "bias", None)
            layer = KSLinear(
                chain.cols, chain.rows, chain, bias is not None, device=weight.device, dtype=weight.dtype
            )
            if layer.bias is not None:
                layer.bias = bias
            self.layers[name] = layer.requires_grad_(False)
            set_weight(linear, product_of(layer, torch.float32))

    @property
    def parameters(self) -> tuple[int, int]:
        """Weights of the replaced layers: as factors, and dense."""
        chains = self.chains.values()
        return sum(chain.nnz for chain in chains), sum(chain.rows * chain.cols for chain in chains)

    def form(self, contender: str) -> nn.Module:
        """The model as one of CONTENDERS. Its parameters are shared by all."""
        if contender == "dense":
            return self.dense
        made: dict[str, Callable[[KSLinear], nn.Module]] = {
            "auto": lambda layer: _with_backend(layer, "auto"),
            "kernel": lambda layer: _with_backend(layer, "kernel"),
            "bmm": BmmLinear,
            REST: Nothing,
        }
        model = sharing_copy(self.dense)
        for name, layer in self.layers.items():
            replace_layer(model, name, made[contender](layer))
        return freeze(model.eval()) if contender in ("auto", "kernel") else model.eval()

    def reference(self, dtype: torch.dtype) -> nn.Module:
        """The dense form in a wider dtype, from products of the factors in that dtype."""
        model = copy.deepcopy(self.dense).to(dtype)
        for name, layer in self.layers.items():
            set_weight(model.get_submodule(name), product_of(layer, dtype))
        return model.eval()

    @property
    def longest(self) -> int:
        """The number of factors of the longest chain."""
        return max(map(len, self.chains.values()), default=1)


def _with_backend(layer: KSLinear, backend: str) -> KSLinear:
    made = sharing_copy(layer)
    assert isinstance(made, KSLinear)
    made.backend = backend
    return made


def product_of(layer: KSLinear, dtype: torch.dtype) -> Tensor:
    """The dense matrix of a layer, multiplied out in this dtype."""
    return to_dense([values.detach().to(dtype) for values in layer.factors])


def set_weight(linear: nn.Module, matrix: Tensor) -> None:
    """Gives a linear layer the matrix for its weight, in its own dtype."""
    weight: Any = linear.weight
    with torch.no_grad():
        weight.copy_(matrix if isinstance(linear, nn.Linear) else matrix.t())


def taken_backends(model: nn.Module, batch: int) -> dict[str, int]:
    """How many layers of a model take which backend for so many samples."""
    layers = [layer for layer in model.modules() if isinstance(layer, KSLinear)]
    return dict(Counter(layer.explain(batch).split(":")[0] for layer in layers))
