"""The operators as torch sees them: answers, derivatives, registration, strides, wrong calls."""

import weakref

import pytest
import torch
from conftest import LAYOUTS, PATTERNS, dense_factor, expected, input_of
from hypothesis import given, settings
from hypothesis import strategies as st
from kronsparse.torch import _operators, ks_linear
from kronsparse.torch._library import SETTINGS
from torch import library
from torch.utils.flop_counter import FlopCounterMode

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128]
OPERATORS = torch.ops.kronsparse


def small_integers(shape, dtype):
    return torch.randint(-3, 4, shape).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_products_of_small_integers_are_exact(pattern, layout, dtype):
    values = small_integers(pattern, dtype)
    matrix = dense_factor(values)
    rows, cols = matrix.shape
    shape = (3, 2, cols) if layout == "batch_first" else (cols, 3, 2)
    x = small_integers(shape, dtype)
    bias = small_integers((rows,), dtype)
    y = _operators.multiply(x, values, bias, layout=layout)
    assert y.dtype == dtype
    assert torch.equal(y, expected(x, matrix, layout, bias))
    assert torch.equal(_operators.adjoint(y, values, layout), expected(y, matrix.mH, layout))


@settings(max_examples=60, deadline=None)
@given(
    pattern=st.tuples(*[st.integers(1, 6)] * 4),
    batch=st.lists(st.integers(0, 5), max_size=3),
    layout=st.sampled_from(LAYOUTS),
)
def test_any_pattern_and_batch_shape(pattern, batch, layout):
    values = small_integers(pattern, torch.float64)
    matrix = dense_factor(values)
    x = small_integers(input_of(matrix.shape[1], batch, layout, torch.float64).shape, torch.float64)
    y = _operators.multiply(x, values, layout=layout)
    assert torch.equal(y, expected(x, matrix, layout))
    g = small_integers(y.shape, torch.float64)
    values.requires_grad_()
    (reference,) = torch.autograd.grad(expected(x, dense_factor(values), layout), values, g)
    assert torch.equal(_operators.gradient(x, g, *pattern, layout), reference)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_first_and_second_derivatives(layout, dtype):
    x = input_of(8, (2, 3), layout, dtype, requires_grad=True)
    values = torch.randn(2, 3, 2, 2, dtype=dtype, requires_grad=True)
    bias = torch.randn(12, dtype=dtype, requires_grad=True)
    g = input_of(12, (2, 3), layout, dtype, requires_grad=True)

    def multiply(x, values, bias):
        return _operators.multiply(x, values, bias, layout=layout)

    def adjoint(g, values):
        return _operators.adjoint(g, values, layout)

    def gradient(x, g):
        return _operators.gradient(x, g, 2, 3, 2, 2, layout)

    for function, inputs in (
        (multiply, (x, values, bias)),
        (adjoint, (g, values)),
        (gradient, (x, g)),
    ):
        assert torch.autograd.gradcheck(function, inputs, check_forward_ad=True)
        assert torch.autograd.gradgradcheck(function, inputs, check_fwd_over_rev=True, fast_mode=True)

    def operator(*given):  # as compiled code calls it
        return OPERATORS.multiply(*given, "none", layout)

    assert torch.autograd.gradcheck(operator, (x, values, bias))
    assert torch.autograd.gradgradcheck(operator, (x, values, bias), fast_mode=True)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("requires_grad", [False, True])
def test_registration_is_complete(layout, requires_grad):
    x = input_of(8, (2, 3), layout, torch.float32, requires_grad=requires_grad)
    g = input_of(12, (2, 3), layout, torch.float32, requires_grad=requires_grad)
    values = torch.randn(2, 3, 2, 2, requires_grad=requires_grad)
    bias = torch.randn(12, requires_grad=requires_grad)
    library.opcheck(OPERATORS.multiply.default, (x, values, bias, "none", layout, "fp32", "on_change"))
    library.opcheck(OPERATORS.multiply.default, (x, values), {"layout": layout})
    library.opcheck(OPERATORS.adjoint.default, (g, values, layout))
    library.opcheck(OPERATORS.gradient.default, (x, g, 2, 3, 2, 2, layout))


