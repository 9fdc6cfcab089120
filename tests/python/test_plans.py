"""Plans are found again, and never with values that have changed."""

import gc
import threading

import pytest
import torch
import torch.nn.utils.parametrize
from conftest import dense_product
from kronsparse.torch import (
    KSLinear,
    _operators,
    clear_plan_cache,
    ks_linear,
    mark_stale,
    plan_cache_info,
    resize_plan_cache,
)

X = torch.randn(6, 16, dtype=torch.float64)


@pytest.fixture(autouse=True)
def _empty_cache():
    clear_plan_cache()
    yield
    resize_plan_cache(1024)


@pytest.fixture
def layer():
    return KSLinear(16, 16, "monarch(blocks=4)", bias=False, backend="kernel", dtype=torch.float64)


def check(layer):
    with torch.no_grad():
        torch.testing.assert_close(layer(X), X @ dense_product(layer.factors).T)


def in_place(layer):
    with torch.no_grad():
        layer.factor0.mul_(3)


def optimiser_step(layer, make=torch.optim.SGD, **options):
    optimiser = make(layer.parameters(), lr=0.1, **options)
    layer(X).square().sum().backward()
    optimiser.step()


def load_state_dict(layer):
    layer.load_state_dict({name: torch.randn_like(value) for name, value in layer.state_dict().items()})


def load_and_assign(layer):
    state = {name: torch.randn_like(value) for name, value in layer.state_dict().items()}
    layer.load_state_dict(state, assign=True)


def data_swap(layer):
    layer.factor0.data = torch.randn_like(layer.factor0)


def swap_there_and_back(layer):
    """The old memory is free in between, and likely to be given out again."""
    layer.factor0.data = torch.randn_like(layer.factor0)
    gc.collect()
    layer.factor0.data = torch.randn_like(layer.factor0)


def new_parameter(layer):
    layer.factor0 = torch.nn.Parameter(torch.randn_like(layer.factor0))


def view_of_parameter(layer):
    with torch.no_grad():
        layer.factor1[2:].copy_(torch.randn_like(layer.factor1[2:]))


def reset(layer):
    layer.reset_parameters(variance_preserving=True)


CHANGES = [
    in_place,
    optimiser_step,
    lambda layer: optimiser_step(layer, torch.optim.AdamW, foreach=True),
    lambda layer: optimiser_step(layer, torch.optim.AdamW, fused=True),
    load_state_dict,
    load_and_assign,
    data_swap,
    swap_there_and_back,
    new_parameter,
    view_of_parameter,
    reset,
]
NAMES = ["in_place", "sgd", "adamw_foreach", "adamw_fused", *[change.__name__ for change in CHANGES[4:]]]


@pytest.mark.parametrize("change", CHANGES, ids=NAMES)
def test_never_stale_after(layer, change):
    check(layer)
    before = layer.to_dense().detach().clone()
    for _ in range(3):
        change(layer)
        check(layer)
    assert not torch.equal(layer.to_dense(), before), "the change must change something"


def test_changes_that_torch_does_not_count_need_a_call(layer):
    check(layer)
    for tell in (layer.repack, lambda: mark_stale(layer.factor0)):
        layer.factor0.data.mul_(3)
        tell()
        check(layer)


def test_values_are_packed_only_when_they_change(layer):
    with torch.no_grad():
        layer(X)
        packed = plan_cache_info().packed
        for _ in range(5):
            layer(X)
        assert plan_cache_info().packed == packed
        layer.factor0.mul_(2)
        layer(X)
    assert plan_cache_info().packed == packed + 1


def test_training_does_not_make_the_cache_grow(layer):
    optimiser = torch.optim.SGD(layer.parameters(), lr=1e-3)
    x = X.clone().requires_grad_()  # so that both factors have all three operations
    for step in range(8):
        optimiser.zero_grad()
        layer(x).square().sum().backward()
        optimiser.step()
        if step == 0:
            after_first = plan_cache_info()
    assert plan_cache_info().plans == after_first.plans == 6
    assert plan_cache_info().made == after_first.made


def test_temporary_values_do_not_make_the_cache_grow():
    for index in range(10):
        values = torch.full((1, 4, 4, 4), float(index), dtype=torch.float64)
        torch.testing.assert_close(ks_linear(X, [values]), X @ dense_product([values]).T)
    assert plan_cache_info().plans == 1


@pytest.mark.parametrize("with_grad", [False, True])
def test_computed_factors_do_not_make_the_cache_grow(layer, with_grad):
    torch.nn.utils.parametrize.register_parametrization(layer, "factor0", torch.nn.Tanh())
    with torch.set_grad_enabled(with_grad):
        for _ in range(5):
            torch.testing.assert_close(layer(X), X @ dense_product(layer.factors).T)
    assert plan_cache_info().plans == 2


def test_factors_of_functional_call_do_not_make_the_cache_grow(layer):
    for index in range(5):
        factors = {name: index * values.detach() for name, values in layer.named_parameters()}
        y = torch.func.functional_call(layer, factors, (X,))
        torch.testing.assert_close(y, X @ dense_product(list(factors.values())).T)
    assert plan_cache_info().plans == 2


