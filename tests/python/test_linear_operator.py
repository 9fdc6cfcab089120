"""KSOperator as SciPy's LinearOperator and with NumPy's products; arrays of other libraries."""

import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg as sla
from kronsparse import KSOperator, block_diag, butterfly, hstack, monarch, vstack

DTYPES = [np.float16, np.float32, np.float64, np.complex64, np.complex128]


def make(chain=None, dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    factors = [rng.integers(-2, 3, pattern).astype(dtype) for pattern in chain or butterfly(12)]
    if np.dtype(dtype).kind == "c":
        factors = [(values * (1 + 2j)).astype(dtype) for values in factors]
    return KSOperator(factors)


def integers(shape, seed=5):
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float64)


@pytest.mark.parametrize(
    "shape", [(12,), (12, 3), (12, 1), (2, 12, 3), (4, 2, 12, 1), (0, 12, 2), (2, 12, 0)]
)
@pytest.mark.parametrize("chain", [butterfly(12), monarch(6, 12, blocks=3)], ids=str)
def test_products_are_those_of_numpy_in_any_dimension(chain, shape):
    op = make(chain)
    x = integers(shape)
    assert np.array_equal(op @ x, op.to_dense() @ x)
    assert (op @ x).shape == (op.to_dense() @ x).shape
    x = integers((*shape[:-2], shape[-1], op.shape[0])) if len(shape) > 1 else integers(op.shape[0])
    assert np.array_equal(x @ op, x @ op.to_dense())


@pytest.mark.parametrize("dtype", DTYPES)
def test_algebra(dtype):
    a, b = make(dtype=dtype), make(dtype=dtype, seed=1)
    x, y = a.to_dense(), b.to_dense()
    for ours, theirs in (
        (2 * a, 2 * x),
        (a * 2, 2 * x),
        (a / 2, x / 2),
        (-a, -x),
        (a + b, x + y),
        (a - b, x - y),
        (a @ b, x @ y),
        (a**2, x @ x),
        (a**0, np.eye(12)),
        (a.T, x.T),
        (a.H, x.conj().T),
        (a.conj(), x.conj()),
        (a.real, x.real),
        (a.imag, x.imag),
        (hstack([a, b]), np.hstack([x, y])),
        (vstack([a, b]), np.vstack([x, y])),
        (block_diag([a, b]), np.block([[x, 0 * x], [0 * y, y]])),
        (a.fuse(0), x),
        (a.fused_as("1x12x12x1"), x),
        (a.astype(np.complex128), x),
    ):
        assert isinstance(ours, KSOperator)
        np.testing.assert_allclose(ours.to_dense(), theirs, rtol=1e-2 if dtype == np.float16 else 1e-5)
    assert (a + b).dtype == (2 * a).dtype == hstack([a, b]).dtype == dtype
    assert a.real.dtype == x.real.dtype


def test_inverse():
    rng = np.random.default_rng(0)
    op = KSOperator(
        [rng.normal(size=pattern) + 3 * np.eye(pattern.b)[None, ..., None] for pattern in butterfly(12)]
    )
    np.testing.assert_allclose(op.inverse().to_dense() @ op.to_dense(), np.eye(12), atol=1e-12)


def test_it_is_a_linear_operator():
    op = make(monarch(12, 18, blocks=6))
    matrix = op.to_dense()
    assert isinstance(op, sla.LinearOperator)
    assert (op.ndim, op.shape) == (2, (12, 18))
    assert sla.aslinearoperator(op) is op
    x = integers(18)
    assert np.array_equal(op.dot(x), matrix @ x)
    assert np.array_equal(op(x), matrix @ x)
    assert np.array_equal(op * x, matrix @ x)
    other = sla.aslinearoperator(integers((18, 4)))
    assert np.array_equal((op @ other).matmat(np.eye(4)), matrix @ integers((18, 4)))
    left = sla.aslinearoperator(integers((4, 12)))
    assert np.array_equal((left @ op).matmat(np.eye(18)), integers((4, 12)) @ matrix)
    total = op + sla.aslinearoperator(matrix)
    assert np.array_equal(total @ x, 2 * matrix @ x)
    assert np.array_equal((sla.aslinearoperator(matrix) + op) @ x, 2 * matrix @ x)
    sparse = scipy.sparse.csr_array(integers((4, 12)))
    assert np.array_equal(sparse @ op, sparse.toarray() @ matrix)
    tall = scipy.sparse.csr_array(integers((18, 3)))
    assert np.array_equal(op @ tall, matrix @ tall.toarray())


