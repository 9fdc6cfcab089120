"""The operators as torch sees them: answers, derivatives, registration, strides, wrong calls."""

import itertools
import weakref

import pytest
import torch
from conftest import LAYOUTS, PATTERNS, dense_factor, dense_product, expected, input_of
from hypothesis import given, settings
from hypothesis import strategies as st
from kronsparse.torch import _operators, ks_linear
from kronsparse.torch._library import ADJOINT, SETTINGS
from torch import library
from torch.utils.flop_counter import FlopCounterMode

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128]
OPERATORS = torch.ops.kronsparse


def settings_of(layout="batch_first", activation="none", mode="fp32"):
    return SETTINGS[activation, layout, mode]


def multiply(x, values, bias=None, layout="batch_first"):
    return _operators.linear(x, [values], bias, settings_of(layout))


def adjoint(x, values, layout="batch_first"):
    return _operators.linear(x, [values], None, settings_of(layout) | ADJOINT)


def gradient(x, g, a, b, c, d, layout="batch_first"):
    return _operators.gradient(x, g, a, b, c, d, settings_of(layout))


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
    y = multiply(x, values, bias, layout=layout)
    assert y.dtype == dtype
    assert torch.equal(y, expected(x, matrix, layout, bias))
    assert torch.equal(adjoint(y, values, layout), expected(y, matrix.mH, layout))


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
    y = multiply(x, values, layout=layout)
    assert torch.equal(y, expected(x, matrix, layout))
    g = small_integers(y.shape, torch.float64)
    values.requires_grad_()
    (reference,) = torch.autograd.grad(expected(x, dense_factor(values), layout), values, g)
    assert torch.equal(gradient(x, g, *pattern, layout), reference)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_first_and_second_derivatives(layout, dtype):
    x = input_of(8, (2, 3), layout, dtype, requires_grad=True)
    values = torch.randn(2, 3, 2, 2, dtype=dtype, requires_grad=True)
    bias = torch.randn(12, dtype=dtype, requires_grad=True)
    g = input_of(12, (2, 3), layout, dtype, requires_grad=True)

    def product(x, values, bias):
        return multiply(x, values, bias, layout)

    for function, inputs in (
        (product, (x, values, bias)),
        (lambda g, values: adjoint(g, values, layout), (g, values)),
        (lambda x, g: gradient(x, g, 2, 3, 2, 2, layout), (x, g)),
    ):
        assert torch.autograd.gradcheck(function, inputs, check_forward_ad=True)
        assert torch.autograd.gradgradcheck(function, inputs, check_fwd_over_rev=True, fast_mode=True)

    def operator(x, values, bias):  # as compiled code calls it
        return OPERATORS.linear(x, [values], bias, settings_of(layout), 0)

    assert torch.autograd.gradcheck(operator, (x, values, bias))
    assert torch.autograd.gradgradcheck(operator, (x, values, bias), fast_mode=True)


CHAINS = [[(2, 3, 2, 2), (1, 2, 2, 4)], [(1, 2, 3, 2), (3, 2, 1, 1), (1, 3, 5, 1)]]


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("chain", CHAINS, ids=str)
def test_first_and_second_derivatives_of_chains(chain, layout, dtype):
    factors = [torch.randn(pattern, dtype=dtype, requires_grad=True) for pattern in chain]
    rows, cols = dense_product(factors).shape
    x = input_of(cols, (3,), layout, dtype, requires_grad=True)
    bias = torch.randn(rows, dtype=dtype, requires_grad=True)
    g = input_of(rows, (3,), layout, dtype, requires_grad=True)

    def product(x, bias, *factors):
        return _operators.linear(x, factors, bias, settings_of(layout))

    def adjoint_product(g, *factors):
        return _operators.linear(g, factors, None, settings_of(layout) | ADJOINT)

    def operator(x, bias, *factors):
        return OPERATORS.linear(x, factors, bias, settings_of(layout), 0)

    def saving(x, bias, *factors):
        return OPERATORS.linear_saving(x, factors, bias, settings_of(layout), 0)[0]

    torch.testing.assert_close(product(x, bias, *factors), expected(x, dense_product(factors), layout, bias))
    for function, inputs in ((product, (x, bias, *factors)), (adjoint_product, (g, *factors))):
        assert torch.autograd.gradcheck(function, inputs, check_forward_ad=True)
        assert torch.autograd.gradgradcheck(function, inputs, check_fwd_over_rev=True, fast_mode=True)
    for function in (operator, saving):
        assert torch.autograd.gradcheck(function, (x, bias, *factors))
        assert torch.autograd.gradgradcheck(function, (x, bias, *factors), fast_mode=True)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("trained", [*itertools.product([False, True], repeat=5)], ids=str)
