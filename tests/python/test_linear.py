"""KSLinear and ks_linear: what a user of nn.Linear expects."""

import copy
import gc
import io
import math
import pickle
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch
import torch.nn.utils.parametrize
from conftest import LAYOUTS, dense_product, expected, input_of
from kronsparse.torch import (
    BACKENDS,
    KSLinear,
    backends,
    ks_linear,
    to_dense,
)
from torch.nn import functional

CHAINS = ["monarch(blocks=4)", "low_rank(rank=3)", "dense", [(1, 6, 4, 4), "4x4x4x1"], "1x24x8x1*8x1x2x1"]
ACTIVATIONS = {
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "silu": functional.silu,
}


def make(chain="monarch(blocks=4)", **options):
    return KSLinear(16, 24, chain, **{"dtype": torch.float64, **options})


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("chain", CHAINS, ids=str)
@pytest.mark.parametrize("backend", [*BACKENDS, "auto"])
def test_every_backend_gives_the_dense_product(backend, chain, layout):
    layer = make(chain, layout=layout, backend=backend)
    for batch in ((), (7,), (2, 3), (2, 0, 3)):
        x = input_of(16, batch, layout, torch.float64)
        with torch.no_grad():
            try:
                y = layer(x)
            except RuntimeError as error:
                if backend == "bsr" and "MKL" in str(error):
                    pytest.skip("torch multiplies BSR matrices on a CPU with MKL only")
                raise
        torch.testing.assert_close(y, expected(x, dense_product(layer.factors), layout, layer.bias).detach())


@pytest.mark.parametrize("backend", ["kernel", "bmm", "einsum", "dense"])
@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients_are_those_of_the_dense_product(layout, activation, backend):
    layer = make(layout=layout, activation=activation, backend=backend)
    x = input_of(16, (3, 2), layout, torch.float64, requires_grad=True)
    y = layer(x)
    g = torch.randn_like(y)
    inputs = [x, *layer.parameters()]
    reference = expected(x, dense_product(layer.factors), layout, layer.bias)
    if activation:
        reference = ACTIVATIONS[activation](reference)
    torch.testing.assert_close(y, reference)
    for ours, theirs in zip(
        torch.autograd.grad(y, inputs, g), torch.autograd.grad(reference, inputs, g), strict=True
    ):
        torch.testing.assert_close(ours, theirs)
    with torch.no_grad():
        torch.testing.assert_close(layer(x), reference.detach())  # fused


@pytest.mark.parametrize("shape", [(1, 8, 8, 3), (2, 4, 6, 3), (3, 4, 2, 1), (2, 3, 5, 2)])
def test_the_blocks_of_bsr(shape):
    values = torch.randn(shape)
    matrix = backends._bsr_matrix(values)
    assert torch.equal(matrix.to_dense(), torch.block_diag(*backends._blocks(values)))
    assert matrix.values().is_contiguous()  # or cuSPARSE refuses


@pytest.mark.parametrize("backend", ["bsr", "sparse"])
def test_backends_without_a_gradient_say_so(backend):
    with pytest.raises(NotImplementedError, match=f"{backend}.*no gradient"):
        make(backend=backend)(torch.randn(2, 16, dtype=torch.float64))


def test_to_dense_and_from_factors():
    layer = make()
    torch.testing.assert_close(layer.to_dense(), dense_product(layer.factors))
    torch.testing.assert_close(to_dense([layer.factor0]), dense_product([layer.factor0]))
    other = KSLinear.from_factors(layer.factors, layer.bias)
    x = torch.randn(3, 16, dtype=torch.float64)
    assert torch.equal(layer(x), other(x))
    assert other.factor0 is not layer.factor0


