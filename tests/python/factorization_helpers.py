"""Matrices and chains for tests of factorisation."""

import functools

import kronsparse
import numpy as np
from kronsparse import Chain, algebra, butterfly, monarch

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
