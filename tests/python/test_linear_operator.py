"""KSOperator as SciPy's LinearOperator and with NumPy's products; arrays of other libraries."""

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg as sla
from kronsparse import KSOperator, block_diag, butterfly, hstack, monarch, transforms, vstack

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
    for shape in ((12,), (3, 12), (2, 3, 12)):
        x = torch.from_numpy(integers(shape))
        y = x @ op
        assert isinstance(y, torch.Tensor)
        assert np.array_equal(y.numpy(), x.numpy() @ op.to_dense())
    # DLPack or NumPy lacks these: bfloat16, and tensors that are conjugated when they are read.
    x = torch.from_numpy(integers((12, 3)))
    assert torch.equal(make(dtype=np.float32) @ x.bfloat16(), make(dtype=np.float32) @ x.float())
    z = torch.complex(x, x + 1)
    assert torch.equal(op @ z.conj(), op @ z.conj().resolve_conj())


OPERATORS = [
    make(),
    make(dtype=np.float16),
    make(dtype=np.complex64),
    make(monarch(6, 12, blocks=3)),
    transforms.dft(12),
    transforms.dft(12).H,
    transforms.dst(12, 1).T,
    make(monarch(12, 18, blocks=6)).cropped(7, 11),
]


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "int64", "bfloat16"])
@pytest.mark.parametrize("op", OPERATORS, ids=repr)
def test_products_by_torch_are_those_by_numpy(op, dtype):
    """On a GPU torch multiplies; here it does so on the CPU."""
    torch = pytest.importorskip("torch")
    rows, cols = op.shape
    for operation, layout, shape in (
        ("multiply", "batch_last", (cols, 3)),
        ("multiply", "batch_last", (cols,)),
        ("multiply", "batch_first", (2, 3, cols)),
        ("transposed", "batch_first", (2, rows)),
        ("adjoint", "batch_last", (rows, 2)),
    ):
        x = torch.from_numpy(integers(shape)).to(getattr(torch, dtype))
        given = (x.float() if dtype == "bfloat16" else x).numpy()
        expected = op._apply(given, operation, layout)
        found = op._apply_tensor(x, operation, layout)
        assert found.numpy().dtype == expected.dtype
        scale = np.abs(expected).max()
        tolerance = 1e-2 if expected.dtype == np.float16 else 1e-5
        np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=tolerance * scale)


class Namespace:
    """The name that another library's arrays give as their own."""

    @staticmethod
    def from_dlpack(array):
        return Foreign(np.from_dlpack(array))


