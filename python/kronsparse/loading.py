"""Which libkronsparse this process has: the package's own, or none.

The native modules look for the library where they lie before LD_LIBRARY_PATH is looked at. Another copy can
still be there: a program that embeds Python may have linked one, or LD_PRELOAD brought it. The loader would
then give calls of the package to whichever copy came first, of whichever version. So a process that has
another copy is told so, and gets no native module.
"""

from __future__ import annotations

import re
from pathlib import Path

PACKAGE = Path(__file__).absolute().parent  # not resolved: a build's package is links to the sources
_NAME = re.compile(r"libkronsparse(-[0-9a-f]+)?\.so[.\d]*")


def own_folders() -> list[Path]:
    """The places where the package's library may lie: beside it where it is installed, in the same build
    where it is a build's."""
    return [PACKAGE, PACKAGE.parent.parent / "src"]


def loaded_libraries() -> list[Path]:
    """Copies of libkronsparse in this process, where the system tells.

    >>> len(loaded_libraries()) <= 1
    True
    """
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return []
    paths = {line[line.find("/") :] for line in lines if "libkronsparse" in line and "/" in line}
    return sorted(path for path in map(Path, paths) if _NAME.fullmatch(path.name))


def why_refused() -> str:
    """Why the native modules must not be used in this process; nothing where they may be.

    >>> why_refused()
    ''
    """
    folders = {folder.resolve() for folder in own_folders()}
    foreign = [path for path in loaded_libraries() if path.parent.resolve() not in folders]
    if not foreign:
        return ""
    return (
        f"{', '.join(map(str, foreign))} loaded in this process, must be the library of this package alone, "
        f"in {PACKAGE}: take it out of LD_PRELOAD, or of the program that loads both"
    )


def refuse_other_copies() -> None:
    """Raises ImportError where another copy is loaded."""
    why = why_refused()
    if why:
        raise ImportError(why)


def compare_versions(package: str, library: str) -> None:
    """Raises ImportError where the library is not of the version that the package was built with.

    >>> compare_versions("0.1.0", "0.1.0")
    """
    if package != library:
        loaded = ", ".join(map(str, loaded_libraries())) or "libkronsparse"
        raise ImportError(f"{loaded} is of version {library}, must be of {package}, as the package is")
