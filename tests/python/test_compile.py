"""torch.compile, torch.export and AOTInductor, and what records calls otherwise."""

import shutil

import pytest
import torch
from conftest import LAYOUTS, input_of
from functorch.compile import make_boxed_func
from kronsparse.torch import KSLinear, ks_linear
from torch._dynamo.backends.common import aot_autograd
from torch.fx.experimental.proxy_tensor import make_fx

needs_compiler = pytest.mark.skipif(shutil.which("c++") is None, reason="inductor needs a C++ compiler")


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()


def make(layout="batch_first", activation="gelu"):
    return KSLinear(16, 24, "monarch(blocks=4)", layout=layout, activation=activation, backend="kernel")


def network():
    return torch.nn.Sequential(
        make(), KSLinear(24, 16, "low_rank(rank=3)", backend="kernel"), torch.nn.ReLU()
    )


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_in_one_graph(layout, dynamic):
    layer = make(layout)
    compiled = torch.compile(layer, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for batch in ((5,), (8,), (3,)):
        x = input_of(16, batch, layout, torch.float32, requires_grad=True)
        y, reference = compiled(x), layer(x)
        torch.testing.assert_close(y, reference)
        g = torch.randn_like(y)
        inputs = [x, *layer.parameters()]
        for ours, theirs in zip(
            torch.autograd.grad(y, inputs, g), torch.autograd.grad(reference, inputs, g), strict=True
        ):
            torch.testing.assert_close(ours, theirs)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), layer(x))


def test_dynamic_batch_compiles_once():
    layer = make()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend=counter)
    with torch.no_grad():
        for batch in (5, 8, 3, 100):
            torch.testing.assert_close(compiled(torch.ones(batch, 16)), layer(torch.ones(batch, 16)))
    assert counter.frame_count == 1


@needs_compiler
@pytest.mark.slow
def test_compiled_by_inductor_and_trained():
    model = network()
    reference = torch.nn.Sequential(
        *[
            KSLinear.from_factors(m.factors, m.bias, activation=m.activation, backend="kernel")
            for m in list(model)[:2]
        ],
        torch.nn.ReLU(),
    )
    compiled = torch.compile(model, fullgraph=True)
    optimisers = [torch.optim.AdamW(m.parameters(), lr=1e-2, fused=True) for m in (model, reference)]
    x = torch.randn(32, 16)
    for _ in range(4):
        losses = []
        for run, optimiser in zip((compiled, reference), optimisers, strict=True):
            optimiser.zero_grad()
            loss = (run(x) - x).square().mean()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_values_that_a_compiled_optimiser_changed_are_read_again():
    layer = make(activation=None)
    optimiser = torch.optim.SGD(layer.parameters(), lr=0.1)
    step = torch.compile(optimiser.step, backend="aot_eager")
    x = torch.randn(5, 16)
    for _ in range(3):
        layer(x).square().sum().backward()
        step()
        with torch.no_grad():
            reference = torch.nn.functional.linear(x, layer.to_dense(), layer.bias)
            torch.testing.assert_close(layer(x), reference)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_compiled_under_autocast(dtype):
    layer = make(activation=None)
    x = torch.randn(5, 16, dtype=dtype)

    def forward(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return layer(x)

    y = torch.compile(forward, fullgraph=True, backend="aot_eager")(x)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y, forward(x))


TRANSFORMS = {
    "grad": lambda f: torch.func.grad(lambda x: f(x).square().sum()),
    "grad_of_grad": lambda f: torch.func.grad(lambda x: torch.func.grad(lambda y: f(y).exp().sum())(x).sum()),
    "jvp": lambda f: lambda x: torch.func.jvp(f, (x,), (torch.ones_like(x),))[1],
    "vmap": lambda f: torch.func.vmap(f),
    "vmap_of_grad": lambda f: torch.func.vmap(torch.func.grad(lambda x: f(x).square().sum())),
}


@pytest.mark.parametrize(("backend", "is_frozen"), [("aot_eager", False), ("eager", True)])
@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_transforms_inside_of_compiled_code(transform, backend, is_frozen):
    """Torch knows no derivatives of operators there: a tangent would be zero, and no word said."""
    layer = make()
    if is_frozen:
        layer.freeze()
    transformed = transform(layer)
    x = torch.randn(5, 16)
    torch.testing.assert_close(torch.compile(transformed, fullgraph=True, backend=backend)(x), transformed(x))


@pytest.mark.parametrize("name", ["grad", "jvp", "vmap"])
def test_transforms_of_compiled_code(name):
    layer, transform = make(), TRANSFORMS[name]
    x = torch.randn(5, 16)
    torch.testing.assert_close(transform(torch.compile(layer, backend="aot_eager"))(x), transform(layer)(x))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients_of_factors_by_a_transform_inside_of_compiled_code(layout):
    layer = make(layout, None)
    x = input_of(16, (5,), layout, torch.float32)

    def loss(parameters):
        return torch.func.functional_call(layer, parameters, (x,)).square().sum()

    gradient = torch.func.grad(loss)
    parameters = {name: values.detach() for name, values in layer.named_parameters()}
    compiled = torch.compile(gradient, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(parameters), gradient(parameters))


