"""The process and the machine a benchmark runs in: one fair start for both sides, written down."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import subprocess
import sys
from pathlib import Path


def _repository() -> Path | None:
    """The source tree this file is in; an installed package has none."""
    root = Path(__file__).resolve().parents[4]
    return root if (root / "include" / "kronsparse").is_dir() else None


REPOSITORY = _repository()
PREPARED_VARIABLE = "KRONSPARSE_BENCH_PREPARED"
# Keep freed memory in the process. Without this PyTorch's temporaries are mapped and faulted in
# afresh by every call, which a caller who owns his buffers (ours) would be flattered by.
KEEP_FREED_MEMORY = "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=100000000000"


def default_device() -> str:
    """The first GPU if there is one; asked of the driver, because PyTorch may not be loaded yet."""
    has_gpu = any(Path("/proc/driver/nvidia/gpus").glob("*")) or Path("/dev/nvidia0").exists()
    return "cuda:0" if has_gpu else "cpu"


def _cores() -> dict[str, list[int]]:
    """The CPUs this process may use, by physical core."""
    cores: dict[str, list[int]] = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        core = siblings.read_text().strip() if siblings.exists() else str(cpu)
        cores.setdefault(core, []).append(cpu)
    return cores


def physical_cores() -> int:
    """How many of them this process may use."""
    return len(_cores())


def pick_cpus(count: int) -> list[int]:
    """CPUs this process may use, one per physical core as long as there are enough."""
    cores = _cores()
    by_turns = [
        cpus[turn]
        for turn in range(max(map(len, cores.values())))
        for cpus in cores.values()
        if turn < len(cpus)
    ]
    if count > len(by_turns):
        raise ValueError(f"{count} threads asked for; this process may use {len(by_turns)} CPUs")
    return by_turns[:count]


def _torch_openmp() -> list[str]:
    """PyTorch's own OpenMP runtime. Preloaded, it serves the library too: with two runtimes, the
    idle threads of one would spin on the cores where the other is being timed."""
    spec = importlib.util.find_spec("torch")
    packages = [Path(folder) for folder in (spec.submodule_search_locations or [] if spec else [])]
    folders = [folder for package in packages for folder in (package / "lib", package.parent / "torch.libs")]
    return [str(path) for folder in folders for path in sorted(folder.glob("libgomp*.so*"))][:1]


def restart_prepared(threads: int) -> None:
    """Starts this command again, pinned and with the environment above, unless that has been done."""
    if os.environ.get(PREPARED_VARIABLE):
        return
    os.sched_setaffinity(0, pick_cpus(threads))
    environment = dict(os.environ)
    environment[PREPARED_VARIABLE] = "1"
    environment["GLIBC_TUNABLES"] = KEEP_FREED_MEMORY
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        environment[variable] = str(threads)
    preload = _torch_openmp() + os.environ.get("LD_PRELOAD", "").split()
    if preload:
        environment["LD_PRELOAD"] = " ".join(preload)
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


def _first_line_of(command: list[str]) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, cwd=REPOSITORY or Path.cwd()
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip().split("\n")[0]


def commit() -> str:
    """The checked-out commit, with "+changes" when the tree differs from it.

    A copy of the tree without its history is told by $KRONSPARSE_COMMIT.
    """
    told = os.environ.get("KRONSPARSE_COMMIT")
    if told:
        return told
    if REPOSITORY is None:
        return "unknown"
    head = _first_line_of(["git", "rev-parse", "--short=12", "HEAD"])
    changed = _first_line_of(["git", "status", "--porcelain", "--untracked-files=no"])
    return (head or "unknown") + ("+changes" if changed else "")


def _cpu_model() -> str:
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    named = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    if named:
        return named.group(1).strip()
    for line in _lscpu():
        if line.startswith("Model name:"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _lscpu() -> list[str]:
    try:
        return subprocess.run(["lscpu"], capture_output=True, text=True, check=True).stdout.split("\n")
    except (OSError, subprocess.CalledProcessError):
        return []


def _caches(cpu: int) -> dict[str, str]:
    caches = {}
    for index in sorted(Path(f"/sys/devices/system/cpu/cpu{cpu}/cache").glob("index*")):
        level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
        if kind != "Instruction":
            caches[f"L{level}"] = size
    return caches


def _vector_extensions() -> list[str]:
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", text, re.MULTILINE)
    wanted = re.compile(r"avx|fma|f16c|amx|asimd|sve|bf16|fphp|sme")
    return [flag for flag in (flags.group(1).split() if flags else []) if wanted.search(flag)]


def arguments() -> list[str]:
    """The arguments of the command, without the path of its program."""
    given = list(sys.argv[1:])
    return [Path(word).name if word.startswith("/") else word for word in given]


def load() -> float:
    """Threads that ran or wanted to run during the last minute, on average."""
    return os.getloadavg()[0]


def describe_machine() -> dict[str, object]:
    """The host, as the record of a run has it."""
    cpus = sorted(os.sched_getaffinity(0))
    huge_pages = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return {
        "cpu": _cpu_model(),
        "architecture": platform.machine(),
        "isa": _vector_extensions(),
        "caches": _caches(cpus[0]),
        "cpus_used": cpus,
        "cpus_present": os.cpu_count(),
        "transparent_huge_pages": huge_pages.read_text().strip() if huge_pages.exists() else "",
        "system": platform.system(),
    }