def test_only_wanted_gradients_are_computed(trained, layout):
    """Gradients of x, the bias and three factors, in every combination."""
    patterns = [(1, 2, 3, 2), (3, 2, 1, 1), (1, 3, 5, 1)]
    factors = [torch.randn(pattern, dtype=torch.float64) for pattern in patterns]
    x, bias = input_of(5, (4, 2), layout, torch.float64), torch.randn(4, dtype=torch.float64)
    inputs = [x, bias, *factors]
    for tensor, needed in zip(inputs, trained, strict=True):
        tensor.requires_grad_(needed)
    wanted = [tensor for tensor in inputs if tensor.requires_grad]
    y = _operators.linear(x, factors, bias, settings_of(layout))
    assert y.requires_grad == any(trained)
    if not wanted:
        return
    reference = expected(x, dense_product(factors), layout, bias)
    g = torch.randn_like(y)
    ours, theirs = torch.autograd.grad(y, wanted, g), torch.autograd.grad(reference, wanted, g)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("requires_grad", [False, True])
def test_registration_is_complete(layout, requires_grad):
    x = input_of(8, (2, 3), layout, torch.float32, requires_grad=requires_grad)
    g = input_of(12, (2, 3), layout, torch.float32, requires_grad=requires_grad)
    values = torch.randn(2, 3, 2, 2, requires_grad=requires_grad)
    bias = torch.randn(12, requires_grad=requires_grad)
    number = settings_of(layout)
    right = torch.randn(1, 2, 3, 4, requires_grad=requires_grad)
    wide = input_of(12, (2, 3), layout, torch.float32, requires_grad=requires_grad)
    library.opcheck(OPERATORS.linear.default, (x, [values], bias, number, 0))
    library.opcheck(OPERATORS.linear.default, (wide, [values, right], None, number, 0))
    library.opcheck(OPERATORS.linear.default, (g, [values, right], None, number | ADJOINT, 0))
    library.opcheck(OPERATORS.gradient.default, (x, g, 2, 3, 2, 2, number))
    plain = {"test_utils": ("test_schema", "test_faketensor")}
    library.opcheck(OPERATORS.linear_plain.default, (wide, [values, right], bias, number), **plain)
    library.opcheck(OPERATORS.linear_saving_plain.default, (wide, [values, right], bias, number), **plain)
    with torch.no_grad():
        y, kept = OPERATORS.linear_saving(wide, [values, right], bias, number, 0)
    for wanted in (-1, 1, 2, 4, 7):
        library.opcheck(
            OPERATORS.linear_backward.default, (y, wide, [values, right], kept, number, 0, wanted), **plain
        )


@pytest.mark.parametrize("batch", [0, 1, 7])
def test_what_the_factors_hand_on_has_a_shape_without_data(batch):
    factors = [torch.randn(1, 3, 5, 1), torch.randn(1, 5, 7, 1), torch.randn(1, 7, 9, 1)]
    x = torch.randn(batch, 9)
    _, kept = OPERATORS.linear_saving(x, factors, None, 0, 0)
    meta = [values.to("meta") for values in factors]
    assert OPERATORS.linear_saving(x.to("meta"), meta, None, 0, 0)[1].shape == kept.shape


@pytest.mark.parametrize("offset", [0, 1, 64, 100])
def test_copies_of_what_the_factors_hand_on_may_lie_anywhere(offset):
    factors = [torch.randn(1, 3, 5, 1), torch.randn(1, 5, 7, 1)]
    x, g = torch.randn(4, 7), torch.randn(4, 3)
    _, kept = OPERATORS.linear_saving(x, factors, None, 0, 0)
    reference = OPERATORS.linear_backward(g, x, factors, None, 0, 0, -1)
    copy = torch.empty(kept.numel() + offset, dtype=torch.uint8)[offset:].copy_(kept)
    for one, other in zip(OPERATORS.linear_backward(g, x, factors, copy, 0, 0, -1), reference, strict=True):
        torch.testing.assert_close(one, other)


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
            y = multiply(x, values, layout=layout)
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
    number = settings_of(layout)
    for x, g in zip(expanded_inputs(40, layout), expanded_inputs(30, layout), strict=True):
        torch.testing.assert_close(
            OPERATORS.linear(x, [values], None, number, 0), expected(x, matrix, layout)
        )
        torch.testing.assert_close(
            OPERATORS.linear_plain(x, [values], None, number), expected(x, matrix, layout)
        )
        torch.testing.assert_close(adjoint(g, values, layout), expected(g, matrix.mH, layout))
        dense_x, dense_g = x.contiguous(), g.contiguous()
        reference = OPERATORS.gradient(dense_x, dense_g, 2, 3, 4, 5, number)
        for ours in ((x, g), (x, dense_g), (dense_x, g)):
            assert torch.equal(OPERATORS.gradient(*ours, 2, 3, 4, 5, number), reference)
            assert torch.equal(
                OPERATORS.linear_backward(*ours[::-1], [values], None, number, 0, 2)[0], reference
            )


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("loss", [torch.sum, lambda y: y.sum(1).exp().sum(), lambda y: y.sum(2).exp().sum()])
def test_expanded_gradients(loss, layout):
    x = input_of(40, (4, 3), layout, torch.float64, requires_grad=True)
    values = torch.randn(2, 3, 4, 5, dtype=torch.float64, requires_grad=True)
    ours = torch.autograd.grad(loss(multiply(x, values, layout=layout)), (x, values))
    theirs = torch.autograd.grad(loss(expected(x, dense_factor(values), layout)), (x, values))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


