"""Ways of changing a layer's weights, and a check that no answer comes from old ones."""

import ctypes
import gc
import multiprocessing

import pytest
import torch
from conftest import dense_product
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


def input_for(layer):
    torch.manual_seed(5)
    return torch.randn(6, layer.in_features, dtype=layer.factors[0].dtype).to(layer.factors[0].device)


def check(layer):
    """In all ways that a layer is called: with and without gradients, and compiled."""
    x = input_for(layer)
    reference = x @ dense_product([values.detach() for values in layer.factors]).T
    with torch.no_grad():
        torch.testing.assert_close(layer(x), reference)
    y = layer(x.requires_grad_())
    torch.testing.assert_close(y.detach(), reference)
    (grad_x,) = torch.autograd.grad(y.sum(), x)
    columns = dense_product([values.detach() for values in layer.factors]).sum(0)
    torch.testing.assert_close(grad_x, columns.expand_as(grad_x))


def train(layer, optimiser):
    layer(input_for(layer)).square().sum().backward()
    optimiser.step()
    optimiser.zero_grad()


def step_of(make, **options):
    def change(layer):
        train(layer, make(layer.parameters(), lr=0.1, **options))

    return change


def in_place(layer):
    with torch.no_grad():
        layer.factor0.mul_(3)


def by_data(layer):
    layer.factor0.data.mul_(3)


def by_data_swap(layer):
    layer.factor0.data = torch.randn_like(layer.factor0)


def by_data_swap_there_and_back(layer):
    """The old memory is free in between, and likely to be given out again."""
    layer.factor0.data = torch.randn_like(layer.factor0)
    gc.collect()
    layer.factor0.data = torch.randn_like(layer.factor0)


def by_detach(layer):
    layer.factor1.detach().mul_(-2)


def by_foreach(layer):
    torch._foreach_mul_([values.data for values in layer.factors], 1.5)


def by_foreach_copy(layer):
    with torch.no_grad():
        torch._foreach_copy_(list(layer.factors), [torch.randn_like(values) for values in layer.factors])


def by_numpy(layer):
    if layer.factor0.is_cuda:
        pytest.skip("NumPy has arrays of the CPU only")
    layer.factor0.detach().numpy()[:] *= 3


def by_unsafe_view(layer):
    """As an optimiser in C++ does that counts nothing: through the address alone."""
    if layer.factor0.is_cuda:
        pytest.skip("for addresses of the CPU")
    address = ctypes.cast(layer.factor0.data_ptr(), ctypes.POINTER(ctypes.c_double))
    address[0] = address[0] * 3 + 1


def write_shared(values):
    values.mul_(3)


def by_another_process(layer):
    if layer.factor0.is_cuda:
        pytest.skip("for memory of the CPU")
    shared = layer.factor0.data.share_memory_()
    process = multiprocessing.get_context("fork").Process(target=write_shared, args=(shared,))
    process.start()
    process.join()
    assert process.exitcode == 0


def by_a_second_parameter(layer):
    with torch.no_grad():
        torch.nn.Parameter(layer.factor0.data).mul_(3)


def by_view(layer):
    with torch.no_grad():
        layer.factor1[2:].copy_(torch.randn_like(layer.factor1[2:]))


def by_set(layer):
    with torch.no_grad():
        layer.factor0.set_(torch.randn_like(layer.factor0))


def by_new_parameter(layer):
    layer.factor0 = torch.nn.Parameter(torch.randn_like(layer.factor0))


class Subclass(torch.nn.Parameter):
    """As libraries define to attach things to weights."""


def by_subclass(layer):
    if type(layer.factor0) is not Subclass:
        layer.factor0 = Subclass(layer.factor0.detach().clone())
    layer.factor0.data.mul_(2)


def load(layer, **options):
    state = {name: torch.randn_like(value) for name, value in layer.state_dict().items()}
    layer.load_state_dict(state, **options)


def load_and_assign(layer):
    load(layer, assign=True)


def by_safetensors(layer):
    safetensors = pytest.importorskip("safetensors.torch")
    state = {name: torch.randn_like(value).cpu() for name, value in layer.state_dict().items()}
    layer.load_state_dict(safetensors.load(safetensors.save(state)))


