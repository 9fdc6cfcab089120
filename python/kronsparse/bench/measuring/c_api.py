"""kronsparse's C API through ctypes: as much of it as the benchmarks need."""

from __future__ import annotations

import ctypes
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from kronsparse.bench.errors import RefusalError
from kronsparse.bench.measuring.machine import REPOSITORY

LIBRARY_VARIABLE = "KRONSPARSE_LIBRARY"
# The optimised presets first; what a sanitizer slows down or another machine runs, never.
PREFERRED_BUILDS = ("default", "release", "cuda")
UNFIT_BUILDS = ("sanitize", "fuzz", "cross")
LIBRARY_NAMES = ("libkronsparse.so", "libkronsparse.dylib")
PACKAGE = Path(__file__).absolute().parents[2]  # not resolved: a build's package is links to the sources


class KronsparseError(RefusalError):
    """A call of the library failed; the text is the library's own, and so is the code."""

    def __init__(self, call: str, code: str, message: str) -> None:
        super().__init__(f"{call}: {code}: {message}")
        self.code = code


MAX_FACTORS = 32  # KRONSPARSE_MAX_FACTORS


class _Pattern(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("a", "b", "c", "d")]


class _Problem(ctypes.Structure):
    _fields_ = [
        ("factor_count", ctypes.c_int),
        ("factors", _Pattern * MAX_FACTORS),
        ("batch", ctypes.c_int64),
        *((name, ctypes.c_int) for name in ("dtype", "layout", "operation", "mode", "bias", "activation")),
        *((name, ctypes.c_int64) for name in ("cols_stride", "rows_stride")),
    ]


class _Device(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char * 32),
        ("description", ctypes.c_char * 160),
        ("cache_bytes", ctypes.c_size_t),
    ]


@dataclass(frozen=True)
class DeviceInfo:
    """A device that can be used now."""

    name: str
    description: str
    cache_bytes: int


class _Operands(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("x", "y", "bias", "g", "stream")),
        *((name, ctypes.c_void_p) for name in ("values", "packed", "gradients", "grad_x", "workspace")),
        ("workspace_bytes", ctypes.c_size_t),
        ("intermediates", ctypes.c_void_p),
    ]


class _Candidate(ctypes.Structure):
    _fields_ = [
        ("implementation", ctypes.c_char * 32),
        ("refusal", ctypes.c_char * 256),
        ("predicted_seconds", ctypes.c_double),
        ("is_measured", ctypes.c_int),
    ]


def _own_libraries() -> Iterator[Path]:
    """Beside the package where it is installed; in the same build where it is a build's."""
    folders = (PACKAGE, PACKAGE.parent.parent / "src")
    return (path for folder in folders for name in LIBRARY_NAMES for path in sorted(folder.glob(f"{name}*")))


def _built_libraries() -> Iterator[Path]:
    if REPOSITORY is None:
        return iter(())
    builds = REPOSITORY / "build"

    def build_of(path: Path) -> str:
        return path.relative_to(builds).parts[0]

    def rank(path: Path) -> tuple[bool, float]:
        return build_of(path) not in PREFERRED_BUILDS, -path.stat().st_mtime  # then the newest

    found = [path for name in LIBRARY_NAMES for path in builds.glob(f"**/{name}")]
    return iter(sorted((path for path in found if not build_of(path).startswith(UNFIT_BUILDS)), key=rank))


def find_library(given: str | None = None) -> Path:
    """The given path, else $KRONSPARSE_LIBRARY, else the package's own, else the best under build/."""
    named = given or os.environ.get(LIBRARY_VARIABLE)
    if named:
        return Path(named)
    found = next(itertools.chain(_own_libraries(), _built_libraries()), None)
    if found is None:
        raise FileNotFoundError(
            f"no libkronsparse in the package or under build/: build it (make build), or name it with "
            f"--library or {LIBRARY_VARIABLE}"
        )
    return found


