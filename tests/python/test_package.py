"""Importing, degrading, the doctor, and the examples of README.md, docs/ and examples/."""

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

SOURCE = Path(os.environ.get("KRONSPARSE_SOURCE", Path(__file__).parents[2]))


def run_python(code, *arguments, **environment):
    return subprocess.run(
        [sys.executable, *arguments, *(["-c", textwrap.dedent(code)] if code else [])],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=300,
    )


HIDE = """
    import importlib.abc, sys, warnings

    class Hide(importlib.abc.MetaPathFinder):
        def find_spec(self, name, path=None, target=None):
            if name == HIDDEN:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    sys.meta_path.insert(0, Hide())
    caught = warnings.catch_warnings(record=True)
    warned = caught.__enter__()
    warnings.simplefilter("always")
"""


def test_torch_is_imported_only_when_asked_for():
    done = run_python("import sys, kronsparse; assert 'torch' not in sys.modules")
    assert done.returncode == 0, done.stderr


def run_without_native(code):
    return run_python("HIDDEN = 'kronsparse._native'\n" + textwrap.dedent(HIDE) + code)


def test_without_the_native_module_there_is_one_warning():
    done = run_without_native(
        "from kronsparse import *\nassert len(warned) == 1, warned\nprint(warned[0].message)\n"
        + "assert monarch(4, 4)\nassert 'multiply' not in globals()"
    )
    assert done.returncode == 0, done.stderr
    assert "native module cannot be loaded" in done.stdout
    assert "doctor" in done.stdout


def test_layers_need_no_native_module():
    done = run_without_native(
        "import torch\nfrom kronsparse.torch import KSLinear\nlayer = KSLinear(16, 16, 'monarch')\n"
        + "layer(torch.ones(2, 16)).sum().backward()\nprint(layer.explain())"
    )
    assert done.returncode == 0, done.stderr
    assert "kernel: weights are not frozen" in done.stdout


@pytest.mark.parametrize(
    ("mishap", "words"),
    [
        ("torch.__version__ = '2.9.1'", "torch 2.9.1 is older than 2.10"),
        ("pathlib.Path.exists = lambda self: False", "built without torch's operators"),
        ("torch.ops.load_library = fail", "cannot be loaded: undefined symbol"),
    ],
)
def test_where_the_operators_cannot_be_used_the_layer_still_works(mishap, words):
    done = run_python(f"""
        import pathlib, sys, warnings, torch

        def fail(path):
            raise OSError("undefined symbol")

        exists = pathlib.Path.exists
        {mishap}
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            import kronsparse.torch
        pathlib.Path.exists = exists
        assert len(warned) == 1, [str(one.message) for one in warned]
        assert {words!r} in str(warned[0].message), warned[0].message
        layer = kronsparse.torch.KSLinear(16, 16, "monarch")
        assert layer.explain().startswith("bmm: the kernels cannot be used"), layer.explain()
        layer(torch.ones(2, 16)).sum().backward()
        for call in (
            lambda: kronsparse.torch.KSLinear(16, 16, "monarch", backend="kernel")(torch.ones(2, 16)),
            lambda: kronsparse.torch.BACKENDS["kernel"](torch.ones(2), torch.ones(1, 2, 2, 1), "batch_first"),
            kronsparse.torch.memory_info,
        ):
            try:
                call()
            except RuntimeError as error:
                assert "cannot be used" in str(error) and {words!r} in str(error), error
            else:
                raise SystemExit("it must be refused")
    """)
    assert done.returncode == 0, done.stderr + done.stdout


def test_doctor():
    done = run_python("", "-m", "kronsparse", "doctor")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^yes  native module +kronsparse \d", done.stdout, re.MULTILINE)
    assert re.search(r"^yes  torch operators", done.stdout, re.MULTILINE)
    for line, following in zip(done.stdout.splitlines(), [*done.stdout.splitlines()[1:], ""], strict=True):
        if line.startswith("no "):
            assert following.strip().startswith("->"), f"no remedy after: {line}"


def documented_examples():
    """The Python of README.md and docs/, each with the name of its file."""
    for path in [SOURCE / "README.md", *sorted((SOURCE / "docs").glob("*.md"))]:
        text = path.read_text(encoding="utf-8")
        for place, code in enumerate(re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)):
            yield pytest.param(code, id=f"{path.name}-{place}")


def test_documents_have_examples():
    found = [one.id.split("-")[0] for one in documented_examples()]
    assert {"README.md", "pytorch.md", "numpy.md"} <= set(found)


@pytest.mark.parametrize("code", list(documented_examples()))
def test_documented_example(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "an example", "exec"), {"__name__": "example"})


def test_vit_example():
    done = run_python("", str(SOURCE / "examples" / "vit.py"), "--steps", "40")
    assert done.returncode == 0, done.stderr
    first, last = (float(x) for x in re.search(r"loss ([\d.]+) -> ([\d.]+)", done.stdout).groups())
    assert last < 0.8 * first, done.stdout
    assert re.search(r"parameters: \d+ of \d+", done.stdout)


