"""Two and four Gloo processes give what one does: tensor parallel, DTensors as inputs, FSDP2's shards.

Four processes are started once, from one that has imported torch. They take one test after the other; two of
them are a row of a mesh of two dimensions.
"""

import datetime
import functools
import itertools
import os
import traceback

import pytest
import torch
import torch.multiprocessing as mp
from kronsparse.chains import Chain
from kronsparse.torch import KSLinear
from torch import nn

PROCESSES = 4
IMPORTED_ONCE = [
    "pytest",
    "kronsparse.torch.parallel",
    "torch.distributed.fsdp",
    "torch.distributed.tensor.debug",
]
UNEQUAL = Chain([(1, 12, 8, 4), (2, 4, 4, 4), (4, 8, 8, 1)])  # 48 x 32
LAYOUTS = ["replicate", "features", "first", "second"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not torch.distributed.is_available(), reason="torch was built without torch.distributed"
    ),
]


def close(found, expected, tolerance=1e-10):
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def make(in_features=64, out_features=128, chain="monarch(blocks=8)", **options):
    torch.manual_seed(0)
    return KSLinear(in_features, out_features, chain, dtype=torch.float64, **options)


def gradients(layer, x, g):
    """y and all gradients."""
    x = x.clone().requires_grad_()
    y = layer(x)
    y.backward(g)
    return y.detach(), x.grad, [one.grad for one in layer.parameters()]


def part(tensor, layout, mesh):
    from torch.distributed.tensor import Shard

    if not isinstance(layout, Shard):
        return tensor
    return tensor.chunk(mesh.size(), layout.dim)[mesh.get_local_rank()].contiguous()


def layout_of(name):
    from torch.distributed.tensor import Replicate, Shard

    return {"replicate": Replicate(), "features": Shard(-1), "first": Shard(0), "second": Shard(1)}[name]


def check_style(mesh, style, **options):
    """One layer, parallel and alone, forward and backward."""
    from torch.distributed.tensor.parallel import parallelize_module

    alone = make(**options)
    torch.manual_seed(1)
    features = (alone.in_features, alone.out_features)
    is_first = alone.layout == "batch_first"
    x, g = (torch.randn((4, 8, n) if is_first else (n, 4, 8), dtype=torch.float64) for n in features)
    y, grad_x, grads = gradients(alone, x, g)
    layer = parallelize_module(make(**options), mesh, style)
    for one in layer.factors:
        assert one.to_local().numel() * mesh.size() == one.numel()
    into, out = style.input_layouts, style.output_layouts
    found_y, found_x, found = gradients(layer, part(x, into, mesh), part(g, out, mesh))
    close(found_y, part(y, out, mesh))
    close(found_x, part(grad_x, into, mesh))
    for mine, theirs in zip(found, grads, strict=True):
        close(mine.full_tensor(), theirs)
    return layer


def every_layout_of_x_and_y(mesh):
    from kronsparse.torch.parallel import KSParallel

    cuts = itertools.cycle(["ca", "da", "ba", "db", "cb", None, None])
    for into, out in itertools.product(map(layout_of, LAYOUTS), repeat=2):
        style = KSParallel(next(cuts), input_layouts=into, output_layouts=out)
        check_style(mesh, style, activation="gelu")


def layouts_of_four(rank, mesh):
    every_layout_of_x_and_y(init_mesh())


def layouts_of_two(rank, mesh):
    every_layout_of_x_and_y(mesh["tp"])


def init_mesh():
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cpu", (PROCESSES,))


def every_cut(rank, mesh):
    from kronsparse.torch.parallel import KSParallel
    from torch.distributed.tensor import Shard

    options = {"in_features": 32, "out_features": 48, "chain": UNEQUAL, "bias": False}
    for cuts in itertools.product("bcd", "abcd", "abc"):
        style = KSParallel("".join(cuts), input_layouts=Shard(-1))
        check_style(mesh["tp"], style, **options)


