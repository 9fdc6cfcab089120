"""Tests that need a GPU: the same answers and gradients there, streams, graphs, autocast."""

import copy

import kronsparse
import numpy as np
import pytest
import torch
from conftest import LAYOUTS, PATTERNS, dense_factor, expected, input_of
from kronsparse.torch import KSLinear, _operators, ks_linear, memory_info
from kronsparse.torch._library import SETTINGS
from torch import library

pytestmark = pytest.mark.gpu

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64]
SIZES = [*PATTERNS, (4, 64, 64, 16), (1, 128, 96, 8), (64, 48, 48, 1)]
MONARCH = "monarch(blocks=32)"


def multiply(x, values, bias=None, layout="batch_first"):
    return _operators.linear(x, [values], bias, SETTINGS["none", layout, "fp32"])


def tolerance(dtype):
    return {torch.float16: 5e-3, torch.bfloat16: 3e-2, torch.float64: 1e-10}.get(dtype, 1e-4)


@pytest.fixture(autouse=True)
def _on_the_gpu():
    with torch.device("cuda"):
        yield


def assert_near(ours, reference, dtype):
    scale = reference.abs().max().item() or 1.0
    error = (ours.to(reference.dtype) - reference).abs().max().item() / scale
    assert error <= tolerance(dtype), f"relative error {error}"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("pattern", SIZES, ids=str)
def test_products_and_gradients(pattern, layout, dtype):
    wide = torch.complex128 if dtype.is_complex else torch.float64
    values = torch.randn(pattern, dtype=dtype, requires_grad=True)
    a, b, c, d = pattern
    for batch in ((1,), (37,), (3, 100)):
        x = input_of(a * c * d, batch, layout, dtype, requires_grad=True)
        bias = torch.randn(a * b * d, dtype=dtype, requires_grad=True)
        y = multiply(x, values, bias, layout=layout)
        g = torch.randn_like(y)
        exact = [tensor.detach().to(wide).cpu().requires_grad_() for tensor in (x, values, bias)]
        matrix = einsum_matrix(exact[1])
        reference = expected(exact[0], matrix, layout, exact[2])
        assert_near(y.detach().cpu(), reference.detach(), dtype)
        theirs = torch.autograd.grad(reference, exact, g.to(wide).cpu())
        for one, other in zip(torch.autograd.grad(y, (x, values, bias), g), theirs, strict=True):
            assert_near(one.cpu(), other, dtype)


def einsum_matrix(values):
    a, b, c, d = values.shape
    eye_a, eye_d = (torch.eye(n, dtype=values.dtype, device="cpu") for n in (a, d))
    return torch.einsum("ibcj,im,jn->ibjmcn", values, eye_a, eye_d).reshape(a * b * d, a * c * d)


def test_einsum_matrix_is_the_definition():
    values = torch.randn(2, 3, 4, 5, device="cpu")
    assert torch.equal(einsum_matrix(values), dense_factor(values))


def test_strided_inputs():
    values = torch.randn(2, 3, 4, 5)
    wide = torch.randn(64, 50)
    y, reference = (multiply(x, values) for x in (wide[:, 5:45], wide[:, 5:45].clone()))
    torch.testing.assert_close(y, reference, rtol=1e-4, atol=1e-4)  # the kernels may differ


def test_gradcheck():
    x = torch.randn(5, 8, dtype=torch.float64, requires_grad=True)
    values = torch.randn(2, 3, 2, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, v: multiply(x, v), (x, values))
    assert torch.autograd.gradgradcheck(lambda x, v: multiply(x, v), (x, values))


def test_opcheck():
    x, values = torch.randn(5, 8, requires_grad=True), torch.randn(2, 3, 2, 2, requires_grad=True)
    library.opcheck(torch.ops.kronsparse.linear.default, (x, [values], None, 0, 0))
    library.opcheck(torch.ops.kronsparse.linear.default, (x, [torch.randn(1, 3, 4, 3), values], None, 0, 0))


@pytest.mark.parametrize("is_frozen", [False, True])
def test_side_streams_see_the_values_of_their_own_order(is_frozen):
    layer = KSLinear(1024, 1024, MONARCH, bias=False, backend="kernel", dtype=torch.float16)
    x = torch.randn(2048, 1024, dtype=torch.float16)
    streams = [torch.cuda.Stream() for _ in range(3)]
    with torch.no_grad():
        for step in range(10):
            layer.unfreeze()
            layer.factor0.mul_(-1)
            if is_frozen:
                layer.freeze()
            reference = ks_linear(x, layer.factors)
            outputs = []
            for stream in streams:
                stream.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(stream):
                    outputs.append((layer(x), ks_linear(x, layer.factors)))
            torch.cuda.synchronize()
            for one, other in outputs:
                torch.testing.assert_close(one, reference, rtol=1e-2, atol=1e-2)
                assert torch.equal(other, reference), step


