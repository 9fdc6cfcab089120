"""Dense matrices as products of factors: recovery, the certificate, least squares, weights, rounding."""

import doctest
import functools
import itertools
import math
import os
import runpy

import kronsparse
import numpy as np
import pytest
from kronsparse import Chain, algebra, butterfly, factorize, monarch
from kronsparse.chains import as_chain
from kronsparse.least_squares import improved, round_to
from scipy import linalg, optimize

DTYPES = [np.float32, np.float64, np.complex64, np.complex128]
CHAINS = [
    butterfly(16),
    butterfly(30),
    monarch(24, 36, 6),
    monarch(24, 36, 6, rank=2),
    butterfly(24, 60, (2, 4, 3), (5, 4, 3), (1, 2)),
    Chain([(2, 4, 3, 3), (6, 3, 2, 1)]),
    kronsparse.boft(32, b=4, m=3),
    Chain([(3, 4, 2, 2), (3, 4, 5, 1)]),
    kronsparse.low_rank(9, 14, 3),
    kronsparse.dense(5, 7),
    Chain([(1, 2, 2, 4), (2, 2, 4, 2), (2, 8, 8, 1), (2, 8, 4, 1)]),  # redundant on the right
]


def rounding(dtype):
    return 1e-5 if np.dtype(dtype).name in ("float32", "complex64") else 2e-14


def random(shape, dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=shape)
    return (values + 1j * rng.normal(size=shape) if np.dtype(dtype).kind == "c" else values).astype(dtype)


def product(factors):
    return functools.reduce(np.matmul, map(algebra.to_dense, factors))


