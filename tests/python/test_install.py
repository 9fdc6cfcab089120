"""`make wheel` and `pip install`: what they install works from elsewhere, with torch and without it."""

import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

SOURCE = Path(os.environ.get("KRONSPARSE_SOURCE", Path(__file__).parents[2]))
# Installed packages are looked for before everything else, and the package that tests use is out of sight.
PREPARE = "import sys; sys.path.insert(0, sys.argv[1]); sys.path[1:] = [p for p in sys.path[1:] if p]\n"
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folder of an sdist and a wheel, with the sources and the build that the wheel was made of.

    Optimised code is what every other test runs, and takes most of the time to compile: it is left out here.
    The rest is as a user has it, down to stripped libraries, which only optimised builds have by default.
    """
    folder = tmp_path_factory.mktemp("wheel")
    settings = {"PYTHON": sys.executable, "CUDA": "OFF", "OPTIMISE": "OFF", "WHEEL_FOLDER": str(folder)}
    done = subprocess.run(
        [SOURCE / "tools" / "wheel"], capture_output=True, text=True, env=outside() | settings, timeout=900
    )
    assert done.returncode == 0, done.stderr[-4000:]
    print(done.stdout)
    return folder


def outside():
    """The environment without what lets tests find the package of a build."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}


def install(made, target, **definitions):
    """`pip install` of the sdist, without build isolation, which would need a network; nothing but the
    package itself."""
    settings = {f"cmake.define.KRONSPARSE_{name}": value for name, value in definitions.items()}
    settings |= {"build-dir": str(made / f"cmake-{VERSION}"), "cmake.define.KRONSPARSE_CUDA": "OFF"}
    settings |= {
        "cmake.build-type": "Debug",
        "cmake.define.CMAKE_CXX_FLAGS_DEBUG": "-O0",
        "install.strip": "true",
    }
    options = ["-q", "--no-build-isolation", "--no-deps", "--no-index", "--target", str(target)]
    options += [f"-C{name}={value}" for name, value in settings.items()]
    python = made / "venv" / "bin" / "python3"
    path = f"{python.parent}:{os.environ['PATH']}"
    command = [python, "-m", "pip", "install", *options, str(made / "source")]
    done = subprocess.run(
        command, capture_output=True, text=True, env=outside() | {"PATH": path}, timeout=900
    )
    assert done.returncode == 0, done.stderr[-2000:]


def run_installed(target, code, cwd):
    command = [sys.executable, "-c", PREPARE + code, str(target)]
    return subprocess.run(command, capture_output=True, text=True, env=outside(), cwd=cwd, timeout=300)


@pytest.mark.slow
def test_wheel(made):
    """Its tags, and its libraries: those of the package once each, and no others."""
    (wheel,) = made.glob("*.whl")
    assert re.search(r"-manylinux_2_\d+_\w+\.whl$", wheel.name), wheel.name
    assert "-cp312-abi3-" in wheel.name if sys.version_info >= (3, 12) else "-cp3" in wheel.name
    libraries = [name for name in zipfile.ZipFile(wheel).namelist() if ".so" in name]
    assert [name for name in libraries if "libkronsparse" in name] == [
        "kronsparse/libkronsparse.so",
        "kronsparse/libkronsparse_torch.so",
    ]
    assert len(libraries) == 3
    assert wheel.stat().st_size < 20e6
    assert list(made.glob("kronsparse-*.tar.gz"))


@pytest.mark.slow
def test_installed_wheel_passes_tests(made, tmp_path):
    """In an environment that has what the package needs, and nothing of this build."""
    (wheel,) = made.glob("*.whl")
    clean = tmp_path / "clean"
    venv.create(clean, with_pip=True)
    python = clean / "bin" / "python3"
    site = Path(sysconfig.get_path("purelib", vars={"base": str(clean), "platbase": str(clean)}))
    (site / "needed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    command = [python, "-m", "pip", "install", "-q", "--no-deps", "--no-index", str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True, env=outside(), timeout=300)
    assert done.returncode == 0, done.stderr

    doctor = [python, "-m", "kronsparse", "doctor"]
    done = subprocess.run(doctor, capture_output=True, text=True, env=outside(), cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    for line in done.stdout.splitlines():
        if line.split()[1] in ("package", "library"):
            assert f" {site}/kronsparse" in line, done.stdout
    assert (clean / "bin" / "kronsparse-bench").exists()
    assert (site / "kronsparse" / "py.typed").exists()

    tests = [SOURCE / "tests" / "python" / name for name in ("test_numpy.py", "test_training.py")]
    options = ["-q", "-p", "no:cacheprovider", "-m", "not slow", "--maxfail=3"]
    done = subprocess.run(
        [python, "-m", "pytest", *options, *tests],
        capture_output=True,
        text=True,
        env=outside() | {"KRONSPARSE_SOURCE": str(SOURCE)},
        cwd=tmp_path,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 30, done.stdout[-400:]


@pytest.mark.slow
def test_installed_for_numpy_alone(made, tmp_path):
    install(made, tmp_path / "site", TORCH="OFF")
    code = """
sys.modules["torch"] = None  # as if it were not installed
import kronsparse, numpy
assert kronsparse.__file__.startswith(sys.argv[1])
y = kronsparse.multiply(numpy.ones((3, 4)), numpy.ones((1, 2, 2, 2)))
assert y.tolist() == [[2.0] * 4] * 3
try:
    import kronsparse.torch
except ImportError as error:
    print(error)
"""
    done = run_installed(tmp_path / "site", code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "torch" in done.stdout
    assert not list((tmp_path / "site" / "kronsparse").glob("libkronsparse_torch*"))


def test_a_torch_without_cuda_leaves_cuda_out_and_says_so(tmp_path):
    """Configured only, with a directory that looks like such a torch."""
    fake = tmp_path / "torch"
    fake.mkdir()
    (fake / "__init__.py").touch()

    def configured(cuda, *options):
        version = f"__version__ = '2.13.0'\ncuda: Optional[str] = {cuda!r}\n"
        (fake / "version.py").write_text(version)
        command = ["cmake", "-S", str(SOURCE), "-B", str(tmp_path / "build"), "-G", "Ninja", "--fresh"]
        command += ["-DSKBUILD=ON", f"-DPython_EXECUTABLE={sys.executable}", "-DKRONSPARSE_BUILD_TESTS=OFF"]
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        done = subprocess.run(
            [*command, *options], capture_output=True, text=True, env=environment, timeout=300
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    words = "left out, because torch 2.13.0 has no CUDA: KRONSPARSE_CUDA=ON builds it nevertheless"
    assert words in configured(None)
    assert words not in configured("13.0")
    assert words not in configured(None, "-DKRONSPARSE_CUDA=OFF")
