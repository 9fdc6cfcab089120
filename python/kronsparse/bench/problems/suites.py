"""Which problems: suites by name, a file of one's own, and the order to take them in."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from kronsparse import chains
from kronsparse.bench.measuring.timing import Effort
from kronsparse.bench.problems.problem import Problem
from kronsparse.bench.problems.random_suite import PROBLEMS, Case, random_cases
from kronsparse.chains import Chain, Pattern, monarch

Item = TypeVar("Item")

PAPER_BATCH = 25088
SMALL_BATCHES = (1, 8, 64)
# Operands of the paper's grid have at most so many elements.
_MOST_ELEMENTS = 2**31 - 1
_WIDTHS = (48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
_COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
# Left out of most of the grid by the paper: their h is near to that of cheaper ones.
_COSTLY_TWINS = {(1024, 256), (256, 1024), (128, 512), (512, 128), (64, 256), (256, 64)}

# Sixty-four patterns spread over the paper's grid.
_SAMPLE = """
    1x48x48x6 1x48x192x48 1x64x64x4 1x64x64x32 1x64x64x96 1x96x96x64 1x96x384x8 1x96x384x32
    1x128x512x6 1x128x512x32 1x192x48x1 1x192x192x16 1x192x192x32 1x192x768x6 1x192x768x48 1x256x64x2
    1x256x64x12 1x256x64x64 1x256x256x96 1x256x1024x2 1x256x1024x12 1x384x96x1 1x384x384x16 1x384x384x64
    1x512x128x128 1x512x512x2 1x768x192x3 1x1024x256x48 1x1024x1024x1 1x1024x1024x32 2x48x48x64 2x48x192x16
    2x256x256x4 3x96x96x4 3x96x384x4 3x128x128x4 3x128x128x64 3x192x48x4 3x192x768x16 3x384x96x64
    3x768x768x16 4x64x64x16 4x96x384x16 6x48x48x4 6x48x192x64 6x96x96x16 6x192x768x4 6x384x384x4
    6x768x768x4 8x128x128x16 8x256x256x16 8x512x512x16 12x48x192x16 12x192x192x4 12x1024x1024x4 16x48x48x16
    16x96x384x4 16x192x48x4 24x512x512x4 48x64x64x4 48x256x256x4 96x48x192x4 96x96x96x4 96x128x128x4
"""
# Single factors of Monarch and of two-factor butterflies, for layers 4096 and 11008 wide.
_SMALL_BATCH = """
    64x64x64x1 1x64x64x64 16x256x256x1 1x256x256x16 4x1024x1024x1 1x1024x1024x4
    64x64x172x1 1x172x64x64 16x256x688x1 1x688x256x16 4x1024x2752x1 1x2752x1024x4
"""
# Layers of language models, outputs x inputs.
_LLM_LAYERS = (
    *((size, size) for size in (4096, 5120, 8192)),
    *((11008, 4096), (4096, 11008), (14336, 4096), (4096, 14336)),
)
_LLM_BUTTERFLIES = (4096, 5120, 8192, 11008, 14336)
_LLM_BLOCKS, _LLM_LEVELS = (4, 16, 64), 4


def _transformer_like(b: int, c: int) -> bool:
    return b in (c, 4 * c) or c == 4 * b


def _fits(pattern: Pattern) -> bool:
    return max(PAPER_BATCH * pattern.rows, PAPER_BATCH * pattern.cols, pattern.nnz) <= _MOST_ELEMENTS


def _grid(counts: Iterable[int], distances: Iterable[int], without_twins: bool) -> Iterable[Pattern]:
    for a, b, c, d in itertools.product(counts, _WIDTHS, _WIDTHS, distances):
        pattern = Pattern(a, b, c, d)
        wanted = _transformer_like(b, c) and not (without_twins and (b, c) in _COSTLY_TWINS)
        if wanted and _fits(pattern):
            yield pattern


def paper_time() -> list[Pattern]:
    """The grid of the paper's appendix E.1: every d where a = 1, three values of d where a > 1."""
    return [*_grid([1], _COUNTS, False), *_grid(_COUNTS[1:], (4, 16, 64), True)]


def paper_energy() -> list[Pattern]:
    """The paper's grid for energy, as far as the operands of the time grid go."""
    return list(_grid((1, 4, 16, 32, 64), _COUNTS[:12], True))