def test_it_is_a_module_like_linear():
    layer, linear = make(), torch.nn.Linear(16, 24)
    assert [tuple(p.shape) for p in layer.factors] == [(1, 6, 4, 4), (4, 4, 4, 1)]
    assert list(layer.state_dict()) == ["factor0", "factor1", "bias"]
    assert (layer.in_features, layer.out_features) == (linear.in_features, linear.out_features)
    assert make(bias=False).bias is None
    assert "chain=1x6x4x4*4x4x4x1" in repr(layer)


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))])
def test_copies_are_apart(clone):
    layer = make(activation="gelu")
    x = torch.randn(3, 16, dtype=torch.float64)
    y = layer(x).detach()
    copied = clone(layer)
    assert torch.equal(copied(x), y)
    with torch.no_grad():
        copied.factor0.zero_()
    assert torch.equal(layer(x), y)
    assert not torch.equal(copied(x), y)


def test_saved_and_loaded():
    layer, other, file = make(), make(), io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file))
    x = torch.randn(3, 16, dtype=torch.float64)
    assert torch.equal(layer(x), other(x))


def test_to_dtype_and_meta_device():
    layer = make(dtype=torch.float32)
    x = torch.randn(3, 16)
    y = layer(x).detach()
    half = copy.deepcopy(layer).to(torch.bfloat16)
    assert half(x.bfloat16()).dtype == torch.bfloat16
    torch.testing.assert_close(half(x.bfloat16()).float(), y, rtol=0.05, atol=0.05)
    torch.testing.assert_close(layer.double()(x.double()).float(), y)
    empty = KSLinear(16, 24, "monarch(blocks=4)", device="meta")
    assert empty(torch.empty(2, 16, device="meta")).shape == (2, 24)
    empty.to_empty(device="cpu").load_state_dict(make(dtype=torch.float32).state_dict())
    assert empty(x).shape == (3, 24)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype):
    layer = make(dtype=torch.float32)
    x = torch.randn(5, 16, requires_grad=True)
    with torch.autocast("cpu", dtype=dtype):
        y = layer(x)
        direct = torch.ops.kronsparse.linear(x, [layer.factor1], None, 0, 0)
    assert y.dtype == direct.dtype == dtype
    y.float().square().sum().backward()
    assert layer.factor0.grad.dtype == layer.bias.grad.dtype == x.grad.dtype == torch.float32
    reference = copy.deepcopy(layer).to(dtype)
    torch.testing.assert_close(y, reference(x.to(dtype)))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("backend", ["kernel", "bmm", "einsum", "dense"])
def test_every_backend_gives_the_dtype_of_autocast(backend, layout):
    layer = make(dtype=torch.float32, backend=backend, layout=layout)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(input_of(16, (5,), layout, torch.float32)).dtype == torch.bfloat16


@pytest.mark.parametrize("with_grad", [False, True])
@pytest.mark.parametrize("backend", ["kernel", "bmm", "einsum", "dense"])
@pytest.mark.parametrize("bias", [False, True])
def test_every_backend_refuses_wrong_inputs_alike(backend, bias, with_grad):
    layer = make(dtype=torch.float32, backend=backend, bias=bias)
    with torch.set_grad_enabled(with_grad):
        with pytest.raises(ValueError, match=r"x: sizes .2, 15. given, the last must be in_features, 16"):
            layer(torch.ones(2, 15))
        with pytest.raises(ValueError, match=r"x: dtype torch.float16 given, must be that of the factors"):
            layer(torch.ones(2, 16).half())
        for other in (None, 1.0, torch.ones(2, 16).numpy()):
            with pytest.raises(TypeError, match=f"x: {type(other).__name__} given, must be a torch.Tensor"):
                layer(other)
    with pytest.raises(ValueError, match="x: dtype"):
        layer.to("meta")(torch.ones(2, 16, device="meta").half())


@pytest.mark.parametrize("with_grad", [False, True])
def test_inputs_on_another_device_are_refused_without_data_too(with_grad):
    with torch.set_grad_enabled(with_grad):
        with pytest.raises(RuntimeError, match=r"factors.0.: on cpu, must be where x is, on meta"):
            make(backend="kernel")(torch.ones(2, 16, dtype=torch.float64, device="meta"))
        layer = make(backend="kernel").to("meta")
        layer.bias = torch.nn.Parameter(torch.ones(24, dtype=torch.float64))
        with pytest.raises(RuntimeError, match="bias: on cpu, must be where x is, on meta"):
            layer(torch.ones(2, 16, dtype=torch.float64, device="meta"))


