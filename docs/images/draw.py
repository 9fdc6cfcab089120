#!/usr/bin/env python3
"""Draws the picture of README.md: the support of a pattern, and the way of the data with and without copies.

docs/images/draw.py [DIRECTORY]    writes overview.svg there (default: the folder of this file)
"""

from __future__ import annotations

import sys
from pathlib import Path

A, B, C, D = 2, 4, 3, 3  # the pattern that is drawn
CELL = 15
COLOURS = ("#0072b2", "#e69f00", "#009e73")  # one for each j
FADED = 0.55  # the blocks of i = 1, so that they differ from those of i = 0
WIDTH, HEIGHT = 960, 470


def text(
    x: float, y: float, words: str, size: int = 14, anchor: str = "start", weight: str = "normal"
) -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}">'
        f"{words}</text>"
    )


def box(x: float, y: float, width: float, height: float, fill: str, stroke: str = "none") -> str:
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5" fill="{fill}" '
        f'stroke="{stroke}"/>'
    )


def arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    return (
        f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="#444" stroke-width="1.6" '
        'marker-end="url(#head)"/>'
    )


def support(left: float, top: float) -> list[str]:
    """The matrix of the pattern: a square for each entry that may differ from zero."""
    rows, cols = A * B * D, A * C * D
    parts = [
        f'<rect x="{left}" y="{top}" width="{cols * CELL}" height="{rows * CELL}" fill="#fafafa" '
        'stroke="#999"/>'
    ]
    for i in range(A):
        for k in range(B):
            for l in range(C):  # noqa: E741 (the name of this index everywhere)
                for j in range(D):
                    x = left + CELL * (i * C * D + l * D + j)
                    y = top + CELL * (i * B * D + k * D + j)
                    opacity = f' opacity="{FADED}"' if i else ""
                    parts.append(
                        f'<rect x="{x + 1:g}" y="{y + 1:g}" width="{CELL - 2}" height="{CELL - 2}" '
                        f'fill="{COLOURS[j]}"{opacity}/>'
                    )
    return parts


def way(left: float, top: float, title: str, stations: list[tuple[str, str, int]], note: str) -> list[str]:
    """Boxes from left to right with arrows between them: words, what kind of box, width."""
    fills = {"memory": "#d7e8f5", "kernel": "#fde8c4"}
    parts, x = [text(left, top, title, 15, weight="bold")], left
    for place, (words, kind, width) in enumerate(stations):
        lines = words.split("|")
        if place:
            parts.append(arrow(x + 2, top + 40, x + 18, top + 40))
            x += 22
        parts.append(box(x, top + 14, width, 52, fills[kind], "#888"))
        for line, part in enumerate(lines):
            parts.append(text(x + width / 2, top + 45 - 9 * (len(lines) - 1) + 18 * line, part, 12, "middle"))
        x += width
    return [*parts, text(left, top + 88, note, 13)]


def overview() -> str:
    left, top = 36, 74
    right = left + A * C * D * CELL + 72
    memory, kernel = "memory", "kernel"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" fill="#222">',
        '<defs><marker id="head" markerWidth="8" markerHeight="8" refX="6" refY="4" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="#444"/></marker></defs>',
        box(0, 0, WIDTH, HEIGHT, "#ffffff"),
        text(left, 32, f"Support of the pattern {A}x{B}x{C}x{D}", 17, weight="bold"),
        text(left, 54, "I_2 ⊗ 1_{4x3} ⊗ I_3: 6 dense products of 4 x 3", 13),
        *support(left, top),
        text(right, 32, "The way of the data", 17, weight="bold"),
        text(right, 54, "Squares of one colour and shade are one dense product. Its rows", 13),
        text(right, 71, "and columns lie d apart, so a library wants them sorted first.", 13),
        *way(
            right,
            122,
            "bmm, einsum",
            [
                ("X", memory, 50),
                ("permute", kernel, 66),
                ("sorted|X", memory, 66),
                ("multiply", kernel, 66),
                ("sorted|Y", memory, 66),
                ("permute", kernel, 66),
                ("Y", memory, 50),
            ],
            "X and Y cross the memory's bus three times each.",
        ),
        *way(
            right,
            266,
            "kronsparse",
            [
                ("X", memory, 50),
                ("load runs of j, sort them in registers,|multiply, store runs of j", kernel, 418),
                ("Y", memory, 50),
            ],
            "X is read once, Y is written once. Nothing of their size lies in between.",
        ),
        box(right, 400, 16, 14, "#d7e8f5", "#888"),
        text(right + 24, 412, "the GPU's memory", 13),
        box(right + 170, 400, 16, 14, "#fde8c4", "#888"),
        text(right + 194, 412, "a kernel", 13),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0]) if arguments else Path(__file__).parent
    (folder / "overview.svg").write_text(overview(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
