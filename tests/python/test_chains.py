"""Patterns and chains: what is taken, and what is said of the rest."""

import kronsparse
import numpy as np
import pytest
from kronsparse.chains import Pattern, as_chain, chain_text


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
        ("butterfly: sizes 8.5 and 8.5 given", lambda: kronsparse.butterfly(8.5)),
        ("sizes 1001 and 768 have no common divisor but 1", lambda: kronsparse.monarch(1001, 768)),
        ("must have each parameter once", lambda: as_chain("monarch(blocks=16,blocks=8)", 64, 64)),
        ("chain: .* given, must be a list", lambda: as_chain("monarch(blocks=8 blocks=4)", 64, 64)),
        ("chain: .* given, must be a list", lambda: as_chain("monarch(blocks=8,)", 64, 64)),
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