def warm_up(function, *inputs):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            function(*inputs)
    torch.cuda.current_stream().wait_stream(side)


def captured(layer, x):
    """A graph of the layer's call, and where its replays leave y."""
    warm_up(layer, x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = layer(x)
    return graph, y


@pytest.mark.parametrize("is_frozen", [False, True])
def test_cuda_graph(is_frozen):
    layer = KSLinear(1024, 1024, MONARCH, backend="kernel", dtype=torch.float16)
    if is_frozen:
        layer.freeze()
    x = torch.randn(256, 1024, dtype=torch.float16)
    with torch.no_grad():
        graph, y = captured(layer, x)
        for _ in range(3):
            x.normal_()
            graph.replay()
            torch.testing.assert_close(y, layer(x))
        if not is_frozen:  # replays see what became of the values, however they were changed
            layer.factor0.data.mul_(-2)
            graph.replay()
            torch.testing.assert_close(y, layer(x))


def test_what_a_graph_was_captured_with_outlives_the_layer():
    layer = KSLinear(1024, 1024, MONARCH, backend="kernel", dtype=torch.float16).freeze()
    x = torch.randn(256, 1024, dtype=torch.float16)
    with torch.no_grad():
        graph, y = captured(layer, x)
        reference = layer(x)
        del layer
        kept = memory_info().packed_bytes
        others = [torch.full((1 << 20,), float("nan"), dtype=torch.float16) for _ in range(64)]
        graph.replay()
        torch.testing.assert_close(y, reference)
        assert kept > 0 and len(others) == 64


@pytest.mark.parametrize("is_frozen", [False, True])
def test_capture_without_a_call_before(is_frozen):
    """Values are then packed inside the graph, frozen or not."""
    layer = KSLinear(512, 512, MONARCH, backend="kernel", dtype=torch.float16)
    if is_frozen:
        layer.freeze()
    x = torch.randn(77, 512, dtype=torch.float16)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad():
        with torch.cuda.graph(graph):
            y = layer(x)
        graph.replay()
        torch.testing.assert_close(y, ks_linear(x, layer.factors, layer.bias), rtol=1e-2, atol=1e-2)


def test_training_with_autocast_reaches_the_loss_of_dense_products():
    torch.manual_seed(0)
    layer = KSLinear(256, 256, "monarch(blocks=16)", backend="kernel")
    twin = copy.deepcopy(layer)
    twin.backend = "dense"
    x, target = torch.randn(512, 256), torch.randn(512, 256)
    losses = {}
    for name, model in (("kernel", layer), ("dense", twin)):
        optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
        losses[name] = []
        for _ in range(10):
            optimiser.zero_grad()
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = (model(x).float() - target).square().mean()
            loss.backward()
            optimiser.step()
            losses[name].append(loss.item())
    assert losses["kernel"] == pytest.approx(losses["dense"], rel=2e-2)
    assert losses["kernel"][-1] < losses["kernel"][0]


def test_training_makes_no_new_plans_and_keeps_no_memory():
    layer = KSLinear(512, 512, MONARCH, backend="kernel", dtype=torch.float16)
    optimiser = torch.optim.SGD(layer.parameters(), lr=1e-3)
    x = torch.randn(128, 512, dtype=torch.float16, requires_grad=True)
    seen = []
    for _ in range(5):
        layer(x).float().square().mean().backward()
        optimiser.step()
        seen.append((memory_info(), torch.cuda.memory_allocated()))
    assert seen[1] == seen[-1]
    assert memory_info().packed_bytes == seen[0][0].packed_bytes


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_auto_measures_once_and_gives_the_same(dtype):
    layer = KSLinear(384, 1536, "monarch(blocks=4)", dtype=dtype, activation="gelu").freeze()
    twin = copy.deepcopy(layer)
    twin.backend = "kernel"
    with torch.no_grad():
        for batch in (1, 64, 25088):
            x = torch.randn(batch, 384, dtype=dtype)
            torch.testing.assert_close(layer(x), twin(x), rtol=2e-2, atol=2e-2)
            chosen = layer._frozen.choices[x.numel(), dtype]
            assert layer.explain(batch).startswith(chosen)


def test_compiled():
    torch._dynamo.reset()
    layer = KSLinear(512, 512, MONARCH, backend="kernel", dtype=torch.float16, activation="gelu")
    compiled = torch.compile(layer, fullgraph=True)
    x = torch.randn(64, 512, dtype=torch.float16, requires_grad=True)
    torch.testing.assert_close(compiled(x), layer(x), rtol=1e-2, atol=1e-2)
    compiled(x).float().square().mean().backward()


def test_new_values_wait_for_runs_on_other_streams():
    layer = KSLinear(4096, 4096, chain=MONARCH, bias=False, dtype=torch.float16).requires_grad_(False)
    layer.backend = "kernel"
    x = torch.randn(20000, 4096, dtype=torch.float16)
    before = layer(x)
    other = torch.cuda.Stream()
    other.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(other):
        results = [layer(x) for _ in range(4)]
    layer.factor0.mul_(-1)  # packed by the next call, on this stream
    after = layer(x)
    torch.cuda.synchronize()
    for result in results:
        assert torch.equal(result, before)
    assert torch.equal(after, -before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64, torch.complex128])
