"""Fast transforms as chains: Hadamard, Fourier, cosine and sine, with the names and conventions of scipy.fft.

Each is an operator: `dft(n) @ x` is `scipy.fft.fft(x)` along the first dimension of x. Sizes may have the
prime factors 2, 3, 5 and 7; `norm` is "backward", "ortho" or "forward", as there.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from kronsparse import algebra
from kronsparse.chains import Chain, butterfly
from kronsparse.checks import as_size, check_option, check_size
from kronsparse.linear_operator import ArrayOperator
from kronsparse.operators import KSOperator

Array = NDArray[Any]
NORMS = ("backward", "ortho", "forward")
TYPES = (1, 2, 3, 4)
LARGEST_PRIME = 7


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
        device: str = "cpu",
    ) -> None:
        self.operator = KSOperator(factors, device)
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

    def _apply_tensor(self, x: Any, operation: str, layout: str) -> Any:
        import torch

        axis = -1 if layout == "batch_first" else 0
        inputs, outputs = (torch.tensor(order, device=x.device) for order in (self.inputs, self.outputs))
        if operation == "multiply":
            y = self.operator._apply_tensor(x.index_select(axis, inputs), operation, layout)
            return y.index_select(axis, outputs)

        def added(values: Any, places: Any, size: int) -> Any:
            shape = list(values.shape)
            shape[axis] = size
            return values.new_zeros(shape).index_add_(axis, places, values)

        rows = added(x, outputs, self.operator.shape[0])
        return added(self.operator._apply_tensor(rows, operation, layout), inputs, self._cols)

    def _with(self, factors: Sequence[Array]) -> Transform:
        """Other factors between the same inputs and outputs."""
        return Transform(factors, self.inputs, self.outputs, self._cols, self.operator.device)

    def _transpose(self) -> ArrayOperator:
        return _Turned(self, "transposed")

    def _adjoint(self) -> ArrayOperator:
        return _Turned(self, "adjoint")

    def _scaled(self, number: Any) -> Transform:
        return self._with(algebra.scale(self.factors, number))

    def conj(self) -> Transform:
        """The operator of the conjugate matrix."""
        return self._with(self.operator.conj().factors)

    conjugate = conj

    def astype(self, dtype: DTypeLike) -> Transform:
        """The factors in another dtype; a complex transform has no real one."""
        return self._with(self.operator.astype(dtype).factors)

    @property
    def real(self) -> Transform:
        """The operator of the matrix' real part: `KSOperator.real`.

        >>> np.allclose(dft(6).real.to_dense(), dft(6).to_dense().real)
        True
        """
        return self._with(self.operator.real.factors)

    @property
    def imag(self) -> Transform:
        """The operator of the matrix' imaginary part."""
        return self._with(self.operator.imag.factors)

    def __repr__(self) -> str:
        return f"Transform({self.shape[0]}x{self.shape[1]}, {self.chain}, {self.dtype})"


class _Turned(ArrayOperator):
    """The transpose or adjoint of a transform."""

    def __init__(self, transform: Transform, operation: str) -> None:
        self.transform, self.operation = transform, operation
        super().__init__((transform.shape[1], transform.shape[0]), transform.dtype)

    def _as_transform(self, operation: str) -> tuple[Transform, str]:
        """The transform, or its conjugate, and what is to be done with it."""
        if operation == "multiply":
            return self.transform, self.operation
        return (self.transform if operation == self.operation else self.transform.conj()), "multiply"

    def _apply(self, x: Array, operation: str, layout: str) -> Array:
        transform, operation = self._as_transform(operation)
        return transform._apply(x, operation, layout)

    def _apply_tensor(self, x: Any, operation: str, layout: str) -> Any:
        transform, operation = self._as_transform(operation)
        return transform._apply_tensor(x, operation, layout)

    def _transpose(self) -> ArrayOperator:
        return self._as_transform("transposed")[0]

    def _adjoint(self) -> ArrayOperator:
        return self._as_transform("adjoint")[0]

    def _scaled(self, number: Any) -> _Turned:
        number = np.conj(number) if self.operation == "adjoint" else number
        return _Turned(self.transform._scaled(number), self.operation)

    def conj(self) -> _Turned:
        """The operator of the conjugate matrix."""
        return _Turned(self.transform.conj(), self.operation)

    conjugate = conj

    def astype(self, dtype: DTypeLike) -> _Turned:
        """The factors in another dtype."""
        return _Turned(self.transform.astype(dtype), self.operation)

    @property
    def real(self) -> _Turned:
        """The operator of the matrix' real part."""
        return _Turned(self.transform.real, "transposed")

    @property
    def imag(self) -> _Turned:
        """The operator of the matrix' imaginary part."""
        sign = -1 if self.operation == "adjoint" else 1
        return _Turned(self.transform.imag._scaled(sign), "transposed")

    def __repr__(self) -> str:
        return f"{self.transform!r}.{'T' if self.operation == 'transposed' else 'H'}"


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