def batch_last(rank, mesh):
    from kronsparse.torch.parallel import KSParallel
    from torch.distributed.tensor import Replicate, Shard

    layouts = [Replicate(), Shard(0), Shard(2)]
    for into, out in zip(layouts, reversed(layouts), strict=True):
        for cuts in ("da", "ca", None):
            style = KSParallel(cuts, input_layouts=into, output_layouts=out)
            check_style(mesh["tp"], style, layout="batch_last", activation="relu")


def collectives(rank, mesh):
    """As few as promised, of those kinds."""
    from kronsparse.torch.parallel import KSParallel
    from torch.distributed.tensor.debug import CommDebugMode
    from torch.distributed.tensor.parallel import parallelize_module

    four = init_mesh()
    for cuts, into, out, expected in (
        ("ca", "replicate", "replicate", {"all_reduce": 1}),
        ("ca", "features", "features", {"reduce_scatter": 1}),
        ("db", "replicate", "replicate", {"all_gather": 1}),
        (None, "features", "features", {"all_to_all": 2}),
        ("da", "features", "replicate", {"all_to_all": 1, "all_gather": 1}),
        ("da", "second", "second", {"all_to_all": 3}),
    ):
        style = KSParallel(cuts, input_layouts=layout_of(into), output_layouts=layout_of(out))
        layer = parallelize_module(make(), four, style)
        x = part(torch.ones(4, 8, 64, dtype=torch.float64), style.input_layouts, four)
        with CommDebugMode() as counter, torch.no_grad():
            layer(x)
        counts = {str(name): count for name, count in counter.get_comm_counts().items()}
        for kind, count in expected.items():
            assert sum(n for name, n in counts.items() if kind in name) == count, (cuts, counts)
        assert sum(counts.values()) == sum(expected.values()), (cuts, counts)


def distributed_inputs(rank, mesh):
    """A KSLinear whose parameters are replicated DTensors: x cut by samples, unevenly too, or by features."""
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor

    four = init_mesh()
    for layout, at in (("batch_first", 0), ("batch_last", 1)):
        alone = make(activation="gelu", layout=layout)
        sizes = [(5, 3, n) if layout == "batch_first" else (n, 5, 3) for n in (64, 128)]
        torch.manual_seed(1)
        x, g = (torch.randn(size, dtype=torch.float64) for size in sizes)
        y, grad_x, grads = gradients(alone, x, g)
        features = 2 if layout == "batch_first" else 0
        for over, ways in (
            (four, [Shard(at)]),
            (four, [Shard(features)]),
            (mesh, [Shard(at), Replicate()]),
            (mesh, [Shard(at), Shard(at + 1)]),
        ):
            layer = distribute_module(make(activation="gelu", layout=layout), over)
            given = distribute_tensor(x, over, ways).requires_grad_()
            found = layer(given)
            assert isinstance(found, DTensor)
            assert found.shape == y.shape
            found.backward(distribute_tensor(g, over, found.placements))
            close(found.full_tensor(), y)
            close(given.grad.full_tensor(), grad_x)
            for mine, theirs in zip(layer.parameters(), grads, strict=True):
                close(mine.grad.full_tensor(), theirs)


def mixed_inputs(rank, mesh):
    from torch.distributed.tensor import Shard, distribute_module, distribute_tensor

    four = init_mesh()
    x = torch.ones(4, 64, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"factor0: a plain tensor given beside DTensors.*distribute_module"):
        make()(distribute_tensor(x, four, [Shard(0)]))
    with pytest.raises(ValueError, match=r"x: a plain tensor given beside DTensors.*from_local"):
        distribute_module(make(), four)(x)


