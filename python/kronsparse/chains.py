"""Patterns of Kronecker-sparse matrices, and the chains of them that make up a product.

A chain is a tuple of patterns, left factor first: W = K_1 K_2 ... K_L, so that the last is applied first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import NamedTuple, SupportsIndex

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


Chain = tuple[Pattern, ...]
ChainLike = str | Iterable[Pattern | str | tuple[int, int, int, int]]


def checked(chain: Iterable[Pattern]) -> Chain:
    """The chain, if neighbours fit: columns of one = rows of the next."""
    patterns = tuple(chain)
    if not patterns:
        raise ValueError("chain: no patterns given, must have at least one")
    for index in range(1, len(patterns)):
        left, right = patterns[index - 1], patterns[index]
        if left.cols != right.rows:
            raise ValueError(
                f"chain: factor {index - 1} ({left}) has {left.cols} columns, must have as many as "
                f"factor {index} ({right}) has rows, {right.rows}"
            )
    return patterns


def dense(rows: int, cols: int) -> Chain:
    """One factor without zeros.

    >>> chain_text(dense(6, 4))
    '1x6x4x1'
    """
    return (Pattern.of((1, rows, cols, 1)),)


def low_rank(rows: int, cols: int, rank: int) -> Chain:
    """A rows x rank factor times a rank x cols one.

    >>> chain_text(low_rank(6, 4, rank=2))
    '1x6x2x1*1x2x4x1'
    """
    return checked([Pattern.of((1, rows, rank, 1)), Pattern.of((1, rank, cols, 1))])


def monarch(rows: int, cols: int, blocks: int | None = None) -> Chain:
    """The two-factor Monarch chain: (1, rows/blocks, blocks, blocks), (blocks, blocks, cols/blocks, 1).

    `blocks` divides both sizes; by default it is the common divisor nearest to the square root of the smaller
    size. The rank of the matrix is at most blocks². So give `blocks`, or pad a size, where the sizes have few
    common divisors; sizes whose only common divisor is 1 are refused.

    >>> chain_text(monarch(4096, 4096))
    '1x64x64x64*64x64x64x1'
    """
    check_size("rows", rows)
    check_size("cols", cols)
    if blocks is None:
        blocks = _middle_divisor(rows, cols)
    if blocks < 1 or rows % blocks or cols % blocks:
        raise ValueError(f"blocks: {blocks} given, must divide the sizes {rows} and {cols}")
    return (Pattern.of((1, rows // blocks, blocks, blocks)), Pattern.of((blocks, blocks, cols // blocks, 1)))


def _middle_divisor(rows: int, cols: int) -> int:
    common = math.gcd(rows, cols)
    if common == 1 < min(rows, cols):
        raise ValueError(
            f"blocks: none given, and the sizes {rows} and {cols} have no common divisor but 1, which would "
            "make the matrix one of rank 1; pad a size, or use 'low_rank(rank=...)', 'dense' or, for rank 1, "
            "'monarch(blocks=1)'"
        )
    small = [number for number in range(1, math.isqrt(common) + 1) if common % number == 0]
    divisors = [*small, *(common // number for number in reversed(small))]
    target = math.sqrt(min(rows, cols))
    return min(divisors, key=lambda divisor: abs(math.log(divisor / target)))


def butterfly(rows: int, cols: int | None = None) -> Chain:
    """The square-dyadic butterfly of size 2^L: L factors (2^(l-1), 2, 2, 2^(L-l)), the support of the FFT.

    >>> chain_text(butterfly(8))
    '1x2x2x4*2x2x2x2*4x2x2x1'
    """
    cols = rows if cols is None else cols
    size = as_size(rows)
    if as_size(cols) != size or size < 2 or size & (size - 1):
        raise ValueError(f"butterfly: sizes {rows} and {cols} given, must be equal and a power of two")
    levels = size.bit_length() - 1
    return tuple(Pattern(1 << level, 2, 2, size >> (level + 1)) for level in range(levels))


NAMED: dict[str, Callable[..., Chain]] = {
    "dense": dense,
    "low_rank": low_rank,
    "monarch": monarch,
    "butterfly": butterfly,
}


def chain_text(chain: Chain) -> str:
    """Patterns joined by '*', left factor first."""
    return "*".join(map(str, chain))


def as_chain(chain: ChainLike, rows: int, cols: int) -> Chain:
    """A chain of a rows x cols matrix from a list of patterns, its text, or a name with parameters.

    >>> as_chain([(1, 8, 4, 4), "4x4x2x1"], 32, 8) == as_chain("1x8x4x4*4x4x2x1", 32, 8)
    True
    >>> chain_text(as_chain("monarch(blocks=4)", 32, 8))
    '1x8x4x4*4x4x2x1'
    >>> chain_text(as_chain("low_rank(rank=3)", 32, 8))
    '1x32x3x1*1x3x8x1'
    """
    if isinstance(chain, str):
        patterns = _from_text(chain, rows, cols)
    elif not isinstance(chain, Iterable):
        raise _no_chain(chain)
    else:
        patterns = checked(Pattern.parse(one) if isinstance(one, str) else Pattern.of(one) for one in chain)
    if (patterns[0].rows, patterns[-1].cols) != (rows, cols):
        raise ValueError(
            f"chain: {chain_text(patterns)} has {patterns[0].rows} rows and {patterns[-1].cols} columns, "
            f"must have as many as there are outputs, {rows}, and inputs, {cols}"
        )
    return patterns


def _no_chain(given: object) -> ValueError:
    return ValueError(
        f"chain: {given!r} given, must be a list of patterns, their text as in '1x8x4x4*4x4x2x1', or one "
        f"of {', '.join(NAMED)} with parameters, as in 'monarch(blocks=4)'"
    )


def _from_text(text: str, rows: int, cols: int) -> Chain:
    if text[:1].isdigit():
        return checked(map(Pattern.parse, text.split("*")))
    parameter = r"\w+\s*=\s*\d+"
    form = re.fullmatch(rf"(\w+)(?:\(\s*({parameter}(?:\s*,\s*{parameter})*)?\s*\))?", text)
    if form is None or form[1] not in NAMED:
        raise _no_chain(text)
    given = re.findall(r"(\w+)\s*=\s*(\d+)", form[2] or "")
    parameters = {key: int(number) for key, number in given}
    if len(parameters) < len(given):
        raise ValueError(f"chain: {text!r} given, must have each parameter once")
    try:
        return NAMED[form[1]](rows, cols, **parameters)
    except TypeError as error:
        raise ValueError(f"chain: {text!r} given: {error}") from None
