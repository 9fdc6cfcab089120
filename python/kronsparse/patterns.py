"""Patterns of Kronecker-sparse matrices, and chains of them with what follows from the patterns alone."""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, SupportsIndex

from kronsparse.checks import as_size, check_size


class Pattern(NamedTuple):
    """The support I_a (x) 1_{b x c} (x) I_d of a matrix with a·b·d rows and a·c·d columns.

    >>> pattern = Pattern.parse("2x3x4x5")
    >>> pattern.rows, pattern.cols, pattern.nnz
    (30, 40, 120)
    """

    a: int
    b: int
    c: int
    d: int

    @property
    def rows(self) -> int:
        return self.a * self.b * self.d

    @property
    def cols(self) -> int:
        return self.a * self.c * self.d

    @property
    def nnz(self) -> int:
        return self.a * self.b * self.c * self.d

    @property
    def density(self) -> float:
        """The share of entries that may be other than zero, 1/(a·d)."""
        return 1.0 / (self.a * self.d)

    @property
    def h(self) -> float:
        """(b+c)/(b·c): elements of the input and output per product; the larger, the more copies of them
        cost.

        >>> Pattern(1, 64, 64, 4).h
        0.03125
        """
        return (self.b + self.c) / (self.b * self.c)

    @property
    def transposed(self) -> Pattern:
        """The pattern of the transposed matrix, (a,c,b,d)."""
        return Pattern(self.a, self.c, self.b, self.d)

    def __str__(self) -> str:
        return "x".join(map(str, self))

    @classmethod
    def parse(cls, text: str) -> Pattern:
        """Reads what str() writes."""
        if not re.fullmatch(r"\d+(x\d+){3}", text):
            raise ValueError(f"pattern: {text!r} given, must be four sizes joined by x, as in '2x3x4x5'")
        return cls.of(map(int, text.split("x")))

    @classmethod
    def of(cls, sizes: Iterable[SupportsIndex]) -> Pattern:
        """From four sizes, checked; NumPy's integers are taken too.

        >>> Pattern.of([2, 3, 4, 5])
        Pattern(a=2, b=3, c=4, d=5)
        """
        given = tuple(sizes) if isinstance(sizes, Iterable) else (sizes,)
        integers = [as_size(size) for size in given]
        if len(integers) != 4 or min(integers) < 1:
            raise ValueError(f"pattern: {given} given, must be four integers (a, b, c, d), each at least 1")
        return cls(*integers)

    def rank_with(self, right: Pattern) -> int:
        """The rank that the product of this pattern and `right` has in each of its blocks, 0 where the pair
        is not chainable.

        A pair (a1,b1,c1,d1), (a2,b2,c2,d2) is chainable when a1 divides a2, d2 divides d1 and
        r = a1·c1/a2 = b2·d2/d1 is an integer. The product then has a2·d1 separate blocks, b1 x c2 each, and
        any blocks of rank up to r can be had.

        >>> Pattern(1, 8, 12, 4).rank_with(Pattern(4, 12, 2, 1))
        3
        >>> Pattern(4, 2, 2, 1).rank_with(Pattern(1, 2, 2, 4))
        0
        """
        if right.a % self.a or self.d % right.d or (self.a * self.c) % right.a:
            return 0
        return self.a * self.c // right.a

    def times(self, right: Pattern) -> Pattern | None:
        """The pattern of the product with `right`; None where the product is not Kronecker-sparse.

        >>> Pattern(1, 2, 2, 4).times(Pattern(2, 2, 2, 2))
        Pattern(a=1, b=4, c=4, d=2)
        >>> print(Pattern(2, 3, 3, 1).times(Pattern(3, 2, 2, 1)))
        None
        """
        if self.b == self.c == 1:  # a diagonal matrix fits whatever comes
            return right
        if right.b == right.c == 1:
            return self
        nested = all(
            min(one, other) == math.gcd(one, other) for one, other in ((self.a, right.a), (self.d, right.d))
        )
        # Crossed neighbours fill the larger pattern only where the columns of one reach every block.
        goes_up = self.a <= right.a and self.d >= right.d
        goes_down = self.a >= right.a and self.d <= right.d
        reaches_up = right.b * right.d >= self.d
        reaches_down = self.c * self.d >= right.d
        if not nested or (goes_up and not reaches_up) or (goes_down and not reaches_down):
            return None
        return enclosing(self.rows, right.cols, (self, right))


