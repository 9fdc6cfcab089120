"""Patterns and chains: what is taken, and what is said of the rest."""

import copy
import functools
import math
import pickle

import kronsparse
import numpy as np
import pytest
from kronsparse import algebra
from kronsparse.algebra import support
from kronsparse.chains import Chain, Pattern, as_chain, chain_text


def test_sizes_of_numpy_are_sizes():
    pattern = Pattern.of(np.array([2, 3, 4, 5]))
    assert pattern == (2, 3, 4, 5)
    assert all(type(size) is int for size in pattern)


@pytest.mark.parametrize(
    ("sizes", "blocks"), [((4096, 4096), 64), ((96, 64), 8), ((1024, 4096), 32), ((784, 10), 2), ((1, 64), 1)]
)
def test_blocks_of_monarch_are_the_divisor_nearest_to_the_root(sizes, blocks):
    assert kronsparse.monarch(*sizes)[1].a == blocks


def test_large_sizes_take_no_time():
    assert kronsparse.monarch(2**31, 2**31)[1].a in (2**15, 2**16)


SINGULAR = np.ones((1, 2, 2, 1))


@pytest.mark.parametrize(
    ("message", "call"),
    [
        ("pattern: .True, 2, 2, 1. given, must be four integers", lambda: Pattern.of((True, 2, 2, 1))),
        ("pattern: .2.0, 2, 2, 1. given, must be four integers", lambda: Pattern.of((2.0, 2, 2, 1))),
        ("pattern: .1,. given, must be four integers", lambda: as_chain((1, 128, 64, 1), 128, 64)),
        ("chain: None given, must be a list of patterns", lambda: as_chain(None, 4, 4)),
        ("chain: 5 given, must be a list of patterns", lambda: as_chain(5, 4, 4)),
        ("rows: 0 given, must be an integer of at least 1", lambda: kronsparse.monarch(0, 128)),
        ("cols: -64 given", lambda: kronsparse.monarch(128, -64)),
        ("rows: 8.5 given", lambda: kronsparse.butterfly(8.5)),
        ("sizes 1001 and 768 have no common divisor but 1", lambda: kronsparse.monarch(1001, 768)),
        ("must have each parameter once", lambda: as_chain("monarch(blocks=16,blocks=8)", 64, 64)),
        ("chain: .* given, must be a list", lambda: as_chain("monarch(blocks=8 blocks=4)", 64, 64)),
        ("chain: .* given, must be a list", lambda: as_chain("monarch(blocks=8,)", 64, 64)),
        ("chain: factor 0 .1x2x3x1. has 3 columns", lambda: Chain([(1, 2, 3, 1), (1, 4, 2, 1)])),
        ("chain: no patterns given", lambda: Chain([])),
        ("kaleidoscope: sizes 12 and 12 given", lambda: kronsparse.kaleidoscope(12)),
        ("square_dyadic: sizes 8 and 4 given", lambda: kronsparse.square_dyadic(8, 4)),
        ("block_butterfly: sizes 24 and 24 given", lambda: kronsparse.block_butterfly(24, t=5)),
        ("boft: sizes 24 and 24 given, .* multiple of .*, 16", lambda: kronsparse.boft(24, b=4, m=3)),
        ("blocks: 5 given, must divide", lambda: kronsparse.blast(24, 24, blocks=5, rank=2)),
        ("m1: 5 given, must divide rows, 24", lambda: kronsparse.btt(24, 24, 2, m1=5)),
        ("row_radices: .3, 3. given, must multiply", lambda: kronsparse.butterfly(8, 8, (3, 3), (2, 4))),
        ("butterfly: 2 row_radices, 1 col", lambda: kronsparse.butterfly(8, 8, (2, 4), (8,))),
        ("parameters: 15 given, must be at least 16", lambda: kronsparse.for_budget(8, 8, 15)),
        ("index: 2 given, must be from 0 to 1", lambda: kronsparse.butterfly(8).fuse(2)),
        ("dtype: 'f8' given", lambda: kronsparse.butterfly(8).bytes("f8")),
        ("size: 0 given", lambda: kronsparse.padded_size(0, 4)),
        ("operators: sizes", lambda: algebra.hstack([[np.ones((1, 2, 2, 1))], [np.ones((1, 3, 2, 1))]])),
        ("factors.0.: 1x2x3x1 given, must have square", lambda: algebra.inverse([np.ones((1, 2, 3, 1))])),
        ("factors.1.: has a singular block", lambda: algebra.inverse([np.eye(2)[None, ..., None], SINGULAR])),
    ],
)
def test_wrong_calls_name_the_argument(message, call):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("text", ["monarch( blocks = 4 )", "monarch(blocks=4)"])
def test_spaces_in_names_are_ignored(text):
    assert chain_text(as_chain(text, 32, 8)) == "1x8x4x4*4x4x2x1"


