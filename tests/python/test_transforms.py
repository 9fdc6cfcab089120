"""Fast transforms against SciPy's; operators of lazylinop."""

import math
import os
import subprocess
import sys

import numpy as np
import pytest
import scipy.fft
import scipy.linalg
from kronsparse import KSOperator, _native, interchange, transforms
from kronsparse.transforms import NORMS, Transform, dct, dft, dst, hadamard, idft

SIZES = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 15, 21, 32, 36, 49, 60, 70, 128, 210]


def assert_same(op, matrix):
    assert op.shape == matrix.shape
    np.testing.assert_allclose(op.to_dense(), matrix, atol=2e-12 * max(1.0, float(np.abs(matrix).max())))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("n", SIZES)
def test_fourier(n, norm):
    assert_same(dft(n, norm), scipy.fft.fft(np.eye(n), norm=norm, axis=0))
    assert_same(idft(n, norm), scipy.fft.ifft(np.eye(n), norm=norm, axis=0))
    assert all(pattern.b <= 64 for pattern in dft(n).chain)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("kind", transforms.TYPES)
@pytest.mark.parametrize("n", SIZES)
def test_cosines_and_sines(n, kind, norm):
    if not (kind == 1 and n == 1):
        assert_same(dct(n, kind, norm), scipy.fft.dct(np.eye(n), kind, norm=norm, axis=0))
    assert_same(dst(n, kind, norm), scipy.fft.dst(np.eye(n), kind, norm=norm, axis=0))


@pytest.mark.parametrize("n", [1, 2, 8, 64])
def test_hadamard(n):
    assert np.array_equal(hadamard(n).to_dense(), scipy.linalg.hadamard(n))
    assert np.allclose(hadamard(n, "ortho").to_dense(), scipy.linalg.hadamard(n) / np.sqrt(n))
    assert hadamard(n, dtype=np.float16).dtype == np.float16


def test_large_transforms_are_fast_and_right():
    n = 5040
    x = np.random.default_rng(0).normal(size=(n, 3))
    for ours, theirs in (
        (dft(n) @ x, scipy.fft.fft(x, axis=0)),
        (dct(n) @ x, scipy.fft.dct(x, axis=0)),
        (dst(n, 4, "ortho") @ x, scipy.fft.dst(x, 4, norm="ortho", axis=0)),
    ):
        np.testing.assert_allclose(ours, theirs, atol=1e-10)
    assert dft(n).chain.nnz < 64 * 3 * n


@pytest.mark.parametrize("radices", [(4, 6), (2, 3, 4), (24,), (2, 2, 2, 3)])
def test_any_radices(radices):
    op = dft(24, radices=radices)
    assert tuple(pattern.b for pattern in op.chain) == radices
    assert_same(op, np.fft.fft(np.eye(24), axis=0))


def test_type_1_takes_any_size():
    """17 is a prime that no chain takes, but 2·16 has none; 2·22 has one, so that the transform is dense."""
    for n, factors in ((17, True), (23, False)):
        op = dct(n, 1)
        assert (len(op.factors) > 1) == factors
        assert_same(op, scipy.fft.dct(np.eye(n), 1, axis=0))


@pytest.mark.parametrize("make", [dft, lambda n: dct(n, 1), lambda n: dst(n, 1), dct, lambda n: dct(n, 3)])
def test_transforms_are_linear_operators(make):
    op = make(12)
    matrix = op.to_dense()
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=(12, 5)), rng.normal(size=(3, 12)) + 1j * rng.normal(size=(3, 12))
    np.testing.assert_allclose(op @ x, matrix @ x)
    np.testing.assert_allclose(z @ op, z @ matrix)
    np.testing.assert_allclose(op.T @ x, matrix.T @ x)
    np.testing.assert_allclose(op.H @ x, matrix.conj().T @ x)
    np.testing.assert_allclose(op.T.H @ z.T, matrix.conj() @ z.T)
    np.testing.assert_allclose(op.H.T @ z.T, matrix.conj() @ z.T)
    np.testing.assert_allclose(z @ op.H, z @ matrix.conj().T)
    np.testing.assert_allclose(op.H.rmatmat(x), matrix @ x)
    np.testing.assert_allclose((2 * op) @ x, 2 * matrix @ x)
    for turned, dense in ((op, matrix), (op.T, matrix.T), (op.H, matrix.conj().T)):
        for ours, theirs in (
            (2j * turned, 2j * dense),
            (-turned / 2, -dense / 2),
            (turned.conj(), dense.conj()),
            (turned.real, dense.real),
            (turned.imag, dense.imag),
            (turned.astype(np.complex64), dense),
            (turned**2, dense @ dense),
        ):
            assert ours.shape == theirs.shape
            np.testing.assert_allclose(ours @ np.eye(12), theirs, atol=1e-5)
        assert turned.astype(np.complex64).dtype == np.complex64
        assert turned.real.dtype == np.float64