def test_factors_of_several_dtypes_are_for_autocast():
    factors = [torch.ones(1, 2, 4, 1), torch.ones(1, 4, 4, 1).bfloat16()]
    with torch.autocast("cpu", torch.bfloat16):
        assert ks_linear(torch.ones(2, 4), factors).dtype == torch.bfloat16


@pytest.mark.parametrize("preserving", [False, True])
def test_variance_of_a_fresh_product(preserving):
    layer = KSLinear(1024, 1024, "butterfly", bias=False)
    layer.reset_parameters(variance_preserving=preserving)
    with torch.no_grad():
        variance = layer(torch.randn(2000, 1024)).var().item()
    assert variance == pytest.approx(1 if preserving else 1 / 3, rel=0.15)
    bound = math.sqrt((3 if preserving else 3**0.9) / 2)
    assert 0.95 * bound < layer.factor0.abs().max() <= bound


def test_complex_layer():
    layer = make(dtype=torch.complex128, backend="kernel")
    x = torch.randn(3, 16, dtype=torch.complex128)
    torch.testing.assert_close(layer(x), expected(x, dense_product(layer.factors), "batch_first", layer.bias))
    assert layer.factor0.imag.abs().max() > 0


def test_sizes_may_be_integers_of_numpy():
    layer = KSLinear(np.int64(16), np.int32(16), "butterfly")
    assert {type(size) for size in (layer.in_features, layer.out_features)} == {int}
    assert layer.chain == KSLinear(16, 16, "butterfly").chain


def test_auto_explains_itself():
    large = KSLinear(4096, 4096, "monarch(blocks=64)", device="meta")
    assert large.explain() == "bmm: there are no kernels for meta"
    assert large.to_empty(device="cpu").explain().startswith("kernel: weights are not frozen")
    large.freeze()
    assert large.explain(batch=7).startswith("kernel: predicted for a batch of 7 batch_first on cpu")
    assert make(backend="bmm").explain() == "bmm: asked for"


def by_load_state_dict(layer, state):
    layer.load_state_dict(state, assign=True)


def by_attributes(layer, state):
    for name, value in state.items():
        setattr(layer, name, torch.nn.Parameter(value))


def by_parameters(layer, state):
    """As libraries do that load large models."""
    for name, value in state.items():
        layer._parameters[name] = torch.nn.Parameter(value)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("materialise", [by_load_state_dict, by_attributes, by_parameters])
def test_auto_chooses_anew_where_meta_parameters_are_replaced(materialise, compiled):
    layer, filled = (KSLinear(1024, 1024, "monarch(blocks=32)", device=where) for where in ("meta", "cpu"))
    materialise(layer, filled.state_dict())
    x = torch.randn(2, 1024)
    run = torch.compile(layer, fullgraph=True, backend="aot_eager") if compiled else layer
    torch.testing.assert_close(run(x), filled(x))
    assert layer.explain() == filled.explain()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        run(x)
    assert any("kronsparse::linear" in event.key for event in profile.key_averages())


def test_backend_may_be_assigned():
    layer = make(backend="kernel")
    x = torch.randn(3, 16, dtype=torch.float64)
    y = layer(x)
    layer.backend = "sparse"
    with pytest.raises(NotImplementedError, match="has no gradient"):
        layer(x)
    layer.backend = "auto"
    torch.testing.assert_close(layer(x), y)
    with pytest.raises(ValueError, match="backend: 'fast' given, must be one of auto, kernel"):
        layer.backend = "fast"