@pytest.mark.parametrize("name", ["butterfly", "monarch", "monarch(blocks=4)", "low_rank(rank=2)", "dense"])
def test_chains_of_sizes_of_numpy(name):
    chain = as_chain(name, np.int64(64), np.int64(64))
    assert chain == as_chain(name, 64, 64)
    assert all(type(size) is int for pattern in chain for size in pattern)


FAMILIES = {
    "dense": (6, 4, "1x6x4x1"),
    "low_rank(rank=2)": (6, 4, "1x6x2x1*1x2x4x1"),
    "monarch(blocks=4, rank=2)": (32, 8, "1x8x8x4*4x8x2x1"),
    "butterfly": (12, 12, "1x2x2x6*2x2x2x3*4x3x3x1"),
    "square_dyadic": (8, 8, "1x2x2x4*2x2x2x2*4x2x2x1"),
    "kaleidoscope": (4, 4, "1x2x2x2*2x2x2x1*2x2x2x1*1x2x2x2"),
    "block_butterfly(t=3)": (12, 12, "1x6x6x2*2x6x6x1"),
    "blast(blocks=2, rank=3)": (8, 6, "2x4x3x1*1x2x2x3*2x3x3x1"),
    "btt(rank=2, m1=4, n1=5)": (12, 35, "1x4x10x3*5x6x7x1"),
    "boft(b=4, m=3)": (48, 48, "3x4x4x4*6x4x4x2*12x4x4x1"),
    "for_budget(parameters=40)": (8, 8, "1x4x2x2*2x2x4x1"),
}


@pytest.mark.parametrize("text", FAMILIES)
def test_families(text):
    rows, cols, patterns = FAMILIES[text]
    chain = as_chain(text, rows, cols)
    assert str(chain) == patterns
    assert chain.shape == (rows, cols)
    assert chain.density == support(chain).mean()
    assert chain.nnz == sum(math.prod(pattern) for pattern in chain)


@pytest.mark.parametrize(
    ("rows", "cols", "parameters"), [(50257, 768, 10**6), (4096, 11008, 10**6), (7, 5, 12)]
)
def test_budgets_are_kept_and_used(rows, cols, parameters):
    chain = kronsparse.for_budget(rows, cols, parameters)
    assert chain.shape == (rows, cols)
    assert 0.75 * (parameters - rows - cols) <= chain.nnz <= parameters
    assert kronsparse.for_budget(rows, cols, rows * cols) == kronsparse.dense(rows, cols)


def dense_of(factors):
    return functools.reduce(np.matmul, map(algebra.to_dense, factors))