def strided_inputs(layout):
    """Each with whether it can be read as it lies."""
    wide = torch.randn(6, 4, 50, dtype=torch.float64) if layout == "batch_first" else None
    tall = torch.randn(80, 6, 4, dtype=torch.float64)
    if layout == "batch_first":
        yield wide[..., 5:45], True  # a window of features
        yield wide[::2, :, :40][:, 1], True  # evenly spaced samples
        yield wide[:, :3, :40], False  # batch dimensions that are not evenly spaced
        yield tall.reshape(80, 24)[:40].T, False  # features are not adjacent
        yield torch.randn(40, dtype=torch.float64).expand(3, 40), False  # one sample, repeated
    else:
        yield tall[::2], True  # features spaced
        yield tall[20:60], True
        yield tall[:40, ::2], False
        yield torch.randn(6, 40, dtype=torch.float64).T, False


@pytest.mark.parametrize("layout", LAYOUTS)
def test_strided_inputs_are_read_where_they_lie(layout):
    values = torch.randn(2, 3, 4, 5, dtype=torch.float64)
    matrix = dense_factor(values)
    for x, readable in strided_inputs(layout):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            y = _operators.multiply(x, values, layout=layout)
        copies = [event for event in profile.key_averages() if "copy_" in event.key or "clone" in event.key]
        assert (not copies) == readable, x.stride()
        torch.testing.assert_close(y, expected(x, matrix, layout))
        assert y.is_contiguous()


def expanded_inputs(features, layout):
    """Elements that are repeated: within the batch, around it, and along the features."""
    small = torch.randn(4, features, dtype=torch.float64)
    one = torch.randn(4, 3, 1, dtype=torch.float64)
    spaced = torch.randn(4, 100, dtype=torch.float64)[:, :features]
    for x in (
        small.unsqueeze(1).expand(4, 3, features),
        spaced.unsqueeze(1).expand(4, 3, features),
        small.unsqueeze(0).expand(3, 4, features),
        small.view(2, 1, 2, features).expand(2, 3, 2, features),
        small[:1].expand(12, features),
        one.expand(4, 3, features),
        one[:1, :1].expand(4, 3, features),
    ):
        yield x if layout == "batch_first" else x.movedim(-1, 0)
    if layout == "batch_last":
        yield small.T.contiguous().unsqueeze(2).expand(features, 4, 3)
        yield torch.randn(features, 100, dtype=torch.float64)[:, :4].unsqueeze(2).expand(features, 4, 3)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_expanded_inputs_of_every_operator(layout):
    values = torch.randn(2, 3, 4, 5, dtype=torch.float64)
    matrix = dense_factor(values)
    number = SETTINGS["none", layout, "fp32", "each_call"]
    for x, g in zip(expanded_inputs(40, layout), expanded_inputs(30, layout), strict=True):
        torch.testing.assert_close(OPERATORS.multiply(x, values, layout=layout), expected(x, matrix, layout))
        torch.testing.assert_close(
            OPERATORS.multiply_plain(x, values, None, number, 0), expected(x, matrix, layout)
        )
        torch.testing.assert_close(OPERATORS.adjoint(g, values, layout), expected(g, matrix.mH, layout))
        dense_x, dense_g = x.contiguous(), g.contiguous()
        reference = OPERATORS.gradient(dense_x, dense_g, 2, 3, 4, 5, layout)
        for ours in ((x, g), (x, dense_g), (dense_x, g)):
            assert torch.equal(OPERATORS.gradient(*ours, 2, 3, 4, 5, layout), reference)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("loss", [torch.sum, lambda y: y.sum(1).exp().sum(), lambda y: y.sum(2).exp().sum()])
def test_expanded_gradients(loss, layout):
    x = input_of(40, (4, 3), layout, torch.float64, requires_grad=True)
    values = torch.randn(2, 3, 4, 5, dtype=torch.float64, requires_grad=True)
    ours = torch.autograd.grad(loss(_operators.multiply(x, values, layout=layout)), (x, values))
    theirs = torch.autograd.grad(loss(expected(x, dense_factor(values), layout)), (x, values))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


