"""ks_linear: multiplication by a product of Kronecker-sparse factors, as a function."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from kronsparse.chains import Pattern, checked
from kronsparse.torch import _library, _operators
from kronsparse.torch._library import LAYOUTS
from kronsparse.torch.backends import BACKENDS, float32_mode, multiply_dense, to_dense

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "silu": functional.silu,
}


def ks_linear(
    x: Tensor,
    factors: Sequence[Tensor],
    bias: Tensor | None = None,
    activation: str | None = None,
    layout: str = "batch_first",
    backend: str = "kernel",
) -> Tensor:
    """activation(W x + bias), W being the product of the factors (a, b, c, d), left factor first.

    x is (..., in_features) in batch_first and (in_features, ...) in batch_last. Values are packed at each
    call, so that they may change in any way between calls; `KSLinear` packs them when they change.

    >>> import torch
    >>> factors = [torch.ones(1, 3, 2, 2), torch.ones(2, 2, 4, 1)]  # 6 x 4 times 4 x 8
    >>> ks_linear(torch.ones(5, 8), factors).shape
    torch.Size([5, 6])
    >>> ks_linear(torch.ones(8, 5), factors, activation="relu", layout="batch_last")[0]
    tensor([8., 8., 8., 8., 8.])
    """
    check_option("layout", layout, LAYOUTS)
    check_option("backend", backend, BACKENDS)
    if activation is not None:
        check_option("activation", activation, ACTIVATIONS)
    chain = checked(Pattern.of(values.shape) for values in factors)
    _library.check_features("x", x, layout, chain[-1].cols, meaning="in_features, ")
    if bias is not None and tuple(bias.shape) != (chain[0].rows,):
        raise ValueError(f"bias: sizes {tuple(bias.shape)} given, must be ({chain[0].rows},)")
    return apply(x, factors, bias, activation, layout, backend, "each_call")


def check_option(argument: str, given: object, allowed: Collection[str]) -> None:
    if given not in allowed:
        raise ValueError(f"{argument}: {given!r} given, must be one of {', '.join(allowed)}")


def apply(
    x: Tensor,
    factors: Sequence[Tensor],
    bias: Tensor | None,
    activation: str | None,
    layout: str,
    backend: str,
    packing: str,
) -> Tensor:
    """ks_linear for arguments that were checked."""
    if backend != "kernel":
        return _apply_torch(x, factors, bias, activation, layout, backend)
    if _library.why_unusable:
        raise RuntimeError(f"backend: 'kernel' cannot be used: {_library.why_unusable}")
    mode = float32_mode() if x.dtype == torch.float32 else "fp32"
    if _operators.is_plain(x, factors, bias):
        return _operators.multiply_by_all(x, factors, bias, activation or "none", layout, mode, packing)
    for values in reversed(factors[1:]):
        x = _operators.multiply(x, values, None, "none", layout, mode, packing)
    # Where a gradient is needed the activation is an operation of its own, which saves its input.
    if activation is None or _operators.needs_grad(x, factors[0], bias):
        y = _operators.multiply(x, factors[0], bias, "none", layout, mode, packing)
        return y if activation is None else ACTIVATIONS[activation](y)
    return _operators.multiply(x, factors[0], bias, activation, layout, mode, packing)


def _apply_torch(
    x: Tensor,
    factors: Sequence[Tensor],
    bias: Tensor | None,
    activation: str | None,
    layout: str,
    backend: str,
) -> Tensor:
    if backend == "dense":
        y = multiply_dense(x, to_dense(factors), layout)
    else:
        y = x
        for values in reversed(factors):
            y = BACKENDS[backend](y, values, layout)
    if bias is not None:
        y = y + (bias if layout == "batch_first" else bias.view(-1, *[1] * (y.dim() - 1)))
    return y if activation is None else ACTIVATIONS[activation](y)
