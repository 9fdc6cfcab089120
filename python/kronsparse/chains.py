"""Chains by name: the families of Kronecker-sparse products, and chains from text.

A constructor takes the sizes of the matrix, rows and columns, and the parameters of its family.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence

from kronsparse.checks import as_size, check_size
from kronsparse.patterns import Chain, Pattern

__all__ = [
    "NAMED",
    "Chain",
    "ChainLike",
    "Pattern",
    "as_chain",
    "blast",
    "block_butterfly",
    "boft",
    "btt",
    "butterfly",
    "chain_text",
    "checked",
    "dense",
    "for_budget",
    "kaleidoscope",
    "low_rank",
    "monarch",
    "padded_size",
    "square_dyadic",
]

ChainLike = str | Iterable[Pattern | str | tuple[int, int, int, int]]


def checked(chain: Iterable[Pattern]) -> Chain:
    """The chain, if neighbours fit: columns of one = rows of the next."""
    return Chain(chain)


def dense(rows: int, cols: int) -> Chain:
    """One factor without zeros.

    >>> chain_text(dense(6, 4))
    '1x6x4x1'
    """
    return Chain([(1, rows, cols, 1)])


def low_rank(rows: int, cols: int, rank: int) -> Chain:
    """A rows x rank factor times a rank x cols one.

    >>> chain_text(low_rank(6, 4, rank=2))
    '1x6x2x1*1x2x4x1'
    """
    return Chain([(1, rows, rank, 1), (1, rank, cols, 1)])


def monarch(rows: int, cols: int, blocks: int | None = None, rank: int = 1) -> Chain:
    """The two-factor Monarch chain: (1, rows/blocks, blocks·rank, blocks), (blocks, blocks·rank,
    cols/blocks, 1).

    Its matrix consists of blocks² blocks of the given rank. `blocks` divides both sizes; by default it is the
    common divisor nearest to the square root of the smaller size. The rank of the matrix is at most
    blocks²·rank. So give `blocks`, or pad a size, where the sizes have few common divisors; sizes whose only
    common divisor is 1 are refused.

    >>> chain_text(monarch(4096, 4096))
    '1x64x64x64*64x64x64x1'
    >>> chain_text(monarch(32, 8, blocks=4, rank=2))
    '1x8x8x4*4x8x2x1'
    """
    check_size("rows", rows)
    check_size("cols", cols)
    check_size("rank", rank)
    if blocks is None:
        blocks = _middle_divisor(rows, cols)
    if blocks < 1 or rows % blocks or cols % blocks:
        raise ValueError(f"blocks: {blocks} given, must divide the sizes {rows} and {cols}")
    width = blocks * rank
    return Chain([(1, rows // blocks, width, blocks), (blocks, width, cols // blocks, 1)])


def _divisors(number: int) -> list[int]:
    small = [one for one in range(1, math.isqrt(number) + 1) if number % one == 0]
    return [*small, *(number // one for one in reversed(small) if one * one != number)]


def _middle_divisor(rows: int, cols: int) -> int:
    common = math.gcd(rows, cols)
    if common == 1 < min(rows, cols):
        raise ValueError(
            f"blocks: none given, and the sizes {rows} and {cols} have no common divisor but 1, which would "
            "make the matrix one of rank 1; pad a size, or use 'low_rank(rank=...)', 'dense' or, for rank 1, "
            "'monarch(blocks=1)'"
        )
    target = math.sqrt(min(rows, cols))
    return min(_divisors(common), key=lambda divisor: abs(math.log(divisor / target)))


def butterfly(
    rows: int,
    cols: int | None = None,
    row_radices: Sequence[int] | None = None,
    col_radices: Sequence[int] | None = None,
    ranks: Sequence[int] | None = None,
) -> Chain:
    """Butterflies of any size: factor l is (col_radices before l, row_radices[l], col_radices[l], row_radices
    after l), products being meant by before and after. The radices multiply to rows and cols.

    A square one has its prime factors for radices unless they are given, and equal ones for rows and columns:
    for a power of two, the support of the FFT. `ranks`, one less than the radices, makes the blocks at each
    split of that rank instead of 1. Every chain whose neighbours are chainable is one of these.

    >>> chain_text(butterfly(8))
    '1x2x2x4*2x2x2x2*4x2x2x1'
    >>> chain_text(butterfly(15))
    '1x3x3x5*3x5x5x1'
    >>> chain_text(butterfly(12, 30, (4, 3), (5, 6), ranks=[2]))
    '1x4x10x3*5x6x6x1'
    """
    check_size("rows", rows)
    cols = rows if cols is None else cols
    check_size("cols", cols)
    if row_radices is None:
        if col_radices is not None or rows != cols:
            raise ValueError(
                f"butterfly: sizes {rows} and {cols} given, must be equal unless radices are given"
            )
        row_radices = _primes(rows)
    col_radices = row_radices if col_radices is None and rows == cols else col_radices or ()
    ranks = [1] * (len(row_radices) - 1) if ranks is None else ranks
    _check_radices("row_radices", row_radices, "rows", rows)
    _check_radices("col_radices", col_radices, "cols", cols)
    if len(col_radices) != len(row_radices) or len(ranks) != len(row_radices) - 1:
        raise ValueError(
            f"butterfly: {len(row_radices)} row_radices, {len(col_radices)} col_radices and {len(ranks)} "
            "ranks given, must be as many row_radices as col_radices, and ranks one less"
        )
    for rank in ranks:
        check_size("ranks", rank)
    widths = [1, *ranks, 1]
    return Chain(
        (
            math.prod(col_radices[:level]),
            row_radices[level] * widths[level],
            col_radices[level] * widths[level + 1],
            math.prod(row_radices[level + 1 :]),
        )
        for level in range(len(row_radices))
    )


def _check_radices(argument: str, radices: Sequence[int], sizes: str, size: int) -> None:
    for radix in radices:
        check_size(argument, radix)
    if not radices or math.prod(radices) != size:
        raise ValueError(f"{argument}: {tuple(radices)} given, must multiply to {sizes}, {size}")


def _primes(number: int) -> list[int]:
    """Prime factors, ascending; of 1, itself.

    >>> _primes(360)
    [2, 2, 2, 3, 3, 5]
    """
    primes, candidate = [], 2
    while candidate * candidate <= number:
        if number % candidate:
            candidate += 1
        else:
            primes.append(candidate)
            number //= candidate
    return [*primes, number] if number > 1 or not primes else primes


def _power_of_two(name: str, rows: int, cols: int | None) -> int:
    cols = rows if cols is None else cols
    size = as_size(rows)
    if as_size(cols) != size or size < 2 or size & (size - 1):
        raise ValueError(f"{name}: sizes {rows} and {cols} given, must be equal and a power of two")
    return size


def square_dyadic(rows: int, cols: int | None = None) -> Chain:
    """The butterfly of size 2^L: L factors (2^(l-1), 2, 2, 2^(L-l)), the support of the FFT.

    >>> square_dyadic(8) == butterfly(8)
    True
    """
    return butterfly(_power_of_two("square_dyadic", rows, cols))


def kaleidoscope(rows: int, cols: int | None = None) -> Chain:
    """A butterfly of size 2^L times the transpose of one: 2·L factors. Its middle is not chainable.

    >>> chain_text(kaleidoscope(4))
    '1x2x2x2*2x2x2x1*2x2x2x1*1x2x2x2'
    """
    half = butterfly(_power_of_two("kaleidoscope", rows, cols))
    return Chain([*half, *half.transposed])


def block_butterfly(rows: int, cols: int | None = None, *, t: int) -> Chain:
    """(2^(l-1), 2t, 2t, 2^(L-l)) for l = 1..L, of size 2^L·t.

    >>> chain_text(block_butterfly(24, t=6))
    '1x12x12x2*2x12x12x1'
    """
    check_size("t", t)
    cols = rows if cols is None else cols
    levels = (as_size(rows) // t).bit_length() - 1
    if as_size(rows) != as_size(cols) or levels < 1 or rows != t << levels:
        raise ValueError(
            f"block_butterfly: sizes {rows} and {cols} given, must be equal and t = {t} times a power of two"
        )
    return Chain((1 << level, 2 * t, 2 * t, 1 << (levels - 1 - level)) for level in range(levels))


def blast(rows: int, cols: int, blocks: int, rank: int) -> Chain:
    """(blocks, rows/blocks, rank, 1), (1, blocks, blocks, rank), (blocks, rank, cols/blocks, 1): blocks²
    blocks of one rank that share their bases along rows and columns.

    >>> chain_text(blast(32, 8, blocks=4, rank=3))
    '4x8x3x1*1x4x4x3*4x3x2x1'
    """
    for name, size in (("rows", rows), ("cols", cols), ("blocks", blocks), ("rank", rank)):
        check_size(name, size)
    if rows % blocks or cols % blocks:
        raise ValueError(f"blocks: {blocks} given, must divide the sizes {rows} and {cols}")
    return Chain(
        [(blocks, rows // blocks, rank, 1), (1, blocks, blocks, rank), (blocks, rank, cols // blocks, 1)]
    )


def btt(rows: int, cols: int, rank: int, m1: int | None = None, n1: int | None = None) -> Chain:
    """Two cores of a block tensor train, (1, m1, n1·rank, m2), (n1, rank·m2, n2, 1): rows = m1·m2, cols =
    n1·n2. Without m1 and n1, divisors nearest to the square roots.

    >>> chain_text(btt(12, 35, rank=2, m1=4, n1=5))
    '1x4x10x3*5x6x7x1'
    """
    check_size("rows", rows)
    check_size("cols", cols)
    check_size("rank", rank)
    m1 = _nearest_divisor(rows) if m1 is None else m1
    n1 = _nearest_divisor(cols) if n1 is None else n1
    for name, part, sizes, size in (("m1", m1, "rows", rows), ("n1", n1, "cols", cols)):
        if as_size(part) < 1 or size % part:
            raise ValueError(f"{name}: {part!r} given, must divide {sizes}, {size}")
    return butterfly(rows, cols, (m1, rows // m1), (n1, cols // n1), ranks=[rank])


def _nearest_divisor(size: int) -> int:
    return min(_divisors(size), key=lambda divisor: abs(math.log(divisor / math.sqrt(size))))


def boft(rows: int, cols: int | None = None, *, b: int, m: int) -> Chain:
    """m factors of b x b blocks, (size/(b·2^(l-1)), b, b, 2^(l-1)) for l = m..1, as orthogonal butterfly
    fine-tuning has them; b = 2 and m = log2(size) is the butterfly.

    >>> chain_text(boft(32, b=4, m=2))
    '4x4x4x2*8x4x4x1'
    >>> boft(8, b=2, m=3) == butterfly(8)
    True
    """
    for name, given in (("rows", rows), ("b", b), ("m", m)):
        check_size(name, given)
    cols = rows if cols is None else cols
    if rows != cols or rows % (b << (m - 1)):
        raise ValueError(
            f"boft: sizes {rows} and {cols} given, must be equal and a multiple of b·2^(m-1), {b << (m - 1)}"
        )
    return Chain((rows // (b << level), b, b, 1 << level) for level in reversed(range(m)))


def for_budget(rows: int, cols: int, parameters: int) -> Chain:
    """A chain of two factors with at most so many parameters, Monarch or low rank; the dense matrix where it
    is within.

    It has the most blocks, up to the square root of the smaller size, that use three quarters of what
    `parameters` allows; their rank takes up the rest.

    >>> for_budget(4096, 4096, 600_000)
    Chain('1x64x64x64*64x64x64x1')
    >>> for_budget(4096, 4096, 600_000).nnz
    524288
    """
    for name, given in (("rows", rows), ("cols", cols), ("parameters", parameters)):
        check_size(name, given)
    if rows * cols <= parameters:
        return dense(rows, cols)
    # Monarch with `blocks` and `rank` has blocks·rank·(rows + cols) parameters.
    width = parameters // (rows + cols)
    if width < 1:
        raise ValueError(
            f"parameters: {parameters} given, must be at least {rows + cols}, those of a matrix of rank 1"
        )
    target = math.sqrt(min(rows, cols))
    divisors = [one for one in _divisors(math.gcd(rows, cols)) if one <= min(width, target)]
    blocks = max(one for one in divisors if 4 * (width // one * one) >= 3 * width)
    return monarch(rows, cols, blocks, width // blocks)


def padded_size(size: int, multiple: int) -> int:
    """The size to pad to where a chain needs multiples: a vocabulary of 50,257 has few divisors.

    >>> padded_size(50257, 64)
    50304
    """
    check_size("size", size)
    check_size("multiple", multiple)
    return -(-size // multiple) * multiple


NAMED: dict[str, Callable[..., Chain]] = {
    "dense": dense,
    "low_rank": low_rank,
    "monarch": monarch,
    "butterfly": butterfly,
    "square_dyadic": square_dyadic,
    "kaleidoscope": kaleidoscope,
    "block_butterfly": block_butterfly,
    "blast": blast,
    "btt": btt,
    "boft": boft,
    "for_budget": for_budget,
}


def chain_text(chain: Iterable[Pattern]) -> str:
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
    if patterns.shape != (rows, cols):
        raise ValueError(
            f"chain: {patterns} has {patterns.rows} rows and {patterns.cols} columns, "
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
