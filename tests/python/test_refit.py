"""tools/sweeps/refit puts constants into the tuning of an architecture, and touches nothing else."""

import os
import re
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

SOURCE = Path(os.environ.get("KRONSPARSE_SOURCE", Path(__file__).parents[2]))
TUNING = (SOURCE / "src/cuda/tuning/sm_90.hpp").read_text(encoding="utf-8")
KERNELS = [
    *("gemm", "wgmma", "staged", "mma", "simt"),
    *("direct", "unpacked", "weights-stay", "sums-stay", "x-stays-wgmma", "x-stays-mma"),
    *("gradient-wgmma", "gradient-mma", "gradient-simt", "fused"),
]


@pytest.fixture(scope="module")
def refit():
    loader = SourceFileLoader("refit", str(SOURCE / "tools/sweeps/refit"))
    module = module_from_spec(spec_from_loader("refit", loader))
    loader.exec_module(module)
    return module


def constants_of(refit, tuning, kernel):
    """The text of the kernel's constants."""
    _, (first, end) = refit.parts(tuning, kernel)
    return tuning[first:end]


def numbers_of(refit, text):
    return refit.NUMBER.findall(re.sub(r"//.*", "", text))


@pytest.mark.parametrize("kernel", KERNELS)
def test_an_entry_is_rewritten_and_the_others_stay(refit, kernel):
    old = numbers_of(refit, constants_of(refit, TUNING, kernel))
    new = [f"{at + 1}.5e-07" for at in range(len(old))]
    evidence = {"date": "2027-01-02", "fitted_to": "many", "rows": "results/new.csv", "error": "small"}
    after = refit.rewritten(TUNING, kernel, new, evidence)
    assert numbers_of(refit, constants_of(refit, after, kernel)) == new
    for text in evidence.values():
        assert f'"{text}"' in after
    for other in KERNELS:
        if other != kernel:
            assert constants_of(refit, after, other) == constants_of(refit, TUNING, other)


def test_an_entry_with_another_number_of_constants_is_refused(refit):
    with pytest.raises(ValueError, match="does not have 2 numbers"):
        refit.rewritten(TUNING, "gemm", ["1", "2"], {})
    with pytest.raises(ValueError, match="does not have 4 numbers"):
        refit.rewritten(TUNING, "gemm", ["1", "2", "3", "4"], {})
