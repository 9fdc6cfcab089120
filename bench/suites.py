"""Which problems: patterns by name, from a file or a list, and the order to take them in."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from torch_contenders import Dimensions

Item = TypeVar("Item")

# Sixty-four patterns spread over the paper's grid.
SAMPLE = """
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
SMALL_BATCH = """
    64x64x64x1 1x64x64x64 16x256x256x1 1x256x256x16 4x1024x1024x1 1x1024x1024x4
    64x64x172x1 1x172x64x64 16x256x688x1 1x688x256x16 4x1024x2752x1 1x2752x1024x4
"""
SUITES = {"sample": SAMPLE, "small-batch": SMALL_BATCH}
_PATTERN = re.compile(r"(\d+)\s*[x,]\s*(\d+)\s*[x,]\s*(\d+)\s*[x,]\s*(\d+)")


def parse_patterns(text: str) -> list[Dimensions]:
    """The patterns of a suite, of a file, or of the text itself: 1x48x48x6 or (1,48,48,6) each."""
    if text in SUITES:
        text = SUITES[text]
    elif Path(text).is_file():
        text = re.sub(r"#.*", "", Path(text).read_text())
    patterns = [(int(a), int(b), int(c), int(d)) for a, b, c, d in _PATTERN.findall(text)]
    if not patterns:
        raise ValueError(f"{text!r} is no suite ({', '.join(SUITES)}), no file and holds no pattern")
    return patterns


def pattern_text(dims: Dimensions) -> str:
    return "x".join(map(str, dims))


def representative(items: Sequence[Item]) -> list[Item]:
    """The same in an order of which every beginning is spread over the whole: first, middle,
    quarters, eighths (bit-reversed counting)."""
    width = max(1, (len(items) - 1).bit_length())
    return [items[k] for k in sorted(range(len(items)), key=lambda k: int(f"{k:0{width}b}"[::-1], 2))]
