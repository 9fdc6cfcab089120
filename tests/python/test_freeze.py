"""Frozen layers: the same answers, errors where a promise is seen to be broken, nothing left behind."""

import copy
import gc
import io
import os
import pickle
import shutil
import subprocess
import sys
import textwrap

import pytest
import torch
import torch.nn.utils.parametrize
from conftest import LAYOUTS, dense_product, expected, input_of
from kronsparse.torch import KSLinear, backends, freeze, memory_info, unfreeze

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
BACKENDS = ["kernel", "auto", "dense", "bmm", "einsum"]


def make(backend="kernel", dtype=torch.float64, device="cpu", **options):
    return KSLinear(16, 24, "monarch(blocks=4)", backend=backend, dtype=dtype, device=device, **options)


def input_for(layer, batch=(5,), **options):
    first = layer.factors[0]
    return input_of(16, batch, layer.layout, first.dtype, device=first.device, **options)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("activation", [None, "gelu"])
def test_frozen_layers_give_the_same(backend, layout, activation, device):
    layer = make(backend, layout=layout, activation=activation, device=device)
    twin = copy.deepcopy(layer)
    layer.freeze()
    for batch in ((), (1,), (7,), (2, 3), (2, 0, 3), (300,)):
        x = input_for(layer, batch)
        with torch.no_grad():
            torch.testing.assert_close(layer(x), twin(x))
        x.requires_grad_()
        inputs = (x, *layer.parameters()), (x, *twin.parameters())
        g = torch.randn_like(twin(x))
        ours, theirs = (
            torch.autograd.grad(one(x), given, g) for one, given in zip((layer, twin), inputs, strict=True)
        )
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other)
        layer.requires_grad_(False)
        torch.testing.assert_close(torch.autograd.grad(layer(x), x, g)[0], theirs[0])
        layer.requires_grad_(True)


def test_gradients_of_frozen_layers_can_be_differentiated():
    layer = make().freeze()
    x = input_for(layer, requires_grad=True)
    assert torch.autograd.gradcheck(layer, (x,))
    assert torch.autograd.gradgradcheck(lambda x: layer(x).square(), (x,), fast_mode=True)


def test_frozen_layers_under_transforms():
    layer = make().freeze()
    x = input_for(layer)
    matrix = dense_product(layer.factors).detach()
    torch.testing.assert_close(torch.func.vmap(layer)(x), layer(x))
    torch.testing.assert_close(torch.func.jacrev(layer)(x[0]), matrix)
    torch.testing.assert_close(torch.func.jacfwd(layer)(x[0]), matrix)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("with_grad", [False, True])
def test_frozen_layers_under_autocast(device, with_grad):
    layer = make(dtype=torch.float32, device=device)
    twin = copy.deepcopy(layer)
    layer.freeze()
    x = input_for(layer)
    with torch.set_grad_enabled(with_grad), torch.autocast(device, torch.bfloat16):
        for _ in range(2):
            y = layer(x)
            assert y.dtype == torch.bfloat16
            torch.testing.assert_close(y, twin(x), rtol=2e-2, atol=2e-2)
    if with_grad:
        y.float().sum().backward()
        assert layer.factor0.grad.dtype == torch.float32
    torch.testing.assert_close(layer(x), twin(x))  # both dtypes side by side


def in_place(layer):
    with torch.no_grad():
        layer.factor0.mul_(2)


def by_optimiser(layer):
    layer(input_for(layer)).sum().backward()
    torch.optim.SGD(layer.parameters(), lr=0.1).step()


def by_data_swap(layer):
    layer.factor0.data = layer.factor0.data.clone()


def by_new_parameter(layer):
    layer.factor0 = torch.nn.Parameter(layer.factor0.detach().clone())


def by_parameter_on_the_same_memory(layer):
    layer.factor0 = torch.nn.Parameter(layer.factor0.data)


def by_parameters_dictionary(layer):
    layer._parameters["factor0"] = torch.nn.Parameter(layer.factor0.detach().clone())


def by_detach(layer):
    layer.factor0.detach().mul_(2)


def by_view(layer):
    with torch.no_grad():
        layer.factor0[0, 0].zero_()


