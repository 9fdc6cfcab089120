"""Checkpoints of one safetensors file, or of an index and the shards that it names: read tensor by tensor,
and written whole or not at all."""

from __future__ import annotations

import contextlib
import json
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

import torch
from torch import Tensor

from kronsparse.whole_file import umask

INDEX = ".index.json"
"""the end of the name of an index"""


class Entry(NamedTuple):
    """A tensor of a file that is written."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Its bytes."""
        return math.prod(self.shape) * _bits(self.dtype) // 8


class Checkpoint:
    """The tensors of a checkpoint, none of them in memory."""

    def __init__(self, files: Mapping[str, Any], index: dict[str, Any] | None) -> None:
        self.files = files
        """safetensors' readers, by the names of their files"""
        self.index = index
        self._file_of = {name: file for file, reader in files.items() for name in reader.keys()}  # noqa: SIM118

    @property
    def names(self) -> list[str]:
        """All tensors, file by file."""
        return list(self._file_of)

    def slice(self, name: str) -> Any:
        """A tensor's dtype and shape, by get_dtype() and get_shape()."""
        return self.files[self._file_of[name]].get_slice(name)

    def tensor(self, name: str) -> Tensor:
        """A tensor, read."""
        return self.files[self._file_of[name]].get_tensor(name)  # type: ignore[no-any-return]

    def metadata(self, file: str) -> dict[str, str]:
        """Text that a file's header has."""
        return self.files[file].metadata() or {}


@contextlib.contextmanager
def opened(path: str | os.PathLike[str], argument: str = "source") -> Iterator[Checkpoint]:
    """A checkpoint, opened: a file, or an index with its shards beside it."""
    text = os.fspath(path)
    with contextlib.ExitStack() as stack:
        if not text.endswith(INDEX):
            yield Checkpoint({Path(text).name: stack.enter_context(_reader(text, argument))}, None)
            return
        index = _read_index(text, argument)
        weights: dict[str, str] = index["weight_map"]
        readers = {}
        for file in sorted(set(weights.values())):
            shard = os.path.join(os.path.dirname(text), file)
            if not os.path.isfile(shard):
                raise ValueError(f"{argument}: {text!r} names {file!r}, which is not beside it")
            readers[file] = stack.enter_context(_reader(shard, argument))
        checkpoint = Checkpoint(readers, index)
        if set(checkpoint.names) != set(weights) or sum(len(one.keys()) for one in readers.values()) != len(
            weights
        ):
            wrong = sorted(set(checkpoint.names) ^ set(weights)) or ["some tensors twice"]
            raise ValueError(
                f"{argument}: {text!r} and its shards have different tensors: {', '.join(wrong[:3])}"
            )
        yield checkpoint