def test_accuracy_example(tmp_path):
    table, plot = tmp_path / "accuracy.md", tmp_path / "accuracy.svg"
    files = ["--table", str(table), "--plot", str(plot)]
    done = run_python("", str(SOURCE / "examples" / "accuracy.py"), "--steps", "3", *files)
    assert done.returncode == 0, done.stderr
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.read_text().splitlines()[2:]
    ]
    assert [line[0] for line in lines[:4]] == ["dense", "KS 50.0%", "KS 25.0%", "KS 12.5%"]
    assert lines[0][1] == "98,304" and lines[0][2] == "100.0 %"
    shares = [float(line[2].split()[0]) for line in lines[:4]]
    assert shares == sorted(shares, reverse=True) and 0.7 * 12.5 < shares[3] <= 12.5
    assert all(float(line[4]) > 0 and 0 <= float(line[3].split()[0]) <= 100 for line in lines)
    assert plot.read_text().count("<circle") == len(lines) and table.read_text() in done.stdout + "\n"


def test_doctor_shows_paths_and_fails_for_what_is_broken(monkeypatch, capsys):
    from kronsparse import __main__, doctor, loading

    report = doctor.report(doctor.examine())
    assert re.search(r"^yes  package +/", report, re.MULTILINE)
    assert re.search(r"^yes  torch operators +/.*libkronsparse_torch.so$", report, re.MULTILINE)
    assert re.search(r"^yes  library +/.*libkronsparse.so", report, re.MULTILINE)
    libraries = [*loading.loaded_libraries(), Path("/elsewhere/libkronsparse.so.0.1")]
    monkeypatch.setattr(loading, "loaded_libraries", lambda: libraries)
    monkeypatch.setattr(sys, "argv", ["kronsparse", "doctor"])
    assert __main__.main() == 1
    assert "/elsewhere/libkronsparse.so.0.1 loaded in this process" in capsys.readouterr().out


@pytest.fixture
def copied_library(tmp_path):
    """Another copy of the library, under the name by which the native modules ask for it."""
    from kronsparse import loading

    (library,) = loading.loaded_libraries()
    needed = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    copy = tmp_path / re.search(r"soname: \[(.*)\]", needed)[1]
    shutil.copy(library, copy)
    return copy


def test_the_library_search_path_does_not_replace_the_library(copied_library):
    from kronsparse import loading

    code = "from kronsparse import loading; import kronsparse.torch; print(*loading.loaded_libraries())"
    done = run_python(code, LD_LIBRARY_PATH=str(copied_library.parent))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(path) for path in loading.loaded_libraries()]


@pytest.mark.parametrize("is_preloaded", [False, True])
def test_a_second_copy_of_the_library_is_refused(copied_library, is_preloaded):
    code = f"""
        import ctypes, warnings
        ctypes.CDLL({str(copied_library)!r}, ctypes.RTLD_GLOBAL)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            import kronsparse
            from kronsparse.torch import KSLinear
        assert all({str(copied_library)!r} in str(one.message) for one in told), told
        assert len(told) == 2, told
        import torch
        layer = KSLinear(16, 16)
        torch.testing.assert_close(layer(torch.ones(16)), layer.to_dense().sum(1) + layer.bias)
        try:
            KSLinear(16, 16, backend="kernel")(torch.ones(1, 16))
        except RuntimeError as error:
            print(error)
    """
    preloaded = {"LD_PRELOAD": str(copied_library)} if is_preloaded else {}
    done = run_python(code, **preloaded)
    assert done.returncode == 0, done.stderr
    assert f"{copied_library} loaded in this process, must be the library of this package" in done.stdout


def test_doctor_fails_beside_a_second_copy(copied_library):
    done = run_python("", "-m", "kronsparse", "doctor", LD_PRELOAD=str(copied_library))
    assert done.returncode == 1, done.stderr
    assert re.search(
        rf"^no   native module +{copied_library} loaded in this process", done.stdout, re.MULTILINE
    )


def test_versions_of_the_library_and_the_package_are_compared():
    from kronsparse import _native, loading

    assert _native.loaded_version == _native.__version__
    with pytest.raises(ImportError, match=r"libkronsparse.* is of version 0\.0\.9, must be of 0\.1\.0"):
        loading.compare_versions("0.1.0", "0.0.9")


@pytest.mark.parametrize("command", ["layers", "run"])  # torch is imported with the module, and later
def test_the_benchmark_without_torch_says_what_to_do(command):
    done = run_python(
        "HIDDEN = 'torch'\n"
        + textwrap.dedent(HIDE)
        + "from kronsparse.bench.__main__ import main\n"
        + f"raise SystemExit(main([{command!r}]))"
    )
    assert done.returncode == 1
    told = f"{command}: No module named 'torch': pip install torch, then install kronsparse again"
    assert told in done.stderr
