"""Checks of arguments: an error names the argument, what was given and what is allowed."""

from __future__ import annotations

import operator
from collections.abc import Collection

LAYOUTS = ("batch_first", "batch_last")


def as_size(given: object) -> int:
    """The integer, NumPy's included, or 0 for what is none."""
    if isinstance(given, int):
        return 0 if isinstance(given, bool) else given
    try:
        return operator.index(given)  # type: ignore[arg-type]
    except TypeError:
        return 0


def check_size(argument: str, given: object) -> None:
    if as_size(given) < 1:
        raise ValueError(f"{argument}: {given!r} given, must be an integer of at least 1")


def check_option(argument: str, given: object, allowed: Collection[str]) -> None:
    if given not in allowed:
        raise ValueError(f"{argument}: {given!r} given, must be one of {', '.join(allowed)}")
