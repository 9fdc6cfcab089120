"""The package without torch: products on NumPy arrays, the linear operator."""

import kronsparse
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kronsparse import KSOperator, _native, gradient, multiply

DTYPES = [np.float16, np.float32, np.float64, np.complex64, np.complex128]


def dense(values):
    a, b, c, d = values.shape
    matrix = np.zeros((a * b * d, a * c * d), values.dtype)
    for i, k, m, j in np.ndindex(a, b, c, d):
        matrix[i * b * d + k * d + j, i * c * d + m * d + j] = values[i, k, m, j]
    return matrix


def integers(shape, dtype=np.float64, seed=0):
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_products_of_small_integers_are_exact(dtype):
    values = integers((2, 3, 4, 5), dtype)
    if np.iscomplexobj(values):
        values = values + 1j * integers(values.shape, dtype, 1)
        values = values.astype(dtype)
    matrix, bias = dense(values), integers(30, dtype)
    x, z = integers((7, 40), dtype), integers((7, 30), dtype)
    assert np.array_equal(multiply(x, values, bias), x @ matrix.T + bias)
    assert np.array_equal(multiply(x.T, values, layout="batch_last"), matrix @ x.T)
    assert np.array_equal(multiply(z, values, operation="transposed"), z @ matrix)
    assert np.array_equal(multiply(z, values, operation="adjoint"), z @ matrix.conj())
    reference = np.einsum("nikj,nilj->iklj", z.reshape(7, 2, 3, 5), x.reshape(7, 2, 4, 5).conj())
    assert np.array_equal(gradient(x, z, (2, 3, 4, 5)), reference)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", ["batch_first", "batch_last"])
def test_a_list_of_values_is_their_product(dtype, layout):
    shapes = [(1, 3, 2, 4), (2, 4, 3, 1), (3, 2, 1, 1)]
    factors = [np.sign(integers(shape, dtype, seed)) for seed, shape in enumerate(shapes)]
    if np.iscomplexobj(factors[0]):
        factors = [(values * (1 + 1j)).astype(dtype) for values in factors]
    left, middle, right = map(dense, factors)
    matrix = left @ middle @ right
    x, z = integers((5, 3), dtype), integers((5, 12), dtype)
    turned = (lambda array: array) if layout == "batch_first" else (lambda array: array.T)
    bias = integers(12, dtype)
    y = multiply(turned(x), factors, bias, layout=layout)
    assert np.array_equal(turned(y), x @ matrix.T + bias)
    for operation, expected in (("transposed", z @ matrix), ("adjoint", z @ matrix.conj())):
        assert np.array_equal(
            turned(multiply(turned(z), factors, layout=layout, operation=operation)), expected
        )


def test_the_operator_makes_one_call_for_a_chain(monkeypatch):
    calls = []
    original = kronsparse._native.multiply_into
    counted = lambda *arguments: (calls.append(arguments[6]), original(*arguments))  # noqa: E731
    monkeypatch.setattr(kronsparse._native, "multiply_into", counted)
    op = KSOperator([integers((1, 3, 2, 4)), integers((2, 4, 3, 1))])
    x, z = integers((6, 2)), integers((12, 2))
    assert np.array_equal(op @ x, op.to_dense() @ x)
    assert np.array_equal(op.rmatmat(z), op.to_dense().T @ z)
    assert np.array_equal(z.T @ op, z.T @ op.to_dense())
    assert [call for call in calls if call != "multiply"] == ["adjoint", "transposed"]
    assert len(calls) == 6


def test_wrong_chains():
    good = integers((1, 3, 2, 4))
    with pytest.raises(ValueError, match="columns"):
        multiply(integers((5, 3)), [good, good])
    with pytest.raises(ValueError, match="dtype"):
        multiply(integers((5, 6)), [good, integers((2, 4, 3, 1), np.float32)])


def test_predictions_of_chains():
    native = kronsparse._native
    run, packing = native.predict("f32 batch_first B=64 1x16x16x16*16x16x16x1", "cpu")
    first, _ = native.predict("f32 batch_first B=64 16x16x16x1", "cpu")
    second, _ = native.predict("f32 batch_first B=64 1x16x16x16", "cpu")
    assert run == pytest.approx(first + second)
    assert packing >= 0
    assert native.candidates("f32 batch_first B=64 16x16x16x1", "cpu")[0][1] == ""
    with pytest.raises(ValueError, match="columns"):
        native.predict("f32 batch_first B=64 1x16x16x16*16x16x16x2", "cpu")


@settings(max_examples=60, deadline=None)
@given(
    pattern=st.tuples(*[st.integers(1, 6)] * 4),
    batch=st.lists(st.integers(0, 4), max_size=3),
    first=st.booleans(),
)
def test_any_pattern_and_batch_shape(pattern, batch, first):
    values = integers(pattern)
    matrix = dense(values)
    shape = (*batch, matrix.shape[1]) if first else (matrix.shape[1], *batch)
    x = integers(shape)
    y = multiply(x, values, layout="batch_first" if first else "batch_last")
    assert np.array_equal(y, x @ matrix.T if first else np.tensordot(matrix, x, 1))


