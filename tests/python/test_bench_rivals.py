"""Rivals beyond PyTorch: who is there, and that they compute the product. GPU and cuTENSOR are pretended."""

import ctypes
import importlib.util
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from bench_helpers import pretend_gpu, run_in_process
from kronsparse.bench.measuring import sweep
from kronsparse.bench.rivals import cutensor_rival, spellings
from kronsparse.bench.rivals.cutensor_rival import Cutensor, find_cutensor, product_with
from kronsparse.bench.rivals.spellings import spellings_for, why_missing
from kronsparse.chains import Pattern

LAYOUTS = ["batch_first", "batch_last"]


def exact(x, values, layout):
    a, _, c, d = values.shape
    if layout == "batch_first":
        y = torch.einsum("nicj,ibcj->nibj", x.double().view(-1, a, c, d), values.double())
        return y.reshape(x.shape[0], -1)
    y = torch.einsum("icjn,ibcj->ibjn", x.double().view(a, c, d, -1), values.double())
    return y.reshape(-1, x.shape[1])


class FakeLibrary:
    """cuTENSOR's functions for f32, on the host: a contraction of what the descriptors say."""

    def __init__(self, refused=()):
        self.made, self.destroyed, self.refused, self.algorithms = {}, [], refused, []

        class ErrorString:
            def __call__(self, status):
                return b"CUTENSOR_STATUS_NOT_SUPPORTED"

        self.cutensorGetErrorString = ErrorString()

    def _make(self, place, what):
        place._obj.value = len(self.made) + 1
        self.made[place._obj.value] = what
        return 0

    def cutensorCreate(self, handle):  # noqa: N802
        return self._make(handle, "handle")

    def cutensorCreateTensorDescriptor(self, handle, place, count, shape, strides, dtype, alignment):  # noqa: N802
        assert (count.value, dtype.value, alignment.value) == (4, 0, 16)
        return self._make(place, (tuple(shape), tuple(strides)))

    def cutensorCreateContraction(self, handle, place, *given):  # noqa: N802
        tensors = [self.made[one.value] for one in given[0:10:3]]
        letters = ["".join(map(chr, modes)) for modes in given[1:11:3]]
        assert letters[2] == letters[3] and tensors[2] == tensors[3] and len(given) == 12
        return self._make(place, (tensors, letters))

    def cutensorCreatePlanPreference(self, handle, place, algorithm, jit):  # noqa: N802
        return self._make(place, algorithm.value)

    def cutensorCreatePlan(self, handle, place, operation, preference, limit):  # noqa: N802
        self.algorithms.append(self.made[preference.value])
        if self.algorithms[-1] in self.refused:
            return 15
        return self._make(place, self.made[operation.value])

    def cutensorPlanGetAttribute(self, handle, plan, attribute, place, size):  # noqa: N802
        place._obj.value = 64
        return 0

    def cutensorContract(self, handle, plan, one, x, values, zero, y, again, workspace, size, stream):  # noqa: N802
        assert (one._obj.value, zero._obj.value, size.value, y.value) == (1.0, 0.0, 64, again.value)
        (tensors, letters) = self.made[plan.value]
        views = []
        for pointer, (shape, strides) in zip((x, values, y), tensors, strict=False):
            extent = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
            flat = np.ctypeslib.as_array((ctypes.c_float * extent).from_address(pointer.value))
            views.append(np.lib.stride_tricks.as_strided(flat, shape, [4 * one for one in strides]))
        views[2][...] = np.einsum(f"{letters[0]},{letters[1]}->{letters[2]}", views[0], views[1])
        return 0

    def __getattr__(self, name):
        if not name.startswith("cutensorDestroy"):
            raise AttributeError(name)
        return lambda handle: self.destroyed.append(handle.value) or 0


class OnTheHost(Cutensor):
    def _compute_descriptor(self, name):
        assert name in ("3XTF32", "32F")
        return ctypes.c_void_p(0)


@pytest.fixture
def pretended(monkeypatch):
    monkeypatch.setattr(cutensor_rival, "seconds_by_events", lambda call: call() or 1.0)
    monkeypatch.setattr(cutensor_rival, "_stream", lambda: 0)
    monkeypatch.setattr(cutensor_rival, "_kept", {})


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("order", ["abcd", "adbc"])
def test_cutensor_s_contraction_is_the_product(pretended, layout, order):
    values = torch.rand(2, 3, 5, 4)
    library = FakeLibrary(refused=(-4,))
    product = product_with(OnTheHost(library), values, layout, order)
    for batch in (7, 6):
        x = torch.randn((batch, 40) if layout == "batch_first" else (40, batch))
        y = torch.full((batch, 24) if layout == "batch_first" else (24, batch), torch.nan)
        assert product(x, y) is y
        torch.testing.assert_close(y, exact(x, values, layout).float())
    # All ways are tried once for each batch, and those without a plan passed over.
    assert library.algorithms == [-1, -4, -3, -2] * 4
    product(x, y)
    assert len(library.algorithms) == 16 and len(cutensor_rival._kept) == 1


def test_cutensor_without_any_plan_says_why(pretended):
    product = product_with(
        OnTheHost(FakeLibrary(refused=(-1, -2, -3, -4))), torch.rand(1, 2, 2, 1), "batch_first", "abcd"
    )
    with pytest.raises(RuntimeError, match="no plan: cutensorCreatePlan: CUTENSOR_STATUS_NOT_SUPPORTED"):
        product(torch.rand(3, 2), torch.empty(3, 2))


