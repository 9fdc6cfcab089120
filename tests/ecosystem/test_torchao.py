"""torchao beside KSLinear: left as it is, or refused; never half-quantized."""

import copy

import pytest
import torch
from kronsparse.torch import KSLinear, quantize_int8
from torch import nn
from torchao.quantization import Int8WeightOnlyConfig, quantize_


def make():
    torch.manual_seed(0)
    return nn.Sequential(KSLinear(64, 64), nn.Linear(64, 64))


def test_a_layer_is_left_as_it_is():
    model = make()
    before = copy.deepcopy(model[0])
    quantize_(model, Int8WeightOnlyConfig())
    assert type(model[1].weight).__name__ == "Int8Tensor"
    for mine, theirs in zip(model[0].parameters(), before.parameters(), strict=True):
        assert type(mine) is nn.Parameter
        assert torch.equal(mine, theirs)
    assert model(torch.ones(2, 64)).shape == (2, 64)


def test_a_filter_that_takes_it_is_refused():
    model = make()
    with pytest.raises(AttributeError, match=r"weight: cannot be assigned.*quantize_int8"):
        quantize_(model, Int8WeightOnlyConfig(), filter_fn=lambda module, name: isinstance(module, KSLinear))
    torch.testing.assert_close(model[0](torch.ones(64)), make()[0](torch.ones(64)))


def test_both_quantizers_in_one_model():
    model = make()
    quantize_int8(model)
    quantize_(model, Int8WeightOnlyConfig())
    close = make()(torch.ones(2, 64))
    torch.testing.assert_close(model(torch.ones(2, 64)), close, rtol=0.05, atol=0.05)
