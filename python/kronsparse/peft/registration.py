"""Makes PEFT know `KSLinear`."""

from __future__ import annotations

from typing import Any

from torch import nn

from kronsparse.peft.acceleration import need_peft


def register() -> None:
    """Makes LoRA of PEFT take `KSLinear`: by name in `target_modules`, and as one of "all-linear".

    Merged layers are dense, because the sum of a chain and a product of low rank is no chain: after
    `merge_and_unload` the layer is an nn.Linear, which `kronsparse.torch.convert` makes a chain again.
    Calling it twice changes nothing.
    """
    need_peft()
    from peft.tuners import tuners_utils  # type: ignore[import-not-found,unused-ignore]
    from peft.tuners.lora import model as lora_model  # type: ignore[import-not-found,unused-ignore]

    from kronsparse.torch.linear import KSLinear

    if getattr(lora_model.dispatch_default, "knows_kslinear", False):
        return
    dispatch = lora_model.dispatch_default
    include = tuners_utils._maybe_include_all_linear_layers

    def dispatch_kslinear(target: nn.Module, adapter_name: str, config: Any, **kwargs: Any) -> Any:
        from kronsparse.peft.layers import KSLinearLora

        base = target.get_base_layer() if isinstance(target, tuners_utils.BaseTunerLayer) else target
        if not isinstance(base, KSLinear) or kwargs.get("parameter_name") is not None:
            return dispatch(target, adapter_name, config=config, **kwargs)
        kwargs.pop("parameter_name", None)
        return KSLinearLora(target, adapter_name, config=config, **kwargs)

    def include_kslinear(peft_config: Any, model: nn.Module) -> Any:
        asked = getattr(peft_config, "target_modules", None)
        made = include(peft_config, model)
        is_all = isinstance(asked, str) and asked.lower() == "all-linear"
        if is_all and str(getattr(peft_config, "peft_type", "")).endswith("LORA"):
            made.target_modules |= _names(model, KSLinear, tuners_utils.BaseTunerLayer)
        return made

    dispatch_kslinear.knows_kslinear = True  # type: ignore[attr-defined]
    lora_model.dispatch_default = dispatch_kslinear
    tuners_utils._maybe_include_all_linear_layers = include_kslinear


def _names(model: nn.Module, kind: type[nn.Module], tuner: type) -> set[str]:
    """Layers of a kind that are no heads and in no adapter."""
    getter = getattr(model, "get_output_embeddings", None)
    head = getter() if getter is not None else None
    inside = {
        id(child)
        for module in model.modules()
        if isinstance(module, tuner)
        for child in module.modules()
        if child is not module
    }
    return {
        name
        for name, module in model.named_modules()
        if isinstance(module, kind) and module is not head and id(module) not in inside
    }