def test_strided_arrays():
    values = integers((5, 4, 3, 2)).transpose(3, 2, 1, 0)
    wide = integers((9, 2, 50))
    for x in (wide[..., 5:45], wide[::2, :, :40], wide[::-1, :, :40], np.asfortranarray(wide[..., :40])):
        assert np.array_equal(multiply(x, values), x @ dense(values).T)


def misaligned(array):
    memory = np.zeros(array.nbytes + 1, np.uint8)[1:]
    copy = memory.view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def packed(array):
    records = np.zeros(array.shape, [("flag", "u1"), ("number", array.dtype)])
    records["number"] = array
    return records["number"]


@pytest.mark.parametrize(
    "unusual", [lambda array: array.tolist(), lambda array: array.astype(">f8"), misaligned, packed]
)
def test_unusual_arrays_are_copied(unusual):
    values, x, g, bias = integers((2, 3, 4, 5)), integers((7, 40)), integers((7, 30)), integers(30)
    y = multiply(x, values, bias)
    assert np.array_equal(multiply(unusual(x), unusual(values), unusual(bias), activation=None), y)
    grad_values = gradient(unusual(x), unusual(g), np.array(values.shape))
    assert np.array_equal(grad_values, gradient(x, g, values.shape))


@pytest.mark.parametrize(("dtype", "tail"), [(np.complex64, np.float32), (np.complex128, np.float64)])
@pytest.mark.parametrize("layout", ["batch_first", "batch_last"])
def test_complex_rows_half_an_element_off_are_copied(layout, dtype, tail):
    def in_records(array):
        records = np.zeros(array.shape[0], [("row", dtype, array.shape[1:]), ("tail", tail)])
        records["row"] = array
        return records["row"]

    values = integers((2, 3, 4, 5), dtype)
    x, g = (
        integers(shape if layout == "batch_first" else shape[::-1], dtype) for shape in ((7, 40), (7, 30))
    )
    assert in_records(x).flags.aligned and in_records(x).strides[0] % x.itemsize
    assert np.array_equal(multiply(in_records(x), values, layout=layout), multiply(x, values, layout=layout))
    ours = gradient(in_records(x), in_records(g), values.shape, layout)
    assert np.array_equal(ours, gradient(x, g, values.shape, layout))


@pytest.mark.parametrize("dtype", [np.int64, np.int8, np.uint8, np.bool_])
def test_operators_of_integers_are_of_float64(dtype):
    values = integers((2, 3, 4, 5), dtype)
    op = KSOperator([values])
    assert op.dtype == np.float64
    assert np.array_equal(op.to_dense(), dense(values).astype(np.float64))
    for x in (np.ones(40, int), np.ones(40), np.ones(40, np.float32)):
        assert np.array_equal(op @ x, dense(values).astype(np.float64) @ x)
    assert KSOperator([values, integers((1, 8, 6, 5), np.float32)]).dtype == np.result_type(dtype, np.float32)


def test_operator():
    linalg = pytest.importorskip("scipy.sparse.linalg")
    rng = np.random.default_rng(0)
    factors = [rng.normal(size=(1, 3, 4, 5)), rng.normal(size=(2, 10, 3, 1)) + 1j]
    op = KSOperator(factors)
    matrix = dense(factors[0]) @ dense(factors[1])
    x = rng.normal(size=(6, 4))
    np.testing.assert_allclose(op.to_dense(), matrix)
    np.testing.assert_allclose(op @ x, matrix @ x)
    np.testing.assert_allclose(op.T @ np.ones(15), matrix.T @ np.ones(15))
    np.testing.assert_allclose(op.H @ np.ones(15), matrix.conj().T @ np.ones(15))
    scipy_operator = linalg.aslinearoperator(op)
    np.testing.assert_allclose(scipy_operator.rmatvec(np.ones(15)), matrix.conj().T @ np.ones(15))
    real = KSOperator(factors[:1])
    z = rng.normal(size=20) + 1j * rng.normal(size=20)
    np.testing.assert_allclose(real @ z, dense(factors[0]) @ z)
    assert repr(real) == "KSOperator(1x3x4x5, float64)"


@pytest.mark.parametrize("x_dtype", [*DTYPES, np.int64, np.bool_])
@pytest.mark.parametrize("dtype", DTYPES)
def test_operators_give_the_dtype_of_numpy(dtype, x_dtype):
    values, x = integers((2, 3, 4, 5), dtype), integers((40, 7), x_dtype)
    ours, theirs = KSOperator([values]) @ x, dense(values) @ x
    assert ours.dtype == theirs.dtype
    assert np.array_equal(ours, theirs)


def test_large_numbers_are_not_made_smaller():
    op = KSOperator([np.ones((1, 1, 4, 1), np.float32)])
    assert np.array_equal(op @ np.full(4, 1e300), [4e300])