def test_values_with_any_strides():
    values = torch.randn(5, 4, 3, 2, dtype=torch.float64).permute(3, 2, 1, 0)
    x = torch.randn(7, 40, dtype=torch.float64)
    torch.testing.assert_close(
        _operators.multiply(x, values), expected(x, dense_factor(values), "batch_first")
    )


def test_float32_values_are_packed_in_the_dtype_of_x():
    values = torch.randn(2, 3, 4, 5)
    x = torch.randn(7, 40).bfloat16()
    assert torch.equal(_operators.multiply(x, values), _operators.multiply(x, values.bfloat16()))


def test_results_are_the_same_each_time():
    torch.use_deterministic_algorithms(True)
    try:
        x, values = torch.randn(500, 64), torch.randn(4, 8, 8, 2)
        g = _operators.multiply(x, values)
        for _ in range(3):
            assert torch.equal(_operators.multiply(x, values), g)
            assert torch.equal(
                _operators.gradient(x, g, 4, 8, 8, 2), _operators.gradient(x.clone(), g, 4, 8, 8, 2)
            )
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_vmap_and_grad_of_torch_func(layout):
    x = input_of(8, (5, 6), layout, torch.float64)
    values = torch.randn(3, 2, 3, 2, 2, dtype=torch.float64)
    bias = torch.randn(3, 12, dtype=torch.float64)
    vmap, grad = torch.func.vmap, torch.func.grad
    batch = 0 if layout == "batch_first" else 1

    def product(x, values, bias=None):
        return _operators.multiply(x, values, bias, layout=layout)

    together = product(x, values[0])
    assert torch.equal(vmap(product, in_dims=(batch, None), out_dims=batch)(x, values[0]), together)
    for out, one_values, one_bias in zip(
        vmap(product, (None, 0, 0))(x, values, bias), values, bias, strict=True
    ):
        torch.testing.assert_close(out, product(x, one_values, one_bias))
    for out, one_values in zip(vmap(product, (None, 0))(x, values), values, strict=True):
        torch.testing.assert_close(out, product(x, one_values))

    def loss(values, x):
        return product(x, values).square().sum()

    whole = grad(loss)(values[0], x)
    each = vmap(grad(loss), (None, batch))(values[0], x)
    torch.testing.assert_close(each.sum(0), whole)
    leaf = values[0].clone().requires_grad_()
    loss(leaf, x).backward()
    torch.testing.assert_close(whole, leaf.grad)
    hessian_product = grad(lambda v: (grad(loss)(v, x) * values[1]).sum())(values[0])
    torch.testing.assert_close(hessian_product, grad(loss)(values[1], x))


