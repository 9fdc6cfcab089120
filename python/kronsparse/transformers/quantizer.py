"""The hooks that transformers calls while it loads a converted model. Needs transformers."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers.quantizers.base import HfQuantizer  # type: ignore[import-not-found,unused-ignore]
from transformers.utils.quantization_config import (  # type: ignore[import-not-found,unused-ignore]
    QuantizationConfigMixin,
)

from kronsparse.torch.conversion import convert
from kronsparse.torch.hugging_face import METHOD, note_in_config
from kronsparse.torch.rules import Rules


class KronsparseConfig(QuantizationConfigMixin):  # type: ignore[misc,unused-ignore]
    """Converts a model while `from_pretrained` loads it: give it as `quantization_config`.

    `rules` and the other arguments are those of `kronsparse.torch.convert`, which is called with the dense
    model. A checkpoint of a converted model has `chains` instead, by the names of the layers, and needs no
    such argument.
    """

    def __init__(
        self,
        rules: Rules = None,
        calibration: Any = None,
        chains: dict[str, str] | None = None,
        version: int = 1,
        **options: Any,
    ) -> None:
        options.pop("quant_method", None)
        if (rules is None) == (chains is None):
            raise ValueError("rules: must be given for a dense checkpoint, and chains for a converted one")
        if version != 1:
            raise ValueError(f"version: {version} given, must be 1: the checkpoint needs a later kronsparse")
        self.quant_method = METHOD
        self.rules = rules
        self.calibration = calibration
        self.chains = chains
        self.version = version
        self.options = options

    def to_dict(self) -> dict[str, Any]:
        """The entry of config.json."""
        return {"quant_method": METHOD, "version": self.version, "chains": self.chains or {}}


class KronsparseQuantizer(HfQuantizer):  # type: ignore[misc,unused-ignore]
    """Puts chains into the model before its weights are loaded, or converts the loaded model."""

    requires_calibration = False
    quantization_config: KronsparseConfig

    def is_serializable(self, *_: Any, **__: Any) -> bool:
        """Converted models can be saved."""
        return True

    @property
    def is_trainable(self) -> bool:
        """Converted models can be trained."""
        return True

    def _process_model_before_weight_loading(
        self, model: nn.Module, checkpoint_files: Any = None, **_: Any
    ) -> nn.Module:
        chains = self.quantization_config.chains
        if chains is not None:
            if _is_dense(checkpoint_files):
                # The configuration of a converted model beside weights that are not: those are factorised.
                self.quantization_config.rules = _present(model, chains)
                return model
            convert(model, _present(model, chains), values="fresh", inplace=True)
        return model

    def _process_model_after_weight_loading(self, model: Any, **_: Any) -> nn.Module:
        settings = self.quantization_config
        # From here on it is a model as any other, which may be trained, cast and saved.
        for name in ("hf_quantizer", "quantization_method"):
            model.__dict__.pop(name, None)
        del model.config.quantization_config
        model.is_quantized = model.config._is_quantized = False
        if settings.rules is not None:
            convert(model, settings.rules, settings.calibration, inplace=True, **settings.options)
        else:
            note_in_config(model, _present(model, settings.chains or {}))
        return model  # type: ignore[no-any-return]


def _is_dense(files: Any) -> bool:
    """Whether the files of a checkpoint have no factors at all."""
    paths = [str(path) for path in files or ()]
    return bool(paths) and not any(name.endswith(".factor0") for path in paths for name in _names(path))


def _names(path: str) -> list[str]:
    """The tensors of a file."""
    if path.endswith(".safetensors"):
        from safetensors import safe_open

        with safe_open(path, "pt") as file:
            return list(file.keys())
    return list(torch.load(path, map_location="meta", weights_only=True))


def _present(model: Any, chains: dict[str, str]) -> dict[str, str]:
    """The chains whose layers the model has. A model without its head, or with one, has other names, and a
    head or a decoder may be missing as a whole; but a layer that is missing beside others has weights that
    would be lost."""
    prefix = f"{getattr(model, 'base_model_prefix', '')}."
    names = {name for name, _ in model.named_modules()}
    found, missing = {}, []
    for name, chain in chains.items():
        bare = name.removeprefix(prefix)
        known = next((one for one in (name, bare, prefix + name) if one in names), None)
        top = bare.split(".")[0]
        if known is not None:
            found[known] = chain
        elif top in names or prefix + top in names:
            missing.append(name)
    if missing or not found:
        wrong = missing or list(chains)
        raise ValueError(
            f"chains: {', '.join(wrong[:4])}{', ...' * (len(wrong) > 4)} given, must be names of layers of "
            f"{type(model).__name__}"
        )
    return found
