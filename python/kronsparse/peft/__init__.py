"""PEFT: its BOFT and OFT layers as chains, and LoRA on top of `KSLinear`.

- `accelerate(model)`: the forward of PEFT's BOFT and OFT layers as products of chains, with the same
  parameters, checkpoints and results
- `prepare()`: before a BOFT model is made, so that PEFT needs no compiler for two factors and more
- `register()`: makes LoRA take `KSLinear`, also as one of "all-linear"

Importing needs no peft; the functions do.
"""

from __future__ import annotations

import kronsparse.torch  # noqa: F401 (says what is missing where torch is)
from kronsparse.peft.acceleration import accelerate, prepare, restore
from kronsparse.peft.registration import register

__all__ = ["accelerate", "prepare", "register", "restore"]
