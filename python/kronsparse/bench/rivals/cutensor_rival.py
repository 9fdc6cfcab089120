"""A rival: NVIDIA's cuTENSOR through ctypes, one contraction with strides for both layouts.

In cuTENSOR's letters the product is "zikl,ijkl->zijl": z is the sample, i the block, j the output, k the
term and l the place within a run. Nothing is permuted by us. cuTENSOR may do so, in a workspace.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.metadata
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kronsparse.bench.measuring.devices import seconds_by_events

LIBRARY_VARIABLE = "KRONSPARSE_CUTENSOR"
LIBRARY_NAME = "libcutensor.so.2"
PACKAGES = ("cutensor-cu13", "cutensor-cu12")
MODES = ("zikl", "ijkl", "zijl")  # x, values, y
ALGORITHMS = {"default": -1, "gett": -4, "tgett": -3, "ttgt": -2}
# In f32 three TF32 products, or FMA units: whichever is faster. Halves are added up in f32.
COMPUTE = {torch.float32: ("3XTF32", "32F"), torch.float16: ("32F",), torch.bfloat16: ("32F",)}
ORDERS = {"abcd": (0, 1, 2, 3), "adbc": (0, 3, 1, 2)}
WORKSPACE_BYTES = 1 << 30
_TYPES = {torch.float32: 0, torch.float16: 2, torch.bfloat16: 14}  # cudaDataType_t
_ALIGNMENT = 16
_IDENTITY, _NO_JIT, _REQUIRED_WORKSPACE = 1, 0, 0
_Pointer = ctypes.c_void_p


def _candidates() -> Iterator[Path]:
    named = os.environ.get(LIBRARY_VARIABLE)
    if named:
        yield Path(named)
        return
    for package in PACKAGES:
        try:
            files = importlib.metadata.files(package) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        yield from (Path(str(file.locate())) for file in files if file.name == LIBRARY_NAME)


def find_cutensor() -> Path | None:
    """The library by $KRONSPARSE_CUTENSOR, else that of an installed package."""
    return next((path for path in _candidates() if path.exists()), None)


class Cutensor:
    """The loaded library with its handle."""

    def __init__(self, library: Any) -> None:
        self._library = library
        library.cutensorGetErrorString.restype = ctypes.c_char_p
        self._handle = _Pointer()
        self._call("cutensorCreate", ctypes.byref(self._handle), with_handle=False)

    def _call(self, name: str, *arguments: object, with_handle: bool = True) -> None:
        handle = (self._handle,) if with_handle else ()
        status = getattr(self._library, name)(*handle, *arguments)
        if status:
            told = self._library.cutensorGetErrorString(status)
            raise RuntimeError(f"{name}: {told.decode() if told else status}")

    def _compute_descriptor(self, name: str) -> _Pointer:
        return _Pointer.in_dll(self._library, f"CUTENSOR_COMPUTE_DESC_{name}")

    def _descriptor(self, tensor: Tensor) -> _Pointer:
        found, count = _Pointer(), tensor.dim()
        sizes = ctypes.c_int64 * count
        self._call(
            "cutensorCreateTensorDescriptor",
            ctypes.byref(found),
            ctypes.c_uint32(count),
            sizes(*tensor.shape),
            sizes(*tensor.stride()),
            ctypes.c_int(_TYPES[tensor.dtype]),
            ctypes.c_uint32(_ALIGNMENT),
        )
        return found

    def plan(self, x: Tensor, values: Tensor, y: Tensor, compute: str, algorithm: str) -> Contraction:
        """A plan for views x (z, i, k, l), values (i, j, k, l) and y (z, i, j, l) with these strides."""
        descriptors = [self._descriptor(one) for one in (x, values, y)]
        letters = [(ctypes.c_int32 * 4)(*map(ord, modes)) for modes in MODES]
        of_x, of_values, of_y = (
            (descriptor, mode, ctypes.c_int(_IDENTITY))
            for descriptor, mode in zip(descriptors, letters, strict=True)
        )
        operation, preference, plan = _Pointer(), _Pointer(), _Pointer()
        self._call(
            "cutensorCreateContraction",
            ctypes.byref(operation),
            *of_x,
            *of_values,
            *of_y,
            *of_y[:2],
            self._compute_descriptor(compute),
        )
        wanted = ctypes.c_int(ALGORITHMS[algorithm]), ctypes.c_int(_NO_JIT)
        self._call("cutensorCreatePlanPreference", ctypes.byref(preference), *wanted)
        self._call(
            "cutensorCreatePlan", ctypes.byref(plan), operation, preference, ctypes.c_uint64(WORKSPACE_BYTES)
        )
        needed = ctypes.c_uint64()
        size = ctypes.c_size_t(ctypes.sizeof(needed))
        attribute = ctypes.c_int(_REQUIRED_WORKSPACE)
        self._call("cutensorPlanGetAttribute", plan, attribute, ctypes.byref(needed), size)
        self._call("cutensorDestroyPlanPreference", preference, with_handle=False)
        self._call("cutensorDestroyOperationDescriptor", operation, with_handle=False)
        for descriptor in descriptors:
            self._call("cutensorDestroyTensorDescriptor", descriptor, with_handle=False)
        return Contraction(self, plan, needed.value, x.device)

    def contract(self, plan: Contraction, x: Tensor, values: Tensor, y: Tensor, stream: int) -> None:
        """y = x · values by a plan for tensors of these sizes."""
        one, zero = ctypes.c_float(1.0), ctypes.c_float(0.0)
        self._call(
            "cutensorContract",
            plan.handle,
            ctypes.byref(one),
            _Pointer(x.data_ptr()),
            _Pointer(values.data_ptr()),
            ctypes.byref(zero),
            _Pointer(y.data_ptr()),
            _Pointer(y.data_ptr()),
            _Pointer(plan.workspace.data_ptr()),
            ctypes.c_uint64(plan.workspace_bytes),
            _Pointer(stream),
        )

    def release(self, plan: Contraction) -> None:
        """Gives back what a plan holds."""
        self._call("cutensorDestroyPlan", plan.handle, with_handle=False)


class Contraction:
    """A plan with its workspace."""

    def __init__(
        self, library: Cutensor, handle: _Pointer, workspace_bytes: int, device: torch.device
    ) -> None:
        self._library, self.handle, self.workspace_bytes = library, handle, workspace_bytes
        self.workspace = torch.empty(max(1, workspace_bytes), dtype=torch.uint8, device=device)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # at the end of a process the library may be gone
            self._library.release(self)


@functools.cache
def _cutensor() -> Cutensor:
    path = find_cutensor()
    if path is None:
        raise RuntimeError(f"{LIBRARY_NAME} was not found: pip install {PACKAGES[0]}")
    # torch has loaded cuBLASLt by now, which the library needs.
    return Cutensor(ctypes.CDLL(str(path)))


def _stream() -> int:
    return int(torch.cuda.current_stream().cuda_stream)


def views(x: Tensor, y: Tensor, shape: tuple[int, ...], layout: str) -> tuple[Tensor, Tensor]:
    """x as (z, i, k, l) and y as (z, i, j, l), for values of this (a, b, c, d)."""
    a, b, c, d = shape
    if layout == "batch_first":
        return x.view(-1, a, c, d), y.view(-1, a, b, d)
    return x.view(a, c, d, -1).permute(3, 0, 1, 2), y.view(a, b, d, -1).permute(3, 0, 1, 2)


# The plan of the sizes of the moment: with many kept, their workspaces would fill a GPU.
_kept: dict[tuple[object, ...], Contraction] = {}


def _tuned(library: Cutensor, x: Tensor, values: Tensor, y: Tensor, key: tuple[object, ...]) -> Contraction:
    """The fastest of all algorithms and ways to compute; those it has no plan for are passed over."""
    if key not in _kept:
        for old in [old for old in _kept if old[:2] != key[:2]]:
            del _kept[old]
        best, least, reasons = None, float("inf"), []
        for compute in COMPUTE[x.dtype]:
            for algorithm in ALGORITHMS:
                try:
                    plan = library.plan(x, values, y, compute, algorithm)
                    seconds = seconds_by_events(
                        lambda plan=plan: library.contract(plan, x, values, y, _stream())  # type: ignore[misc]
                    )
                except RuntimeError as error:
                    reasons.append(str(error))
                    continue
                if seconds < least:
                    best, least = plan, seconds
        if best is None:
            raise RuntimeError(f"cuTENSOR has no plan: {reasons[0]}")
        _kept[key] = best
    return _kept[key]


def prepared(values: Tensor, layout: str, order: str) -> Callable[[Tensor, Tensor], Tensor]:
    """The product with these values, which lie as (a, b, c, d) or as (a, d, b, c)."""
    if not values.is_cuda:
        raise RuntimeError(f"cuTENSOR needs an NVIDIA GPU; the values are on {values.device}")
    return product_with(_cutensor(), values, layout, order)


def product_with(
    library: Cutensor, values: Tensor, layout: str, order: str
) -> Callable[[Tensor, Tensor], Tensor]:
    """The same with a library that is loaded; plans are tried out at the first call with a batch."""
    axes = ORDERS[order]
    ordered = values.permute(axes).contiguous().permute([axes.index(axis) for axis in range(4)])

    def product(x: Tensor, y: Tensor) -> Tensor:
        x4, y4 = views(x, y, tuple(values.shape), layout)
        key = (tuple(values.shape), tuple(x.shape), layout, order, x.dtype)
        plan = _tuned(library, x4, ordered, y4, key)
        library.contract(plan, x4, ordered, y4, _stream())
        return y

    return product
