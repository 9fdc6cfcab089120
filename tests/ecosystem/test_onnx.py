"""Models with chains exported to ONNX, and run."""

import io

import numpy as np
import onnxruntime
import pytest
import torch
from kronsparse.torch import KSLinear, decompositions
from torch import nn


def model(**options):
    return nn.Sequential(
        KSLinear(16, 24, "monarch(blocks=4)", activation="gelu", **options),
        nn.LayerNorm(24),
        KSLinear(24, 8, "low_rank(rank=3)", bias=False, **options),
    ).eval()


def run(data, x):
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: x.numpy()})[0]


@pytest.mark.parametrize("dynamo", [True, False])
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
def test_export(dynamo, frozen):
    layers, x = model(), torch.randn(5, 16)
    if frozen:
        layers[0].freeze(), layers[2].freeze()
    file = io.BytesIO()
    torch.onnx.export(layers, (x,), file, dynamo=dynamo, verbose=False)
    with torch.no_grad():
        np.testing.assert_allclose(run(file.getvalue(), x), layers(x).numpy(), rtol=1e-3, atol=1e-4)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
def test_any_batch():
    layers, x = model(), torch.randn(5, 16)
    file = io.BytesIO()
    shapes = ({0: torch.export.Dim("batch")},)
    torch.onnx.export(layers, (x,), file, dynamo=True, dynamic_shapes=shapes, verbose=False)
    other = torch.randn(9, 16)
    with torch.no_grad():
        np.testing.assert_allclose(run(file.getvalue(), other), layers(other).numpy(), rtol=1e-3, atol=1e-4)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
def test_an_exported_program():
    layers, x = model(), torch.randn(5, 16)
    program = torch.export.export(layers, (x,)).run_decompositions(decompositions())
    file = io.BytesIO()
    torch.onnx.export(program, (), file, dynamo=True, verbose=False)
    with torch.no_grad():
        np.testing.assert_allclose(run(file.getvalue(), x), layers(x).numpy(), rtol=1e-3, atol=1e-4)