def calls_of(graph):
    return [str(node.target) for node in graph.graph.nodes if "kronsparse" in str(node.target)]


@pytest.mark.parametrize("is_frozen", [False, True])
def test_a_layer_is_one_call(is_frozen):
    """Forward and backward, compiled and exported."""
    graphs = []

    def keep(graph, _):
        graphs.append(graph)
        return graph

    layer = make(activation=None)
    if is_frozen:
        layer.freeze()
    backend = aot_autograd(fw_compiler=make_boxed_func_of(keep), bw_compiler=make_boxed_func_of(keep))
    x = torch.ones(5, 16, requires_grad=True)
    torch.compile(layer, fullgraph=True, backend=backend)(x).sum().backward()
    exported = torch.export.export(layer, (torch.ones(5, 16),))
    counts = [calls_of(graph) for graph in (*graphs, exported.graph_module)]
    assert counts[0] == ["kronsparse.linear_saving.default"]
    assert counts[1] == ["kronsparse.linear_backward.default"]
    assert len(counts[2]) == 1


def make_boxed_func_of(keep):
    def compiler(graph, inputs):
        return make_boxed_func(keep(graph, inputs).forward)

    return compiler


def test_an_eager_layer_is_one_call():
    layer = make(activation=None)
    x = torch.ones(5, 16, requires_grad=True)
    layer(x).sum().backward()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        layer(x).sum().backward()
    names = {event.key: event.count for event in profile.key_averages() if "kronsparse" in event.key}
    assert names == {"kronsparse::linear_saving_plain": 1, "kronsparse::linear_backward": 1}
    with torch.no_grad(), torch.profiler.profile() as profile:
        layer(x)
    names = {event.key: event.count for event in profile.key_averages() if "kronsparse" in event.key}
    assert names == {"kronsparse::linear_plain": 1}


def test_function_compiled():
    factors = [torch.randn(1, 6, 4, 4), torch.randn(4, 4, 4, 1)]
    compiled = torch.compile(ks_linear, fullgraph=True, backend="aot_eager")
    x = torch.randn(5, 16)
    torch.testing.assert_close(
        compiled(x, factors, activation="silu"), ks_linear(x, factors, activation="silu")
    )


def test_exported_saved_and_loaded(tmp_path):
    model = network().eval()
    batch = torch.export.Dim("batch", min=2, max=4096)
    exported = torch.export.export(model, (torch.randn(4, 16),), dynamic_shapes=({0: batch},))
    assert "kronsparse.linear" in str(exported.graph)
    torch.export.save(exported, tmp_path / "model.pt2")
    loaded = torch.export.load(tmp_path / "model.pt2").module()
    for size in (4, 9):
        x = torch.randn(size, 16)
        torch.testing.assert_close(loaded(x), model(x))


@needs_compiler
@pytest.mark.slow
def test_package_of_aotinductor(tmp_path):
    model = network().eval()
    x = torch.randn(4, 16)
    with torch.no_grad():
        batch = torch.export.Dim("batch", min=2, max=4096)
        exported = torch.export.export(model, (x,), dynamic_shapes=({0: batch},))
        package = torch._inductor.aoti_compile_and_package(exported, package_path=str(tmp_path / "model.pt2"))
        loaded = torch._inductor.aoti_load_package(package)
        for size in (4, 9):
            x = torch.randn(size, 16)
            torch.testing.assert_close(loaded(x), model(x))


@pytest.mark.filterwarnings("ignore:.*torch.jit.*deprecated")
@pytest.mark.parametrize("with_grad", [False, True])
@pytest.mark.parametrize("record", [torch.jit.trace, lambda layer, x: make_fx(lambda x: layer(x))(x)])
def test_recorded_calls_see_changes_of_the_values(record, with_grad):
    layer, x = make(activation=None), torch.randn(5, 16)
    with torch.set_grad_enabled(with_grad):
        recorded = record(layer, x)
        for _ in range(2):
            with torch.no_grad():
                layer.factor0.mul_(2)
            torch.testing.assert_close(
                recorded(x), torch.nn.functional.linear(x, layer.to_dense(), layer.bias)
            )


@pytest.mark.filterwarnings("ignore:.*torch.jit.*deprecated")
def test_a_traced_layer_has_gradients():
    layer, x = make(activation=None), torch.randn(5, 16, requires_grad=True)
    traced = torch.jit.trace(layer, x)
    inputs = (x, *layer.parameters())
    for ours, theirs in zip(
        torch.autograd.grad(traced(x).exp().sum(), inputs),
        torch.autograd.grad(layer(x).exp().sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)
