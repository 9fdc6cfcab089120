"""No way of changing a weight gives an answer from old values; nothing grows while they change."""

import copy
import gc
import multiprocessing
import os
import subprocess
import sys
import textwrap
import threading

import pytest
import torch
import torch.nn.utils.parametrize
from conftest import dense_product
from kronsparse.torch import KSLinear, ks_linear, memory_info
from weight_changes import CHANGES, check, in_place, input_for, train

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


@pytest.fixture
def layer(device):
    return KSLinear(16, 16, "monarch(blocks=4)", bias=False, dtype=torch.float64, device=device)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_never_stale_after(layer, change):
    check(layer)
    before = layer.to_dense().detach().clone()
    for _ in range(3):
        change(layer)
        check(layer)
    assert not torch.equal(layer.to_dense(), before), "the change must change something"


@pytest.mark.parametrize("backend", ["aot_eager"])
@pytest.mark.parametrize("change", ["by_data", "adamw_fused", "by_numpy", "load_and_assign", "by_data_swap"])
def test_compiled_code_is_never_stale_after(layer, change, backend):
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    x = input_for(layer)
    for _ in range(3):
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), x @ dense_product(layer.factors).T)
        CHANGES[change](layer)


def test_a_compiled_function_may_multiply_and_change_in_one_graph(layer):
    torch._dynamo.reset()

    def both(x):
        y = layer(x)
        layer.factor0.mul_(2)
        return y, layer(x)

    compiled = torch.compile(both, fullgraph=True, backend="aot_eager")
    x = input_for(layer)
    with torch.no_grad():
        for _ in range(3):
            reference = x @ dense_product(layer.factors).T
            first, second = compiled(x)
            torch.testing.assert_close(first, reference)
            torch.testing.assert_close(second, 2 * reference)


def test_layers_that_take_turns_in_one_buffer(device):
    layers = [
        KSLinear(16, 16, "monarch(blocks=4)", bias=False, dtype=torch.float64, device=device) for _ in "ab"
    ]
    own = [[values.data.clone() for values in layer.factors] for layer in layers]
    buffers = [torch.empty_like(values) for values in layers[0].factors]
    for _ in range(3):
        for layer, kept in zip(layers, own, strict=True):
            for values, buffer, mine in zip(layer.factors, buffers, kept, strict=True):
                values.data = buffer.copy_(mine)
            check(layer)


def test_pruned_weights(layer):
    prune = pytest.importorskip("torch.nn.utils.prune")
    prune.l1_unstructured(layer, "factor0", amount=0.5)
    for _ in range(2):
        layer.factor0_orig.data.mul_(-2)
        y = layer(input_for(layer))  # the hook before it prunes anew
        torch.testing.assert_close(y, input_for(layer) @ dense_product(layer.factors).T)
        check(layer)
    with pytest.raises(RuntimeError, match="factor0 is computed at each call"):
        layer.freeze()
    prune.remove(layer, "factor0")
    check(layer)


def read_shared(layer, x, asked, answers):
    for _ in range(3):
        asked.get()
        with torch.no_grad():
            answers.put(layer(x).numpy().copy())


def test_a_server_sees_what_a_trainer_shares():
    """Hogwild, or a server beside a trainer: one process multiplies, the other changes the weights."""
    layer = KSLinear(16, 16, "monarch(blocks=4)", bias=False, dtype=torch.float64).share_memory()
    context = multiprocessing.get_context("fork")
    asked, answers = context.Queue(), context.Queue()
    x = input_for(layer)
    server = context.Process(target=read_shared, args=(layer, x, asked, answers))
    server.start()
    try:
        for _ in range(3):
            in_place(layer)
            asked.put(True)
            reference = x @ dense_product([values.detach() for values in layer.factors]).T
            torch.testing.assert_close(torch.from_numpy(answers.get(timeout=60)), reference)
    finally:
        server.join(60)
        if server.is_alive():
            server.kill()


def test_tied_weights(device):
    first, second = (
        KSLinear(16, 16, "1x16x16x1*1x16x16x1", bias=False, device=device).double() for _ in "ab"
    )
    second.factor0 = first.factor0
    first.factor1 = first.factor0
    for _ in range(2):
        first.factor0.data.mul_(2)
        check(first)
        check(second)


@pytest.mark.parametrize("kind", ["tanh", "weight_norm", "spectral_norm", "orthogonal"])
def test_parametrized_weights(layer, kind):
    if kind == "tanh":
        torch.nn.utils.parametrize.register_parametrization(layer, "factor0", torch.nn.Tanh())
    else:
        getattr(torch.nn.utils.parametrizations, kind)(layer, "factor0")
    layer.eval()
    for _ in range(3):
        for values in layer.parameters():
            values.data.add_(torch.randn_like(values))
        check(layer)


def test_gradients_through_weight_norm_train(layer):
    torch.nn.utils.parametrizations.weight_norm(layer, "factor1")
    optimiser = torch.optim.AdamW(layer.parameters(), lr=0.1, fused=True)
    for _ in range(3):
        train(layer, optimiser)
        check(layer)


def test_values_of_functions_are_read_at_each_call(device):
    values = torch.randn(1, 4, 4, 4, dtype=torch.float64, device=device)
    x = torch.randn(6, 16, dtype=torch.float64, device=device)
    for view in (values, values.transpose(1, 2), values.permute(0, 3, 1, 2), values[:, :2]):
        for _ in range(2):
            values.data.mul_(-2)
            torch.testing.assert_close(ks_linear(x, [view]), x @ dense_product([view]).T)


