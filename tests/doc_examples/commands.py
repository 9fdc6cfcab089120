#!/usr/bin/env python3
"""Runs the commands that Markdown files show: lines of ```sh blocks that begin with `kronsparse `.

  commands.py KRONSPARSE FILES...    exits with 1 where a command does not exit with 0

They run one after the other in a folder of their own, with the arrays that the examples of `kronsparse run`
name.
"""

from __future__ import annotations

import os
import pathlib
import re
import shlex
import struct
import subprocess
import sys
import tempfile

ARRAYS = {
    "values.npy": (2, 3, 4, 5),
    "left.npy": (1, 30, 4, 5),
    "right.npy": (5, 4, 8, 1),
    "x.npy": (7, 40),
    "g.npy": (7, 30),
}


def write_npy(path: pathlib.Path, shape: tuple[int, ...]) -> None:
    """An array of float32 zeros, without NumPy."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    elements = 1
    for size in shape:
        elements *= size
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(4 * elements))


def commands(path: pathlib.Path) -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [line for block in blocks for line in block.splitlines() if line.startswith("kronsparse ")]


def main(kronsparse: str, *files: str) -> int:
    failed = shown = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, shape in ARRAYS.items():
            write_npy(pathlib.Path(folder, name), shape)
        for path in map(pathlib.Path, files):
            for line in commands(path):
                words = shlex.split(line, comments=True)[1:]
                environment = os.environ | {"OMP_NUM_THREADS": "2", "KRONSPARSE_CACHE_DIR": f"{folder}/cache"}
                done = subprocess.run([kronsparse, *words], cwd=folder, env=environment, capture_output=True)
                shown += 1
                failed += done.returncode != 0
                print(f"{path.name}: {line}: exit code {done.returncode}")
                if done.returncode:
                    print(done.stderr.decode(errors="replace"))
    if not shown:
        print("no commands found")
    return 1 if failed or not shown else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