class Plan:
    """A problem with its weights packed and its implementation chosen; a context manager.

    `values` are the addresses of each factor's, left factor first; one address will do for one factor.
    """

    def __init__(
        self,
        library: Library,
        problem: str,
        values: int | Sequence[int],
        implementation: str | None,
        device: str,
    ) -> None:
        self._library = library
        self._handle = ctypes.c_void_p()
        self._device = device.encode()
        self._workspace = ctypes.c_void_p()
        parsed = library._parse(problem)
        addresses = [values] if isinstance(values, int) else list(values)
        if len(addresses) != parsed.factor_count:
            raise ValueError(f"values: {len(addresses)} addresses given, must be {parsed.factor_count}")
        forced = implementation.encode() if implementation else None
        library._call(
            "kronsparse_plan_create",
            ctypes.byref(parsed),
            (ctypes.c_void_p * len(addresses))(*addresses),
            self._device,
            forced,
            ctypes.byref(self._handle),
        )
        # Runs of a benchmark follow each other: one workspace serves them all.
        needed = ctypes.c_size_t()
        library._call(
            "kronsparse_plan_workspace", self._handle, None, ctypes.byref(_Operands()), ctypes.byref(needed)
        )
        self._workspace_bytes = needed.value
        if self._workspace_bytes > 0:
            library._call("kronsparse_allocate", self._device, needed, ctypes.byref(self._workspace))

    @property
    def implementation(self) -> str:
        """The chosen one's name."""
        return str(self._library._dll.kronsparse_plan_implementation(self._handle).decode())

    def bind(self, x: int, y: int, stream: int = 0) -> Callable[[], None]:
        """A call that multiplies what is at address x into what is at address y, on that stream."""
        operands = ctypes.byref(
            _Operands(
                x=x,
                y=y,
                stream=stream,
                workspace=self._workspace.value,
                workspace_bytes=self._workspace_bytes,
            )
        )
        function, handle = self._library._dll.kronsparse_plan_run, self._handle

        def run() -> None:
            # Not through _call: a GPU waits for whoever is slow to launch.
            status = function(handle, None, operands)
            if status != 0:
                self._library._fail("kronsparse_plan_run", status)

        return run

    def run(self, x: int, y: int, stream: int = 0) -> None:
        """Multiplies once; `bind` is for who does so often."""
        self.bind(x, y, stream)()

    def close(self) -> None:
        """Gives back what the plan holds."""
        self._library._dll.kronsparse_plan_destroy(self._handle)
        self._library._dll.kronsparse_free(self._device, self._workspace)
        self._handle = self._workspace = ctypes.c_void_p()

    def __enter__(self) -> Plan:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Timer:
    """Seconds between marks that the device passes; a context manager."""

    def __init__(self, library: Library, device: str) -> None:
        self._library = library
        self._handle = ctypes.c_void_p()
        self._marks = 0
        library._call("kronsparse_timer_create", device.encode(), None, ctypes.byref(self._handle))

    def mark(self) -> None:
        """Enqueues a mark behind the work so far."""
        self._library._call("kronsparse_timer_mark", self._handle)
        self._marks += 1

    def seconds(self) -> list[float]:
        """Waits for the marks; the seconds between each and the next."""
        found = (ctypes.c_double * max(1, self._marks - 1))()
        count = ctypes.c_size_t()
        self._library._call(
            "kronsparse_timer_seconds", self._handle, found, max(0, self._marks - 1), ctypes.byref(count)
        )
        return list(found[: count.value])

    def __enter__(self) -> Timer:
        return self

    def __exit__(self, *_: object) -> None:
        self._library._dll.kronsparse_timer_destroy(self._handle)


