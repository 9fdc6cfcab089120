"""A network of KSLinear and the same network through dense products, step for step."""

import pytest
import torch
from conftest import dense_product
from kronsparse.torch import KSLinear
from torch import nn
from torch.nn import functional


class DenseProducts(nn.Module):
    """The same parameters; every product written out."""

    def __init__(self, layer):
        super().__init__()
        self.factors = nn.ParameterList(values.detach().clone() for values in layer.factors)
        self.bias = nn.Parameter(layer.bias.detach().clone())

    def forward(self, x):
        return functional.linear(x, dense_product(list(self.factors)), self.bias)


@pytest.mark.parametrize(
    "make_optimiser",
    [
        lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
        lambda parameters: torch.optim.AdamW(parameters, lr=3e-2),
        lambda parameters: torch.optim.AdamW(parameters, lr=3e-2, fused=True),
    ],
    ids=["sgd", "adamw", "adamw_fused"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_step_for_step_as_dense_products(dtype, make_optimiser):
    layers = [
        KSLinear(8, 16, "monarch(blocks=2)", backend="kernel", dtype=dtype),
        KSLinear(16, 4, [(1, 4, 8, 1), (2, 2, 4, 2)], backend="kernel", dtype=dtype),
    ]
    ours = nn.Sequential(layers[0], nn.GELU(), layers[1])
    theirs = nn.Sequential(DenseProducts(layers[0]), nn.GELU(), DenseProducts(layers[1]))
    x = torch.randn(64, 8, dtype=dtype)
    target = x @ torch.randn(8, 4, dtype=dtype)
    optimisers = [make_optimiser(network.parameters()) for network in (ours, theirs)]
    losses = []
    for _ in range(25):
        step = []
        for network, optimiser in zip((ours, theirs), optimisers, strict=True):
            optimiser.zero_grad()
            loss = functional.mse_loss(network(x), target)
            loss.backward()
            optimiser.step()
            step.append(loss.item())
        losses.append(step)
        assert step[0] == pytest.approx(step[1], rel=1e-10 if dtype == torch.float64 else 1e-3)
    assert losses[-1][0] < 0.8 * losses[0][0], "it must learn something"