def hadamard(
    n: int,
    norm: str = "backward",
    dtype: DTypeLike = np.float64,
    radices: Sequence[int] | None = None,
    device: str = "cpu",
) -> Transform:
    """The Hadamard matrix of size 2^L in Sylvester's order, as scipy.linalg.hadamard has it with "backward".
    It is a butterfly with the given radices, or those that are predicted to be fastest on the device.

    >>> hadamard(2).to_dense()
    array([[ 1.,  1.],
           [ 1., -1.]])
    >>> hadamard(8, radices=(2, 2, 2)).chain
    Chain('1x2x2x4*2x2x2x2*4x2x2x1')
    """
    _check(n, norm)
    if n & (n - 1):
        raise ValueError(f"n: {n} given, must be a power of two")
    radices = _radices(n, radices, dtype, device)
    factors = [
        np.broadcast_to(_signs(one.b)[None, :, :, None], one) for one in butterfly(n, row_radices=radices)
    ]
    return _typed(Transform(_scaled(factors, n, norm), device=device), dtype)


def _signs(n: int) -> Array:
    """The Hadamard matrix itself."""
    signs = np.ones((1, 1))
    while len(signs) < n:
        signs = np.block([[signs, signs], [signs, -signs]])
    return signs


def dft(
    n: int,
    norm: str = "backward",
    dtype: DTypeLike = np.complex128,
    radices: Sequence[int] | None = None,
    device: str = "cpu",
) -> Transform:
    """scipy.fft.fft of size n. The digits of its inputs' numbers are reversed (`inputs`) before the chain, a
    butterfly with the given radices, or those that are predicted to be fastest on the device.

    >>> x = np.arange(12.0)
    >>> np.allclose(dft(12) @ x, np.fft.fft(x))
    True
    >>> dft(12, radices=(3, 4)).inputs
    array([ 0,  3,  6,  9,  1,  4,  7, 10,  2,  5,  8, 11])
    """
    _check(n, norm)
    factors, order = _fourier(n, _radices(n, radices, dtype, device))
    return _typed(Transform(_scaled(factors, n, norm), order, device=device), dtype)


def idft(
    n: int,
    norm: str = "backward",
    dtype: DTypeLike = np.complex128,
    radices: Sequence[int] | None = None,
    device: str = "cpu",
) -> Transform:
    """scipy.fft.ifft of size n.

    >>> np.allclose(idft(6) @ (dft(6) @ np.arange(6)), np.arange(6))
    True
    """
    _check(n, norm)
    factors, order = _fourier(n, _radices(n, radices, dtype, device))
    opposite = {"backward": "forward", "forward": "backward", "ortho": "ortho"}[norm]
    factors = _scaled([one.conj() for one in factors], n, opposite)
    return _typed(Transform(factors, order, device=device), dtype)


def dct(
    n: int,
    type: int = 2,
    norm: str = "backward",
    dtype: DTypeLike = np.float64,
    device: str = "cpu",
) -> Transform:
    """scipy.fft.dct of size n, types 1 to 4, as a chain of real factors.

    Type 1 goes through a Fourier transform of size 2·(n-1), so that n itself may have any primes; where
    2·(n-1) has others than 2, 3, 5 and 7, it is one dense factor.

    >>> np.allclose(dct(3).to_dense()[0], 2)
    True
    """
    return _typed(_cosine_or_sine("dct", n, type, norm, _Target(np.dtype(dtype), device)), dtype)


def dst(
    n: int,
    type: int = 2,
    norm: str = "backward",
    dtype: DTypeLike = np.float64,
    device: str = "cpu",
) -> Transform:
    """scipy.fft.dst of size n, types 1 to 4, as a chain of real factors. Type 1 goes through a Fourier
    transform of size 2·(n+1), as `dct` does.

    >>> np.allclose(dst(2, type=1).to_dense(), np.sqrt(3) * np.array([[1, 1], [1, -1]]))
    True
    """
    return _typed(_cosine_or_sine("dst", n, type, norm, _Target(np.dtype(dtype), device)), dtype)


def _check(n: int, norm: str) -> None:
    check_size("n", n)
    check_option("norm", norm, NORMS)


def _typed(transform: Transform, dtype: DTypeLike) -> Transform:
    kind = transform.dtype.kind
    if np.dtype(dtype).kind != kind:
        what = "complex64 or complex128" if kind == "c" else "float16, float32 or float64"
        raise ValueError(f"dtype: {np.dtype(dtype)} given, must be {what}")
    return transform.astype(dtype)


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


def _radices(n: int, given: Sequence[int] | None, dtype: DTypeLike, device: str) -> tuple[int, ...]:
    if given is not None:
        sizes = [as_size(radix) for radix in given]
        if not sizes or min(sizes) < 1 or math.prod(sizes) != n:
            raise ValueError(f"radices: {tuple(given)} given, must be integers that multiply to n, {n}")
        return tuple(sizes)
    if not is_smooth(n):
        raise ValueError(
            f"n: {n} given, must have no prime factor but 2, 3, 5 and 7, here {max(_prime_factors(n))}"
        )
    return _fastest_radices(n, _DTYPE_NAMES.get(np.dtype(dtype).name, "f64"), device)


