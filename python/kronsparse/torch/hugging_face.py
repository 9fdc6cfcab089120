"""Tells transformers of the layers, once it is loaded: nothing here imports it by itself."""

from __future__ import annotations

import sys
from typing import Any

from torch import nn

METHOD = "kronsparse"


def initialise_missing() -> None:
    """Makes transformers draw factors that it could not load. It knows its own layers only, and would leave
    what the memory held before."""
    from transformers import PreTrainedModel  # type: ignore[import-not-found,unused-ignore]

    from kronsparse.torch.linear import KSLinear

    initialize: Any = PreTrainedModel._initialize_weights
    if getattr(initialize, "knows_kslinear", False):
        return

    def initialize_weights(self: Any, module: nn.Module, *args: Any, **kwargs: Any) -> None:
        if isinstance(module, KSLinear) and not getattr(module, "_is_hf_initialized", False):
            lacking = [
                name
                for name, parameter in module.named_parameters(recurse=False)
                if not getattr(parameter, "_is_hf_initialized", False)
            ]
            module._draw_parameters(lacking)
        initialize(self, module, *args, **kwargs)

    initialize_weights.knows_kslinear = True  # type: ignore[attr-defined]
    PreTrainedModel._initialize_weights = initialize_weights


def note_in_config(model: nn.Module, chains: dict[str, str]) -> None:
    """Writes into the configuration of a model of transformers which layers are chains, for
    `save_pretrained`. Chains that are gone are forgotten."""
    transformers = sys.modules.get("transformers")
    if transformers is None or not isinstance(model, transformers.PreTrainedModel):
        return
    config: Any = model.config
    found = getattr(config, "quantization_config", None)
    found = found if isinstance(found, dict) or found is None else found.to_dict()
    if found is not None and found.get("quant_method") != METHOD:
        return  # quantized otherwise: that is what the checkpoint must say
    if chains:
        config.quantization_config = {"quant_method": METHOD, "version": 1, "chains": chains}
    elif found is not None:
        del config.quantization_config