def by_vector(layer):
    size = sum(values.numel() for values in layer.parameters())
    vector = torch.randn(size, dtype=torch.float64, device=layer.factor0.device)
    torch.nn.utils.vector_to_parameters(vector, layer.parameters())
    vector.mul_(2)  # parameters are views of it


def by_torch_ema(layer):
    """As torch-ema writes averages: store, copy_to, restore."""
    for values in layer.parameters():
        values.data.copy_(0.5 * values.data + torch.randn_like(values))


def by_averaged_model(layer):
    average = AveragedModel(layer, multi_avg_fn=get_ema_multi_avg_fn(0.5))
    check(average.module)
    for _ in range(2):
        in_place(layer)
        average.update_parameters(layer)
        check(average.module)


def by_sam(layer):
    """As sharpness-aware minimisation: up the gradient, and back to other values than before."""
    layer(input_for(layer)).square().sum().backward()
    old = [values.data.clone() for values in layer.parameters()]
    for values in layer.parameters():
        values.data.add_(0.1 * values.grad)
    check(layer)
    for values, before in zip(layer.parameters(), old, strict=True):
        values.data = before - 0.1 * values.grad
        values.grad = None


def by_swapped_tensors(layer):
    torch.utils.swap_tensors(layer.factor0, torch.nn.Parameter(torch.randn_like(layer.factor0)))


def by_empty_memory(layer):
    layer.to_empty(device=layer.factor0.device)
    layer.reset_parameters(variance_preserving=True)


def by_dlpack(layer):
    torch.from_dlpack(layer.factor0.detach()).mul_(3)


def by_storage(layer):
    layer.factor0.untyped_storage().copy_(torch.randn_like(layer.factor0).untyped_storage())


def by_resized_storage(layer):
    """As fully sharded training of the first kind: memory is given back and taken anew."""
    storage, size = layer.factor0.untyped_storage(), layer.factor0.untyped_storage().nbytes()
    values = torch.randn_like(layer.factor0)
    storage.resize_(0)
    storage.resize_(size)
    with torch.no_grad():
        layer.factor0.copy_(values)


def by_flat_vector(layer):
    """All parameters become views of one vector, which an optimiser then changes."""
    flat = torch.cat([values.data.flatten() for values in layer.parameters()])
    for values, part in zip(
        layer.parameters(), flat.split([values.numel() for values in layer.parameters()]), strict=True
    ):
        values.data = part.view_as(values)
    flat.mul_(2)


def by_functional_optimiser(layer):
    values = [one.detach() for one in layer.parameters()]
    torch._foreach_lerp_(values, [torch.randn_like(one) for one in values], 0.5)


def by_inference_mode(layer):
    with torch.inference_mode():
        layer.factor0.mul_(2)


def reset(layer):
    layer.reset_parameters(variance_preserving=True)


def compiled_step(layer):
    torch._dynamo.reset()
    optimiser = torch.optim.SGD(layer.parameters(), lr=0.1)
    layer(input_for(layer)).square().sum().backward()
    torch.compile(optimiser.step, backend="aot_eager")()


CHANGES = {
    "in_place": in_place,
    "sgd": step_of(torch.optim.SGD),
    "adamw": step_of(torch.optim.AdamW, foreach=False),
    "adamw_foreach": step_of(torch.optim.AdamW, foreach=True),
    "adamw_fused": step_of(torch.optim.AdamW, fused=True),
    "compiled_step": compiled_step,
    **{
        change.__name__: change
        for change in (
            by_data,
            by_data_swap,
            by_data_swap_there_and_back,
            by_detach,
            by_foreach,
            by_foreach_copy,
        )
    },
    **{
        change.__name__: change
        for change in (by_numpy, by_unsafe_view, by_another_process, by_a_second_parameter, by_view, by_set)
    },
    **{
        change.__name__: change
        for change in (by_new_parameter, by_subclass, load, load_and_assign, by_safetensors, by_vector)
    },
    **{change.__name__: change for change in (by_torch_ema, by_averaged_model, by_inference_mode, reset)},
    **{
        change.__name__: change
        for change in (by_sam, by_swapped_tensors, by_empty_memory, by_dlpack, by_storage)
    },
    **{change.__name__: change for change in (by_resized_storage, by_flat_vector, by_functional_optimiser)},
}