_DTYPE_NAMES = {"float16": "f16", "float32": "f32", "complex64": "complex64", "complex128": "complex128"}


@functools.lru_cache(maxsize=256)
def _fastest_radices(n: int, dtype: str, device: str) -> tuple[int, ...]:
    """Radices that multiply primes up to a limit: those that the device's cost model likes best for 64
    vectors.

    >>> math.prod(_fastest_radices(96, "f32", "cpu"))
    96
    """
    from kronsparse import _native

    return tuple(_native.transform_radices(n, dtype, device))


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


class _Target(NamedTuple):
    """What radices are chosen for."""

    dtype: np.dtype[Any]
    device: str

    @property
    def complex_dtype(self) -> DTypeLike:
        """That of the Fourier transform whose real part is taken."""
        return np.complex64 if self.dtype.itemsize <= 4 else np.complex128


def _real_fourier(
    n: int, left: Array, right: Array, inputs: Array, outputs: Array, cols: int, target: _Target
) -> Transform:
    """The real part of diag(left) · F_n · diag(right), on inputs and to outputs that are taken by index."""
    factors, order = _fourier(n, _radices(n, None, target.complex_dtype, target.device))
    scaled = _with_diagonals(factors, left, right[order])
    return Transform(algebra.real_part(scaled), inputs[order], outputs, cols, target.device)


def _cosine_or_sine(name: str, n: int, kind: int, norm: str, target: _Target) -> Transform:
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
        transform = _transposed_as_chain(_cosine_or_sine(name, n, 2, "backward", target), weights)
    else:
        transform = _UNNORMALISED[name, kind](n, target)
    return _normalised(transform, name, n, kind, norm)


def _transposed_as_chain(transform: Transform, weights: Array) -> Transform:
    """transform^T · diag(weights), where inputs and outputs are permutations."""
    factors = [np.ascontiguousarray(one) for one in algebra.transpose(transform.factors)]
    inverse_inputs, inverse_outputs = np.argsort(transform.inputs), np.argsort(transform.outputs)
    e, _, g, h = factors[-1].shape
    factors[-1] = factors[-1] * weights[inverse_outputs].reshape(e, 1, g, h)
    cols, device = len(transform.outputs), transform.operator.device
    return Transform(factors, inverse_outputs, inverse_inputs, cols, device)


def _dct2(n: int, target: _Target) -> Transform:
    """2·Re(exp(-iπk/2n)·F), on even inputs followed by odd ones from behind."""
    k = np.arange(n)
    inputs = np.concatenate([k[::2], k[1::2][::-1]])
    return _real_fourier(n, 2 * np.exp(-1j * np.pi * k / (2 * n)), np.ones(n), inputs, k, n, target)


def _dst2(n: int, target: _Target) -> Transform:
    """The same with every other input negated, and outputs from behind."""
    k = np.arange(n)
    inputs = np.concatenate([k[::2], k[1::2][::-1]])
    signs = np.where(inputs % 2, -1.0, 1.0)
    return _real_fourier(n, 2 * np.exp(-1j * np.pi * k / (2 * n)), signs, inputs, k[::-1], n, target)


def _type4(n: int, target: _Target, name: str) -> Transform:
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
    return _real_fourier(n, left * signs, right, inputs, np.argsort(number), n, target)


def _type1(n: int, target: _Target, name: str) -> Transform:
    """A Fourier transform of the inputs and their mirror image."""
    k = np.arange(n)
    size = 2 * (n - 1) if name == "dct" else 2 * (n + 1)
    if not is_smooth(size):  # angles are reduced first, for large ones are rounded more
        if name == "dct":
            matrix = 2 * np.cos(2 * np.pi * (np.outer(k, k) % size) / size)
            matrix[:, [0, -1]] /= 2
        else:
            matrix = 2 * np.sin(2 * np.pi * (np.outer(k + 1, k + 1) % size) / size)
        return Transform([matrix[None, :, :, None]], device=target.device)
    if name == "dct":
        inputs = np.concatenate([k, k[-2:0:-1]])
        return _real_fourier(size, np.ones(size), np.ones(size), inputs, k, n, target)
    inputs = np.concatenate([[0], k, [0], k[::-1]])
    signs = np.concatenate([[0], np.ones(n), [0], -np.ones(n)])
    return _real_fourier(size, np.full(size, 1j), signs, inputs, k + 1, n, target)


_UNNORMALISED: dict[tuple[str, int], Callable[[int, _Target], Transform]] = {
    ("dct", 1): functools.partial(_type1, name="dct"),
    ("dct", 2): _dct2,
    ("dct", 4): functools.partial(_type4, name="dct"),
    ("dst", 1): functools.partial(_type1, name="dst"),
    ("dst", 2): _dst2,
    ("dst", 4): functools.partial(_type4, name="dst"),
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
    return transform._with(factors)
