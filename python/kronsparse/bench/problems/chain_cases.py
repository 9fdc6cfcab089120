"""The chains that `kronsparse-bench chains` measures, and what follows from one alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kronsparse.bench.measuring.ceilings import Ceilings
from kronsparse.bench.problems.problem import ITEM_BYTES
from kronsparse.chains import (
    Chain,
    as_chain,
    blast,
    block_butterfly,
    butterfly,
    chain_text,
    monarch,
    square_dyadic,
)

FURTHER_BATCH = 16384
SMALL_BATCHES = (1, 8, 64)
GROUPS = ("layers", "further", "small")


@dataclass(frozen=True)
class Case:
    """A chain to be timed, by name."""

    group: str
    name: str
    chain: Chain
    batch: int


def layers() -> list[Case]:
    """Eight layers whose factors one by one are far from the fused floor."""
    given = (
        ("ViT-S 384x384", "1x192x48x2*2x48x192x1", 25216),
        ("ViT-S 1536x384", "1x768x192x2*6x64x64x1", 25216),
        ("ViT-S 384x1536", "1x128x128x3*6x64x256x1", 25216),
        ("GPT-2m 1024x4096", "1x64x256x16*64x64x64x1", 16384),
        ("1024x1024 monarch 32", "1x32x32x32*32x32x32x1", 16384),
        ("1024x1024 monarch 16", "1x64x16x16*16x16x64x1", 16384),
        ("4096x4096 monarch 64", "1x64x64x64*64x64x64x1", 8192),
        ("dyadic butterfly 1024", chain_text(square_dyadic(1024)), 16384),
    )
    return [Case("layers", name, _parsed(text), batch) for name, text, batch in given]


def _parsed(text: str) -> Chain:
    patterns = [tuple(map(int, word.split("x"))) for word in text.split("*")]
    (first, second, _, last), (a, _, c, d) = patterns[0], patterns[-1]
    return as_chain(text, first * second * last, a * c * d)


def further() -> list[Case]:
    """Monarch, butterflies and BLAST of widths 384 to 4096."""
    chains = {
        f"{rows}x{cols} monarch {blocks}": monarch(rows, cols, blocks)
        for rows, cols, blocks in (
            *((384, 384, 16), (768, 768, 16), (1024, 1024, 8), (2048, 2048, 16), (2048, 2048, 32)),
            *((4096, 4096, 32), (4096, 1024, 32), (1024, 4096, 16), (3072, 768, 24)),
        )
    }
    for size, t in ((384, 48), (768, 96), (1024, 16), (1024, 64), (2048, 128), (4096, 256)):
        chains[f"{size} block butterfly {size // t}"] = block_butterfly(size, t=t)
    chains["1024 butterfly radix 4"] = butterfly(1024, row_radices=(4,) * 5)
    chains["4096 butterfly radix 8"] = butterfly(4096, row_radices=(8,) * 4)
    chains["2048 dyadic butterfly"] = square_dyadic(2048)
    for rows, cols, blocks, rank in (
        *((384, 384, 4, 32), (768, 768, 8, 32), (1024, 1024, 8, 64), (2048, 2048, 8, 128)),
        *((4096, 4096, 16, 64), (4096, 1024, 8, 64)),
    ):
        chains[f"{rows}x{cols} BLAST {blocks}, {rank}"] = blast(rows, cols, blocks, rank)
    return [Case("further", name, chain, FURTHER_BATCH) for name, chain in chains.items()]


def small() -> list[Case]:
    """Layers 4096 and 11008 wide at small batches."""
    sizes = ((4096, 4096), (11008, 4096), (4096, 11008))
    return [
        Case("small", f"{rows}x{cols} monarch {blocks}", monarch(rows, cols, blocks), batch)
        for rows, cols in sizes
        for blocks in (16, 32, 64)
        for batch in SMALL_BATCHES
    ]


def cases(groups: Sequence[str]) -> list[Case]:
    """Those of the groups, in their order.

    >>> [len(cases([group])) for group in GROUPS]
    [8, 24, 27]
    """
    made: dict[str, Callable[[], list[Case]]] = {"layers": layers, "further": further, "small": small}
    return [case for group in groups for case in made[group]()]


@dataclass(frozen=True)
class ChainProblem:
    """A case in one dtype and layout.

    >>> ChainProblem(layers()[5], "f16", "batch_first").text
    'f16 batch_first B=16384 1x64x16x16*16x16x64x1'
    """

    case: Case
    dtype: str
    layout: str

    @property
    def text(self) -> str:
        """The text form that every part of kronsparse reads."""
        return self.text_of(self.case.chain)

    def text_of(self, chain: Sequence[object]) -> str:
        """The same with some of its factors."""
        return f"{self.dtype} {self.layout} B={self.case.batch} {'*'.join(map(str, chain))}"

    def shape(self, features: int) -> tuple[int, int]:
        """An operand's, with so many features."""
        batch = self.case.batch
        return (batch, features) if self.layout == "batch_first" else (features, batch)

    @property
    def operand_bytes(self) -> float:
        """The bytes of x and y."""
        chain = self.case.chain
        return float(self.case.batch * (chain.rows + chain.cols) * ITEM_BYTES[self.dtype])

    @property
    def flops(self) -> float:
        """The flops of all factors, two for each value and sample."""
        return 2.0 * self.case.batch * sum(pattern.nnz for pattern in self.case.chain)

    def floor(self, ceilings: Ceilings) -> tuple[float, str]:
        """The seconds of the fused floor, and what binds.

        >>> ceilings = Ceilings(1e12, {"f32": 1e13, "tf32": 3e14})
        >>> case = Case("layers", "", monarch(1024, 1024, 32), 1000)
        >>> ChainProblem(case, "f16", "batch_last").floor(ceilings)
        (4.096e-06, 'bytes')
        """
        by_bytes = self.operand_bytes / ceilings.copy_bytes
        if self.dtype != "f32":
            return by_bytes, "bytes"
        rate = ceilings.gemm_flops.get("tf32")
        # A CPU has no such units: its floor is that of one product in f32.
        by_flops = 3 * self.flops / rate if rate else self.flops / ceilings.gemm_rate("f32")
        return (by_flops, "flops") if by_flops > by_bytes else (by_bytes, "bytes")