def _read_index(text: str, argument: str) -> dict[str, Any]:
    try:
        index = json.loads(Path(text).read_text(encoding="utf-8"))
        weights = index["weight_map"]
        good = bool(weights) and all(
            isinstance(file, str) and file and os.path.basename(file) == file for file in weights.values()
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        good = False
    if not good:
        raise ValueError(
            f"{argument}: {text!r} is no index of a checkpoint, which has a weight_map from tensors to files "
            "beside it"
        )
    return index  # type: ignore[no-any-return]


@contextlib.contextmanager
def _reader(text: str, argument: str) -> Iterator[Any]:
    from safetensors import SafetensorError, safe_open

    with open(text, "rb") as file:  # says what is wrong with a path
        begin = file.read(4)
    try:
        found = safe_open(text, "pt")
    except (SafetensorError, OSError) as error:
        is_pickled = begin[:2] in (b"PK", b"\x80\x02")
        hint = (
            "; it looks like one of torch.save, which safetensors.torch.save_file turns into one" * is_pickled
        )
        raise ValueError(
            f"{argument}: {text!r} is no safetensors file, or is damaged: {error}{hint}"
        ) from None
    with found as reader:
        yield reader


def check_target(source: str | os.PathLike[str], target: Path, is_sharded: bool) -> None:
    """That a checkpoint can be written there: asked before anything is computed."""
    if target.is_dir():
        raise ValueError(f"target: {os.fspath(target)!r} is a folder, must be a file in it")
    if not target.parent.is_dir():
        raise ValueError(f"target: the folder {os.fspath(target.parent)!r} does not exist")
    if is_sharded != target.name.endswith(INDEX):
        raise ValueError(
            f"target: {os.fspath(target)!r} given for {os.fspath(source)!r}: an index, NAME{INDEX}, becomes "
            "an index, and a file a file"
        )
    if target.exists() and Path(source).exists() and target.samefile(source):
        raise ValueError(
            f"target: {os.fspath(target)!r} is the source, whose matrices would be lost; choose another file"
        )
    if is_sharded and target.parent.resolve() == Path(source).parent.resolve():
        raise ValueError(
            f"target: {os.fspath(target)!r} lies beside the source, whose shards have the names of the new "
            "ones; choose another folder"
        )


def write(
    target: Path,
    files: Mapping[str, Sequence[Entry]],
    metadata: Mapping[str, dict[str, str]],
    index: dict[str, Any] | None,
    tensor_of: Callable[[str, int], Tensor],
) -> None:
    """Writes the files beside their places, and puts all of them there when all are whole, the index last.
    `tensor_of(file, number)` is asked once for each entry, in order."""
    parts: list[tuple[str, Path]] = []
    try:
        for file, entries in files.items():
            place = target if index is None else target.with_name(file)
            with _part(place, parts) as stream:
                _write_file(stream, entries, metadata[file], partial(tensor_of, file))
        if index is not None:
            with _part(target, parts) as stream:
                stream.write(json.dumps(_new_index(index, files), indent=2).encode() + b"\n")
        mode = 0o666 & ~umask()
        for part, place in parts:
            os.chmod(part, mode)
            os.replace(part, place)
    except BaseException:
        for part, _ in parts:
            with contextlib.suppress(OSError):
                os.unlink(part)
        raise


@contextlib.contextmanager
def _part(place: Path, parts: list[tuple[str, Path]]) -> Iterator[IO[bytes]]:
    number, name = tempfile.mkstemp(prefix=f".{place.name}.", suffix=".part", dir=place.parent)
    parts.append((name, place))
    with os.fdopen(number, "wb") as stream:
        yield stream
        stream.flush()
        os.fsync(stream.fileno())


def _new_index(index: dict[str, Any], files: Mapping[str, Sequence[Entry]]) -> dict[str, Any]:
    old = index.get("metadata")
    sums = dict(old) if isinstance(old, dict) else {}
    every = [entry for entries in files.values() for entry in entries]
    sums["total_size"] = sum(entry.size for entry in every)
    if "total_parameters" in sums:
        sums["total_parameters"] = sum(math.prod(entry.shape) for entry in every)
    weights = {entry.name: file for file, entries in files.items() for entry in entries}
    return {**index, "metadata": sums, "weight_map": dict(sorted(weights.items()))}


def _write_file(
    stream: IO[bytes],
    entries: Sequence[Entry],
    metadata: dict[str, str],
    tensor_of: Callable[[int], Tensor],
) -> None:
    header: dict[str, Any] = {"__metadata__": metadata}
    at = 0
    for entry in entries:
        end = at + entry.size
        header[entry.name] = {"dtype": entry.dtype, "shape": entry.shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    stream.write(len(text).to_bytes(8, "little"))
    stream.write(text)
    for number, entry in enumerate(entries):
        tensor = tensor_of(number)
        data = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        if data.nbytes != entry.size:
            raise ValueError(f"{entry.name}: {data.nbytes} bytes read, which is not what its header says")
        stream.write(data.data)


def _bits(dtype: str) -> int:
    """As many as the name of a dtype says: F32, BF16, F8_E4M3, BOOL.

    >>> [_bits(name) for name in ("F64", "BF16", "F8_E4M3", "BOOL", "C64")]
    [64, 16, 8, 8, 64]
    """
    if dtype == "BOOL":
        return 8
    return int("".join(letter for letter in dtype.split("_")[0] if letter.isdigit()))
