"""Prints what can be used here, what is missing, and how to get it: ``python -m kronsparse doctor``."""

from __future__ import annotations

import importlib.util
import platform
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from kronsparse import loading


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
    why = loading.why_refused()
    try:
        if why:
            raise ImportError(why)
        from kronsparse import _native

        loading.compare_versions(_native.__version__, _native.loaded_version)
    except ImportError as error:
        yield Finding(
            "native module",
            False,
            str(error),
            "" if why else "install kronsparse again for this Python: pip install .",
            is_broken=True,
        )
        return
    yield Finding("native module", True, f"kronsparse {_native.__version__}, {_native.__file__}")
    yield from _library_findings()
    for device, description in _native.devices():
        yield Finding(device, True, description)
    for backend, remedy in (("cuda", _cuda_remedy), ("opencl", _opencl_remedy)):
        for name, why in _unusable(backend, _native.why_unusable):
            yield Finding(name, False, why, remedy(why))
    yield from _torch_findings()


def _library_findings() -> Iterator[Finding]:
    """Which library the loader took, and whether another is there."""
    why = loading.why_refused()
    if why:
        yield Finding("library", False, why, is_broken=True)
    else:
        loaded = loading.loaded_libraries()
        if loaded:
            yield Finding("library", True, f"{loaded[0]}")


def _unusable(backend: str, why_unusable: Callable[[str], str]) -> Iterator[tuple[str, str]]:
    """The backend where it has no device, and devices that are there and cannot be used, with reasons."""
    none = why_unusable(f"{backend}:{2**31 - 1}")
    number, why = 0, why_unusable(f"{backend}:0")
    if why == none:
        yield backend, why
    while why != none:
        if why:
            yield f"{backend}:{number}", why
        number += 1
        why = why_unusable(f"{backend}:{number}")


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