def test_copies_made_by_hooks_do_not_make_the_cache_grow(layer):
    x = X.clone().requires_grad_()
    reference = torch.autograd.grad((x @ dense_product(layer.factors).T).square().sum(), x)
    for _ in range(5):
        with torch.autograd.graph.saved_tensors_hooks(torch.clone, torch.clone):
            y = layer(x)
        torch.testing.assert_close(torch.autograd.grad(y.square().sum(), x), reference)
    assert plan_cache_info().plans == 6  # for both factors the product, its adjoint and the gradient


def test_without_hooks_both_directions_find_their_plans(layer):
    x = X.clone().requires_grad_()
    torch.autograd.grad(layer(x).square().sum(), x)
    packed = plan_cache_info().packed
    torch.autograd.grad(layer(x).square().sum(), x)
    assert plan_cache_info().packed == packed


def register(layer):
    layer.register_parameter("factor0", torch.nn.Parameter(torch.randn_like(layer.factor0)))


def parametrize_and_back(layer):
    torch.nn.utils.parametrize.register_parametrization(layer, "factor0", torch.nn.Tanh())
    torch.nn.utils.parametrize.remove_parametrizations(layer, "factor0")


@pytest.mark.parametrize("replace", [load_and_assign, new_parameter, register, parametrize_and_back])
def test_a_replaced_parameter_takes_its_plans_along(layer, replace):
    for _ in range(3):
        replace(layer)
        check(layer)
        assert plan_cache_info().plans == 2


def test_values_cast_by_autocast_do_not_make_the_cache_grow(layer):
    layer.bfloat16()
    kept = []
    with torch.no_grad(), torch.autocast("cpu", torch.float16):
        for _ in range(5):
            layer(X.float())
            kept.append(torch.empty_like(layer.factor0))  # so that the next copy lies elsewhere
    assert plan_cache_info().plans == 2


def test_float32_values_are_packed_once_under_autocast(layer):
    layer.float()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        layer(X.float())
        packed = plan_cache_info().packed
        layer(X.float())
    assert plan_cache_info().packed == packed


@pytest.mark.parametrize(("trained", "packing"), [(set(), "frozen"), ({0}, "on_change"), ({1}, "on_change")])
def test_a_layer_is_frozen_when_no_factor_is_trained(layer, trained, packing, monkeypatch):
    """What a CUDA graph keeps."""
    seen = []
    monkeypatch.setattr("kronsparse.torch.linear.apply", lambda *inputs: seen.append(inputs[-1]))
    for index, values in enumerate(layer.factors):
        values.requires_grad_(index in trained)
    layer(X)
    assert seen == [packing]


def test_temporary_values_at_one_address_are_told_apart():
    """As those of an old tensor, freed, and of a new one in its place."""
    for index in range(20):
        values = torch.full((1, 4, 4, 4), float(index), dtype=torch.float64)
        y = _operators.multiply(X, values, packing="on_change")
        torch.testing.assert_close(y, X @ dense_product([values]).T)
        del values


def test_views_of_one_memory_are_told_apart():
    values = torch.randn(1, 4, 4, 4, dtype=torch.float64)
    for view in (values, values.transpose(1, 2), values.permute(0, 3, 1, 2)):
        y = _operators.multiply(X, view, packing="on_change")
        torch.testing.assert_close(y, X @ dense_product([view]).T)


def test_inference_tensors_have_no_version_and_are_packed_each_time():
    with torch.inference_mode():
        values = torch.randn(1, 4, 4, 4, dtype=torch.float64)
        for _ in range(3):
            values.mul_(2)
            y = _operators.multiply(X, values, packing="on_change")
            torch.testing.assert_close(y, X @ dense_product([values]).T)


def test_the_cache_is_bounded(layer):
    resize_plan_cache(4)
    with torch.no_grad():
        for batch in range(1, 12):
            layer(torch.randn(batch, 16, dtype=torch.float64))
            assert plan_cache_info().plans <= 4
    check(layer)


def test_ever_new_batches_do_not_make_the_cache_grow(layer):
    with torch.no_grad():
        for batch in range(1, 60):
            x = torch.randn(batch, 16, dtype=torch.float64)
            torch.testing.assert_close(layer(x), x @ dense_product(layer.factors).T)
    assert plan_cache_info().plans <= 2 * 16  # factors, sizes kept of each
    made = plan_cache_info().made
    with torch.no_grad():
        layer(torch.randn(59, 16, dtype=torch.float64)), layer(torch.randn(44, 16, dtype=torch.float64))
    assert plan_cache_info().made == made  # those used last are there


def test_a_layer_takes_its_plans_along():
    layer = KSLinear(16, 16, "monarch(blocks=4)", bias=False, backend="kernel", dtype=torch.float64)
    check(layer)
    assert plan_cache_info().plans == 2
    del layer
    gc.collect()
    assert plan_cache_info().plans == 0


def test_threads_share_plans_while_values_change():
    values = torch.randn(1, 4, 4, 4, dtype=torch.float64)
    other = torch.randn(1, 4, 4, 4, dtype=torch.float64)
    errors = []

    def work(mine):
        reference = X @ dense_product([mine]).T
        for _ in range(200):
            kept = _operators.multiply(X, mine, packing="on_change")
            fresh = _operators.multiply(X, mine)  # packs into a plan that all threads use
            if not (torch.allclose(kept, reference) and torch.allclose(fresh, reference)):
                errors.append("wrong")

    threads = [threading.Thread(target=work, args=(mine,)) for mine in (values, other, values)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