@pytest.mark.parametrize("text", ["butterfly", "monarch(blocks=8, rank=2)", "low_rank(rank=5)"])
def test_factorisation_on_the_gpu(text, dtype):
    w = torch.randn(64, 64, dtype=dtype)
    on_gpu = kronsparse.torch.factorize(w.cuda(), text, polish=2)
    on_cpu = kronsparse.factorize(w.numpy(), text, polish=2)
    rounding = 1e-5 if dtype in (torch.float32, torch.complex64) else 1e-12
    assert all(values.is_cuda for values in on_gpu.factors)
    assert on_gpu.error == pytest.approx(on_cpu.error, abs=rounding)
    assert on_gpu.lower_bound == pytest.approx(on_cpu.lower_bound, abs=rounding)
    assert on_gpu.upper_bound == pytest.approx(on_cpu.upper_bound, abs=rounding)
    through_numpy = kronsparse.factorize(w.numpy(), text, polish=2, device="cuda")
    assert through_numpy.error == pytest.approx(on_cpu.error, abs=rounding)


@pytest.mark.parametrize("noise", [0, 1e-12, 1e-9, 1e-5])
@pytest.mark.parametrize("order", ["left", "right"])
def test_the_certificate_holds_on_the_gpu_however_near_w_is(order, noise):
    chain = kronsparse.butterfly(256)
    rng = np.random.default_rng(0)
    w = kronsparse.KSOperator([rng.normal(size=one) / np.sqrt(one.c) for one in chain]).to_dense()
    w += noise * np.linalg.norm(w) / 256 * rng.normal(size=w.shape)
    found = kronsparse.factorize(w, chain, order, device="cuda")
    error = np.linalg.norm(w - found.operator.to_dense()) / np.linalg.norm(w)
    assert found.error == pytest.approx(error, abs=1e-14)
    assert found.lower_bound <= found.error <= found.upper_bound
    assert noise < 1e-11 or found.lower_bound > 0.3 * found.error
    assert found.error < 2 * noise + 1e-13


class Foreign:
    """An array of a library that only has DLPack."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **options):
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


@pytest.mark.parametrize("dtype", DTYPES)
def test_dlpack_on_both_sides_of_operators(dtype):
    rng = np.random.default_rng(0)
    factors = [rng.normal(size=one).astype(np.float32) for one in kronsparse.monarch(48, 64, 4)]
    for op in (kronsparse.KSOperator(factors), kronsparse.KSOperator([one * (1 + 1j) for one in factors])):
        dense = torch.from_numpy(op.to_dense()).cuda().to(torch.complex128)

        def check(y, expected):
            assert y.is_cuda
            torch.testing.assert_close(y.to(torch.complex128), expected, rtol=1e-2, atol=1e-2)

        for shape in ((64,), (64, 5), (3, 64, 5)):
            x = torch.randn(shape, dtype=dtype)
            wide = x.to(torch.complex128)
            check(op @ x, dense @ wide)
            check(op @ x.conj(), dense @ wide.conj())
            check(op @ Foreign(x), dense @ wide)
        for shape in ((48,), (5, 48), (3, 5, 48)):
            x = torch.randn(shape, dtype=dtype)
            wide = x.to(torch.complex128)
            check(x @ op, wide @ dense)
            check(op.__rmatmul__(Foreign(x)), wide @ dense)
        x = torch.randn(48, 5, dtype=dtype)
        check(op.H @ x, dense.mH @ x.to(torch.complex128))


@pytest.mark.parametrize("shape", [(64,), (64, 5), (3, 64, 5)])
def test_operators_take_arrays_on_the_gpu(shape):
    op = kronsparse.KSOperator(
        [np.random.default_rng(0).normal(size=one) for one in kronsparse.monarch(64, 64)]
    )
    x = torch.randn(shape, dtype=torch.float64, device="cuda")
    y = op @ x
    assert y.is_cuda
    np.testing.assert_allclose(y.cpu().numpy(), op.to_dense() @ x.cpu().numpy(), atol=1e-12)