def enclosing(rows: int, cols: int, patterns: Sequence[Pattern]) -> Pattern:
    """The smallest rows x cols pattern whose identities have all of these patterns' blocks inside.

    >>> enclosing(12, 12, [Pattern(4, 3, 3, 1), Pattern(6, 2, 2, 1)])
    Pattern(a=2, b=6, c=6, d=1)
    """
    a = math.gcd(*(one.a for one in patterns))
    d = math.gcd(*(one.d for one in patterns))
    return Pattern(a, rows // (a * d), cols // (a * d), d)


class Chain(tuple[Pattern, ...]):
    """Patterns of a product W = K_1 K_2 ... K_L, left factor first, so that the last is applied first.

    A tuple of patterns whose neighbours fit: columns of one = rows of the next.

    >>> chain = Chain([(1, 8, 4, 4), (4, 4, 2, 1)])
    >>> chain.shape, chain.nnz, chain.density, chain.ranks
    ((32, 8), 160, 1.0, (1,))
    >>> print(chain)
    1x8x4x4*4x4x2x1
    """

    __slots__ = ()

    def __new__(cls, patterns: Iterable[Iterable[SupportsIndex]]) -> Chain:
        chain = super().__new__(cls, (Pattern.of(one) for one in patterns))
        if not chain:
            raise ValueError("chain: no patterns given, must have at least one")
        for index in range(1, len(chain)):
            left, right = chain[index - 1], chain[index]
            if left.cols != right.rows:
                raise ValueError(
                    f"chain: factor {index - 1} ({left}) has {left.cols} columns, must have as many as "
                    f"factor {index} ({right}) has rows, {right.rows}"
                )
        return chain

    def __getnewargs__(self) -> tuple[tuple[Pattern, ...]]:
        return (tuple(self),)

    def __str__(self) -> str:
        return "*".join(map(str, self))

    def __repr__(self) -> str:
        return f"Chain({str(self)!r})"

    @property
    def rows(self) -> int:
        return self[0].rows

    @property
    def cols(self) -> int:
        return self[-1].cols

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows, self.cols

    @property
    def nnz(self) -> int:
        """The parameters: values of all factors."""
        return sum(pattern.nnz for pattern in self)

    @property
    def transposed(self) -> Chain:
        """The chain of the transposed product."""
        return Chain(pattern.transposed for pattern in reversed(self))

    @property
    def ranks(self) -> tuple[int, ...]:
        """For each of the L-1 places where the chain can be split in two, the rank of the product's blocks
        there; 0 where the neighbours are not chainable (see `Pattern.rank_with`)."""
        return tuple(self[index].rank_with(self[index + 1]) for index in range(len(self) - 1))

    @property
    def is_chainable(self) -> bool:
        """Whether every pair of neighbours is chainable. Only then a best product exists for every matrix,
        and `factorize` finds one that is close to it."""
        return all(self.ranks)

    @property
    def product(self) -> Pattern | None:
        """The pattern of the product, None where it has none.

        >>> Chain([(1, 2, 2, 4), (2, 2, 2, 2)]).product
        Pattern(a=1, b=4, c=4, d=2)
        """
        product: Pattern | None = self[0]
        for pattern in self[1:]:
            product = product.times(pattern) if product is not None else None
        return product

    @property
    def density(self) -> float:
        """The share of the product's entries that may be other than zero.

        Counted entry by entry where the product has no pattern, which takes rows·cols bytes.
        """
        if self.product is not None:
            return self.product.density
        from kronsparse.algebra import support

        return float(support(self).mean())

    @property
    def is_redundant(self) -> bool:
        """Whether a pair of neighbours is chainable and as good as its product in one: fewer parameters do
        the same.

        >>> Chain([(1, 4, 4, 1), (1, 4, 4, 1)]).is_redundant
        True
        """
        return any(_is_redundant(self[index], self[index + 1]) for index in range(len(self) - 1))

    def reduced(self) -> Chain:
        """The chain with redundant neighbours made one.

        >>> print(Chain([(1, 4, 4, 1), (1, 4, 4, 1), (1, 4, 2, 1)]).reduced())
        1x4x2x1
        """
        return reduction(self)[0]

    def fuse(self, index: int) -> Chain:
        """The chain with factors `index` and `index` + 1 made one.

        >>> print(Chain([(1, 2, 2, 4), (2, 2, 2, 2), (4, 2, 2, 1)]).fuse(0))
        1x4x4x2*4x2x2x1
        """
        product = self.fused_pattern(index)
        return Chain([*self[:index], product, *self[index + 2 :]])

    def fused_pattern(self, index: int) -> Pattern:
        """The pattern of factors `index` and `index` + 1 made one."""
        if not 0 <= index < len(self) - 1:
            raise ValueError(f"index: {index} given, must be from 0 to {len(self) - 2}, one with a neighbour")
        product = self[index].times(self[index + 1])
        if product is None:
            raise ValueError(
                f"index: {index} given, but the product of factor {index} ({self[index]}) and factor "
                f"{index + 1} ({self[index + 1]}) is not Kronecker-sparse"
            )
        return product

    def flops(self, batch: int = 1) -> int:
        """Floating-point operations of a product with so many vectors, a multiplication and an addition for
        each value."""
        return 2 * batch * self.nnz

    def bytes(self, dtype: str = "f32") -> int:
        """Bytes of the values in a dtype of the problem text: f16, bf16, f32, f64, complex64, complex128.

        >>> Chain([(1, 2, 2, 4)]).bytes("f16")
        32
        """
        return self.nnz * _DTYPE_BYTES[_known_dtype(dtype)]

    def predicted_seconds(
        self, batch: int, dtype: str = "f32", device: str = "cpu", layout: str = "batch_first"
    ) -> float:
        """The cost model's seconds of a product with so many vectors, values being packed.

        >>> Chain([(1, 64, 64, 64), (64, 64, 64, 1)]).predicted_seconds(64) > 0
        True
        """
        from kronsparse import _native

        check_size("batch", batch)
        return _native.predict(f"{_known_dtype(dtype)} {layout} B={batch} {self}", device)[0]

    def planned(
        self, batch: int, dtype: str = "f32", device: str = "cpu", layout: str = "batch_first"
    ) -> Chain:
        """The chain with those neighbours fused that make products with so many vectors fastest, by the cost
        model. `KSOperator.fused_as` fuses the values.

        >>> Chain([(1, 2, 2, 2), (2, 2, 2, 1)]).planned(batch=1).shape
        (4, 4)
        """
        # best[end]: the fastest way to run the factors from `end` on, and where its first factor ends.
        best: list[tuple[float, int]] = [(0.0, 0)] * (len(self) + 1)
        for begin in reversed(range(len(self))):
            best[begin] = (math.inf, begin + 1)
            for end in range(begin + 1, len(self) + 1):
                product = Chain(self[begin:end]).product
                if product is None:
                    break
                seconds = Chain([product]).predicted_seconds(batch, dtype, device, layout) + best[end][0]
                best[begin] = min(best[begin], (seconds, end))
        patterns, begin = [], 0
        while begin < len(self):
            end = best[begin][1]
            product = Chain(self[begin:end]).product
            assert product is not None
            patterns.append(product)
            begin = end
        return Chain(patterns)

    def table(self) -> str:
        """The factors and the product as lines of text.

        >>> print(Chain([(1, 8, 4, 4), (4, 4, 2, 1)]).table())
        factor   pattern         rows      cols       nnz   density   rank
             0   1x8x4x4           32        16       128     0.250      1
             1   4x4x2x1           16         8        32     0.250
        product                    32         8       160     1.000
        """
        lines = [f"{'factor':>6}   {'pattern':<12}{'rows':>8}{'cols':>10}{'nnz':>10}{'density':>10}   rank"]
        for index, pattern in enumerate(self):
            rank = f"{self.ranks[index] or 'none':>7}" if index < len(self) - 1 else ""
            lines.append(
                f"{index:>6}   {pattern!s:<12}{pattern.rows:>8}{pattern.cols:>10}{pattern.nnz:>10}"
                f"{pattern.density:>10.3f}{rank}"
            )
        lines.append(f"product  {'':<12}{self.rows:>8}{self.cols:>10}{self.nnz:>10}{self.density:>10.3f}")
        return "\n".join(lines)

    def plot(self, axes: Any = None) -> Any:
        """Draws the supports of the factors and of the product side by side; needs matplotlib. Returns the
        axes, one for each factor and one for the product."""
        from kronsparse.algebra import support

        if axes is None:
            pyplot = importlib.import_module("matplotlib.pyplot")
            axes = pyplot.subplots(1, len(self) + 1, squeeze=False)[1][0]
        for axis, chain in zip(axes, [*(Chain([one]) for one in self), self], strict=True):
            axis.imshow(support(chain), cmap="Greys", interpolation="none", vmin=0, vmax=1)
            axis.set_title(str(chain) if len(chain) == 1 else "product")
            axis.set_xticks([])
            axis.set_yticks([])
        return axes


def _is_redundant(left: Pattern, right: Pattern) -> bool:
    rank = left.rank_with(right)
    return rank != 0 and rank >= min(left.b, right.c)


def reduction(chain: Chain) -> tuple[Chain, list[int]]:
    """The chain without redundant neighbours, and the indices that `fuse` is given on the way there."""
    fused = []
    index = 0
    while index < len(chain) - 1:
        if _is_redundant(chain[index], chain[index + 1]):
            fused.append(index)
            chain = chain.fuse(index)
            index = max(index - 1, 0)  # the product may be redundant with what is left of it
        else:
            index += 1
    return chain, fused


_DTYPE_BYTES = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8, "complex64": 8, "complex128": 16}


def _known_dtype(dtype: str) -> str:
    if dtype not in _DTYPE_BYTES:
        raise ValueError(f"dtype: {dtype!r} given, must be one of {', '.join(_DTYPE_BYTES)}")
    return dtype