def test_solvers_of_scipy():
    rng = np.random.default_rng(0)
    op = KSOperator(
        [rng.normal(size=pattern) + 2 * np.eye(pattern.b)[None, ..., None] for pattern in butterfly(16)]
    )
    matrix, b = op.to_dense(), rng.normal(size=16)
    np.testing.assert_allclose(sla.svds(op, k=3)[1], np.linalg.svd(matrix)[1][:3][::-1], rtol=1e-8)
    np.testing.assert_allclose(
        sla.lsqr(op, b, atol=1e-12, btol=1e-12)[0], np.linalg.solve(matrix, b), rtol=1e-6
    )
    x, failed = sla.cg(op.H @ op, op.H @ b, rtol=1e-12, maxiter=1000)
    assert not failed
    np.testing.assert_allclose(x, np.linalg.solve(matrix, b), rtol=1e-5)


def test_arrays_of_torch_come_and_go():
    torch = pytest.importorskip("torch")
    op = make()
    for shape in ((12,), (12, 3), (2, 12, 3)):
        x = torch.from_numpy(integers(shape))
        y = op @ x
        assert isinstance(y, torch.Tensor)
        assert np.array_equal(y.numpy(), op.to_dense() @ x.numpy())


def test_without_scipy():
    program = """
import sys
sys.modules["scipy"] = None
import numpy as np, kronsparse
op = kronsparse.KSOperator([np.ones((1, 2, 2, 2)), np.ones((2, 2, 2, 1))])
assert ((2 * op - op) @ np.ones(4)).tolist() == [4.0] * 4
assert kronsparse.factorize(op.to_dense(), "butterfly").error < 1e-15
cosine = kronsparse.transforms.dct(6)
assert np.allclose(cosine.H @ np.ones(6), cosine.to_dense().T @ np.ones(6))
try:
    op @ kronsparse.transforms.dft(4)
except TypeError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "need SciPy" in done.stdout


def test_cropped_operators():
    op = make(monarch(12, 18, blocks=6))
    part = op.cropped(7, 11)
    matrix = op.to_dense()[:7, :11]
    assert np.array_equal(part.to_dense(), matrix)
    assert np.array_equal(part @ integers((11, 3)), matrix @ integers((11, 3)))
    assert np.array_equal(part.T @ integers(7), matrix.T @ integers(7))


def test_padded_layers():
    torch = pytest.importorskip("torch")
    from kronsparse.torch import PaddedKSLinear

    layer = PaddedKSLinear(10, 13, 4, "monarch(blocks=4)", dtype=torch.float64)
    x = torch.randn(3, 5, 10, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(layer(x), x @ layer.to_dense().T + layer.linear.bias[:13])
    layer(x).sum().backward()
    torch.testing.assert_close(x.grad, layer.to_dense().detach().sum(0).expand(3, 5, 10))
    with pytest.raises(ValueError, match=r"x: sizes \(3, 9\) given, the last must be 10"):
        layer(torch.ones(3, 9))
    with pytest.raises(ValueError, match="layout: 'batch_last' given"):
        PaddedKSLinear(10, 13, 4, layout="batch_last")


OP = make(monarch(6, 12, blocks=3))


@pytest.mark.parametrize(
    ("message", "call"),
    [
        ("x: sizes .2, 5, 3. given, the last but one must be 12", lambda: OP @ np.ones((2, 5, 3))),
        ("x: sizes .12, 5. given, the last must be 6", lambda: np.ones((12, 5)) @ OP),
        ("x: 2 given, must be an array", lambda: OP @ 2),
        ("x: dtype object given", lambda: OP @ np.full(12, None)),
        ("x: dtype .* given", lambda: OP @ ["a"] * 12),
        ("exponent: -1 given", lambda: make() ** -1),
        ("exponent: 0.5 given", lambda: make() ** 0.5),
        ("operator: sizes .6, 12. given, must be square", lambda: OP**2),
        ("dtype: float64 given, must be complex", lambda: make(dtype=np.complex128).astype(np.float64)),
        ("operators: none given", lambda: hstack([])),
        ("rows, cols: 7, 3 given, must be within", lambda: OP.cropped(7, 3)),
        ("operators: sizes", lambda: OP + make()),
        ("x: list given, must be a number", lambda: OP / [2]),
        ("chain: .* given, must be .* with neighbours fused", lambda: make().fused_as("monarch(blocks=3)")),
    ],
)
def test_wrong_calls_name_the_argument(message, call):
    with pytest.raises(ValueError, match=message):
        call()