class Library:
    """The loaded shared library."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._dll = ctypes.CDLL(str(path))
        pointer, text = ctypes.c_void_p, ctypes.c_char_p
        signatures = {
            "kronsparse_version": (text, []),
            "kronsparse_last_error": (text, []),
            "kronsparse_status_name": (text, [ctypes.c_int]),
            "kronsparse_devices": (ctypes.c_int, [pointer, ctypes.c_size_t, pointer]),
            "kronsparse_problem_parse": (ctypes.c_int, [text, pointer]),
            "kronsparse_predict": (ctypes.c_int, [pointer, text, text, pointer]),
            "kronsparse_candidates": (
                ctypes.c_int,
                [pointer, text, pointer, ctypes.c_size_t, pointer],
            ),
            "kronsparse_plan_create": (ctypes.c_int, [pointer, pointer, text, text, pointer]),
            "kronsparse_plan_run": (ctypes.c_int, [pointer, pointer, pointer]),
            "kronsparse_plan_workspace": (ctypes.c_int, [pointer, pointer, pointer, pointer]),
            "kronsparse_allocate": (ctypes.c_int, [text, ctypes.c_size_t, pointer]),
            "kronsparse_free": (ctypes.c_int, [text, pointer]),
            "kronsparse_copy_from_host": (ctypes.c_int, [text, pointer, pointer, ctypes.c_size_t, pointer]),
            "kronsparse_copy_to_host": (ctypes.c_int, [text, pointer, pointer, ctypes.c_size_t, pointer]),
            "kronsparse_copy": (ctypes.c_int, [text, pointer, pointer, ctypes.c_size_t, pointer]),
            "kronsparse_synchronise": (ctypes.c_int, [text, pointer]),
            "kronsparse_timer_create": (ctypes.c_int, [text, pointer, pointer]),
            "kronsparse_timer_mark": (ctypes.c_int, [pointer]),
            "kronsparse_timer_seconds": (ctypes.c_int, [pointer, pointer, ctypes.c_size_t, pointer]),
            "kronsparse_timer_destroy": (None, [pointer]),
            "kronsparse_plan_implementation": (text, [pointer]),
            "kronsparse_plan_destroy": (None, [pointer]),
        }
        for name, (result, arguments) in signatures.items():
            function = getattr(self._dll, name)
            function.restype = result
            function.argtypes = arguments

    @property
    def version(self) -> str:
        """The version of the library, as in "0.1.0"."""
        return str(self._dll.kronsparse_version().decode())

    def devices(self) -> list[DeviceInfo]:
        """Those that can be used now, the CPU first."""
        count = ctypes.c_size_t()
        self._call("kronsparse_devices", None, 0, ctypes.byref(count))
        found = (_Device * count.value)()
        self._call("kronsparse_devices", found, count.value, ctypes.byref(count))
        return [DeviceInfo(one.name.decode(), one.description.decode(), one.cache_bytes) for one in found]

    def plan(
        self,
        problem: str,
        values: int | Sequence[int],
        implementation: str | None = None,
        device: str = "cpu",
    ) -> Plan:
        """Plans the problem (in its text form) for the values at this address, on the device."""
        return Plan(self, problem, values, implementation, device)

    def predict(self, problem: str, implementation: str | None = None, device: str = "cpu") -> float:
        """Seconds the cost model expects of what a plan would take."""
        seconds = ctypes.c_double()
        forced = implementation.encode() if implementation else None
        parsed = self._parse(problem)
        self._call("kronsparse_predict", ctypes.byref(parsed), device.encode(), forced, ctypes.byref(seconds))
        return seconds.value

    def candidates(self, problem: str, device: str = "cpu") -> dict[str, float]:
        """The implementations that accept the problem with the seconds they predict, cheapest first."""
        return {
            one.implementation.decode(): one.predicted_seconds for one in self._accepting(problem, device)
        }

    def was_tuned(self, problem: str, implementation: str, device: str = "cpu") -> bool:
        """Whether the seconds of an implementation are those that `kronsparse tune` remembered."""
        names = (one.implementation.decode() for one in self._accepting(problem, device) if one.is_measured)
        return implementation in names

    def _accepting(self, problem: str, device: str) -> list[_Candidate]:
        parsed, count = self._parse(problem), ctypes.c_size_t()
        arguments = ctypes.byref(parsed), device.encode()
        self._call("kronsparse_candidates", *arguments, None, 0, ctypes.byref(count))
        found = (_Candidate * count.value)()
        self._call("kronsparse_candidates", *arguments, found, count, ctypes.byref(count))
        return [one for one in found if not one.refusal]

    def check_implementation(self, name: str, device: str = "cpu") -> None:
        """Refuses a name that no implementation for the device has, nor a family of them."""
        try:
            self.predict("f32 batch_first B=1 1x1x1x1", name, device)
        except KronsparseError as error:
            if error.code != "unsupported":  # it exists, and is not for this problem
                raise

    def allocate(self, device: str, size: int) -> int:
        """So many bytes of a device's memory."""
        data = ctypes.c_void_p()
        self._call("kronsparse_allocate", device.encode(), size, ctypes.byref(data))
        return int(data.value or 0)

    def free(self, device: str, data: int) -> None:
        """Gives back memory of allocate()."""
        self._call("kronsparse_free", device.encode(), data)

    def copy_from_host(self, device: str, to: int, source: int, size: int) -> None:
        """From the host's memory to a device's."""
        self._call("kronsparse_copy_from_host", device.encode(), to, source, size, None)

    def copy_to_host(self, device: str, to: int, source: int, size: int) -> None:
        """From a device's memory to the host's."""
        self._call("kronsparse_copy_to_host", device.encode(), to, source, size, None)

    def copy(self, device: str, to: int, source: int, size: int) -> None:
        """Within a device's memory; the two do not overlap."""
        self._call("kronsparse_copy", device.encode(), to, source, size, None)

    def timer(self, device: str) -> Timer:
        """A clock of the device's own, for work that is enqueued without a stream."""
        return Timer(self, device)

    def synchronise(self, device: str) -> None:
        """Waits for what was enqueued."""
        self._call("kronsparse_synchronise", device.encode(), None)

    def _parse(self, problem: str) -> _Problem:
        parsed = _Problem()
        self._call("kronsparse_problem_parse", problem.encode(), ctypes.byref(parsed))
        return parsed

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self._dll, name)(*arguments)
        if status != 0:
            self._fail(name, status)

    def _fail(self, name: str, status: int) -> NoReturn:
        code = self._dll.kronsparse_status_name(status).decode()
        raise KronsparseError(name, code, self._dll.kronsparse_last_error().decode())
