"""Hugging Face transformers: converted models saved, loaded and initialised.

Importing this makes `from_pretrained` know checkpoints of converted models, whose config.json says the chains
(`quantization_config` with the method "kronsparse"), and `KronsparseConfig`, which converts a dense
checkpoint while it is loaded. It needs no transformers to be imported; `KronsparseConfig` does.
"""

from __future__ import annotations

import importlib.util
from typing import Any

from kronsparse.transformers.registration import register

if importlib.util.find_spec("transformers") is not None:
    register()

__all__ = ["KronsparseConfig", "register"]


def __getattr__(name: str) -> Any:
    if name == "KronsparseConfig":
        from kronsparse.transformers.quantizer import KronsparseConfig

        return KronsparseConfig
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
