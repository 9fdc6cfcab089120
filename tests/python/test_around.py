"""The surroundings of an nn.Linear: exporters, tracers, quantizers, optimisers, images."""

import copy

import pytest
import torch
from kronsparse.torch import KSConv1x1, KSLinear, KSMuon, decompositions, quantize_int8, to_dense
from kronsparse.torch.exporting import linear_by_einsum
from torch import nn


def model():
    return nn.Sequential(
        KSLinear(16, 24, "monarch(blocks=4)", activation="gelu"),
        nn.ReLU(),
        KSLinear(24, 8, "low_rank(rank=3)", bias=False),
    ).eval()


# Exporting and tracing.


@pytest.mark.parametrize("settings", range(4))
def test_decompositions_compute_the_same(settings):
    from kronsparse.torch._library import ADJOINT, SETTINGS

    layout = ("batch_first", "batch_last")[settings % 2]
    adjoint = settings >= 2
    factors = [torch.randn(1, 6, 4, 4), torch.randn(4, 4, 4, 1)]
    features = 24 if adjoint else 16
    x = torch.randn((5, features) if layout == "batch_first" else (features, 5))
    bias = None if adjoint else torch.randn(24)
    number = SETTINGS["none" if adjoint else "silu", layout, "fp32"] | (ADJOINT if adjoint else 0)
    wanted = torch.ops.kronsparse.linear(x, factors, bias, number, 0)
    torch.testing.assert_close(linear_by_einsum(x, factors, bias, number), wanted, rtol=1e-4, atol=1e-4)


def test_exported_programs_are_decomposed():
    layers, x = model(), torch.randn(5, 16)
    program = torch.export.export(layers, (x,)).run_decompositions(decompositions())
    assert "kronsparse" not in str(program.graph)
    torch.testing.assert_close(program.module()(x), layers(x), rtol=1e-4, atol=1e-5)


def test_export_to_onnx_sees_no_operator_of_ours(monkeypatch):
    """The graph that exporters see; tests/ecosystem exports, and runs the result."""
    layers, x = model(), torch.randn(5, 16)
    monkeypatch.setattr(torch.onnx, "is_in_onnx_export", lambda: True)
    assert "kronsparse" not in str(torch.export.export(layers, (x,)).graph)
    monkeypatch.setattr(torch.onnx, "is_in_onnx_export", lambda: False)
    assert "kronsparse" in str(torch.export.export(layers, (x,)).graph)


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("grad", [False, True])
def test_fx_traces_a_layer_as_one_node(frozen, grad):
    layers = model()
    if frozen:
        layers[0].freeze()
    with torch.set_grad_enabled(grad):
        traced = torch.fx.symbolic_trace(layers)
        x = torch.randn(5, 16)
        assert [node.op for node in traced.graph.nodes].count("call_module") == 3
        assert torch.equal(traced(x), layers(x))


@pytest.mark.parametrize("what", [model, lambda: KSLinear(8, 8)])
def test_scripting_is_refused_with_a_way_out(what):
    with pytest.raises(RuntimeError, match=r"cannot compile a KSLinear; torch\.jit\.trace"):
        torch.jit.script(what())


# Quantizers.


@pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated", "ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*quantiz.*:UserWarning:torch")
def test_dynamic_quantization_says_that_it_leaves_the_layer():
    layers = nn.Sequential(KSLinear(8, 8), nn.Linear(8, 8))
    with pytest.warns(UserWarning, match="leaves a KSLinear as it is; kronsparse.torch.quantize_int8"):
        try:
            made = torch.ao.quantization.quantize_dynamic(layers, {nn.Linear}, torch.qint8)
        except RuntimeError:  # a torch or a CPU without an engine for nn.Linear, which is its matter
            return
    assert isinstance(made[0], KSLinear)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_int8(dtype):
    layers = model().to(dtype)
    x = torch.randn(50, 16).to(dtype)
    wanted = layers(x)
    small = quantize_int8(copy.deepcopy(layers))
    error = (small(x) - wanted).float().norm() / wanted.float().norm()
    assert 0 < error < (0.02 if dtype == torch.float32 else 0.03)
    held = [values for values in small.state_dict().values() if values.dtype == torch.int8]
    count = sum(one.numel() for one in (*layers[0].factors, *layers[2].factors))
    assert sum(values.numel() for values in held) == count
    other = quantize_int8(model().to(dtype))
    other.load_state_dict(small.state_dict())
    assert torch.equal(other(x), small(x))
    with pytest.raises(ValueError, match="its factor0 is computed"):
        quantize_int8(small)
    with pytest.raises(ValueError, match="has no KSLinear"):
        quantize_int8(nn.Linear(2, 2))