def test_values_with_any_strides():
    values = torch.randn(5, 4, 3, 2, dtype=torch.float64).permute(3, 2, 1, 0)
    x = torch.randn(7, 40, dtype=torch.float64)
    torch.testing.assert_close(multiply(x, values), expected(x, dense_factor(values), "batch_first"))


def test_results_are_the_same_each_time():
    torch.use_deterministic_algorithms(True)
    try:
        x, values = torch.randn(500, 64), torch.randn(4, 8, 8, 2)
        g = multiply(x, values)
        for _ in range(3):
            assert torch.equal(multiply(x, values), g)
            assert torch.equal(gradient(x, g, 4, 8, 8, 2), gradient(x.clone(), g, 4, 8, 8, 2))
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
        return multiply(x, values, bias, layout=layout)

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
    y = multiply(x, values, bias)
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


@pytest.mark.parametrize("setting", SETTINGS, ids=" ".join)
def test_plain_products_are_those_of_linear(setting):
    values, bias = torch.randn(2, 3, 4, 5), torch.randn(30)
    x = input_of(40, (7,), setting[1], torch.float32)
    plain = OPERATORS.linear_plain(x, [values], bias, SETTINGS[setting])
    assert torch.equal(plain, OPERATORS.linear(x, [values], bias, SETTINGS[setting], 0))


def product_of(x=(2, 40), values=(2, 3, 4, 5), bias=None, settings=0, packed=0):
    x, values = (given if isinstance(given, torch.Tensor) else torch.ones(given) for given in (x, values))
    return OPERATORS.linear_plain(x, [values], bias, settings, packed)


META = torch.ones(2, 40, device="meta")
WRONG_CALLS = [
    ("x: sizes", lambda: product_of(x=(2, 41))),
    ("factors: sizes", lambda: product_of(values=(2, 3, 4))),
    ("factors: none given", lambda: OPERATORS.linear_plain(torch.ones(2, 40), [], None, 0)),
    (r"factors\[0\]: dtype f64", lambda: product_of(values=torch.ones(2, 3, 4, 5).double())),
    ("x: dtype", lambda: product_of(x=torch.ones(2, 40).int())),
    (r"bias: sizes \(31\) given, must be \(30,\)", lambda: product_of(bias=torch.ones(31))),
    ("bias: dtype f64", lambda: product_of(bias=torch.ones(30).double())),
    *(
        (f"settings: {number}", lambda number=number: product_of(settings=number))
        for number in (5, 2 << 8, 3 << 16, 2 << 24, 2 << 32, 1 << 40, -1)
    ),
    ("packed: 123456 given", lambda: product_of(packed=123456)),
    ("g: on cpu", lambda: OPERATORS.gradient(META, torch.ones(2, 30), 2, 3, 4, 5, 0)),
    (
        r"factors\[0\]: on cpu",
        lambda: OPERATORS.linear(META[:, :30], [torch.ones(2, 3, 4, 5)], None, ADJOINT, 0),
    ),
    ("g: batch of 3", lambda: OPERATORS.gradient(torch.ones(2, 40), torch.ones(3, 30), 2, 3, 4, 5, 0)),
    (
        "g: batch of 3",
        lambda: OPERATORS.linear_backward(
            torch.ones(3, 30), torch.ones(2, 40), [torch.ones(2, 3, 4, 5)], None, 0, 0, -1
        ),
    ),
    (
        "intermediates: sizes",
        lambda: OPERATORS.linear_backward(
            *(torch.ones(3, 4),) * 2, [torch.ones(1, 4, 4, 1)] * 2, torch.ones(9).byte(), 0, 0, -1
        ),
    ),
    (
        "settings: adjoint given",
        lambda: OPERATORS.linear_saving(torch.ones(2, 40), [torch.ones(2, 3, 4, 5)], None, ADJOINT, 0),
    ),
    (
        "chain|columns|rows",
        lambda: OPERATORS.linear(
            torch.ones(2, 4), [torch.ones(1, 4, 4, 1), torch.ones(1, 5, 4, 1)], None, 0, 0
        ),
    ),
    ("capacity: 0", lambda: OPERATORS.set_plans(0)),
    ("versions: 0 given", lambda: OPERATORS.freeze([torch.ones(1, 2, 2, 1)], [])),
    (
        "activation: given",
        lambda: OPERATORS.linear(
            torch.ones(2, 40),
            [torch.ones(2, 3, 4, 5, requires_grad=True)],
            None,
            settings_of(activation="relu"),
            0,
        ),
    ),
]


@pytest.mark.parametrize(("message", "call"), WRONG_CALLS, ids=[message for message, _ in WRONG_CALLS])
def test_wrong_calls_name_the_argument(message, call):
    with pytest.raises((RuntimeError, NotImplementedError), match=message):
        call()
