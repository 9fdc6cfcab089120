"""Prints what can be used here, what is missing, and how to get it: ``python -m kronsparse doctor``."""

from __future__ import annotations

import importlib.util
import platform
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Finding(NamedTuple):
    """One line of the report."""

    what: str
    usable: bool
    text: str
    remedy: str = ""
    is_broken: bool = False
    """whether it is installed, and should be usable"""


def examine() -> list[Finding]:
    """Everything, in the order in which one part needs the other.

    >>> [finding.what for finding in examine()][:2]
    ['python', 'package']
    """
    return list(_findings())


def _findings() -> Iterator[Finding]:
    yield Finding("python", True, f"{platform.python_version()} on {platform.machine()}, {sys.executable}")
    yield Finding("package", True, str(Path(__file__).absolute().parent))
    try:
        from kronsparse import _native
    except ImportError as error:
        yield Finding(
            "native module",
            False,
            str(error),
            "install kronsparse again for this Python: pip install .",
            is_broken=True,
        )
        return
    yield Finding("native module", True, f"kronsparse {_native.__version__}, {_native.__file__}")
    yield from _library_findings(Path(_native.__file__).parent)
    for device, description in _native.devices():
        yield Finding(device, True, description)
    why = _native.why_unusable("cuda:0")
    if why:
        yield Finding("cuda", False, why, _cuda_remedy(why))
    why = _native.why_unusable("opencl:0")
    if why:
        yield Finding("opencl", False, why, _opencl_remedy(why))
    yield from _torch_findings()


def _library_findings(folder: Path) -> Iterator[Finding]:
    """Which library the loader took: the package's own, or one that LD_LIBRARY_PATH put before it."""
    loaded = _loaded_libraries()
    if not loaded:
        return
    foreign = [path for path in loaded if path.parent.resolve() != folder.resolve()]
    # A build has the library elsewhere than the package.
    is_build = not any(folder.glob("libkronsparse.so*"))
    if len(loaded) > 1 or (foreign and not is_build):
        yield Finding(
            "library",
            False,
            f"{', '.join(map(str, loaded))} loaded, must be the one in {folder}",
            "take the other one out of LD_LIBRARY_PATH, or import kronsparse before what loads it",
            is_broken=True,
        )
    else:
        yield Finding("library", True, str(loaded[0]))


def _loaded_libraries() -> list[Path]:
    """libkronsparse as this process has it, where the system tells."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return []
    paths = {line.split(maxsplit=5)[5] for line in lines if len(line.split(maxsplit=5)) == 6}
    return sorted(Path(path) for path in paths if re.fullmatch(r"libkronsparse\.so[.\d]*", Path(path).name))


def _cuda_remedy(why: str) -> str:
    if "driver" in why:
        return "an NVIDIA driver and a GPU are needed; everything else works without"
    if "build" in why:
        return (
            "build where nvcc is found (put it into PATH) and torch has CUDA, or with "
            "-C cmake.define.KRONSPARSE_CUDA=ON, then install again"
        )
    return "build for this GPU: -DKRONSPARSE_CUDA_ARCHITECTURES=native"


def _opencl_remedy(why: str) -> str:
    if "build" in why:
        return "build where OpenCL's headers are found (opencl-headers), then install again"
    return "only for devices that need OpenCL; everything else works without"


def _torch_findings() -> Iterator[Finding]:
    if importlib.util.find_spec("torch") is None:
        yield Finding("torch", False, "not installed", "pip install torch, then install kronsparse again")
        return
    try:
        import torch
    except Exception as error:
        told = f"cannot be imported: {error}"
        yield Finding("torch", False, told, "repair torch's installation", is_broken=True)
        return
    cuda = torch.version.cuda or "none"
    yield Finding("torch", True, f"{torch.__version__}, CUDA {cuda}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the report says it
        from kronsparse.torch import _library
    if _library.why_unusable:
        yield Finding(
            "torch operators",
            False,
            _library.why_unusable,
            "install kronsparse again with torch >= 2.10 present: pip install --no-build-isolation .",
            is_broken=_library.LIBRARY.exists(),
        )
    else:
        yield Finding("torch operators", True, str(_library.LIBRARY))
    if torch.version.cuda is not None and not torch.cuda.is_available():
        yield Finding(
            "torch on the GPU",
            False,
            "torch was built for CUDA but finds no GPU",
            "check the driver: nvidia-smi",
        )


def report(findings: list[Finding]) -> str:
    """The findings as text.

    >>> print(report([Finding("torch", False, "not installed", "pip install torch")]))
    no   torch            not installed
                          -> pip install torch
    """
    lines = []
    for finding in findings:
        lines.append(f"{'yes' if finding.usable else 'no':4} {finding.what:16} {finding.text}")
        if finding.remedy:
            lines.append(f"{'':21} -> {finding.remedy}")
    return "\n".join(line.rstrip() for line in lines)