def distributed_input_of_a_style(rank, mesh):
    from kronsparse.torch.parallel import KSParallel
    from torch.distributed.tensor import Shard, distribute_tensor
    from torch.distributed.tensor.parallel import parallelize_module

    four = init_mesh()
    x = torch.randn(8, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    style = KSParallel(output_layouts=Shard(-1), use_local_output=False)
    layer = parallelize_module(make(), four, style)
    y = layer(distribute_tensor(x, four, [Shard(0)]))
    assert y.placements == (Shard(1),) or y.placements == (Shard(-1),)
    close(y.full_tensor(), make()(x))


def frozen(rank, mesh):
    from kronsparse.torch import freeze
    from kronsparse.torch.parallel import KSParallel
    from torch.distributed.tensor.parallel import parallelize_module

    x = torch.ones(8, 64, dtype=torch.float64)
    model = nn.Sequential(parallelize_module(make(), init_mesh(), KSParallel("da")))
    freeze(model.eval())
    assert model[0].is_frozen
    with torch.no_grad():
        close(model(x), make()(x))
        model[0].factor0.mul_(2)
        with pytest.raises(RuntimeError, match="factor0: was changed while its layer is frozen"):
            model(x)
    model.train()
    assert not model[0].is_frozen
    close(model(x) - model[0].bias.full_tensor(), 2 * (make()(x) - make().bias))


def whole_matrices_and_states(rank, mesh):
    from kronsparse.torch.parallel import KSParallel
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
    from torch.distributed.tensor.parallel import parallelize_module

    layer = parallelize_module(make(), init_mesh(), KSParallel())
    close(layer.to_dense(), make().to_dense())
    close(layer.weight, make().to_dense())
    state = get_model_state_dict(layer, options=StateDictOptions(full_state_dict=True))
    for name, one in make().state_dict().items():
        if rank == 0:
            close(state[name], one)
    assert "cuts=" in repr(layer)
    assert "processes=4" in repr(layer)


def autocast(rank, mesh):
    from kronsparse.torch.parallel import KSParallel
    from torch.distributed.tensor.parallel import parallelize_module

    x = torch.randn(8, 64, generator=torch.Generator().manual_seed(0))
    layer = parallelize_module(make().float(), init_mesh(), KSParallel("da"))
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x)
    assert y.dtype == torch.bfloat16
    close(y.float(), make().float()(x), 0.05)


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(
        KSLinear(32, 64, "monarch(blocks=8)", activation="gelu"), KSLinear(64, 32, "monarch(blocks=8)")
    ).double()


def train(model, batches):
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
    for x in batches:
        optimiser.zero_grad()
        (model(x) - x).square().mean().backward()
        optimiser.step()
    with torch.no_grad():
        return model(torch.ones(3, 32, dtype=torch.float64))


