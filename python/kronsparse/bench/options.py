"""Options of the command that are lists, numbers or durations."""

from __future__ import annotations

import argparse
import math
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


def count(text: str) -> int:
    """A whole number from 1 on.

    >>> count("12")
    12
    """
    if not re.fullmatch(r"0*[1-9]\d*", text):
        raise argparse.ArgumentTypeError(f"{text!r} given, must be a whole number, at least 1")
    return int(text)


def percentage(text: str) -> float:
    """A number from 0 on, without its sign.

    >>> percentage("2.5")
    2.5
    """
    try:
        given = float(text)
    except ValueError:
        given = math.nan
    if not 0 <= given < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} given, must be a number of percent, at least 0")
    return given


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