class Foreign:
    """Another library's array: nothing but DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __array_namespace__(self):
        return Namespace


class OnGpu(Foreign):
    """One that says that it is on a GPU, so that torch multiplies."""

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, **options):
        return self.array.__dlpack__()


class Homeless(Foreign):
    __array_namespace__ = property()  # there is none


def test_arrays_of_others_come_and_go():
    op, x = make(), integers((12, 3))
    matrix = op.to_dense()
    for result, expected in (
        (op @ Foreign(x), matrix @ x),
        (op * Foreign(x), matrix @ x),
        (op.T.dot(Foreign(x)), matrix.T @ x),
        (Foreign(x.T) @ op, x.T @ matrix),
        (Foreign(x.T) * op, x.T @ matrix),
    ):
        assert isinstance(result, Foreign)
        assert np.array_equal(result.array, expected)
    assert isinstance(op @ Homeless(x), np.ndarray)
    assert np.array_equal(op.matmat(Foreign(x)), matrix @ x)


def test_arrays_on_gpus_are_multiplied_by_torch(monkeypatch):
    torch = pytest.importorskip("torch")
    op, x = make(), integers((12, 3))
    unwrapped = torch.from_dlpack
    monkeypatch.setattr(torch, "from_dlpack", lambda x: unwrapped(x.array if isinstance(x, OnGpu) else x))
    for result, expected in (
        (op @ OnGpu(x), op.to_dense() @ x),
        (op @ OnGpu(x[None]), op.to_dense() @ x[None]),
        (OnGpu(np.ascontiguousarray(x.T)) @ op, x.T @ op.to_dense()),
    ):
        assert isinstance(result, Foreign)
        assert np.array_equal(result.array, expected)


def test_copies_and_pickles():
    for op in OPERATORS:
        for again in (copy.copy(op), copy.deepcopy(op), pickle.loads(pickle.dumps(op))):
            assert np.array_equal(again.to_dense(), op.to_dense())
            assert repr(again) == repr(op)


def test_numpys_functions():
    """np.dot of an object multiplies elementwise; np.kron, np.hstack and others take it for one element."""
    op = make()
    dense = op.to_dense()
    x = integers((12, 3))
    assert np.array_equal(np.dot(op, x), dense @ x)
    assert np.array_equal(np.dot(x.T, op), x.T @ dense)
    assert np.array_equal(np.dot(op, op).to_dense(), dense @ dense)
    assert np.array_equal(np.dot(op, 2).to_dense(), 2 * dense)
    assert np.shape(op) == (12, 12) and np.ndim(op) == 2 and not np.iscomplexobj(op)
    assert np.result_type(op, np.complex64) == np.complex128
    for function in (
        lambda: np.kron(op, op),
        lambda: np.hstack([op, op]),
        lambda: np.concatenate([x, op]),
        lambda: np.vdot(x, op),
        lambda: np.einsum("ij,jk", op, x),
        lambda: np.trace(op),
        lambda: np.linalg.norm(op),
        lambda: np.linalg.solve(op, x),
        lambda: np.dot(op, x, out=np.empty_like(x)),
    ):
        with pytest.raises(TypeError, match=r"numpy\..*: KSOperator given, must be an array; .to_dense"):
            function()


def test_numbers_of_any_kind_and_sums():
    op, other = make(), make(seed=1)
    dense = op.to_dense()
    for two in (2, 2.0, np.float32(2), np.int8(2), np.array(2), np.array(2.0)):
        assert np.array_equal((two * op).to_dense(), 2 * dense)
        assert np.array_equal((op * two).to_dense(), 2 * dense)
        assert np.array_equal((op / two).to_dense(), dense / 2)
    assert (np.array(2j) * op).dtype == np.complex128
    assert +op is op and op + 0 is op and op - 0 is op
    assert np.array_equal((0 - op).to_dense(), -dense)
    assert np.array_equal(sum([op, other]).to_dense(), dense + other.to_dense())
    for wrong in (
        lambda: op + dense,
        lambda: dense + op,
        lambda: op - dense,
        lambda: dense - op,
        lambda: op + 1,
    ):
        with pytest.raises(
            TypeError, match=r"x: (ndarray|int) given, must be an operator; .*aslinearoperator"
        ):
            wrong()
    for wrong in (lambda: op @ object(), lambda: object() @ op):
        with pytest.raises(TypeError, match=r"x: object given, must be an array or one of SciPy's operators"):
            wrong()


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
        ("x: masked elements given", lambda: OP @ np.ma.masked_equal(np.arange(12), 3)),
        ("x: 'a' given, must be an array", lambda: OP * "a"),
        ("factors.0.: dtype object given", lambda: KSOperator([np.full((1, 1, 1, 1), None)])),
        (
            "factors.1.: dtype <U1 given",
            lambda: KSOperator([np.ones((1, 1, 1, 1)), np.full((1, 1, 1, 1), "a")]),
        ),
        ("factors.0.: dtype .* given", lambda: KSOperator([np.ones((1, 1, 1, 1), np.longdouble)])),
        ("factors.0.: dtype .* given", lambda: KSOperator([np.zeros((1, 1, 1, 1), [("a", "f4")])])),
        ("dtype: int64 given, must be one of float16", lambda: make().astype(np.int64)),
        ("dtype: object given, must be one of float16", lambda: make().astype(object)),
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
