"""Two Gloo processes give what one does: DistributedDataParallel and FSDP2."""

import copy
import datetime
import os

import pytest
import torch
import torch.multiprocessing as mp
from kronsparse.torch import KSLinear
from torch import nn

STEPS = 4
WORLD = 2

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not torch.distributed.is_available(), reason="torch was built without torch.distributed"
    ),
]


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(
        KSLinear(16, 32, "monarch(blocks=4)", activation="gelu", backend="kernel"),
        KSLinear(32, 16, "monarch(blocks=4)", backend="kernel"),
    ).double()


def data():
    torch.manual_seed(1)
    return torch.randn(STEPS, 8, 16, dtype=torch.float64)


def train(model, batches, fused=True):
    """Losses, and the output of the trained model, with an evaluation between the steps."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=fused)
    outputs = []
    for x in batches:
        optimiser.zero_grad()
        (model(x) - x).square().mean().backward()
        optimiser.step()
        with torch.no_grad():
            outputs.append(model(torch.ones(3, 16, dtype=torch.float64)).clone())
    return torch.stack(outputs)


def wrap(model, kind):
    if kind == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    from torch.distributed.fsdp import fully_shard

    for layer in model:
        fully_shard(layer)
    return fully_shard(model)


def work(rank, kind, path):
    # They meet at a file and talk over the loopback: no port that another program may take first.
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{path / 'meeting'}",
        rank=rank,
        world_size=WORLD,
        timeout=datetime.timedelta(seconds=100),
    )
    # The model is gone when the group is destroyed: DistributedDataParallel would else destroy it later,
    # with Python's lock in hand, and wait for ever for a thread of Gloo that wants the lock.
    model = wrap(make_model(), kind)
    outputs = train(model, data().chunk(WORLD, dim=1)[rank])
    del model
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    torch.save(outputs, path / f"{rank}.pt")


@pytest.mark.parametrize("kind", ["ddp", "fsdp2"])
def test_two_processes_train_as_one(kind, tmp_path):
    reference = train(copy.deepcopy(make_model()), data())
    mp.spawn(work, (kind, tmp_path), nprocs=WORLD)
    for rank in range(WORLD):
        torch.testing.assert_close(torch.load(tmp_path / f"{rank}.pt"), reference)