@pytest.mark.parametrize("activation", [None, "gelu"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_jacobians_and_hessians_in_both_modes(layout, activation):
    x = input_of(8, (3,), layout, torch.float64)
    factors = [torch.randn(pattern, dtype=torch.float64) for pattern in ((2, 3, 2, 2), (1, 2, 2, 4))]
    bias = torch.randn(12, dtype=torch.float64)

    def product(x, bias, *factors):
        return ks_linear(x, factors, bias, activation, layout)

    arguments = (0, 1, 2, 3)
    forward = torch.func.jacfwd(product, arguments)(x, bias, *factors)
    reverse = torch.func.jacrev(product, arguments)(x, bias, *factors)
    for ours, theirs in zip(forward, reverse, strict=True):
        torch.testing.assert_close(ours, theirs)

    def loss(*inputs):
        return product(*inputs).square().sum()

    hessian = torch.func.hessian(loss, argnums=2)(x, bias, *factors)
    twice_reverse = torch.func.jacrev(torch.func.jacrev(loss, 2), 2)(x, bias, *factors)
    torch.testing.assert_close(hessian, twice_reverse)


def test_what_forward_mode_needs_is_not_kept_for_reverse_mode():
    x, values = torch.randn(5, 8), torch.randn(2, 3, 2, 2)
    bias = torch.randn(12, requires_grad=True)  # whose gradient needs neither
    y = _operators.multiply(x, values, bias)
    kept = weakref.ref(x)
    del x
    assert kept() is None
    y.sum().backward()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("with_grad", [False, True])
def test_operations_are_counted_as_those_of_bmm(layout, with_grad):
    factors = [torch.randn(pattern, requires_grad=True) for pattern in ((2, 3, 2, 2), (1, 2, 5, 4))]
    x = input_of(20, (3, 2), layout, torch.float32, requires_grad=True)
    counts = []
    for backend in ("kernel", "bmm"):
        with torch.set_grad_enabled(with_grad), FlopCounterMode(display=False) as counter:
            y = ks_linear(x, factors, layout=layout, backend=backend)
            if with_grad:
                y.sum().backward()
        counts.append(counter.get_total_flops())
    assert counts[0] == counts[1] > 0


def plain_product(x, number):
    return OPERATORS.multiply_plain(x, torch.ones(2, 3, 4, 5), None, number, 0)


@pytest.mark.parametrize("setting", SETTINGS, ids=" ".join)
def test_plain_products_are_those_of_multiply(setting):
    activation, layout, mode, packing = setting
    values, bias = torch.randn(2, 3, 4, 5), torch.randn(30)
    x = input_of(40, (7,), layout, torch.float32)
    plain = OPERATORS.multiply_plain(x, values, bias, SETTINGS[setting], values._version)
    assert torch.equal(plain, OPERATORS.multiply(x, values, bias, activation, layout, mode, packing))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_plain_products_have_a_shape_without_data(layout):
    x, number = input_of(40, (7,), layout, torch.float32), SETTINGS["none", layout, "fp32", "each_call"]
    arguments = (x, torch.randn(2, 3, 4, 5), None, number, 0)
    library.opcheck(OPERATORS.multiply_plain.default, arguments, test_utils="test_faketensor")


META = torch.ones(2, 40, device="meta")
WRONG_CALLS = [
    ("x: sizes", lambda: OPERATORS.multiply(torch.ones(2, 41), torch.ones(2, 3, 4, 5))),
    ("values: sizes", lambda: OPERATORS.multiply(torch.ones(2, 40), torch.ones(2, 3, 4))),
    ("values: dtype f64", lambda: OPERATORS.multiply(torch.ones(2, 40), torch.ones(2, 3, 4, 5).double())),
    ("x: dtype", lambda: OPERATORS.multiply(torch.ones(2, 40).int(), torch.ones(2, 3, 4, 5))),
    ("bias: 31", lambda: OPERATORS.multiply(torch.ones(2, 40), torch.ones(2, 3, 4, 5), torch.ones(31))),
    ("tanh", lambda: OPERATORS.multiply(torch.ones(2, 40), torch.ones(2, 3, 4, 5), None, "tanh")),
    (
        "batch_middle",
        lambda: OPERATORS.multiply(torch.ones(2, 40), torch.ones(2, 3, 4, 5), layout="batch_middle"),
    ),
    (
        "packing: 'never'",
        lambda: OPERATORS.multiply(torch.ones(2, 40), torch.ones(2, 3, 4, 5), packing="never"),
    ),
    *(
        (f"settings: {number}", lambda number=number: plain_product(torch.ones(2, 40), number))
        for number in (5, 2 << 8, 3 << 16, 3 << 24, 1 << 32, -1)
    ),
    ("g: on cpu", lambda: OPERATORS.gradient(META, torch.ones(2, 30), 2, 3, 4, 5)),
    ("values: on cpu", lambda: OPERATORS.adjoint(META[:, :30], torch.ones(2, 3, 4, 5))),
    ("g: batch of 3", lambda: OPERATORS.gradient(torch.ones(2, 40), torch.ones(3, 30), 2, 3, 4, 5)),
    ("capacity: 0", lambda: OPERATORS.plan_cache_resize(0)),
    (
        "activation: 'relu'",
        lambda: OPERATORS.multiply(
            torch.ones(2, 40), torch.ones(2, 3, 4, 5, requires_grad=True), None, "relu"
        ),
    ),
]


@pytest.mark.parametrize(("message", "call"), WRONG_CALLS, ids=[message for message, _ in WRONG_CALLS])
def test_wrong_calls_name_the_argument(message, call):
    with pytest.raises((RuntimeError, NotImplementedError), match=message):
        call()
