"""How long a call of a layer keeps the host busy.

In a file of its own: test_gpu.py sets a default device, and that makes every access to a tensor slower.
"""

import time

import pytest
import torch
from kronsparse.torch import KSLinear

pytestmark = pytest.mark.gpu


def test_host_time_of_a_call():
    """KSLinear may take five microseconds more than nn.Linear."""
    linear = torch.nn.Linear(64, 64, device="cuda", dtype=torch.float16)
    layer = KSLinear(64, 64, "dense", backend="kernel", device="cuda", dtype=torch.float16)
    x = torch.randn(1, 64, device="cuda", dtype=torch.float16)

    def microseconds(module):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(200):
            module(x)
        return (time.perf_counter() - begin) / 200 * 1e6

    # By turns, and the least of each: other work of the machine makes calls slower, never faster.
    with torch.no_grad():
        runs = [(microseconds(layer), microseconds(linear)) for _ in range(40)]
    ours, theirs = (min(times) for times in zip(*runs, strict=True))
    print(f"KSLinear {ours:.1f} us, nn.Linear {theirs:.1f} us")
    assert ours - theirs <= 5
