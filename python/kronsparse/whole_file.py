"""Files that are whole or not there."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from typing import IO, Any


@contextlib.contextmanager
def whole_file(path: str | os.PathLike[str], mode: str = "w") -> Iterator[IO[Any]]:
    """A file to write to, beside its place; it takes its name when all is written and on the disk. Where that
    fails, nothing is left of it, and what had the name before stays.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with whole_file(folder + "/greeting") as file:
    ...         print("hello", file=file)
    ...     print(open(folder + "/greeting").read(), os.listdir(folder))
    hello
     ['greeting']
    """
    folder, name = os.path.split(os.fspath(path))
    number, part = tempfile.mkstemp(prefix=f".{name}.", suffix=".part", dir=folder or ".")
    try:
        with os.fdopen(number, mode, encoding=None if "b" in mode else "utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(part, 0o666 & ~umask())  # mkstemp's files are for their owner alone
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise


def umask() -> int:
    """The permissions that new files of this process lack."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
