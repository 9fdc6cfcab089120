"""Options of the command that are lists or durations."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def words(allowed: Sequence[str]) -> Callable[[str], list[str]]:
    """For argparse: a list with commas, of these words."""

    def parse(text: str) -> list[str]:
        given = text.split(",")
        unknown = [word for word in given if word not in allowed]
        if unknown:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(allowed)}")
        return given

    return parse


def duration(text: str) -> float:
    """Seconds of 90, 90s, 8m or 1h30m.

    >>> duration("1h30m")
    5400.0
    """
    if not re.fullmatch(r"(\d+(\.\d+)?[smh]?)+", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no duration such as 90s, 8m or 1h30m")
    return sum(float(number) * _UNITS[unit] for number, unit in re.findall(r"([\d.]+)([smh]?)", text))


def clock(seconds: float) -> str:
    """Minutes and seconds, as in 2:07."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
