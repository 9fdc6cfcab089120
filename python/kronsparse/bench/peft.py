"""Times a training step of a Llama model with adapters on q_proj and v_proj: PEFT's BOFT with one and two
factors, the same as chains (`kronsparse.peft.accelerate`), and LoRA. With one factor PEFT's BOFT is timed
with the extension that it compiles, and without.

The model has the sizes of Llama-3.2-3B and random weights in bf16; a step is forward, backward and AdamW on 4
x 768 tokens, by the host's clock. Losses and gradients of our BOFT are compared with PEFT's before anything
is timed. Where peft is not installed, copies of the arithmetic of its layers take its place, and rows say so.
Needs transformers.

  kronsparse-bench peft --output peft.jsonl
  kronsparse-bench peft --size tiny --device cpu
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from typing import Any

import torch
from torch import nn

from kronsparse.bench.measuring.devices import Device, begin_results, open_device
from kronsparse.bench.networks.peft_contenders import adapt, has_peft
from kronsparse.bench.options import add_output, count, words
from kronsparse.bench.reporting.document import markdown_table
from kronsparse.bench.reporting.peft_table import peft_table
from kronsparse.bench.results.rows import Row

# PEFT compiles an extension for BOFT. Where it cannot, it takes one factor, and puts its matrix together
# block by block.
CONTENDERS = ("lora", "boft1 ours", "boft1 peft", "boft1 peft uncompiled", "boft2 ours", "boft2 peft")
SIZES: dict[str, dict[str, Any]] = {
    "3b": {
        "hidden_size": 3072,
        "intermediate_size": 8192,
        "num_hidden_layers": 28,
        "num_attention_heads": 24,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "tie_word_embeddings": True,
    },
    "tiny": {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 128,
        "tie_word_embeddings": True,
    },
}
RUNS, WARM_UP = 10, 3
# The largest differences of loss and gradients between PEFT's BOFT and ours: some roundings of bf16.
ALLOWED = {"loss": 0.01, "gradient": 0.1}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `peft`."""
    add = parser.add_argument
    add("--device", default="cuda:0", help="device to measure: cuda:N, or cpu to try it (default cuda:0)")
    add("--size", choices=SIZES, default="3b", help="sizes of the model (default 3b)")
    add("--layers", type=count, metavar="N", help="number of its layers (default: all)")
    add("--batch", type=count, default=4, metavar="N", help="number of sequences (default 4)")
    add("--tokens", type=count, default=768, metavar="N", help="tokens of a sequence (default 768)")
    add("--block-size", type=count, default=4, metavar="N", help="b of BOFT's blocks (default 4, as PEFT's)")
    add("--rank", type=count, default=32, metavar="N", help="rank of LoRA (default 32)")
    add("--runs", type=count, default=RUNS, metavar="N", help=f"timed steps (default {RUNS})")
    add(
        "--contenders",
        type=words(list(CONTENDERS)),
        default=list(CONTENDERS),
        metavar="LIST",
        help=f"of {', '.join(CONTENDERS)} (default: all)",
    )
    add(
        "--copy",
        action="store_true",
        help="take copies of PEFT's arithmetic although peft is installed",
    )
    add_output(parser)


def main(options: argparse.Namespace) -> int:
    """Measures, and prints a table. Returns 1 where our BOFT differs from PEFT's."""
    device = open_device(options.device)
    results = begin_results("peft", device, options.output)
    copied = options.copy or not has_peft()
    is_wrong = False
    found: dict[str, list[float]] = {}
    for contender in options.contenders:
        try:
            row, answer = contest(device, options, contender, copied)
        except torch.OutOfMemoryError as error:
            row, answer = {"contender": contender, "status": f"out of memory: {error}"[:200]}, []
        gc.collect()
        if device.torch.type == "cuda":
            torch.cuda.empty_cache()
        kind = contender.split(" ")[0]
        if answer and kind in found and kind != "lora":
            row["difference"] = _difference(found[kind], answer)
            if row["difference"][0] > ALLOWED["loss"] or row["difference"][1] > ALLOWED["gradient"]:
                row["status"], is_wrong = "wrong", True
        found.setdefault(kind, answer)
        results.add("peft", **row)
        print(f"{contender}: {row['status']}", file=sys.stderr, flush=True)
    print(markdown_table(peft_table(results.rows)))
    return int(is_wrong)


def contest(
    device: Device, options: argparse.Namespace, contender: str, copied: bool
) -> tuple[Row, list[float]]:
    """Seconds and memory of a step, and the loss and the gradients' norms of the first one."""
    import transformers  # type: ignore[import-not-found,unused-ignore]

    sizes = dict(SIZES[options.size])
    if options.layers is not None:
        sizes["num_hidden_layers"] = options.layers
    torch.manual_seed(0)
    where = device.torch
    settings = transformers.LlamaConfig(**sizes, max_position_embeddings=options.tokens)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(where):
            bare: nn.Module = transformers.LlamaForCausalLM(settings)
    finally:
        torch.set_default_dtype(before)
    model, told = adapt(bare, contender, options.block_size, options.rank, copied)
    model.train()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimiser = torch.optim.AdamW(trained, 1e-5)
    tokens = torch.randint(0, sizes["vocab_size"], (options.batch, options.tokens), device=where)

    def step() -> torch.Tensor:
        optimiser.zero_grad(set_to_none=True)
        loss: torch.Tensor = model(input_ids=tokens, labels=tokens, use_cache=False).loss
        loss.backward()
        return loss

    first = float(step().detach())
    norms = [0.0 if one.grad is None else float(one.grad.float().norm()) for one in trained]
    runs = []
    for turn in range(WARM_UP + options.runs):
        if turn == WARM_UP and where.type == "cuda":
            torch.cuda.reset_peak_memory_stats(where)
        device.synchronize()
        begun = time.perf_counter()
        step()
        optimiser.step()
        device.synchronize()
        if turn >= WARM_UP:
            runs.append(time.perf_counter() - begun)
    row: Row = {
        "contender": contender,
        "status": "ok",
        "implementation": told,
        "model": f"llama {options.size}, {sizes['num_hidden_layers']} layers, bf16",
        "tokens": [options.batch, options.tokens],
        "block_size": options.block_size if "boft" in contender else None,
        "trained": sum(parameter.numel() for parameter in trained),
        "step_s": statistics.median(runs),
        "peak_bytes": torch.cuda.max_memory_allocated(where) if where.type == "cuda" else None,
        "loss": first,
    }
    return row, [first, *norms]


def _difference(first: list[float], second: list[float]) -> list[float]:
    """Relative differences of losses, and of norms of gradients in all."""
    norm = sum(one**2 for one in first[1:]) ** 0.5
    off = sum((one - other) ** 2 for one, other in zip(first[1:], second[1:], strict=True)) ** 0.5
    return [abs(first[0] - second[0]) / abs(first[0]), off / norm]