def test_memory_used_again_at_one_address(device):
    x = torch.randn(6, 16, dtype=torch.float64, device=device)
    for index in range(20):
        values = torch.full((1, 4, 4, 4), float(index), dtype=torch.float64, device=device)
        torch.testing.assert_close(ks_linear(x, [values]), x @ dense_product([values]).T)
        del values


def test_inference_tensors(device):
    with torch.inference_mode():
        layer = KSLinear(16, 16, "monarch(blocks=4)", bias=False, dtype=torch.float64, device=device)
        x = input_for(layer)
        for _ in range(3):
            layer.factor0.mul_(2)
            torch.testing.assert_close(layer(x), x @ dense_product(layer.factors).T)


def test_collectives(tmp_path):
    if not torch.distributed.is_available():
        pytest.skip("torch was built without torch.distributed")
    code = """
        import os, sys
        import torch
        import torch.distributed as dist
        from kronsparse.torch import KSLinear, to_dense

        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=0, world_size=1)
        layer = KSLinear(16, 16, "monarch(blocks=4)", bias=False).double()
        x = torch.randn(3, 16).double()

        def check():
            with torch.no_grad():
                torch.testing.assert_close(layer(x), x @ to_dense(layer.factors).T)

        check()
        other = torch.randn_like(layer.factor0)
        for collective in (
            lambda: dist.all_gather_into_tensor(layer.factor0.data.view(-1), other.view(-1)),
            lambda: dist.scatter(layer.factor0.data, [2 * other]),
            lambda: dist.reduce_scatter_tensor(layer.factor0.detach().view(-1), 3 * other.view(-1)),
            lambda: dist.all_reduce(layer.factor0.data, op=dist.ReduceOp.PRODUCT),
            lambda: dist.broadcast(layer.factor0.detach(), 0),
        ):
            collective()
            check()
        assert torch.equal(layer.factor0, 3 * other)
        dist.destroy_process_group()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path / "meeting")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def ragged(layer, step):
    layer(torch.ones(1 + step % 997, layer.in_features))


def swapping(layer, step):
    layer.factor0.data = torch.full_like(layer.factor0, float(step))
    layer(torch.ones(3, layer.in_features))


def normalised(layer, step):
    if not hasattr(layer, "parametrizations"):
        torch.nn.utils.parametrizations.weight_norm(layer, "factor0")
    layer(torch.ones(3, layer.in_features)).sum().backward()


def functional_call(layer, step):
    factors = {name: values.detach() * step for name, values in layer.named_parameters()}
    torch.func.functional_call(layer, factors, (torch.ones(3, layer.in_features),))


def saved_by_hooks(layer, step):
    with torch.autograd.graph.saved_tensors_hooks(torch.clone, torch.clone):
        y = layer(torch.ones(3, layer.in_features))
    y.sum().backward()


def frozen_ragged(layer, step):
    if not layer.is_frozen:
        layer.freeze()
    with torch.no_grad():
        layer(torch.ones(1 + step % 997, layer.in_features))


def frozen_anew(layer, step):
    layer.freeze()
    with torch.no_grad():
        layer(torch.ones(1 + step % 3, layer.in_features))


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs /proc")
@pytest.mark.parametrize(
    "work",
    [ragged, swapping, normalised, functional_call, saved_by_hooks, frozen_ragged, frozen_anew],
    ids=lambda work: work.__name__,
)
def test_nothing_grows(work):
    others = memory_info()  # what CUDA graphs of other tests keep
    layer = KSLinear(256, 256, "monarch(blocks=16)")
    for step in range(1000):  # every size once
        work(layer, step)
    gc.collect()
    before, kept = resident_bytes(), memory_info()
    for step in range(2000):
        work(layer, step)
    gc.collect()
    assert resident_bytes() - before < 8 << 20
    after = memory_info()
    assert after.plans == kept.plans
    assert after.packed_bytes - others.packed_bytes <= 3 * 8192 * 4 + 4096
    assert after.frozen_layers <= kept.frozen_layers


def test_plans_are_bounded():
    before = memory_info()
    try:
        torch.ops.kronsparse.set_plans(8)
        for size in range(1, 30):
            values = torch.randn(1, size, 3, 1)
            x = torch.randn(2, 3)
            torch.testing.assert_close(ks_linear(x, [values]), x @ dense_product([values]).T)
            assert memory_info().plans <= 8
    finally:
        torch.ops.kronsparse.set_plans(before.plans_at_most)


def test_threads_multiply_while_others_change_other_weights():
    errors = []
    x = torch.randn(6, 16, dtype=torch.float64)

    def work(seed):
        generator = torch.Generator().manual_seed(seed)
        values = torch.nn.Parameter(torch.randn(1, 4, 4, 4, dtype=torch.float64, generator=generator))
        layer = KSLinear.from_factors([values])
        for index in range(200):
            layer.factor0.data.mul_(-1.01)
            reference = x @ dense_product(layer.factors).T
            if index % 50 == 10:
                layer.freeze()
            with torch.no_grad():
                if not torch.allclose(layer(x), reference):
                    errors.append("wrong")
            layer.unfreeze()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_deepcopies_are_apart(layer):
    copied = copy.deepcopy(layer)
    copied.factor0.data.mul_(2)
    check(layer)
    check(copied)