@pytest.mark.parametrize("name", ["dct", "dst"])
def test_type_1_of_large_sizes_with_other_primes(name):
    x = np.random.default_rng(0).normal(size=1000)
    expected = getattr(scipy.fft, name)(x, type=1)
    got = getattr(transforms, name)(1000, 1) @ x
    assert np.abs(got - expected).max() < 2e-14 * np.abs(expected).max()


def test_radices_are_those_that_a_device_likes_best(monkeypatch):
    """The operator multiplies on that device, too."""
    asked = []

    def chosen(n, dtype, device):
        asked.append((dtype, device))
        return [4] * round(math.log(n, 4)) if device == "opencl" else [n]

    monkeypatch.setattr(_native, "transform_radices", chosen)
    transforms._fastest_radices.cache_clear()
    assert len(hadamard(64, device="opencl", dtype=np.float32).chain) == 3
    assert asked[-1] == ("f32", "opencl")
    assert len(hadamard(64).chain) == 1
    assert len(dft(64, device="opencl").chain) == 3
    dct(64, device="opencl", dtype=np.float32)
    assert asked[-1] == ("complex64", "opencl")
    dst(16, device="opencl")
    assert asked[-1] == ("complex128", "opencl")
    for op in (dct(64, device="opencl"), dst(64, 3, device="opencl"), dct(129, 1, device="opencl")):
        assert op.operator.device == "opencl" and len(op.chain) in (7, 9)
    transforms._fastest_radices.cache_clear()


def ksm(factors, reverses_bits=False):
    return type("Ksm", (), {"ks_values": factors, "bitrev_perm": reverses_bits})()


def test_values_of_lazylinop():
    factors = [np.arange(8.0).reshape(1, 2, 2, 2), np.ones((2, 2, 2, 1))]
    matrix = KSOperator(factors).to_dense()
    assert np.array_equal(interchange.from_lazylinop(ksm(factors)).to_dense(), matrix)
    turned = interchange.from_lazylinop(ksm(factors, True)).to_dense()
    assert np.array_equal(turned[:, [0, 2, 1, 3]], matrix)


def test_files_keep_the_order_of_inputs(tmp_path):
    """lazylinop has one permutation, that of reversed bits; others cannot be written."""
    path = tmp_path / "op.json"
    for op in (dft(8, radices=(2, 2, 2)), dft(8, radices=(8,)), hadamard(8)):
        interchange.save_lazylinop(op, path)
        assert np.array_equal(interchange.load_lazylinop(path).to_dense(), op.to_dense())
    before = path.read_bytes()
    for op in (dft(12, radices=(3, 4)), dft(8, radices=(4, 2)), dct(8), dft(8).T):
        with pytest.raises(ValueError, match=r"op: .* given, must"):
            interchange.save_lazylinop(op, path)
        with pytest.raises(ValueError, match=r"op: .* given, must"):
            interchange.to_lazylinop(op)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["op.json"]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
def test_files_of_lazylinop(dtype, tmp_path):
    rng = np.random.default_rng(0)
    op = KSOperator(
        [rng.normal(size=(1, 3, 2, 2)).astype(dtype), rng.normal(size=(2, 2, 4, 1)).astype(dtype)]
    )
    interchange.save_lazylinop(op, tmp_path / "op.json")
    again = interchange.load_lazylinop(tmp_path / "op.json")
    assert again.dtype == dtype
    assert np.array_equal(again.to_dense(), op.to_dense())
    assert os.listdir(tmp_path) == ["op.json"]