def test_products_of_operators_and_from_the_left():
    left, right = integers((2, 3, 4, 5)), integers((1, 8, 6, 5), seed=1)
    op, matrix = KSOperator([left]), dense(left)
    assert np.array_equal((op @ KSOperator([right])).to_dense(), matrix @ dense(right))
    for shape in ((30,), (7, 30), (2, 7, 30)):
        x = integers(shape)
        assert np.array_equal(x @ op, x @ matrix)
    assert np.array_equal(op.matvec(np.ones((40, 1))), matrix @ np.ones((40, 1)))


OPERATOR = KSOperator([np.ones((2, 1, 2, 1))])  # 2 x 4


@pytest.mark.parametrize(
    ("message", "call"),
    [
        ("x: ", lambda: multiply(np.ones((2, 41)), np.ones((2, 3, 4, 5)))),
        ("pattern: .* must be four integers", lambda: multiply(np.ones((2, 4)), np.ones((2, 2)))),
        ("dtype", lambda: multiply(np.ones((2, 40), np.int32), np.ones((2, 3, 4, 5), np.int32))),
        (
            "x: dtype float32 given, must be that of the values, float64",
            lambda: multiply(np.ones((2, 40), np.float32), np.ones((2, 3, 4, 5))),
        ),
        ("g: dtype int64 given", lambda: gradient(np.ones((2, 40)), np.ones((2, 30), int), (2, 3, 4, 5))),
        (
            "x: dtype .* given, must be one of float16",
            lambda: multiply(np.ones(40, np.longdouble), np.ones((2, 3, 4, 5))),
        ),
        ("operation: None given", lambda: multiply(np.ones(40), np.ones((2, 3, 4, 5)), operation=None)),
        ("activation: 'tanh' given", lambda: multiply(np.ones(40), np.ones((2, 3, 4, 5)), activation="tanh")),
        ("x: a scalar given", lambda: multiply(1.0, np.ones((2, 3, 4, 5)))),
        ("layout: 'last' given", lambda: multiply(np.ones((2, 40)), np.ones((2, 3, 4, 5)), layout="last")),
        ("operation", lambda: multiply(np.ones((2, 40)), np.ones((2, 3, 4, 5)), operation="invert")),
        (
            "x: sizes .7,. given, the first must be 40",
            lambda: KSOperator([np.ones((2, 3, 4, 5))]) @ np.ones(7),
        ),
        ("chain: no patterns", lambda: KSOperator([])),
        ("x: sizes .2, 2. given, must be .4,. or .4, 1.", lambda: OPERATOR.matvec(np.ones((2, 2)))),
        ("x: 1 dimensions given, must be 2", lambda: OPERATOR.matmat(np.ones(4))),
        ("x: sizes .3, 4. given, the last must be 2", lambda: np.ones((3, 4)) @ OPERATOR),
        ("chain: factor 0 .* has 4 columns", lambda: OPERATOR @ OPERATOR),
        ("x: dtype .* given", lambda: OPERATOR @ np.ones(4, np.longdouble)),
    ],
)
def test_wrong_calls_name_the_argument(message, call):
    with pytest.raises(ValueError, match=message):
        call()


def test_version():
    assert kronsparse.__version__.count(".") == 2


def opencl_device():
    why = _native.why_unusable("opencl:0")
    if why:
        pytest.skip(f"needs an OpenCL device: {why}")
    return "opencl:0"


@pytest.mark.parametrize("layout", ["batch_first", "batch_last"])
def test_products_on_an_opencl_device(layout):
    device = opencl_device()
    factors = [integers((1, 3, 2, 4)), integers((2, 4, 3, 1))]
    x = integers((5, 6) if layout == "batch_first" else (6, 5))
    bias = integers((12,))
    on_cpu = multiply(x, factors, bias, "relu", layout)
    assert np.array_equal(multiply(x, factors, bias, "relu", layout, device=device), on_cpu)
    wide = integers((9, 8) if layout == "batch_first" else (6, 9))
    part = wide[:, :6] if layout == "batch_first" else wide[:, 1:7]
    assert np.array_equal(
        multiply(part, factors, layout=layout, device=device), multiply(part, factors, layout=layout)
    )


def test_operators_and_gradients_on_an_opencl_device():
    device = opencl_device()
    factors = [integers((1, 3, 2, 4)), integers((2, 4, 3, 1))]
    here, there = KSOperator(factors), KSOperator(factors, device)
    x = integers((6, 2))
    assert np.array_equal(there @ x, here @ x)
    assert np.array_equal(there.T @ (there @ x), here.T @ (here @ x))
    assert there.H.device == device
    g = integers((2, 12))
    pattern = (1, 3, 2, 4)
    inputs = integers((2, 8))
    assert np.array_equal(gradient(inputs, g, pattern, device=device), gradient(inputs, g, pattern))


def test_devices_that_are_not_there():
    with pytest.raises(RuntimeError, match="device: opencl:99 cannot be used"):
        multiply(integers((5, 6)), integers((1, 3, 6, 1)), device="opencl:99")
    with pytest.raises(ValueError, match="device: 'tpu' given, must be one of cpu, cuda, opencl"):
        multiply(integers((5, 6)), integers((1, 3, 6, 1)), device="tpu")