def by_loading(layer):
    layer.load_state_dict({name: 2 * value for name, value in layer.state_dict().items()})


def by_assigning(layer):
    state = {name: 2 * value for name, value in layer.state_dict().items()}
    layer.load_state_dict(state, assign=True)


def by_parametrization(layer):
    torch.nn.utils.parametrize.register_parametrization(layer, "factor0", torch.nn.Tanh())


CHANGES = [
    *(in_place, by_optimiser, by_data_swap, by_new_parameter, by_parameter_on_the_same_memory),
    *(by_parameters_dictionary, by_detach, by_view, by_loading, by_assigning, by_parametrization),
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_that_is_seen_is_an_error(change, backend, device):
    layer = make(backend, device=device).freeze()
    x = input_for(layer)
    layer(x)
    change(layer)
    for context in (torch.no_grad(), torch.enable_grad(), torch.autocast(device, torch.bfloat16)):
        with context, pytest.raises(RuntimeError, match=r"factor0: was .* frozen; call unfreeze\(\)"):
            layer(x)
    layer.unfreeze()
    reference = expected(x, dense_product(layer.factors), "batch_first", layer.bias)
    torch.testing.assert_close(layer(x), reference)


def test_the_bias_may_change():
    for backend in BACKENDS:
        layer = make(backend).freeze()
        x = input_for(layer)
        y = layer(x)
        layer.bias.data.add_(1)
        torch.testing.assert_close(layer(x), y + 1)


def test_what_undoes_it():
    layer = make()
    assert not layer.is_frozen
    assert layer.freeze() is layer
    assert layer.is_frozen
    assert layer.eval().is_frozen
    assert layer.train(False).is_frozen
    assert not layer.train().is_frozen
    layer.freeze()
    assert layer.unfreeze() is layer
    assert not layer.is_frozen
    assert not layer.unfreeze().is_frozen


def test_models():
    model = torch.nn.Sequential(make(), torch.nn.ReLU(), torch.nn.Sequential(make()))
    layers = model[0], model[2][0]
    assert freeze(model) is model
    assert all(layer.is_frozen for layer in layers)
    model.eval()
    assert all(layer.is_frozen for layer in layers)
    model.train()
    assert not any(layer.is_frozen for layer in layers)
    assert unfreeze(freeze(model)) is model
    assert not any(layer.is_frozen for layer in layers)
    torch.nn.utils.parametrizations.weight_norm(layers[1], "factor1")
    with pytest.raises(RuntimeError, match=r"2\.0: cannot be frozen: factor1 is computed at each call"):
        freeze(model)
    assert not layers[0].is_frozen
    with pytest.raises(TypeError, match=r"model: int given, must be a torch\.nn\.Module"):
        freeze(5)


@pytest.mark.parametrize(
    "clone",
    [copy.deepcopy, copy.copy, lambda layer: pickle.loads(pickle.dumps(layer))],
    ids=["deepcopy", "copy", "pickle"],
)
def test_copies_are_not_frozen(clone):
    layer = make("auto").freeze()
    x = input_for(layer)
    y = layer(x)
    copied = clone(layer)
    assert layer.is_frozen
    assert not copied.is_frozen
    torch.testing.assert_close(copied(x), y)


def test_files_and_state_are_those_of_other_layers():
    layer = make("auto")
    before = layer.state_dict()
    layer.freeze()
    layer(input_for(layer, (300,)))
    assert list(layer.state_dict()) == list(before)
    assert [name for name, _ in layer.named_buffers()] == []
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    assert not torch.load(file, weights_only=False).is_frozen


def test_moved_and_converted_layers_are_frozen_anew():
    layer = make().freeze()
    x = input_for(layer)
    y = layer(x)
    for move in (
        torch.nn.Module.float,
        torch.nn.Module.double,
        lambda one: one.to("cpu"),
        torch.nn.Module.half,
    ):
        move(layer)
        assert layer.is_frozen
        z = layer(x.to(layer.factor0.dtype))
        torch.testing.assert_close(z.double(), y, rtol=1e-2, atol=1e-2)
    assert layer.to("meta").is_frozen
    assert layer(x.half().to("meta")).shape == y.shape


@pytest.mark.parametrize("backend", ["kernel", "auto", "dense"])
def test_what_is_kept_goes(backend):
    gc.collect()
    nothing = memory_info()
    layer = KSLinear(256, 256, "monarch(blocks=16)", backend=backend).freeze()
    with torch.no_grad():
        for batch in (1, 2, 7, 64, 300, 1000):
            layer(torch.ones(batch, 256))
    kept = memory_info()
    assert kept.frozen_layers == nothing.frozen_layers + 1
    values = sum(values.numel() * 4 for values in layer.factors)
    assert 0 <= kept.packed_bytes - nothing.packed_bytes <= 3 * values + 4096
    if backend == "dense":
        assert kept.dense_bytes - nothing.dense_bytes == 256 * 256 * 4
    layer.unfreeze()
    assert memory_info()[2:] == nothing[2:]
    layer.freeze()
    layer(torch.ones(3, 256))
    del layer
    gc.collect()
    assert memory_info()[2:] == nothing[2:]


def test_unfrozen_layers_keep_nothing():
    gc.collect()
    nothing = memory_info()
    layer = KSLinear(256, 256)
    for batch in (1, 2, 7, 64, 300):
        layer(torch.ones(batch, 256)).sum().backward()
    assert memory_info()[2:] == nothing[2:]


def test_the_end_of_a_process_and_of_a_child_of_it():
    code = """
        import os, torch
        from kronsparse.torch import KSLinear
        layer = KSLinear(64, 64).freeze()
        layer(torch.ones(2, 64))
        child = os.fork()
        if child == 0:
            layer(torch.ones(2, 64))
            del layer
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        layer(torch.ones(2, 64))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr


# torch.compile and torch.export


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("with_grad", [False, True])
def test_compiled(dynamic, with_grad):
    layer = make().freeze()
    compiled = torch.compile(layer, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    with torch.set_grad_enabled(with_grad):
        for batch in (5, 8):
            x = input_for(layer, (batch,), requires_grad=with_grad)
            torch.testing.assert_close(compiled(x), layer(x))
            if with_grad:
                inputs = (x, *layer.parameters())
                ours, theirs = (torch.autograd.grad(one(x).exp().sum(), inputs) for one in (compiled, layer))
                for one, other in zip(ours, theirs, strict=True):
                    torch.testing.assert_close(one, other)


def test_compiled_code_follows_freezing():
    layer = make()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    x = input_for(layer)
    for _ in range(2):
        for change in (layer.freeze, layer.unfreeze, lambda: layer.factor0.data.mul_(2), layer.freeze):
            change()
            with torch.no_grad():
                torch.testing.assert_close(
                    compiled(x), expected(x, dense_product(layer.factors), "batch_first", layer.bias)
                )
        layer.unfreeze()


def test_compiled_code_sees_changes():
    layer = make().freeze()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    x = input_for(layer)
    with torch.no_grad():
        compiled(x)
        layer.factor1.mul_(2)
        with pytest.raises(
            RuntimeError, match=r"factor1: changed while its layer is frozen; call unfreeze\(\)"
        ):
            compiled(x)
        layer.unfreeze()
        torch.testing.assert_close(compiled(x), layer(x))


def test_exported_code_knows_nothing_of_freezing(tmp_path):
    layer = make().eval().freeze()
    x = input_for(layer)
    exported = torch.export.export(layer, (x,))
    torch.export.save(exported, tmp_path / "layer.pt2")
    y = layer(x)
    layer.unfreeze()
    module = torch.export.load(tmp_path / "layer.pt2").module()
    torch.testing.assert_close(module(x), y)
    with torch.no_grad():
        for values in module.parameters():
            values.data.mul_(2)
    torch.testing.assert_close(module(x), 8 * (y - layer.bias) / 2 + 2 * layer.bias)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("c++") is None, reason="inductor needs a C++ compiler")
@pytest.mark.parametrize("is_frozen", [False, True])
def test_package_of_aotinductor_with_other_constants(tmp_path, is_frozen):
    layer = make(dtype=torch.float32).eval()
    if is_frozen:
        layer.freeze()
    x = input_for(layer)
    with torch.no_grad():
        exported = torch.export.export(layer, (x,))
        package = torch._inductor.aoti_compile_and_package(
            exported,
            package_path=str(tmp_path / "layer.pt2"),
            inductor_configs={"aot_inductor.use_runtime_constant_folding": False},
        )
        loaded = torch._inductor.aoti_load_package(package)
        torch.testing.assert_close(loaded(x), layer(x))
        layer.unfreeze()
        state = {name: torch.randn_like(value) for name, value in layer.state_dict().items()}
        loaded.load_constants(state, check_full_update=True)
        layer.load_state_dict(state)
        torch.testing.assert_close(loaded(x), layer(x))


def test_a_number_that_was_released_is_refused():
    layer = make().freeze()
    number = layer._frozen.packed
    x, factors = input_for(layer), layer.factors
    torch.ops.kronsparse.linear_plain(x, factors, None, 0, number)
    layer.unfreeze()
    with pytest.raises(RuntimeError, match=f"packed: {number} given, .* unfrozen or is gone"):
        torch.ops.kronsparse.linear_plain(x, factors, None, 0, number)


def test_copies_of_frozen_values_are_multiplied_by_themselves():
    """As hooks of autograd make them."""
    layer = make().freeze()
    x = input_for(layer)
    factors = [2 * values.detach() for values in layer.factors]
    y = torch.ops.kronsparse.linear_plain(x, factors, None, 0, layer._frozen.packed)
    torch.testing.assert_close(y, expected(x, dense_product(factors), "batch_first"))


# auto


def test_auto_multiplies_out_only_what_is_frozen():
    layer = KSLinear(256, 256, "low_rank(rank=512)")  # more work than the matrix itself
    assert layer.explain(4096).startswith("kernel: weights are not frozen")
    layer.freeze()
    assert layer.explain(4096).startswith("dense: predicted for a batch of 4096")
    x = torch.randn(4096, 256)
    with torch.no_grad():
        y = layer(x)
    assert memory_info().dense_bytes >= 256 * 256 * 4
    torch.testing.assert_close(
        y, torch.nn.functional.linear(x, layer.to_dense(), layer.bias), rtol=1e-3, atol=1e-4
    )


@pytest.mark.parametrize("batch", [1, 17, 64])
@pytest.mark.parametrize("width", [16, 48])
def test_auto_takes_the_kernel_for_small_layers(width, batch):
    layer = KSLinear(width, width, "low_rank(rank=64)").freeze()
    assert layer.explain(batch).startswith("kernel: ")
    with torch.no_grad(), torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        layer(torch.randn(batch, width))
    assert any("kronsparse::linear" in event.key for event in profile.key_averages())


def test_auto_decides_by_the_batch():
    layer = KSLinear(256, 256, "low_rank(rank=512)").freeze()
    answers = {layer.explain(batch).split(":")[0] for batch in (1, 16384)}
    with torch.no_grad():
        for batch in (1, 300, 16384):
            layer(torch.randn(batch, 256))
    assert answers <= {"kernel", "dense"}
    assert len(layer._frozen.choices) == 3


def test_what_auto_remembers_is_bounded(monkeypatch):
    monkeypatch.setattr("kronsparse.torch.freezing._MOST_CHOICES", 10)
    layer = KSLinear(64, 64).freeze()
    with torch.no_grad():
        for batch in range(1, 40):
            layer(torch.ones(batch, 64))
            assert len(layer._frozen.choices) <= 10


def test_what_was_measured_is_found_again(monkeypatch):
    answers = [[2.0, 1.0], [0.1, 1.0]]
    monkeypatch.setattr(backends, "device_seconds", lambda calls, x: answers.pop(0))
    monkeypatch.setattr(backends, "measured", {})
    problem = ((), torch.float16, "batch_first", torch.device("cpu"), 8, True, None, "")
    choice = backends.measure(problem, torch.ones(1), len, len)
    assert (choice.backend, choice.reason) == (
        "dense",
        "measured for a batch of 8: 2e+06 us for the kernels, 1e+06 us for dense",
    )
    assert backends.measure(problem, torch.ones(1), len, len) is choice
    assert len(answers) == 1
