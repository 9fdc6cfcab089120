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

from kronsparse.torch.backends import BACKENDS, to_dense
from kronsparse.torch.factorization import TensorFactorization, factorize
from kronsparse.torch.files import from_ksmm, load_factors, save_factors
from kronsparse.torch.freezing import MemoryInfo, freeze, memory_info, unfreeze
from kronsparse.torch.functional import ks_linear
from kronsparse.torch.linear import KSLinear
from kronsparse.torch.padded import PaddedKSLinear

__all__ = [
    "BACKENDS",
    "KSLinear",
    "MemoryInfo",
    "PaddedKSLinear",
    "TensorFactorization",
    "factorize",
    "freeze",
    "from_ksmm",
    "ks_linear",
    "load_factors",
    "memory_info",
    "save_factors",
    "to_dense",
    "unfreeze",
]