def test_cutensor_is_found_where_one_says(monkeypatch, tmp_path):
    monkeypatch.setenv(cutensor_rival.LIBRARY_VARIABLE, str(tmp_path / "libcutensor.so.2"))
    assert find_cutensor() is None
    assert (
        why_missing("cutensor", is_cuda=True) == "libcutensor.so.2 was not found: pip install cutensor-cu13"
    )
    (tmp_path / "libcutensor.so.2").touch()
    assert find_cutensor() == tmp_path / "libcutensor.so.2" and not why_missing("cutensor", is_cuda=True)


def test_rivals_of_a_gpu_say_what_they_need(monkeypatch, tmp_path):
    (spelling, _) = spellings_for("batch_first", Pattern(1, 2, 2, 1), ["cutensor"])
    with pytest.raises(RuntimeError, match="cuTENSOR needs an NVIDIA GPU; the values are on cpu"):
        spelling.prepare(torch.rand(1, 2, 2, 1))
    with pytest.raises(ValueError, match="--competitors triton: triton needs an NVIDIA GPU"):
        run_in_process(monkeypatch, tmp_path / "r", "--suite", "1x2x2x1", "--competitors", "triton")


def test_the_usual_rivals_are_those_that_are_there(monkeypatch, tmp_path, capsys):
    device = pretend_gpu(monkeypatch)
    monkeypatch.setattr(sweep, "open_device", lambda name, library: device)
    monkeypatch.setattr(spellings.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv(cutensor_rival.LIBRARY_VARIABLE, str(tmp_path / "none"))
    options = ["--device", "cuda:0", "--suite", "2x8x8x4", "--dtypes", "f32", "--layouts", "batch_last"]
    monkeypatch.setattr(sweep, "hold_contest", lambda table, problem, families: asked.extend(families) or [])
    asked = []
    monkeypatch.setattr(sweep, "summary", lambda rows: [])
    run_in_process(monkeypatch, tmp_path / "rows.jsonl", *options, "--compiled")
    usual = ["kronsparse", "bmm", "einsum", "dense", "blocks", "strided", "transposing"]
    assert asked == [*usual, "compiled", "compiled-einsum"]
    told = capsys.readouterr().err
    assert "without triton: the package triton is not installed" in told
    assert "without cutensor: libcutensor.so.2 was not found" in told


def test_both_loops_and_both_transposings_are_tried():
    pattern = Pattern(3, 4, 5, 2)
    found = {one.name for one in spellings_for("batch_last", pattern, ["strided"])}
    assert {"bmm strided views", "bmm strided views by j"} <= found
    found = [one.name for one in spellings_for("batch_first", pattern, ["transposing", "blocks"])]
    assert found == ["bmm by transposing", "bmm by j by transposing", "dense blocks", "dense blocks as one"]


INTERPRETED = """
import torch
from kronsparse.bench.rivals import triton_rival
torch.manual_seed(1)
for layout in ("batch_first", "batch_last"):
    for a, b, c, d, n in ((2, 3, 5, 4, 7), (1, 40, 70, 1, 130), (3, 33, 16, 2, 65)):
        values = torch.rand(a, b, c, d)
        x = torch.randn((n, a * c * d) if layout == "batch_first" else (a * c * d, n))
        y = torch.full((n, a * b * d) if layout == "batch_first" else (a * b * d, n), torch.nan)
        w = values.permute(0, 3, 1, 2).contiguous()
        form = "nicj,ibcj->nibj" if layout == "batch_first" else "icjn,ibcj->ibjn"
        shape = (n, a, c, d) if layout == "batch_first" else (a, c, d, n)
        expected = torch.einsum(form, x.view(shape), values).reshape(y.shape)
        for tile in triton_rival.TILES[:2]:
            triton_rival.launch(w, x, y.fill_(torch.nan), layout, tile)
            torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-5)
print("right")
"""


def test_the_triton_kernel_computes_the_product():
    if importlib.util.find_spec("triton") is None:
        pytest.skip("needs triton")
    done = subprocess.run(
        [sys.executable, "-c", INTERPRETED],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    if "only 0-dimensional arrays can be converted" in done.stderr:
        pytest.skip("triton's interpreter needs numpy < 2.4")
    assert done.stdout == "right\n", done.stderr[-2000:]


@pytest.mark.gpu
@pytest.mark.parametrize("family", ["triton", "cutensor"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_rivals_on_a_gpu(family, layout):
    if why_missing(family, is_cuda=True):
        pytest.skip(why_missing(family, is_cuda=True))
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        values = torch.rand(2, 33, 40, 4, device="cuda", dtype=dtype)
        x = torch.randn((70, 320) if layout == "batch_first" else (320, 70), device="cuda", dtype=dtype)
        for spelling in spellings_for(layout, Pattern(*values.shape), [family]):
            shape = (70, 264) if layout == "batch_first" else (264, 70)
            y = spelling.prepare(values)(x, torch.full(shape, torch.nan, device="cuda", dtype=dtype))
            error = (y.double() - exact(x, values, layout)).norm() / exact(x, values, layout).norm()
            assert error < (1e-6 if dtype == torch.float32 else 1e-2), spelling.name