def test_files_that_are_cut_or_foreign_or_do_not_fit(tmp_path):
    path = tmp_path / "op.json"
    interchange.save_lazylinop(KSOperator([np.ones((1, 2, 2, 1))]), path)
    whole = path.read_bytes()
    for broken in (
        whole[:-20],
        b"",
        b"\xff\xfe",
        b"[1]",
        b'{"factor0": 3}',
        b"{}",
        whole.replace(b"real", b"r"),
    ):
        path.write_bytes(broken)
        with pytest.raises(ValueError, match=r"path: .*op\.json is no file of lazylinop"):
            interchange.load_lazylinop(path)


def test_a_full_disk_leaves_the_file_of_before(tmp_path):
    """In a process of its own, which may write but a few kB to a file."""
    program = """
import os, resource, signal, sys
import numpy as np
from kronsparse import KSOperator, interchange
path = sys.argv[1]
interchange.save_lazylinop(KSOperator([np.ones((1, 2, 2, 1))]), path)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    interchange.save_lazylinop(KSOperator([np.random.rand(1, 64, 64, 1)]), path)
except OSError as error:
    print(error.strerror, interchange.load_lazylinop(path), os.listdir(os.path.dirname(path)))
"""
    path = tmp_path / "op.json"
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=True)
    assert done.stdout == "File too large KSOperator(1x2x2x1, float64) ['op.json']\n"
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_lazylinop_itself():
    butterfly = pytest.importorskip("lazylinop.butterfly", reason="needs lazylinop")
    w = np.random.default_rng(0).normal(size=(32, 32))
    theirs = butterfly.ksd(w, butterfly.Chain.square_dyadic((32, 32)))
    ours = interchange.from_lazylinop(theirs)
    np.testing.assert_allclose(ours.to_dense(), theirs.toarray(), atol=1e-12)
    np.testing.assert_allclose(interchange.to_lazylinop(ours).toarray(), ours.to_dense(), atol=1e-12)
    from kronsparse import factorize

    error = np.linalg.norm(w - theirs.toarray()) / np.linalg.norm(w)
    assert factorize(w, "butterfly").error <= error * (1 + 1e-9)
    ours = dft(16, radices=(2,) * 4)
    np.testing.assert_allclose(interchange.to_lazylinop(ours).toarray(), ours.to_dense(), atol=1e-12)
    fourier = interchange.from_lazylinop(butterfly.dft(16))
    np.testing.assert_allclose(fourier.to_dense(), butterfly.dft(16).toarray(), atol=1e-12)


@pytest.mark.parametrize(
    ("message", "call"),
    [
        ("n: 22 given, must have no prime factor but 2, 3, 5 and 7, here 11", lambda: dft(22)),
        ("n: 13 given, must have no prime factor", lambda: dct(13)),
        ("n: 0 given", lambda: dft(0)),
        ("n: 6 given, must be a power of two", lambda: hadamard(6)),
        ("n: 1 given, must be at least 2 for type 1", lambda: dct(1, 1)),
        ("type: 5 given", lambda: dst(8, 5)),
        ("norm: None given", lambda: dft(8, None)),
        ("dtype: float64 given, must be complex64", lambda: dft(8, dtype=np.float64)),
        ("dtype: complex64 given, must be float16", lambda: dct(8, dtype=np.complex64)),
        ("radices: .2, 3. given, must be integers that multiply to n, 8", lambda: dft(8, radices=(2, 3))),
        ("inputs: 2 indices up to 1 given", lambda: Transform([np.ones((1, 1, 1, 4))], [0, 1])),
        ("inputs: .0.5. given", lambda: Transform([np.ones((1, 1, 1, 1))], [0.5])),
        ("outputs: 4 given, must be below", lambda: Transform([np.ones((1, 1, 1, 4))], outputs=[4])),
        ("op: int given", lambda: interchange.from_lazylinop(3)),
        (
            "path: 'op' given, must end with .json",
            lambda: interchange.save_lazylinop(hadamard(4).operator, "op"),
        ),
    ],
)
def test_wrong_calls_name_the_argument(message, call):
    with pytest.raises(ValueError, match=message):
        call()
