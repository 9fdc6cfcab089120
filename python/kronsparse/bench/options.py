"""Options that several subcommands share, and those that are lists, numbers or durations."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def add_output(parser: argparse.ArgumentParser) -> None:
    """The option --output of commands that measure."""
    told = "results file, which is appended to (default: a new file in results/ of the current folder)"
    parser.add_argument("--output", type=Path, metavar="FILE", help=told)


def add_library(parser: argparse.ArgumentParser) -> None:
    """The option --library of commands that call the C API."""
    told = "shared library to measure (default: $KRONSPARSE_LIBRARY, or else the one that is found)"
    parser.add_argument("--library", dest="shared_library", metavar="PATH", help=told)


DEVICE_HELP = "device to measure: cuda:N or cpu (default: the GPU if there is one)"


def words(allowed: Sequence[str]) -> Callable[[str], list[str]]:
    """For argparse: reads some of these words, separated by commas."""

    def parse(text: str) -> list[str]:
        given = text.split(",")
        unknown = [word for word in given if word not in allowed]
        if unknown:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} given, must be one of {', '.join(allowed)}")
        return given

    return parse


def count(text: str) -> int:
    """Reads a whole number, at least 1.

    >>> count("12")
    12
    """
    if not re.fullmatch(r"0*[1-9]\d*", text):
        raise argparse.ArgumentTypeError(f"{text!r} given, must be a whole number, at least 1")
    return int(text)


def seed(text: str) -> int:
    """Reads a whole number, at least 0.

    >>> seed("0")
    0
    """
    if not re.fullmatch(r"\d+", text):
        raise argparse.ArgumentTypeError(f"{text!r} given, must be a whole number, at least 0")
    return int(text)


def percentage(text: str) -> float:
    """Reads a number of percent, at least 0, without the sign.

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
    """Reads a duration such as 90, 90s, 8m or 1h30m, and returns its seconds.

    >>> duration("1h30m")
    5400.0
    """
    if not re.fullmatch(r"(\d+(\.\d+)?[smh]?)+", text):
        raise argparse.ArgumentTypeError(f"{text!r} given, must be a duration such as 90s, 8m or 1h30m")
    return sum(float(number) * _UNITS[unit] for number, unit in re.findall(r"([\d.]+)([smh]?)", text))


def clock(seconds: float) -> str:
    """Minutes and seconds, as in 2:07."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