def test_int8_of_zeros_and_of_complex_numbers():
    layer = KSLinear(8, 8)
    with torch.no_grad():
        layer.factor0.zero_()
    assert torch.isfinite(quantize_int8(layer)(torch.ones(1, 8))).all()
    with pytest.raises(ValueError, match="not real"):
        quantize_int8(KSLinear(8, 8, dtype=torch.complex64))


# Muon.


@pytest.mark.parametrize("sizes", [(8, 8), (12, 5), (5, 12)])
@pytest.mark.parametrize("options", [{}, {"nesterov": False, "adjust_lr_fn": "match_rms_adamw"}])
def test_muon_is_that_of_torch_for_matrices(sizes, options):
    matrix = nn.Parameter(torch.randn(sizes))
    factor = nn.Parameter(matrix.detach().clone()[None, :, :, None])
    flat = nn.Parameter(matrix.detach().clone())
    theirs = torch.optim.Muon([matrix], lr=0.1, **options)
    ours = KSMuon([factor, flat], lr=0.1, **options)
    for _ in range(3):
        g = torch.randn(sizes)
        matrix.grad, factor.grad, flat.grad = g, g[None, :, :, None].clone(), g.clone()
        theirs.step(), ours.step()
    torch.testing.assert_close(factor[0, :, :, 0], matrix, rtol=0.02, atol=0.02)
    torch.testing.assert_close(flat, matrix, rtol=0.02, atol=0.02)


def test_muon_orthogonalises_each_block():
    factor = nn.Parameter(torch.zeros(2, 8, 8, 3))
    factor.grad = torch.randn(2, 8, 8, 3)
    KSMuon([factor], lr=1.0, weight_decay=0).step()
    singular = torch.linalg.svdvals(factor.detach().permute(0, 3, 1, 2))
    assert singular.shape == (2, 3, 8)
    assert singular.min() > 0.3 and singular.max() < 1.5


def test_muon_trains_and_refuses():
    layer = KSLinear(64, 64)
    optimiser = KSMuon(layer.factors, lr=0.02, weight_decay=0)
    x = torch.randn(64, 64)
    losses = []
    for _ in range(10):
        loss = (layer(x) - x).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss))
    assert losses[-1] < 0.9 * losses[0]
    with pytest.raises(ValueError, match=r"params: sizes \(64,\) given"):
        KSMuon(layer.parameters())
    with pytest.raises(ValueError, match="lr: -1 given"):
        KSMuon(layer.factors, lr=-1)


# Images.


@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last])
def test_convolution(memory):
    conv = nn.Conv2d(16, 24, 1)
    layer = KSConv1x1.from_conv(conv, "dense")
    x = torch.randn(3, 16, 5, 6).contiguous(memory_format=memory).requires_grad_()
    y = layer(x)
    torch.testing.assert_close(y, conv(x), rtol=1e-4, atol=1e-5)
    assert y.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(layer(x[0]), conv(x[0]), rtol=1e-4, atol=1e-5)
    (found,) = torch.autograd.grad(y.square().sum(), x)
    (wanted,) = torch.autograd.grad(conv(x).square().sum(), x)
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-4)


def test_convolution_reads_channels_last_in_place(monkeypatch):
    layer = KSConv1x1(16, 24)
    x = torch.randn(3, 16, 5, 6).contiguous(memory_format=torch.channels_last)
    seen = []

    def forward(self, x):
        seen.append(x.data_ptr())
        return torch.zeros(3, 5, 6, 24)

    monkeypatch.setattr(KSLinear, "forward", forward)
    layer(x)
    assert seen == [x.data_ptr()]


def test_convolutions_come_back():
    conv = nn.Conv2d(16, 24, 1, bias=False)
    layer = KSConv1x1.from_conv(conv, "low_rank(rank=4)")
    dense = to_dense(nn.Sequential(layer))[0]
    assert isinstance(dense, nn.Conv2d) and dense.weight.shape == (24, 16, 1, 1)
    x = torch.randn(3, 16, 5, 6)
    torch.testing.assert_close(dense(x), layer(x), rtol=1e-4, atol=1e-5)
    with pytest.warns(UserWarning, match="factorised"):
        KSConv1x1(16, 24, "low_rank(rank=4)", bias=False).load_state_dict(conv.state_dict())


@pytest.mark.parametrize(
    "conv", [nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 1, stride=2), nn.Conv2d(4, 4, 1, groups=2)]
)
def test_other_convolutions_are_refused(conv):
    with pytest.raises(ValueError, match="must have a kernel and a stride of 1"):
        KSConv1x1.from_conv(conv)


def test_wrong_images_are_refused():
    with pytest.raises(ValueError, match=r"x: sizes \(2, 5, 7, 7\) given, must be \(N, 4, H, W\)"):
        KSConv1x1(4, 4)(torch.ones(2, 5, 7, 7))
