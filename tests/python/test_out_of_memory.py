"""Memory that runs out is torch.OutOfMemoryError, and everything works afterwards."""

import os
import subprocess
import sys
import textwrap

import pytest

BEGIN = """
    import resource, sys
    import torch
    from kronsparse.torch import KSLinear, ks_linear

    torch.set_num_threads(1)
    layer = KSLinear(64, 1 << 14, "1x16384x8x1*1x8x64x1", backend="kernel")
    small, many = torch.ones(3, 64), torch.ones(1 << 14, 64)
    reference = layer(small).detach()
    layer(small).sum().backward()

    def limit():
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20), -1))

    def refused(call):
        try:
            call()
        except torch.OutOfMemoryError as error:
            assert "memory" in str(error), error
        else:
            raise SystemExit("it must not fit")

    def still_works():
        torch.testing.assert_close(layer(small).detach(), reference)
        layer(small).sum().backward()
"""

FORWARD = """
    limit()
    for _ in range(3):
        with torch.no_grad():
            refused(lambda: layer(many))
        refused(lambda: layer(many))
        refused(lambda: ks_linear(many, layer.factors))
        refused(lambda: layer.freeze()(many))
        layer.unfreeze()
        still_works()
"""

TRANSFORMS = """
    limit()
    refused(lambda: torch.func.vmap(layer)(many))
    refused(lambda: torch.func.jvp(layer, (many,), (many,)))
    still_works()
"""

BACKWARD = """
    wide = KSLinear(1 << 14, 64, "1x64x8x1*1x8x16384x1", backend="kernel")
    x = torch.ones(1, 1 << 14, requires_grad=True)
    y = wide(x.expand(8192, -1).clone())
    g = torch.ones(8192, 64)
    limit()
    refused(lambda: y.backward(g))
    still_works()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs limits of Linux")
@pytest.mark.parametrize("code", [FORWARD, TRANSFORMS, BACKWARD], ids=["forward", "transforms", "backward"])
def test_on_the_cpu(code):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(BEGIN) + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]


@pytest.mark.gpu
@pytest.mark.parametrize("is_frozen", [False, True])
@pytest.mark.parametrize("with_grad", [False, True])
def test_on_the_gpu(with_grad, is_frozen):
    code = f"""
        import torch
        from kronsparse.torch import KSLinear

        torch.set_grad_enabled({with_grad})
        layer = KSLinear(1024, 16384, "monarch(blocks=32)", backend="kernel").half().cuda()
        if {is_frozen}:
            layer.freeze()
        small = torch.randn(16, 1024, device="cuda", dtype=torch.float16)
        reference = layer(small).detach()
        x = torch.randn(65536, 1024, device="cuda", dtype=torch.float16)  # whose output has two gigabytes
        free, _ = torch.cuda.mem_get_info()
        filled = torch.empty(free - (1 << 30), device="cuda", dtype=torch.uint8)
        for _ in range(3):
            try:
                layer(x)
            except torch.OutOfMemoryError as error:
                assert "memory" in str(error), error
            else:
                raise SystemExit("it must not fit")
            assert torch.equal(layer(small), reference)
        torch.cuda.synchronize()
        del filled
        torch.cuda.empty_cache()
        layer(x)
        torch.cuda.synchronize()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
