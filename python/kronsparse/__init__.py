"""Multiplies dense batches by Kronecker-sparse matrices.

- `kronsparse.KSOperator`, `multiply`, `gradient`: on NumPy arrays
- `kronsparse.factorize`: dense matrices as products of Kronecker-sparse factors
- `kronsparse.transforms`: Hadamard, Fourier, cosine and sine transforms as chains
- `kronsparse.torch`: `KSLinear` and `ks_linear` for PyTorch
- `python -m kronsparse doctor`: what can be used here, what is missing and how to get it
- `python -m kronsparse.bench`: how fast it is here, beside PyTorch

Importing never fails for want of a GPU, a driver or torch: what cannot be used says so once, as a warning.
"""

from __future__ import annotations

import warnings

from kronsparse.chains import (
    Chain,
    Pattern,
    as_chain,
    blast,
    block_butterfly,
    boft,
    btt,
    butterfly,
    dense,
    for_budget,
    kaleidoscope,
    low_rank,
    monarch,
    padded_size,
    square_dyadic,
)

__all__ = [
    "Chain",
    "Pattern",
    "__version__",
    "as_chain",
    "blast",
    "block_butterfly",
    "boft",
    "btt",
    "butterfly",
    "dense",
    "for_budget",
    "kaleidoscope",
    "low_rank",
    "monarch",
    "padded_size",
    "square_dyadic",
]

try:
    from kronsparse import loading

    loading.refuse_other_copies()
    from kronsparse._native import __version__, loaded_version

    loading.compare_versions(__version__, loaded_version)
    loading.refuse_other_copies()  # as one that came in the place of the package's own
    from kronsparse import interchange, transforms
    from kronsparse.factorization import Factorization, factorize
    from kronsparse.operators import KSOperator, block_diag, hstack, vstack
    from kronsparse.products import gradient, multiply

    __all__ += [
        "Factorization",
        "KSOperator",
        "block_diag",
        "factorize",
        "gradient",
        "hstack",
        "interchange",
        "multiply",
        "transforms",
        "vstack",
    ]
except ImportError as error:
    warnings.warn(
        f"kronsparse: the native module cannot be loaded: {error}. `python -m kronsparse doctor` says more.",
        RuntimeWarning,
        stacklevel=2,
    )
    __version__ = "unknown"
