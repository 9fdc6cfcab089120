"""Products for those who take no operators of ours: ONNX, other compilers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from kronsparse.torch import _library
from kronsparse.torch.backends import by_einsum
from kronsparse.torch.functional import ACTIVATIONS

_NAMES = _library._SETTINGS[0]


def decompositions() -> dict[Any, Callable[..., Any]]:
    """A table for `ExportedProgram.run_decompositions`, which makes torch's einsum of every product.

    `torch.onnx.export` of a model needs it not: layers see that they are exported to ONNX.

    >>> from kronsparse.torch import KSLinear
    >>> program = torch.export.export(KSLinear(8, 8).eval(), (torch.ones(2, 8),))
    >>> "kronsparse" in str(program.graph)
    True
    >>> "kronsparse" in str(program.run_decompositions(decompositions()).graph)
    False
    """
    _library.check_usable("decompositions()")
    table: dict[Any, Callable[..., Any]] = dict(torch.export.default_decompositions())
    table[torch.ops.kronsparse.linear.default] = linear_by_einsum
    table[torch.ops.kronsparse.linear_saving.default] = _saving_by_einsum
    return table


def _saving_by_einsum(
    x: Tensor, factors: Sequence[Tensor], bias: Tensor | None, settings: int, packed: int = 0
) -> tuple[Tensor, Tensor]:
    """The same where a gradient might be asked for: programs that were exported have none, and nobody reads
    the intermediates."""
    size = _library._intermediate_bytes(x, factors)
    return linear_by_einsum(x, factors, bias, settings), x.new_empty((size,), dtype=torch.uint8)


def linear_by_einsum(
    x: Tensor, factors: Sequence[Tensor], bias: Tensor | None, settings: int, packed: int = 0
) -> Tensor:
    """The operator kronsparse::linear, in torch's own."""
    layout = _library.layout_of(settings)
    if settings & _library.ADJOINT:
        steps = [values.conj().transpose(1, 2) for values in factors]
    else:
        steps = list(reversed(factors))
    y = x
    for values in steps:
        y = by_einsum(y, values, layout)
    if bias is not None:
        y = y + (bias if layout == "batch_first" else bias.view(-1, *[1] * (y.dim() - 1)))
    activation = _NAMES[settings & 255]
    return y if activation == "none" else ACTIVATIONS[activation](y)