@pytest.mark.parametrize(
    ("message", "call"),
    [
        (
            "x: sizes .2, 5. given, the last must be in_features, 4",
            lambda: ks_linear(torch.ones(2, 5), [torch.ones(1, 2, 4, 1)]),
        ),
        ("chain: .* has 24 rows and 16 columns", lambda: KSLinear(16, 25, "1x24x16x1")),
        ("chain: 'fish' given", lambda: make("fish")),
        ("chain: 'low_rank' given: .*rank", lambda: make("low_rank")),
        ("in_features: 0 given, must be an integer of at least 1", lambda: KSLinear(0, 128)),
        ("out_features: -64 given", lambda: KSLinear(128, -64)),
        ("blocks: 5 given", lambda: make("monarch(blocks=5)")),
        ("butterfly: sizes 24 and 16", lambda: make("butterfly")),
        ("chain: factor 0 .* has 16 columns", lambda: make(["1x6x4x4", "5x4x4x1"])),
        ("pattern: .* given, must be four integers", lambda: make([(1, 24, 16)])),
        ("layout: 'first' given, must be one of batch_first, batch_last", lambda: make(layout="first")),
        ("backend: 'fast' given, must be one of auto, kernel", lambda: make(backend="fast")),
        ("activation: 'tanh' given", lambda: make(activation="tanh")),
        (
            "bias: sizes .1,. given, must be .2,.",
            lambda: KSLinear.from_factors([torch.ones(1, 2, 4, 1)], bias=torch.ones(1)),
        ),
        (
            r"factors.1.: dtype torch.float64 given, must be that of factors.0., torch.float32",
            lambda: KSLinear.from_factors([torch.ones(1, 2, 4, 1), torch.ones(1, 4, 4, 1).double()]),
        ),
        (
            "bias: dtype torch.float16 given",
            lambda: KSLinear.from_factors([torch.ones(1, 2, 4, 1)], bias=torch.ones(2).half()),
        ),
        (
            r"factors.1.: dtype torch.float64 given, must be that of x, torch.float32",
            lambda: ks_linear(torch.ones(2, 4), [torch.ones(1, 2, 4, 1), torch.ones(1, 4, 4, 1).double()]),
        ),
        (
            r"factors.1.: dtype torch.float32 given, must be that of x, torch.float16",
            lambda: ks_linear(
                torch.ones(2, 4).half(), [torch.ones(1, 2, 4, 1).half(), torch.ones(1, 4, 4, 1)]
            ),
        ),
        (
            "bias: sizes .3,. given",
            lambda: ks_linear(torch.ones(2, 4), [torch.ones(1, 2, 4, 1)], torch.ones(3)),
        ),
    ],
)
def test_wrong_calls_name_the_argument(message, call):
    with pytest.raises(ValueError, match=message):
        call()


def test_parametrized_factors():
    layer = make(backend="kernel")
    torch.nn.utils.parametrize.register_parametrization(layer, "factor0", torch.nn.Tanh())
    x = torch.randn(3, 16, dtype=torch.float64)
    original = layer.parametrizations.factor0.original
    reference = expected(x, dense_product([original.tanh(), layer.factor1]), "batch_first", layer.bias)
    torch.testing.assert_close(layer(x), reference)
    layer(x).sum().backward()
    assert original.grad.abs().max() > 0


class Counted(torch.nn.Module):
    """Says how often it was asked, and cannot be asked in half precision."""

    calls = 0

    def forward(self, values):
        self.calls += 1
        a, b, c, d = values.shape
        return torch.linalg.qr(values.view(a * b, c * d).T)[0].T.reshape(values.shape)


def test_parametrizations_are_asked_by_calls_only():
    layer = make(dtype=torch.float32)
    counted = Counted()
    torch.nn.utils.parametrize.register_parametrization(layer, "factor0", counted)
    counted.calls = 0
    layer.half().float()
    assert counted.calls == 0
    layer(torch.randn(3, 16))
    assert counted.calls == 1
    del layer
    gc.collect()
    assert counted.calls == 1


@pytest.mark.parametrize("parametrization", ["spectral_norm", "weight_norm"])
def test_a_parametrized_layer_may_be_there_at_the_end_of_the_process(parametrization):
    code = f"""
        import torch
        from kronsparse.torch import KSLinear
        layer = KSLinear(16, 24, "monarch(blocks=4)", backend="kernel")
        torch.nn.utils.parametrizations.{parametrization}(layer, "factor0")
        layer(torch.ones(2, 16))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