def random_factors(chain, dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    factors = [rng.integers(-3, 4, pattern).astype(dtype) for pattern in chain]
    if np.dtype(dtype).kind == "c":
        factors = [values + 1j * rng.integers(-3, 4, values.shape) for values in factors]
    return factors


def random_pairs(count):
    """Pairs of patterns that fit, whatever their product is."""
    rng = np.random.default_rng(0)
    while count:
        left = Pattern.of(rng.choice([1, 2, 3, 4, 6], 4))
        a = int(rng.choice([one for one in range(1, left.cols + 1) if left.cols % one == 0]))
        b = int(rng.choice([one for one in range(1, left.cols // a + 1) if left.cols // a % one == 0]))
        right = Pattern(a, b, int(rng.integers(1, 5)), left.cols // a // b)
        if max(left.rows, right.cols) <= 100:
            yield left, right
            count -= 1


def test_products_of_patterns_are_what_is_counted():
    fused = 0
    for left, right in random_pairs(1500):
        chain = Chain([left, right])
        product = left.times(right)
        if product is None:
            with pytest.raises(ValueError, match="index: 0 given, but the product of factor 0"):
                chain.fuse(0)
            continue
        fused += 1
        assert np.array_equal(support(chain), support(Chain([product])))
        factors = random_factors(chain)
        values = algebra.fuse(*factors)
        assert values.shape == product == chain.fuse(0)[0]
        assert np.array_equal(algebra.to_dense(values), dense_of(factors))
        rank = left.rank_with(right)
        if rank:  # chainable: blocks have this rank, and no more
            assert product == (left.a, left.b * left.d // right.d, right.a * right.c // left.a, right.d)
    assert 500 < fused < 1500


def test_redundant_neighbours_are_found_and_fused():
    chain = Chain([(1, 4, 8, 2), (2, 8, 3, 1), (1, 6, 6, 1), (1, 6, 5, 1)])
    assert chain.is_redundant
    assert str(chain.reduced()) == "1x8x5x1"
    assert not chain.reduced().is_redundant
    assert not kronsparse.butterfly(16).is_redundant
    assert kronsparse.butterfly(16).reduced() == kronsparse.butterfly(16)
    assert kronsparse.kaleidoscope(8).ranks == (1, 1, 2, 0, 0)
    assert not kronsparse.kaleidoscope(8).is_chainable


def test_plans_fuse_what_the_cost_model_says(monkeypatch):
    chain = kronsparse.butterfly(64)
    assert chain.planned(batch=4096).predicted_seconds(4096) <= chain.predicted_seconds(4096)
    costs = lambda problem, device: (len(problem.split()[-1].split("*")) * 1.0, 0.0)  # noqa: E731
    monkeypatch.setattr("kronsparse._native.predict", costs)
    assert str(chain.planned(batch=1)) == "1x64x64x1"
    sizes = lambda problem, device: (float(Pattern.parse(problem.split()[-1]).nnz), 0.0)  # noqa: E731
    monkeypatch.setattr("kronsparse._native.predict", sizes)
    assert chain.planned(batch=1).nnz <= chain.nnz


def test_plots_have_an_image_for_each_factor_and_the_product():
    class Axis:
        def imshow(self, image, **options):
            self.image = image

        def set_title(self, title):
            self.title = title

        set_xticks = set_yticks = set_title

    axes = kronsparse.butterfly(8).plot([Axis() for _ in range(4)])
    assert [axis.image.sum() for axis in axes] == [16, 16, 16, 64]


def test_chains_are_tuples_that_can_be_copied_and_pickled():
    chain = kronsparse.monarch(64, 64)
    assert chain == (Pattern(1, 8, 8, 8), Pattern(8, 8, 8, 1))
    for copied in (copy.deepcopy(chain), pickle.loads(pickle.dumps(chain))):
        assert type(copied) is Chain
        assert copied == chain and hash(copied) == hash(chain)
    assert chain.flops(3) == 6 * chain.nnz and chain.bytes("bf16") == 2 * chain.nnz
    assert chain.transposed.transposed == chain


ALGEBRA = {
    "sum of like chains": lambda a, b, c: (algebra.add([a, b]), lambda x, y, z: x + y),
    "sum of unlike chains": lambda a, b, c: (algebra.add([a, c, b]), lambda x, y, z: x + z + y),
    "side by side": lambda a, b, c: (algebra.hstack([a, b]), lambda x, y, z: np.hstack([x, y])),
    "on top": lambda a, b, c: (algebra.vstack([a, b]), lambda x, y, z: np.vstack([x, y])),
    "transposed": lambda a, b, c: (algebra.transpose(a), lambda x, y, z: x.T),
    "scaled": lambda a, b, c: (algebra.scale(a, -2), lambda x, y, z: -2 * x),
}


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("name", ALGEBRA)
def test_algebra_of_chains(name, dtype):
    first, second = (random_factors(kronsparse.butterfly(12), dtype, seed) for seed in (0, 1))
    third = random_factors(kronsparse.monarch(12, 12, blocks=2), dtype, 2)
    factors, expected = ALGEBRA[name](first, second, third)
    assert np.array_equal(dense_of(factors), expected(*map(dense_of, (first, second, third))))


def test_sums_that_share_all_but_one_factor_stay_as_long():
    first = random_factors(kronsparse.butterfly(8))
    second = [first[0], first[1] + 1, first[2]]
    total = algebra.add([first, second])
    assert len(total) == 3
    assert np.array_equal(dense_of(total), dense_of(first) + dense_of(second))


def test_block_diagonals():
    chains = [random_factors(kronsparse.butterfly(6), seed=seed) for seed in range(3)]
    matrix = np.zeros((18, 18))
    for index, factors in enumerate(chains):
        matrix[6 * index :, 6 * index :][:6, :6] = dense_of(factors)
    assert np.array_equal(dense_of(algebra.block_diag(chains)), matrix)


@pytest.mark.parametrize("text", ["butterfly", "monarch(blocks=2)", "dense", "blast(blocks=2, rank=3)"])
def test_real_and_imaginary_parts(text):
    factors = random_factors(as_chain(text, 12, 12), np.complex128)
    matrix = dense_of(factors)
    for part, expected in ((algebra.real_part, matrix.real), (algebra.imaginary_part, matrix.imag)):
        values = part(factors)
        assert all(one.dtype == np.float64 for one in values)
        assert np.array_equal(dense_of(values), expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
def test_inverses(dtype):
    factors = [values.astype(dtype) for values in random_factors(kronsparse.butterfly(12), dtype)]
    factors = [values + 8 * np.eye(values.shape[1], dtype=dtype)[None, :, :, None] for values in factors]
    inverted = algebra.inverse(factors)
    assert all(values.dtype == dtype for values in inverted)
    np.testing.assert_allclose(dense_of(inverted) @ dense_of(factors), np.eye(12), atol=1e-5)