def error_of(w, factors):
    return float(np.linalg.norm(w - product(factors)) / np.linalg.norm(w))


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
@pytest.mark.parametrize("chain", CHAINS, ids=str)
def test_what_a_chain_has_is_recovered(chain, dtype):
    w = product([random(pattern, dtype, seed) for seed, pattern in enumerate(chain)])
    for order in ("left", "right", "balanced"):
        found = factorize(w, chain, order)
        assert [values.shape for values in found.factors] == list(chain)
        assert all(values.dtype == dtype for values in found.factors)
        assert max(found.error, error_of(w, found.factors), found.lower_bound) < rounding(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
@pytest.mark.parametrize("chain", CHAINS, ids=str)
def test_bounds_and_errors_are_what_they_say(chain, dtype):
    w = random(chain.shape, dtype)
    tolerance = rounding(dtype)
    for order in ("left", "right", "balanced"):
        for orthonormal in (True, False):
            found = factorize(w, chain, order, orthonormal)
            assert found.error == pytest.approx(error_of(w, found.factors), abs=tolerance)
            assert found.lower_bound <= found.error + tolerance
            assert found.error <= found.upper_bound + tolerance
            assert math.isfinite(found.upper_bound) == orthonormal
            polished = factorize(w, chain, order, orthonormal, polish=2)
            assert polished.error == pytest.approx(error_of(w, polished.factors), abs=tolerance)
            assert found.lower_bound - tolerance <= polished.error <= found.error + tolerance
    splits = len(found.split_errors)
    left = factorize(w, chain)
    assert left.upper_bound <= math.sqrt(max(splits, 1)) * left.lower_bound + 4 * tolerance


@pytest.mark.parametrize("dtype", [np.float32, np.complex128], ids=lambda dtype: np.dtype(dtype).name)
def test_chains_that_are_not_chainable_are_improved_factor_by_factor(dtype):
    for chain in (
        kronsparse.kaleidoscope(8),
        kronsparse.blast(12, 8, 4, 2),
        Chain([(4, 1, 1, 2), (2, 4, 4, 1)]),
    ):
        assert not chain.is_chainable
        w = random(chain.shape, dtype, seed=3) * np.asarray(1e3, np.dtype(dtype).type(0).real.dtype)
        told = []
        found = factorize(w, chain, polish=6, progress=told.append)
        assert [values.shape for values in found.factors] == list(chain)
        assert all(values.dtype == dtype for values in found.factors)
        assert found.error == pytest.approx(error_of(w, found.factors), abs=rounding(dtype))
        assert told[-1] == 1.0 and told == sorted(told)
        assert found.split_errors == () and math.isinf(found.upper_bound)
        outside = np.linalg.norm(w[~algebra.support(chain)]) / np.linalg.norm(w)
        assert found.lower_bound == pytest.approx(outside, abs=rounding(dtype))
        assert found.ratio >= 1 - rounding(dtype)
        fewer = factorize(w, chain, polish=4)
        assert found.error <= fewer.error + rounding(dtype)
    assert factorize(np.zeros((8, 8), dtype), "kaleidoscope").error == 0


def test_a_chain_is_at_least_as_good_as_the_chainable_part_it_begins_with():
    w = random((8, 8))
    alone = factorize(w, "butterfly")
    assert factorize(w, "kaleidoscope", polish=5).error < 0.9 * alone.error
    blast = kronsparse.blast(16, 16, 4, 2)
    product_of_blast = product([random(pattern, seed=seed) for seed, pattern in enumerate(blast)])
    assert factorize(product_of_blast, blast).error < 0.2
    # Weights that are a vector scale columns, which the last factor takes up.
    weighed = factorize(w, "kaleidoscope", polish=2, weights=np.linspace(1, 2, 8))
    scale = np.sqrt(np.linspace(1, 2, 8))
    rest = (w - product(weighed.factors)) * scale
    assert weighed.error == pytest.approx(np.linalg.norm(rest) / np.linalg.norm(w * scale))


def best_two(w, left, right):
    """The error of the best two factors, from SVDs of blocks that are found by their definition."""
    supports = [algebra.to_dense(np.ones(pattern)) for pattern in (left, right)]
    rows_of = [tuple(np.flatnonzero(column)) for column in supports[0].T]
    cols_of = [tuple(np.flatnonzero(row)) for row in supports[1]]
    squared = float(np.sum(np.abs(w[(supports[0] @ supports[1]) == 0]) ** 2))
    for rows, cols in set(zip(rows_of, cols_of, strict=True)):
        rank = sum(pair == (rows, cols) for pair in zip(rows_of, cols_of, strict=True))
        squared += float(np.sum(linalg.svdvals(w[np.ix_(rows, cols)])[rank:] ** 2))
    return math.sqrt(squared) / float(np.linalg.norm(w))


@pytest.mark.parametrize("chain", [chain for chain in CHAINS if not chain.is_redundant], ids=str)
def test_split_errors_are_those_of_svds(chain):
    w = random(chain.shape, np.complex128)
    found = factorize(w, chain)
    expected = [
        best_two(w, Chain(chain[:place]).product, Chain(chain[place:]).product)
        for place in range(1, len(chain))
    ]
    np.testing.assert_allclose(found.split_errors, expected, rtol=1e-12)
    assert found.lower_bound == max(found.split_errors, default=0.0)
    assert factorize(w, chain, certify=False).error == found.error


def test_no_product_is_better_than_the_lower_bound():
    """Brute force: minima that an optimiser finds from many starts, on chains with three factors."""
    for seed, chain in enumerate([butterfly(8), butterfly(4, 8, (2, 1, 2), (2, 2, 2))]):
        w = random(chain.shape, seed=seed)
        sizes = [pattern.nnz for pattern in chain]

        def residual(x, w=w, chain=chain, sizes=sizes):
            parts = np.split(x, np.cumsum(sizes)[:-1])
            factors = [part.reshape(pattern) for part, pattern in zip(parts, chain, strict=True)]
            return (w - product(factors)).ravel()

        found = factorize(w, chain, polish=20)
        starts = [np.concatenate([values.ravel() for values in found.factors])]
        starts += [random(sum(sizes), seed=10 + start) for start in range(2)]
        minima = [optimize.least_squares(residual, start, max_nfev=25).fun for start in starts]
        best = min(float(np.linalg.norm(minimum)) for minimum in minima) / float(np.linalg.norm(w))
        assert found.lower_bound <= best * (1 + 1e-14) and best <= found.error + 1e-9
        assert found.error <= 1.3 * best


def test_ratios_of_random_matrices():
    """The bound is worth something: the error is at most a quarter more than that of any product."""
    ratios = [
        factorize(random((size, size), seed=seed), "butterfly").ratio
        for size in (16, 32, 64)
        for seed in range(8)
    ]
    assert 1 < min(ratios) <= max(ratios) < 1.26


def dft_in_bit_reversed_order(size):
    bits = size.bit_length() - 1
    order = [int(f"{index:0{bits}b}"[::-1], 2) for index in range(size)]
    return np.fft.fft(np.eye(size))[:, order]


@pytest.mark.parametrize("size", [8, 64, 512])
def test_transforms_are_recovered(size):
    assert factorize(linalg.hadamard(size), "butterfly").error < 1e-13
    dft = dft_in_bit_reversed_order(size)
    assert factorize(dft, "butterfly").error < 1e-13
    assert factorize(np.fft.fft(np.eye(size)), "butterfly").lower_bound > 0.5  # without its permutation


@pytest.mark.parametrize("exponent", [-1060, -300, 300, 1010])
def test_numbers_that_are_very_small_or_large(exponent):
    chain = butterfly(16)
    w = product([random(pattern, seed=seed) for seed, pattern in enumerate(chain)])
    found = factorize(np.ldexp(w, exponent), chain)
    assert found.error < (1e-14 if exponent > -1022 else 1e-2)
    assert np.isfinite(np.concatenate([values.ravel() for values in found.factors])).all()


def test_zeros():
    found = factorize(np.zeros((8, 8)), "butterfly", polish=2)
    assert (found.error, found.lower_bound, found.ratio) == (0.0, 0.0, 1.0)
    assert all(np.isfinite(values).all() for values in found.factors)


@pytest.mark.parametrize("splits", list(itertools.permutations([1, 2, 3])))
def test_any_order_of_splits(splits):
    w = random((16, 16))
    found = factorize(w, "butterfly", splits)
    assert found.lower_bound <= found.error <= found.upper_bound
    assert found.error == pytest.approx(error_of(w, found.factors))


def test_results_do_not_depend_on_threads_or_strides():
    w = random((200, 300))[::2, ::3]
    first = factorize(w, "monarch(blocks=10)")
    again = factorize(w.copy(), "monarch(blocks=10)")
    assert all(np.array_equal(*pair) for pair in zip(first.factors, again.factors, strict=True))


def covariance(size, seed=0):
    mix = random((size, size // 4), seed=seed)
    return mix @ mix.T + 0.05 * np.eye(size)


def weighed_error(w, factors, weights):
    root = np.diag(np.sqrt(weights)) if weights.ndim == 1 else linalg.sqrtm(weights).real
    return float(np.linalg.norm((w - product(factors)) @ root) / np.linalg.norm(w @ root))


def test_weights():
    w, weights = random((24, 32)), covariance(32)
    plain = factorize(w, "monarch(blocks=4)")
    diagonal = np.diagonal(weights)
    found = factorize(w, "monarch(blocks=4)", weights=diagonal)
    assert found.error == pytest.approx(weighed_error(w, found.factors, diagonal))
    assert found.lower_bound == pytest.approx(found.error)  # two factors are the best
    errors = [weighed_error(w, plain.factors, weights)]
    for sweeps in (0, 1, 4):
        found = factorize(w, "monarch(blocks=4)", weights=weights, polish=sweeps)
        assert found.error == pytest.approx(weighed_error(w, found.factors, weights))
        assert found.lower_bound <= found.error
        errors.append(found.error)
    assert errors[1] >= errors[2] >= errors[3]
    assert errors[3] < 0.8 * errors[0]


def test_polishing_makes_each_factor_the_best():
    w = random((16, 16))
    found = factorize(w, "butterfly", polish=60)
    assert found.error < factorize(w, "butterfly").error
    for index, values in enumerate(found.factors):
        for seed in range(3):
            step = 1e-4 * random(values.shape, seed=seed)
            changed = [*found.factors[:index], values + step, *found.factors[index + 1 :]]
            assert error_of(w, changed) > found.error


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("text", ["butterfly", "monarch", "low_rank(rank=5)"])
def test_rounding_is_never_worse_than_that_of_each_value(text, dtype):
    chain = as_chain(text, 64, 64)
    w = product([random(pattern, seed=seed) for seed, pattern in enumerate(chain)])
    found = factorize(w, chain)
    rounded = found.rounded(w, dtype)
    plain = error_of(w, [round_to(values, dtype) for values in found.factors])
    assert 0 < rounded.error <= plain
    wide = [values.astype(np.float64) for values in rounded.factors]
    assert all(np.array_equal(values, round_to(values, dtype)) for values in wide)
    assert rounded.error == pytest.approx(error_of(w, wide))


@pytest.mark.parametrize("factor", [1e-300, 1e300])
def test_weights_count_relative_to_each_other(factor):
    """They may be of any size, also beyond that of w's dtype."""
    w, weights = random((24, 32), np.float32), covariance(32)
    for given in (weights, np.diagonal(weights)):
        plain, scaled = (
            factorize(w, "monarch(blocks=4)", weights=one, polish=1) for one in (given, given * factor)
        )
        assert scaled.error == pytest.approx(plain.error, rel=1e-5)
        assert scaled.lower_bound == pytest.approx(plain.lower_bound, rel=1e-4)


@pytest.mark.parametrize("factor", [1e-30, 1e30])
def test_matrices_of_any_size_are_weighed_and_rounded(factor):
    w, weights = random((24, 32), np.float32), covariance(32)
    plain, scaled = (
        factorize(w * one, "monarch(blocks=4)", weights=weights, polish=2) for one in (1, factor)
    )
    assert scaled.error == pytest.approx(plain.error, rel=1e-2)
    rounded = [one.rounded(w * by, "bf16", weights).error for one, by in ((plain, 1), (scaled, factor))]
    assert rounded[1] == pytest.approx(rounded[0], rel=1e-2)


def test_complex_weights():
    """Of a real matrix only their real part matters."""
    mix = random((16, 16), np.complex128)
    weights = mix @ mix.conj().T
    w = random((8, 16))
    found = factorize(w, "monarch(blocks=4)", weights=weights, polish=2)
    real = factorize(w, "monarch(blocks=4)", weights=weights.real, polish=2)
    assert found.error == pytest.approx(real.error)
    z = random((8, 16), np.complex128)
    found = factorize(z, "monarch(blocks=4)", weights=weights, polish=2)
    root = linalg.sqrtm(weights)
    rest = (z - product(found.factors)) @ root
    assert found.error == pytest.approx(np.linalg.norm(rest) / np.linalg.norm(z @ root))
    assert found.lower_bound <= found.error


def test_progress_of_weighed_sweeps():
    told = []
    factorize(random((16, 16)), "butterfly", weights=covariance(16), polish=3, progress=told.append)
    assert told == sorted(told) and told[-1] == 1.0 and 0.25 in told


def test_rounding_goes_by_the_weights():
    w, weights = random((24, 32)), covariance(32)
    found = factorize(w, "monarch(blocks=4)", weights=weights, polish=4)
    rounded = found.rounded(w, "bf16", weights)
    wide = [values.astype(np.float64) for values in rounded.factors]
    plain = [round_to(values, "bf16") for values in found.factors]
    assert rounded.error == pytest.approx(weighed_error(w, wide, weights))
    assert rounded.error <= weighed_error(w, plain, weights)


@pytest.mark.parametrize("page", ["chains", "factorisation", "transforms"])
def test_examples_of_the_documentation(page):
    source = os.environ.get("KRONSPARSE_SOURCE", ".")
    tried = doctest.testfile(f"{source}/docs/{page}.md", module_relative=False)
    assert tried.attempted and not tried.failed


def test_the_example(capsys, monkeypatch):
    source = os.environ.get("KRONSPARSE_SOURCE", ".")
    monkeypatch.setattr("sys.argv", ["factorize.py", "--size", "64", "--parameters", "2048"])
    runpy.run_path(f"{source}/examples/factorize.py", run_name="__main__")
    assert "the same in bf16: error" in capsys.readouterr().out


def test_progress_and_what_it_throws():
    shares = []
    factorize(random((128, 128)), "butterfly", progress=shares.append)
    assert shares == sorted(shares) and shares[0] > 0 and shares[-1] == 1.0

    def stop(share):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        factorize(random((128, 128)), "butterfly", progress=stop)


def test_budgets():
    w = random((64, 96))
    found = factorize(w, 2000)
    assert found.chain == kronsparse.for_budget(64, 96, 2000)
    assert found.chain.nnz <= 2000


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


@functools.cache
def random_chains(count=12):
    """Chainable ones of any sizes, also with a > 1 or d > 1 in the product and with redundant neighbours."""
    rng = np.random.default_rng(7)
    chains = []
    while len(chains) < count:
        length = rng.integers(1, 5)
        rows, cols, ranks = (rng.integers(1, 4, size).tolist() for size in (length, length, length - 1))
        a, d = rng.choice([1, 1, 2, 3], 2).tolist()
        chain = butterfly(math.prod(rows), math.prod(cols), rows, cols, ranks)
        if math.prod(chain.shape) <= 200:
            chains.append(Chain((one.a * a, one.b, one.c, one.d * d) for one in chain))
    return chains


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_bounds_hold_against_other_products(dtype):
    """Products that least squares have found from random factors: none is below the lower bound, and the
    result is not above the upper one."""
    wide = np.complex128 if np.dtype(dtype).kind == "c" else np.float64
    tolerance = rounding(dtype)
    for seed, chain in enumerate(random_chains()):
        w = random(chain.shape, dtype, seed)
        order = ("left", "right", "balanced")[seed % 3]
        found = factorize(w, chain, order)
        start = [random(pattern, wide, seed + index) for index, pattern in enumerate(chain)]
        rival = improved(w.astype(wide), start, None, 3)
        assert found.lower_bound <= error_of(w, rival) + tolerance
        assert found.lower_bound - tolerance <= error_of(w, found.factors) <= found.upper_bound + tolerance


NAN = np.eye(8)
NAN[3, 5] = np.nan


@pytest.mark.parametrize(
    ("message", "call"),
    [
        ("w: the element at row 3, column 5 is not finite", lambda: factorize(NAN, "butterfly")),
        ("w: the element at row 3, column 5 is not", lambda: factorize(NAN * (1 + 1j), "butterfly")),
        ("w: the element at row 3, column 5", lambda: factorize(NAN, "butterfly", device="cpu:0")),
        ("w: 1 dimensions given, must be 2", lambda: factorize(np.ones(8), "butterfly")),
        ("w: sizes .0, 8. given", lambda: factorize(np.ones((0, 8)), "butterfly")),
        ("w: dtype object given", lambda: factorize(np.full((2, 2), None), "dense")),
        ("w: dtype .*U1 given", lambda: factorize(np.full((2, 2), "a"), "dense")),
        ("chain: .* has 8 rows and 8 columns", lambda: factorize(np.eye(4), butterfly(8))),
        ("chain: .* is not chainable", lambda: factorize(np.eye(4), "kaleidoscope", device="cpu:0")),
        ("chain: .* is not chainable", lambda: factorize(np.eye(4), "kaleidoscope", [1, 2, 3])),
        ("w: the element at row 3, column 5 is not finite", lambda: factorize(NAN, "kaleidoscope")),
        ("order: 'up' given", lambda: factorize(np.eye(4), "butterfly", "up")),
        ("splits: 2 given, must be each of 1 to 2 once", lambda: factorize(np.eye(8), "butterfly", [1, 1])),
        ("polish: -1 given", lambda: factorize(np.eye(4), "butterfly", polish=-1)),
        ("polish: 1099511627776 given", lambda: factorize(np.eye(4), "butterfly", polish=2**40)),
        ("progress: 3 given, must be a function", lambda: factorize(np.eye(4), "butterfly", progress=3)),
        ("order: None given", lambda: factorize(np.eye(4), "butterfly", None)),
        ("order: .-1, 2. given", lambda: factorize(np.eye(8), "butterfly", [-1, 2])),
        ("order: .1.5. given", lambda: factorize(np.eye(4), "butterfly", [1.5])),
        ("device: 'nowhere' given", lambda: factorize(np.eye(4), "butterfly", device="nowhere")),
        ("device: 'None' given", lambda: factorize(np.eye(4), "butterfly", device=None)),
        ("device: 'meta' given", lambda: factorize(np.eye(4), "butterfly", device="meta")),
        ("device: 'cpu:0' given", lambda: factorize(np.eye(4), "butterfly", "balanced", device="cpu:0")),
        ("w: masked elements", lambda: factorize(np.ma.masked_equal(np.eye(4), 0), "butterfly")),
        ("w: sizes .2, 2. given", lambda: factorize(np.eye(4), "butterfly").rounded(np.eye(2))),
        ("w: the element at row 3", lambda: factorize(np.eye(8), "butterfly").rounded(NAN)),
        (
            "dtype: 'f16' given, which has no",
            lambda: factorize(1e30 * np.eye(4), "dense").rounded(1e30 * np.eye(4)),
        ),
        ("weights: .* negative eigenvalue", lambda: factorize(np.eye(2), "dense", weights=[[1, 2], [2, 1]])),
        (
            "weights: .* negative eigenvalue",
            lambda: factorize(np.eye(2), "dense", weights=[[1, 2], [2, 1]], certify=False),
        ),
        ("weights: a vector that is not real", lambda: factorize(np.eye(2), "dense", weights=[1j, 1])),
        ("polish: 1.5 given", lambda: factorize(np.eye(4), "butterfly", polish=1.5)),
        ("weights: sizes .3,. given", lambda: factorize(np.eye(4), "butterfly", weights=np.ones(3))),
        ("weights: .* not a finite number", lambda: factorize(np.eye(8), "butterfly", weights=NAN)),
        ("weights: .* its own conjugate", lambda: factorize(np.eye(2), "dense", weights=[[1, 2], [3, 4]])),
        ("weights: a variance of -1", lambda: factorize(np.eye(2), "dense", weights=[1.0, -1.0])),
        ("weights: a variance of 0", lambda: factorize(np.eye(2), "dense", weights=[1.0, 0.0])),
        ("dtype: 'f8' given", lambda: factorize(np.eye(2), "dense").rounded(np.eye(2), "f8")),
        (
            "dtype: 'f16' given, but the factors are complex",
            lambda: factorize(1j * np.eye(2), "dense").rounded(np.eye(2)),
        ),
        ("parameters: 7 given, must be at least 8", lambda: factorize(np.eye(4), 7)),
    ],
)
def test_wrong_calls_name_the_argument(message, call):
    with pytest.raises((ValueError, RuntimeError), match=message):
        call()