def permutation_share() -> list[Pattern]:
    """Each (1,b,c,d) of the paper's grid where bmm has something to permute."""
    return [pattern for pattern in _grid([1], _COUNTS, False) if pattern.d > 1]


def without_permutation(pattern: Pattern) -> Pattern:
    """The pattern of the permuted matrix, (a·d, b, c, 1): the same products, nothing to permute."""
    return Pattern(pattern.a * pattern.d, pattern.b, pattern.c, 1)


def block_butterfly(size: int, levels: int) -> Chain:
    """(2^(l-1), 2t, 2t, 2^(L-l)) for size = 2^L·t.

    >>> [str(pattern) for pattern in block_butterfly(24, 2)]
    ['1x12x12x2', '2x12x12x1']
    """
    return chains.block_butterfly(size, t=size // 2**levels)


def llm() -> list[Pattern]:
    """Factors of Monarch and block-butterfly chains for the layers of language models."""
    chains = [monarch(rows, cols, blocks) for rows, cols in _LLM_LAYERS for blocks in _LLM_BLOCKS]
    chains += [block_butterfly(size, _LLM_LEVELS) for size in _LLM_BUTTERFLIES]
    return list(dict.fromkeys(pattern for chain in chains for pattern in chain))


def cpu_targets() -> list[Pattern]:
    """The patterns of the CPU backend's speed targets."""
    widths = ((48, 48), (64, 256), (256, 64), (192, 192))
    return [Pattern(a, b, c, d) for a in (1, 4) for b, c in widths for d in (1, 4, 32)]


@dataclass(frozen=True)
class Suite:
    """Patterns, and how they are measured unless one says otherwise."""

    patterns: tuple[Pattern, ...]
    told: str = ""  # what it is, in a line
    kind: str = "time"  # or small, energy
    contenders: tuple[str, ...] = ("kronsparse", "bmm")
    dtypes: tuple[str, ...] = ("f32", "f16")
    layouts: tuple[str, ...] = ("batch_first", "batch_last")
    batches: tuple[int, ...] = (PAPER_BATCH,)
    cpu_floor_s: float = 2e-3  # on a CPU the batch is the one whose floor comes nearest to this
    companion: Callable[[Pattern], Pattern] | None = None  # measured right after each pattern
    cpu_contenders: tuple[str, ...] = ()  # fewer, where time is short
    cpu_budget_s: float = math.inf
    cpu_threads: int | None = None  # else every physical core
    effort: Effort | None = None  # other than the device's own, for each contender
    cpu_own_ceilings: bool = False  # on a CPU each problem has its own, measured by turns with the contenders
    problems: tuple[Problem, ...] = ()  # complete ones, taken as they are, beside the patterns
    cases: tuple[Case, ...] = ()  # patterns with a batch each, in the order they are taken
    is_random: bool = False  # its cases come from a seed
    seed: int | None = None

    def of_kind(self, kind: str | None) -> Suite:
        """The same, measured in another way."""
        if kind in (None, self.kind):
            return self
        return replace(self, kind=kind, batches=SMALL_BATCHES if kind == "small" else (PAPER_BATCH,))

    def seeded(self, seed: int | None, count: int | None) -> Suite:
        """The same with the cases of this seed; others than `random` have none."""
        if not self.is_random:
            for name, given in (("--seed", seed), ("--count", count)):
                if given is not None:
                    raise ValueError(f"{name} {given} given, allowed with --suite random only")
            return self
        if seed is None:
            raise ValueError("--seed: none given, --suite random needs one: a new seed is a new exam")
        return replace(self, seed=seed, cases=random_cases(seed, count or PROBLEMS))


_EAGER = ("kronsparse", "bmm", "einsum", "dense")
_EVERYONE = (*_EAGER, "blocks", "strided", "transposing", "triton", "cutensor", "ksmm")  # where they are


def _suites() -> dict[str, Suite]:
    sample = tuple(map(Pattern.parse, _SAMPLE.split()))
    # Hundreds of problems, told of by medians over all of them: each is timed less often.
    brief = Effort(0.3e-3, 7e-3, fewest=5, most=15)
    return {
        "paper-time": Suite(
            tuple(paper_time()), f"the 627 patterns of the paper's appendix, B = {PAPER_BATCH}", effort=brief
        ),
        "paper-energy": Suite(
            tuple(paper_energy()),
            "joules on 651 patterns of the paper's grid for energy",
            kind="energy",
            dtypes=("f32",),
        ),
        "permutation-share": Suite(
            tuple(permutation_share()),
            "how much of bmm is permutations: (1,b,c,d) beside (d,b,c,1)",
            contenders=("bmm",),
            companion=without_permutation,
        ),
        "small-batch": Suite(
            tuple(map(Pattern.parse, _SMALL_BATCH.split())),
            "factors of layers 4096 and 11008 wide, B = 1, 8, 64, from CUDA graphs",
            kind="small",
            dtypes=("f16",),
            layouts=("batch_first",),
            batches=SMALL_BATCHES,
        ),
        "llm": Suite(
            tuple(llm()),
            "factors of layers of language models, 4096 to 14336 wide, B = 4096",
            contenders=(*_EAGER, "strided"),
            dtypes=("f16",),
            batches=(4096,),
        ),
        "sample": Suite(
            sample,
            "64 patterns spread over paper-time; judges the targets of the CUDA backend",
            contenders=_EVERYONE,
            dtypes=("f32", "f16", "bf16"),
            cpu_contenders=(*_EAGER, "strided"),
            cpu_budget_s=270.0,
        ),
        "random": Suite(
            (),
            f"{PROBLEMS} problems drawn from --seed, of any sizes; --count takes the first of them",
            contenders=_EVERYONE,
            dtypes=("f16", "bf16", "f32"),
            cpu_contenders=(*_EAGER, "blocks", "strided", "transposing"),
            cpu_floor_s=20e-3,
            effort=brief,
            cpu_own_ceilings=True,
            is_random=True,
        ),
        "cpu-targets": Suite(
            tuple(cpu_targets()),
            "24 patterns; judges the targets of the CPU backend",
            contenders=(*_EVERYONE, "bsr", "sparse"),
            dtypes=("f32",),
            cpu_floor_s=20e-3,
            cpu_threads=2,  # the targets are of two
            effort=Effort(20e-3, 0.18, fewest=9, most=9),
            cpu_own_ceilings=True,
        ),
    }


SUITES = _suites()

_TUPLE = re.compile(r"\(\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\)")


def _read_line(line: str) -> Sequence[Pattern | Problem]:
    """A complete problem, or patterns with blanks or commas between them."""
    plain = _TUPLE.sub(r" \1x\2x\3x\4 ", line)
    if re.fullmatch(r"[\dx,\s]+", plain):
        return [Pattern.parse(word) for word in plain.replace(",", " ").split()]
    return [Problem.parse(line)]


def _read_file(path: Path) -> list[Pattern | Problem]:
    found: list[Pattern | Problem] = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        content = line.split("#")[0].strip()
        try:
            found += _read_line(content) if content else []
        except ValueError as error:
            raise ValueError(f"{path}:{number}: {error}") from None
    if not found:
        raise ValueError(f"{path}: holds no problem and no pattern")
    return found


def _read_text(text: str) -> list[Pattern | Problem]:
    try:
        return [one for line in text.splitlines() if line.strip() for one in _read_line(line)]
    except ValueError as error:
        raise ValueError(
            f"--suite: {text!r} is no suite ({', '.join(SUITES)}) and no file; {error}"
        ) from None


def find_suite(text: str) -> Suite:
    """A suite by name, or what the lines of a file or of the text itself hold: complete problems, as in "f16
    batch_first B=64 1x48x48x6", or patterns, 1x48x48x6 or (1,48,48,6) each.

    >>> [str(pattern) for pattern in find_suite("1x2x3x4 (5,6,7,8)").patterns]
    ['1x2x3x4', '5x6x7x8']
    """
    if text in SUITES:
        return SUITES[text]
    is_file = "\n" not in text and len(text) < 4096 and Path(text).is_file()
    found = _read_file(Path(text)) if is_file else _read_text(text)
    if not found:
        raise ValueError("--suite: nothing given, must be a suite, a file, problems or patterns")
    patterns = tuple(one for one in found if isinstance(one, Pattern))
    problems = tuple(one for one in found if isinstance(one, Problem))
    return Suite(patterns, contenders=_EVERYONE, problems=problems)


def representative(items: Sequence[Item]) -> list[Item]:
    """The same in an order of which every beginning is spread over the whole: first, middle, quarters,
    eighths (bit-reversed counting).

    >>> representative(range(8))
    [0, 4, 2, 6, 1, 5, 3, 7]
    """
    width = max(1, (len(items) - 1).bit_length())
    return [items[k] for k in sorted(range(len(items)), key=lambda k: int(f"{k:0{width}b}"[::-1], 2))]