def batches():
    return torch.randn(3, 8, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def fsdp_of_four(rank, mesh):
    from kronsparse.torch.parallel import shard_evenly
    from torch.distributed.fsdp import fully_shard

    model = make_model()
    for layer in model:
        fully_shard(layer, shard_placement_fn=shard_evenly)
    fully_shard(model)
    for one in model.parameters():
        assert one.to_local().numel() * PROCESSES == one.numel()
    close(train(model, batches().chunk(PROCESSES, 1)[rank]), train(make_model(), batches()), 1e-8)


def fsdp_and_tensor_parallel(rank, mesh):
    from kronsparse.torch.parallel import KSParallel, shard_evenly
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.parallel import parallelize_module

    plan = {"0": KSParallel(output_layouts=Shard(-1)), "1": KSParallel(input_layouts=Shard(-1))}
    model = parallelize_module(make_model(), mesh["tp"], plan)
    placement = functools.partial(shard_evenly, processes=2)
    for layer in model:
        fully_shard(layer, mesh=mesh["dp"], shard_placement_fn=placement)
    fully_shard(model, mesh=mesh["dp"])
    for layer in model:
        for one in layer.factors:
            assert one.to_local().numel() * PROCESSES == one.numel()
    mine = batches().chunk(2, 1)[mesh["dp"].get_local_rank()]
    close(train(model, mine), train(make_model(), batches()), 1e-8)


def refusals(rank, mesh):
    from kronsparse.torch.parallel import KSParallel
    from torch.distributed.tensor import Partial, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import parallelize_module

    four = init_mesh()

    def refused(message, style, module=None, over=four, kind=ValueError):
        module = module or make()
        with pytest.raises(kind, match=message):
            parallelize_module(module, over, style)
        assert not any(hasattr(one, "placements") for one in module.parameters())

    refused("cuts: 'abc' given, must have one of the letters a, b, c, d for each of the 2", KSParallel("abc"))
    refused("cuts: 'a' given for factor0, 1x16x8x8, must be one of b, c, d: 4 processes", KSParallel("aa"))
    odd = make(25, 15, "monarch(blocks=5)")
    refused("chain: 4 processes cannot share out 5x5x5x1", KSParallel(), odd)
    refused("input_layouts: the features cut, and the layer has 25", KSParallel(input_layouts=Shard(-1)), odd)
    refused(r"output_layouts: P.* given, must be Replicate", KSParallel(output_layouts=Partial()))
    refused("module: Linear given, must be a KSLinear", KSParallel(), nn.Linear(4, 4), kind=TypeError)
    refused(r"device_mesh: 2 dimensions given, must be one, as in mesh\['tp'\]", KSParallel(), over=mesh)
    layer = parallelize_module(make(), four, KSParallel(input_layouts=Shard(-1)))
    with pytest.raises(ValueError, match=r"x: local sizes \(2, 64\) given.* must be 16: input_layouts is S"):
        layer(torch.ones(2, 64, dtype=torch.float64))
    layer = parallelize_module(make(), four, KSParallel(output_layouts=Shard(1)))
    with pytest.raises(ValueError, match="must have a dimension 1 in its batch: output_layouts is"):
        layer(torch.ones(4, 64, dtype=torch.float64))
    layer = parallelize_module(make(), four, KSParallel("da", input_layouts=Shard(0)))
    with pytest.raises(ValueError, match=r"sizes \(5, 64\) given, that of dimension 0 must be a multiple"):
        layer(distribute_tensor(torch.ones(5, 64, dtype=torch.float64), four, [Shard(0)]))
    layer = parallelize_module(make(), four, KSParallel("ca", output_layouts=Shard(0)))
    with pytest.raises(ValueError, match=r"sizes \(3, 128\) given, that of dimension 0 must be a multiple"):
        layer(torch.ones(3, 64, dtype=torch.float64))


WORKS = [
    layouts_of_four,
    layouts_of_two,
    every_cut,
    batch_last,
    collectives,
    distributed_inputs,
    mixed_inputs,
    distributed_input_of_a_style,
    frozen,
    whole_matrices_and_states,
    autocast,
    fsdp_of_four,
    fsdp_and_tensor_parallel,
    refusals,
]


def enter(rank, path):
    from torch.distributed.device_mesh import init_device_mesh

    # They meet at a file and talk over the loopback: no port that another program may take first.
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{path / 'meeting'}",
        rank=rank,
        world_size=PROCESSES,
        timeout=datetime.timedelta(seconds=60),
    )
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    for work in WORKS:
        try:
            work(rank, mesh)
            (path / f"{work.__name__}.{rank}").write_text("")
        except BaseException:  # pytest's own among them
            (path / f"{work.__name__}.{rank}").write_text(traceback.format_exc())
            os._exit(1)  # the others would wait for it in a collective
        torch.distributed.barrier()
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("processes")
    try:
        mp.get_context("forkserver").set_forkserver_preload(IMPORTED_ONCE)
        mp.start_processes(enter, (path,), nprocs=PROCESSES, start_method="forkserver")
    except Exception as error:
        (path / "error").write_text(str(error))
    return path


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.__name__)
def test_processes(work, written):
    for rank in range(PROCESSES):
        told = written / f"{work.__name__}.{rank}"
        assert told.exists(), f"process {rank} did not get here"
        assert told.read_text() == ""
