"""Times whole models beside their dense twins: every linear layer is a Monarch product, frozen, with backend
"auto".

ViT-S/16 (128 images) from timm; GPT-2 medium (16 x 1024 tokens) and four layers of Llama-7B (4 x 2048) from
transformers. Weights are random, because time does not depend on them. Both models are timed by turns.

  kronsparse-bench models --output models.jsonl
  kronsparse-bench models --models vit --dtypes f16 --blocks 16
"""

from __future__ import annotations

import argparse
import copy
import statistics
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from kronsparse.bench.answers import TORCH_DTYPES
from kronsparse.bench.devices import Device, begin_results, open_device
from kronsparse.bench.document import markdown_table
from kronsparse.bench.options import add_output, count, words
from kronsparse.bench.results import Row
from kronsparse.bench.weights_table import models_table
from kronsparse.torch import KSLinear, freeze

BLOCKS = (4, 16, 64)
RUNS = 10

Forward = Callable[[nn.Module], object]


def _vit(device: torch.device, dtype: torch.dtype) -> tuple[nn.Module, Forward]:
    import timm  # type: ignore[import-not-found,unused-ignore]

    model = timm.create_model("vit_small_patch16_224", pretrained=False, num_classes=0)
    images = torch.randn(128, 3, 224, 224, device=device).to(dtype)
    return model, lambda called: called(images)


def _gpt2(device: torch.device, dtype: torch.dtype) -> tuple[nn.Module, Forward]:
    import transformers  # type: ignore[import-not-found,unused-ignore]

    settings = transformers.GPT2Config(n_embd=1024, n_layer=24, n_head=16)
    tokens = torch.randint(0, settings.vocab_size, (16, 1024), device=device)
    return transformers.GPT2Model(settings), lambda called: called(tokens, use_cache=False)


def _llama(device: torch.device, dtype: torch.dtype) -> tuple[nn.Module, Forward]:
    import transformers  # type: ignore[import-not-found,unused-ignore]

    settings = transformers.LlamaConfig(num_hidden_layers=4, vocab_size=1000)  # else those of 7B
    tokens = torch.randint(0, settings.vocab_size, (4, 2048), device=device)
    return transformers.LlamaModel(settings), lambda called: called(tokens, use_cache=False)


MODELS = {"vit": _vit, "gpt2": _gpt2, "llama": _llama}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `models`."""
    add = parser.add_argument
    add("--device", default="cuda:0", help="device to measure: cuda:N (default cuda:0)")
    add(
        "--models",
        type=words(list(MODELS)),
        default=list(MODELS),
        metavar="LIST",
        help="models to time (default: all)",
    )
    add(
        "--dtypes",
        type=words(["f16", "f32"]),
        default=["f16", "f32"],
        metavar="LIST",
        help="dtypes to run (default f16,f32)",
    )
    add(
        "--blocks",
        type=count,
        action="append",
        metavar="N",
        help="blocks of the Monarch chains; may be given several times (default 4, 16, 64)",
    )
    add_output(parser)


def main(options: argparse.Namespace) -> int:
    """Measures, and prints a table. Returns 0."""
    device = open_device(options.device)
    results = begin_results("models", device, options.output)
    for name in options.models:
        for dtype in options.dtypes:
            made, forward = MODELS[name](device.torch, TORCH_DTYPES[dtype])
            dense = made.to(device.torch, TORCH_DTYPES[dtype]).eval()
            for blocks in options.blocks or BLOCKS:
                results.add("model", model=name, dtype=dtype, **contest(device, dense, forward, blocks))
                device.tidy()
            del made, dense
            device.tidy()
    print(markdown_table(models_table(results.rows)))
    return 0


def contest(device: Device, dense: nn.Module, forward: Forward, blocks: int) -> Row:
    """Seconds of both, by turns, and what "auto" took."""
    sparse = with_monarch(copy.deepcopy(dense), blocks).eval()
    frozen = freeze(sparse)
    models = {"dense": dense, "frozen": frozen}
    runs: dict[str, list[float]] = {name: [] for name in models}
    with torch.inference_mode():
        for turn in range(RUNS + 4):
            for name, model in models.items():
                device.synchronize()
                seconds = device.seconds_of(partial(forward, model))
                if turn >= 4:  # the first ones choose, pack and warm up
                    runs[name].append(seconds)
    layers = [layer for layer in frozen.modules() if isinstance(layer, KSLinear)]
    taken = Counter(layer.explain(_last_batch(layer)).split(":")[0] for layer in layers)
    medians = {f"{name}_s": statistics.median(found) for name, found in runs.items()}
    return {"blocks": blocks, "layers": len(layers), "taken": dict(taken), **medians}


def _last_batch(layer: KSLinear) -> int:
    sizes = [key[0] for key in layer._frozen.choices] if layer._frozen is not None else []
    return max(1, sizes[-1] // layer.in_features) if sizes else 4096


def with_monarch(model: nn.Module, blocks: int) -> nn.Module:
    """The model with every linear layer that `blocks` divides replaced by a product of two factors."""
    for name, child in list(model.named_children()):
        sizes = _sizes_of(child)
        if sizes is None:
            with_monarch(child, blocks)
        elif sizes[0] % blocks == 0 and sizes[1] % blocks == 0:
            weight: Any = child.weight
            has_bias = getattr(child, "bias", None) is not None
            kind = {"device": weight.device, "dtype": weight.dtype}
            setattr(model, name, KSLinear(*sizes, f"monarch(blocks={blocks})", has_bias, **kind))
    return model


def _sizes_of(layer: nn.Module) -> tuple[int, int] | None:
    """in_features and out_features of nn.Linear, and of GPT-2's layer, whose weight is transposed."""
    if isinstance(layer, nn.Linear):
        return layer.in_features, layer.out_features
    if type(layer).__name__ == "Conv1D":
        weight: Any = layer.weight
        return int(weight.shape[0]), int(weight.shape[1])
    return None
