"""Makes transformers know chains: how they are initialised, and how converted checkpoints are read."""

from __future__ import annotations

import importlib.util

from kronsparse.torch.hugging_face import METHOD, initialise_missing


def register() -> None:
    """Makes transformers initialise the `KSLinear` layers that a checkpoint lacks, and read checkpoints of
    converted models. Importing `kronsparse.transformers` calls it; calling it again changes nothing."""
    if importlib.util.find_spec("transformers") is None:
        raise ModuleNotFoundError("kronsparse.transformers needs transformers: pip install transformers")
    initialise_missing()
    from transformers.quantizers import auto  # type: ignore[import-not-found,unused-ignore]

    from kronsparse.transformers.quantizer import KronsparseConfig, KronsparseQuantizer

    auto.AUTO_QUANTIZATION_CONFIG_MAPPING[METHOD] = KronsparseConfig
    auto.AUTO_QUANTIZER_MAPPING[METHOD] = KronsparseQuantizer
