"""PyTorch: `KSLinear`, a linear layer whose matrix is a product of Kronecker-sparse factors.

>>> import torch
>>> layer = KSLinear(1024, 4096, chain="monarch")
>>> y = layer(torch.randn(8, 1024))
>>> y.shape
torch.Size([8, 4096])
"""

from __future__ import annotations

import importlib.util

if importlib.util.find_spec("torch") is None:
    raise ImportError(
        "kronsparse.torch needs torch >= 2.10, which is not installed for this Python; install torch, then "
        "kronsparse again, so that torch's operators are built"
    )

from kronsparse.torch.backends import BACKENDS
from kronsparse.torch.checkpoints import convert_file, load_converted
from kronsparse.torch.conversion import chains_of, convert, report_of, to_dense
from kronsparse.torch.conversion_report import ConversionReport, LayerReport
from kronsparse.torch.convolution import KSConv1x1
from kronsparse.torch.exporting import decompositions
from kronsparse.torch.factorization import TensorFactorization, factorize
from kronsparse.torch.files import from_ksmm, load_factors, save_factors
from kronsparse.torch.freezing import MemoryInfo, freeze, memory_info, unfreeze
from kronsparse.torch.functional import ks_linear
from kronsparse.torch.int8 import quantize_int8
from kronsparse.torch.lazy_matrix import LazyMatrix
from kronsparse.torch.linear import KSLinear
from kronsparse.torch.optimisers import KSMuon
from kronsparse.torch.padded import PaddedKSLinear
from kronsparse.torch.rules import Rule, rules_from_toml

__all__ = [
    "BACKENDS",
    "ConversionReport",
    "KSConv1x1",
    "KSLinear",
    "KSMuon",
    "LayerReport",
    "LazyMatrix",
    "MemoryInfo",
    "PaddedKSLinear",
    "Rule",
    "TensorFactorization",
    "chains_of",
    "convert",
    "convert_file",
    "decompositions",
    "factorize",
    "freeze",
    "from_ksmm",
    "ks_linear",
    "load_converted",
    "load_factors",
    "memory_info",
    "quantize_int8",
    "report_of",
    "rules_from_toml",
    "save_factors",
    "to_dense",
    "unfreeze",
]
