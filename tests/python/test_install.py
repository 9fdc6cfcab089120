"""`pip install .`: what it installs works from elsewhere, with torch and without it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(os.environ.get("KRONSPARSE_SOURCE", Path(__file__).parents[2]))
# Installed packages are looked for before everything else, and the package that tests use is out of sight.
PREPARE = "import sys; sys.path.insert(0, sys.argv[1]); sys.path[1:] = [p for p in sys.path[1:] if p]\n"


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    return tmp_path_factory.mktemp("build")  # shared: the library is compiled once


def install(build, target, **definitions):
    """Without build isolation, which would need a network; nothing but the package itself.

    Optimised code is what every other test runs, and takes most of the time to compile: it is left out here.
    The rest is as a user has it, down to stripped libraries, which only optimised builds have by default.
    """
    settings = {f"cmake.define.KRONSPARSE_{name}": value for name, value in definitions.items()}
    settings |= {"build-dir": str(build), "cmake.define.KRONSPARSE_CUDA": "OFF"}
    settings |= {
        "cmake.build-type": "Debug",
        "cmake.define.CMAKE_CXX_FLAGS_DEBUG": "-O0",
        "install.strip": "true",
    }
    options = ["-q", "--no-build-isolation", "--no-deps", "--no-index", "--target", str(target)]
    options += [f"-C{name}={value}" for name, value in settings.items()]
    command = [sys.executable, "-m", "pip", "install", *options, str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]


def run_installed(target, code, cwd):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", PREPARE + code, str(target)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=cwd, timeout=300)


@pytest.mark.slow
def test_installed_with_torch(build, tmp_path):
    install(build, tmp_path / "site")
    code = """
import kronsparse, numpy, torch
from kronsparse.torch import KSLinear
assert kronsparse.__file__.startswith(sys.argv[1])
layer = KSLinear(64, 64, "monarch(blocks=8)", backend="kernel")
x = torch.randn(5, 64)
torch.testing.assert_close(layer(x), x @ layer.to_dense().T + layer.bias, rtol=1e-4, atol=1e-4)
print(kronsparse.__version__)
"""
    done = run_installed(tmp_path / "site", code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "bin" / "kronsparse-bench").exists()
    assert list((tmp_path / "site" / "kronsparse").glob("libkronsparse_torch*"))
    assert (tmp_path / "site" / "kronsparse" / "py.typed").exists()


@pytest.mark.slow
def test_installed_for_numpy_alone(build, tmp_path):
    install(build, tmp_path / "site", TORCH="OFF")
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
