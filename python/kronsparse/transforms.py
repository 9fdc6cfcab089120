"""Fast transforms as chains: Hadamard, Fourier, cosine and sine, with the names and conventions of scipy.fft.

Each is an operator: `dft(n) @ x` is `scipy.fft.fft(x)` along the first dimension of x. Sizes may have the
prime factors 2, 3, 5 and 7; `norm` is "backward", "ortho" or "forward", as there.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from kronsparse import algebra
from kronsparse.chains import Chain, butterfly
from kronsparse.checks import check_option, check_size
from kronsparse.linear_operator import ArrayOperator
from kronsparse.operators import KSOperator

Array = NDArray[Any]
NORMS = ("backward", "ortho", "forward")
TYPES = (1, 2, 3, 4)
LARGEST_PRIME = 7
LARGEST_RADICES = (4, 8, 16, 32, 64)


class Transform(ArrayOperator):
    """A chain with its inputs and outputs in an order of their own: W x = (K x[inputs])[outputs].

    `factors` and `chain` are those of K. An index may stand in `inputs` more than once, and not all of K's
    outputs need be taken.

    >>> op = Transform([np.ones((1, 1, 1, 4))], inputs=[3, 2, 1, 0])
    >>> op @ np.arange(4)
    array([3., 2., 1., 0.])
    """

    def __init__(
        self,
        factors: Sequence[Array],
        inputs: Sequence[int] | Array | None = None,
        outputs: Sequence[int] | Array | None = None,
        cols: int | None = None,
    ) -> None:
        self.operator = KSOperator(factors)
        self.inputs = _indices("inputs", inputs, self.operator.shape[1])
        self.outputs = _indices("outputs", outputs, self.operator.shape[0])
        self._cols = self.operator.shape[1] if cols is None else cols
        if len(self.inputs) != self.operator.shape[1] or self.inputs.max() >= self._cols:
            raise ValueError(
                f"inputs: {len(self.inputs)} indices up to {self.inputs.max()} given, must be "
                f"{self.operator.shape[1]} below {self._cols}"
            )
        if self.outputs.max() >= self.operator.shape[0]:
            raise ValueError(
                f"outputs: {self.outputs.max()} given, must be below the chain's rows, "
                f"{self.operator.shape[0]}"
            )
        super().__init__((len(self.outputs), self._cols), self.operator.dtype)

    @property
    def factors(self) -> list[Array]:
        return self.operator.factors

    @property
    def chain(self) -> Chain:
        return self.operator.chain

    def _apply(self, x: Array, operation: str, layout: str) -> Array:
        axis = -1 if layout == "batch_first" else 0
        if operation == "multiply":
            y = self.operator._apply(np.take(x, self.inputs, axis), operation, layout)
            return np.take(y, self.outputs, axis)
        return _added(
            self.operator._apply(_added(x, self.outputs, self.operator.shape[0], axis), operation, layout),
            self.inputs,
            self._cols,
            axis,
        )

    def _transpose(self) -> ArrayOperator:
        return _Turned(self, "transposed")

    def _adjoint(self) -> ArrayOperator:
        return _Turned(self, "adjoint")

    def conj(self) -> Transform:
        """The operator of the conjugate matrix."""
        return Transform(self.operator.conj().factors, self.inputs, self.outputs, self._cols)

    def __repr__(self) -> str:
        return f"Transform({self.shape[0]}x{self.shape[1]}, {self.chain}, {self.dtype})"


class _Turned(ArrayOperator):
    """The transpose or adjoint of a transform."""

    def __init__(self, transform: Transform, operation: str) -> None:
        self.transform, self.operation = transform, operation
        super().__init__((transform.shape[1], transform.shape[0]), transform.dtype)

    def _apply(self, x: Array, operation: str, layout: str) -> Array:
        conjugates = (operation == "adjoint") != (self.operation == "adjoint")
        if operation == "multiply":
            return self.transform._apply(x, self.operation, layout)
        # The transpose or adjoint of either is the transform itself, or its conjugate.
        return (
            self.transform._apply(x.conj(), "multiply", layout).conj()
            if conjugates
            else self.transform._apply(x, "multiply", layout)
        )

    def _transpose(self) -> ArrayOperator:
        return self.transform if self.operation == "transposed" else self.transform.conj()

    def _adjoint(self) -> ArrayOperator:
        return self.transform if self.operation == "adjoint" else self.transform.conj()


def _indices(argument: str, given: Sequence[int] | Array | None, size: int) -> NDArray[np.intp]:
    indices = np.arange(size) if given is None else np.asarray(given)
    if indices.ndim != 1 or indices.size == 0 or indices.dtype.kind not in "iu" or indices.min() < 0:
        raise ValueError(f"{argument}: {given!r} given, must be indices from 0 on")
    return indices.astype(np.intp)


def _added(x: Array, places: NDArray[np.intp], size: int, axis: int) -> Array:
    """Zeros with the elements of x added at places: what undoes taking them from there."""
    x = np.moveaxis(x, axis, 0)
    y = np.zeros((size, *x.shape[1:]), x.dtype)
    np.add.at(y, places, x)
    return np.moveaxis(y, 0, axis)


def hadamard(n: int, norm: str = "backward", dtype: DTypeLike = np.float64) -> Transform:
    """The Hadamard matrix of size 2^L in Sylvester's order, as scipy.linalg.hadamard has it with "backward".

    >>> hadamard(2).to_dense()
    array([[ 1.,  1.],
           [ 1., -1.]])
    """
    _check(n, norm)
    if n & (n - 1):
        raise ValueError(f"n: {n} given, must be a power of two")
    signs = np.array([[1.0, 1.0], [1.0, -1.0]])[None, :, :, None]
    factors = (
        [np.broadcast_to(signs, pattern) for pattern in butterfly(n)] if n > 1 else [np.ones((1, 1, 1, 1))]
    )
    return _typed(Transform(_scaled(factors, n, norm)), dtype)


def dft(
    n: int, norm: str = "backward", dtype: DTypeLike = np.complex128, radices: Sequence[int] | None = None
) -> Transform:
    """scipy.fft.fft of size n. The digits of its inputs' numbers are reversed (`inputs`) before the chain, a
    butterfly with the given radices, or those that are predicted to be fastest here.

    >>> x = np.arange(12.0)
    >>> np.allclose(dft(12) @ x, np.fft.fft(x))
    True
    >>> dft(12, radices=(3, 4)).inputs
    array([ 0,  3,  6,  9,  1,  4,  7, 10,  2,  5,  8, 11])
    """
    _check(n, norm)
    factors, order = _fourier(n, _radices(n, radices, np.dtype(dtype)))
    return _typed(Transform(_scaled(factors, n, norm), order), dtype)


def idft(
    n: int, norm: str = "backward", dtype: DTypeLike = np.complex128, radices: Sequence[int] | None = None
) -> Transform:
    """scipy.fft.ifft of size n.

    >>> np.allclose(idft(6) @ (dft(6) @ np.arange(6)), np.arange(6))
    True
    """
    _check(n, norm)
    factors, order = _fourier(n, _radices(n, radices, np.dtype(dtype)))
    opposite = {"backward": "forward", "forward": "backward", "ortho": "ortho"}[norm]
    return _typed(Transform(_scaled([one.conj() for one in factors], n, opposite), order), dtype)


def dct(n: int, type: int = 2, norm: str = "backward", dtype: DTypeLike = np.float64) -> Transform:
    """scipy.fft.dct of size n, types 1 to 4, as a chain of real factors.

    Type 1 goes through a Fourier transform of size 2·(n-1), so that n itself may have any primes; where
    2·(n-1) has others than 2, 3, 5 and 7, it is one dense factor.

    >>> np.allclose(dct(3).to_dense()[0], 2)
    True
    """
    return _typed(_cosine_or_sine("dct", n, type, norm), dtype)


def dst(n: int, type: int = 2, norm: str = "backward", dtype: DTypeLike = np.float64) -> Transform:
    """scipy.fft.dst of size n, types 1 to 4, as a chain of real factors. Type 1 goes through a Fourier
    transform of size 2·(n+1), as `dct` does.

    >>> np.allclose(dst(2, type=1).to_dense(), np.sqrt(3) * np.array([[1, 1], [1, -1]]))
    True
    """
    return _typed(_cosine_or_sine("dst", n, type, norm), dtype)


def _check(n: int, norm: str) -> None:
    check_size("n", n)
    check_option("norm", norm, NORMS)


def _typed(transform: Transform, dtype: DTypeLike) -> Transform:
    kind = transform.dtype.kind
    if np.dtype(dtype).kind != kind:
        what = "complex64 or complex128" if kind == "c" else "float16, float32 or float64"
        raise ValueError(f"dtype: {np.dtype(dtype)} given, must be {what}")
    factors = [values.astype(dtype) for values in transform.factors]
    return Transform(factors, transform.inputs, transform.outputs, transform.shape[1])


def _scaled(factors: Sequence[Array], n: int, norm: str) -> list[Array]:
    number = {"backward": 1.0, "ortho": 1 / math.sqrt(n), "forward": 1 / n}[norm]
    return algebra.scale(factors, number)


def _prime_factors(n: int) -> list[int]:
    primes = []
    for prime in (2, 3, 5, 7):
        while n % prime == 0:
            primes.append(prime)
            n //= prime
    return [*primes, n] if n > 1 else primes


def is_smooth(n: int) -> bool:
    """Whether all prime factors are at most 7."""
    return all(prime <= LARGEST_PRIME for prime in _prime_factors(n))


def _radices(n: int, given: Sequence[int] | None, dtype: np.dtype[Any]) -> tuple[int, ...]:
    if given is not None:
        if math.prod(given) != n or any(radix < 1 for radix in given):
            raise ValueError(f"radices: {tuple(given)} given, must multiply to n, {n}")
        return tuple(given)
    if not is_smooth(n):
        raise ValueError(
            f"n: {n} given, must have no prime factor but 2, 3, 5 and 7, here {max(_prime_factors(n))}"
        )
    return _fastest_radices(n, "complex64" if dtype == np.complex64 else "complex128")


@functools.lru_cache(maxsize=256)
def _fastest_radices(n: int, dtype: str) -> tuple[int, ...]:
    """Radices that multiply primes up to a limit, the one that the cost model likes best for 64 vectors."""
    candidates = {_grouped(n, limit) for limit in LARGEST_RADICES}
    return min(
        candidates,
        key=lambda radices: butterfly(n, row_radices=radices).predicted_seconds(
            64, dtype, layout="batch_last"
        ),
    )


def _grouped(n: int, limit: int) -> tuple[int, ...]:
    """Prime factors multiplied together as long as they stay within the limit.

    >>> _grouped(96, 8)
    (6, 8, 2)
    """
    radices: list[int] = []
    for prime in sorted(_prime_factors(n), reverse=True):
        smallest = min(range(len(radices)), key=radices.__getitem__, default=None)
        if smallest is not None and radices[smallest] * prime <= limit:
            radices[smallest] *= prime
        else:
            radices.append(prime)
    return tuple(radices) or (1,)


def _fourier(n: int, radices: Sequence[int]) -> tuple[list[Array], Array]:
    """Factors of the Fourier matrix and the order of its inputs.

    F of size p·m is (F_p (x) I_m) · twiddles · (I_p (x) F_m) on inputs that are sorted by their number mod p:
    output k + m·q is the sum over r < p of w^(r·(k + m·q)) times output k of the r-th smaller transform, w
    being exp(-2πi/n). So a factor is (blocks, p, p, m), and the rest follows for each block.
    """
    factors, order = [], np.arange(n)
    size, blocks = n, 1
    for p in radices:
        m = size // p
        q, r, k = np.ogrid[:p, :p, :m]
        angles = (r * (k + m * q) % size) / size
        factor = np.exp(-2j * np.pi * angles)[None]
        factors.append(np.broadcast_to(factor, (blocks, p, p, m)))
        # Each block's inputs, sorted by their number mod p.
        order = order.reshape(blocks, m, p).swapaxes(1, 2).reshape(-1)
        size, blocks = m, blocks * p
    return factors, order


def _with_diagonals(factors: Sequence[Array], left: Array, right: Array) -> list[Array]:
    """diag(left) · product · diag(right)."""
    (a, b, _, d), (e, _, g, h) = factors[0].shape, factors[-1].shape
    scaled = list(factors)
    scaled[0] = scaled[0] * left.reshape(a, b, 1, d)
    scaled[-1] = scaled[-1] * right.reshape(e, 1, g, h)
    return scaled


def _real_fourier(n: int, left: Array, right: Array, inputs: Array, outputs: Array, cols: int) -> Transform:
    """The real part of diag(left) · F_n · diag(right), on inputs and to outputs that are taken by index."""
    factors, order = _fourier(n, _radices(n, None, np.dtype(np.complex128)))
    scaled = _with_diagonals(factors, left, right[order])
    return Transform(algebra.real_part(scaled), inputs[order], outputs, cols)


def _cosine_or_sine(name: str, n: int, kind: int, norm: str) -> Transform:
    _check(n, norm)
    if kind not in TYPES:
        raise ValueError(f"type: {kind!r} given, must be one of 1, 2, 3, 4")
    if kind == 1 and name == "dct" and n < 2:
        raise ValueError(f"n: {n} given, must be at least 2 for type 1")
    if kind != 1 and not is_smooth(n):
        raise ValueError(
            f"n: {n} given, must have no prime factor but 2, 3, 5 and 7, here {max(_prime_factors(n))}"
        )
    if kind == 3:  # the transpose of type 2, one input of which counts half
        weights = np.ones(n)
        weights[0 if name == "dct" else -1] = 0.5
        transform = _transposed_as_chain(_cosine_or_sine(name, n, 2, "backward"), weights)
    else:
        transform = _UNNORMALISED[name, kind](n)
    return _normalised(transform, name, n, kind, norm)


def _transposed_as_chain(transform: Transform, weights: Array) -> Transform:
    """transform^T · diag(weights), where inputs and outputs are permutations."""
    factors = [np.ascontiguousarray(one) for one in algebra.transpose(transform.factors)]
    inverse_inputs, inverse_outputs = np.argsort(transform.inputs), np.argsort(transform.outputs)
    e, _, g, h = factors[-1].shape
    factors[-1] = factors[-1] * weights[inverse_outputs].reshape(e, 1, g, h)
    return Transform(factors, inverse_outputs, inverse_inputs, len(transform.outputs))


def _dct2(n: int) -> Transform:
    """2·Re(exp(-iπk/2n)·F), on even inputs followed by odd ones from behind."""
    k = np.arange(n)
    inputs = np.concatenate([k[::2], k[1::2][::-1]])
    return _real_fourier(n, 2 * np.exp(-1j * np.pi * k / (2 * n)), np.ones(n), inputs, k, n)


def _dst2(n: int) -> Transform:
    """The same with every other input negated, and outputs from behind."""
    k = np.arange(n)
    inputs = np.concatenate([k[::2], k[1::2][::-1]])
    signs = np.where(inputs % 2, -1.0, 1.0)
    return _real_fourier(n, 2 * np.exp(-1j * np.pi * k / (2 * n)), signs, inputs, k[::-1], n)


def _type4(n: int, name: str) -> Transform:
    """2·Re of a Fourier transform between two diagonals gives outputs with even numbers up to 2n; X(2n-1-k) =
    -X(k) has the odd ones. Sines are cosines of inputs from behind, with every other output negated."""
    m = np.arange(n)
    left = 2 * np.exp(-1j * np.pi * (4 * m + 1) / (4 * n))
    right = np.exp(-1j * np.pi * m / (2 * n))
    number = np.where(2 * m < n, 2 * m, 2 * n - 1 - 2 * m)  # which output the m-th is
    signs = np.where(2 * m < n, 1.0, -1.0)
    if name == "dst":
        signs = signs * np.where(number % 2, -1.0, 1.0)
    inputs = m if name == "dct" else m[::-1]
    return _real_fourier(n, left * signs, right, inputs, np.argsort(number), n)


def _type1(n: int, name: str) -> Transform:
    """A Fourier transform of the inputs and their mirror image."""
    k = np.arange(n)
    size = 2 * (n - 1) if name == "dct" else 2 * (n + 1)
    if not is_smooth(size):
        if name == "dct":
            matrix = 2 * np.cos(np.pi * np.outer(k, k) / (n - 1))
            matrix[:, [0, -1]] /= 2
        else:
            matrix = 2 * np.sin(np.pi * np.outer(k + 1, k + 1) / (n + 1))
        return Transform([matrix[None, :, :, None]])
    if name == "dct":
        inputs = np.concatenate([k, k[-2:0:-1]])
        return _real_fourier(size, np.ones(size), np.ones(size), inputs, k, n)
    inputs = np.concatenate([[0], k, [0], k[::-1]])
    signs = np.concatenate([[0], np.ones(n), [0], -np.ones(n)])
    return _real_fourier(size, np.full(size, 1j), signs, inputs, k + 1, n)


_UNNORMALISED: dict[tuple[str, int], Callable[[int], Transform]] = {
    ("dct", 1): lambda n: _type1(n, "dct"),
    ("dct", 2): _dct2,
    ("dct", 4): lambda n: _type4(n, "dct"),
    ("dst", 1): lambda n: _type1(n, "dst"),
    ("dst", 2): _dst2,
    ("dst", 4): lambda n: _type4(n, "dst"),
}


def _normalised(transform: Transform, name: str, n: int, kind: int, norm: str) -> Transform:
    """With the scale of a norm; "ortho" also weighs inputs and outputs at an end of the cosines."""
    if norm == "backward":
        return transform
    size = 2 * n if kind > 1 else 2 * (n - 1) if name == "dct" else 2 * (n + 1)
    factors = algebra.scale(transform.factors, 1 / math.sqrt(size) if norm == "ortho" else 1 / size)
    if norm == "ortho":
        end, root = (0 if name == "dct" else n - 1), math.sqrt(2)
        left, right = np.ones(transform.shape[0]), np.ones(transform.shape[1])
        if kind == 2:
            left[end] = 1 / root
        elif kind == 3:
            right[end] = root
        elif kind == 1 and name == "dct":
            left[[0, -1]], right[[0, -1]] = 1 / root, root
        rows = np.ones(transform.operator.shape[0])
        rows[transform.outputs] = left
        factors = _with_diagonals(factors, rows, right[transform.inputs])
    return Transform(factors, transform.inputs, transform.outputs, transform.shape[1])
