"""Factorisation: matrices of all kinds, Ctrl-C, and the same through torch."""

import math
import subprocess
import sys

import kronsparse
import numpy as np
import pytest
from factorization_helpers import CHAINS, DTYPES, error_of, product, random, rounding
from kronsparse import KSOperator, butterfly, factorize
from scipy import sparse


@pytest.mark.parametrize(
    "chain", ["low_rank(rank=64)", "monarch(blocks=64, rank=4)", "butterfly", "kaleidoscope"]
)
def test_control_c_ends_it(chain):
    program = f"""
import signal, sys, threading, time
import numpy as np, kronsparse
size = 512 if {chain!r} == "kaleidoscope" else 2048
w = np.random.default_rng(0).normal(size=(size, size))
def interrupt():
    time.sleep(0.3)
    signal.raise_signal(signal.SIGINT)
threading.Thread(target=interrupt, daemon=True).start()
try:
    while True:
        kronsparse.factorize(w, {chain!r}, polish=50)
except KeyboardInterrupt:
    print("ended", kronsparse.factorize(w[:64, :64], "butterfly").error < 1)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=100
    )
    assert done.stdout == "ended True\n"


def test_matrices_of_all_kinds():
    w = random((16, 16))
    expected = factorize(w, "butterfly").error
    assert factorize(KSOperator([w[None, :, :, None]]), "butterfly").error == pytest.approx(expected)
    assert factorize(sparse.linalg.aslinearoperator(w), "butterfly").error == pytest.approx(expected)
    assert factorize(sparse.csr_array(w), "butterfly").error == expected
    assert factorize(w.tolist(), "butterfly").error == expected
    assert factorize(w.astype(">f8"), "butterfly").error == expected
    assert factorize(np.repeat(w, 2, axis=1)[:, ::2], "butterfly").error == expected

    class LazyLinOp:  # lazylinop's have this, and no array interface
        shape, ndim = w.shape, 2

        def toarray(self):
            return w

    assert factorize(LazyLinOp(), "butterfly").error == expected
    found = factorize(w, "butterfly")
    assert found.rounded(LazyLinOp()).error == found.rounded(w).error


def test_tensors_of_torch():
    torch = pytest.importorskip("torch")
    w = torch.randn(16, 16, dtype=torch.complex64)
    expected = factorize(w.numpy(), "butterfly").error
    assert factorize(w.requires_grad_(), "butterfly").error == expected
    conjugated = factorize(w.detach().conj(), "butterfly")
    assert error_of(w.detach().numpy().conj(), conjugated.factors) == pytest.approx(expected, rel=1e-5)
    half = w.detach().real.to(torch.bfloat16)
    assert factorize(half, "butterfly").error == factorize(half.float().numpy(), "butterfly").error


def test_arrays_on_a_device_are_named():
    class OnDevice:
        def __dlpack__(self, **options):
            raise AssertionError("read")

        def __dlpack_device__(self):
            return 2, 0

    with pytest.raises(ValueError, match="w: an array on a device given, must be in host memory"):
        factorize(OnDevice(), "butterfly")


@pytest.mark.parametrize("order", ["left", "right"])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
@pytest.mark.parametrize("chain", CHAINS, ids=str)
def test_torch_finds_the_same(chain, dtype, order):
    pytest.importorskip("torch")
    w = random(chain.shape, dtype)
    tolerance = rounding(dtype)
    for certify in (True, False):
        options = {"order": order, "certify": certify, "polish": int(certify)}
        told = []
        ours = factorize(w, chain, **options)
        theirs = factorize(w, chain, device="cpu:0", progress=told.append, **options)
        assert theirs.error == pytest.approx(ours.error, abs=tolerance)
        assert theirs.error == pytest.approx(error_of(w, theirs.factors), abs=tolerance)
        assert theirs.lower_bound == pytest.approx(ours.lower_bound, abs=tolerance)
        assert theirs.upper_bound == pytest.approx(ours.upper_bound, abs=tolerance)
        assert theirs.split_errors == pytest.approx(ours.split_errors, abs=tolerance)
        assert told == sorted(told) and told[-1] == 1.0


@pytest.mark.parametrize("exponent", [-1000, 1000])
@pytest.mark.parametrize("order", ["left", "right"])
def test_torch_takes_numbers_of_any_size(order, exponent):
    pytest.importorskip("torch")
    w = random((24, 24))
    chain = butterfly(24, row_radices=(2, 3, 4))
    plain, scaled = (
        factorize(one, chain, order, polish=2, device="cpu:0") for one in (w, np.ldexp(w, exponent))
    )
    assert scaled.error == pytest.approx(plain.error, rel=1e-12)
    assert scaled.lower_bound == pytest.approx(plain.lower_bound, rel=1e-12)
    third = exponent // len(chain)
    factors = [np.ldexp(values, -third) for values in scaled.factors]
    factors[0] = np.ldexp(factors[0], 3 * third - exponent)
    assert error_of(w, factors) == pytest.approx(plain.error, rel=1e-12)


@pytest.mark.parametrize("device", ["cpu", "cpu:0"])
@pytest.mark.parametrize("noise", [0, 1e-14, 1e-12, 1e-9, 1e-7, 1e-5, 1e-2])
@pytest.mark.parametrize("chain", [butterfly(16), kronsparse.monarch(24, 40, 4)], ids=str)
def test_bounds_hold_however_near_w_is(chain, noise, device):
    """A bound from differences of squares would be above the error where that is below 1e-8."""
    pytest.importorskip("torch")
    w = product([random(pattern, seed=seed) for seed, pattern in enumerate(chain)])
    w = w + noise * np.linalg.norm(w) / math.sqrt(w.size) * random(w.shape, seed=9)
    found = factorize(w, chain, device=device)
    assert found.lower_bound <= found.error
    assert found.error <= found.upper_bound
    assert found.error < 2 * noise + 1e-14
    assert noise < 1e-12 or found.lower_bound > 0.3 * found.error


def test_torch_computes_in_full_precision_whatever_is_set():
    torch = pytest.importorskip("torch")
    from kronsparse.torch import factorize as factorize_tensor

    w = torch.from_numpy(product([random(pattern, np.float32) for pattern in butterfly(32)])).requires_grad_()
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = factorize_tensor(w, "butterfly", polish=1)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    assert found.error < 1e-5
    assert all(values.dtype == torch.float32 and not values.requires_grad for values in found.factors)
