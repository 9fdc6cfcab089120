"""ks_linear: multiplication by a product of Kronecker-sparse factors, as a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from kronsparse.chains import Pattern, checked
from kronsparse.checks import LAYOUTS, check_option
from kronsparse.torch import _library, _operators
from kronsparse.torch._library import SETTINGS
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

    x is (..., in_features) in batch_first and (in_features, ...) in batch_last. Factors are read at each
    call: they may change in any way between calls.

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
    for index, values in enumerate(factors[1:], 1):  # the first is compared by apply()
        if values.dtype != x.dtype and not _is_autocast(x):
            raise ValueError(f"factors[{index}]: dtype {values.dtype} given, must be that of x, {x.dtype}")
    if bias is not None:
        check_bias(bias, chain[0].rows)
    return apply(x, factors, bias, activation, layout, backend)


def check_bias(bias: Tensor, rows: int) -> None:
    if tuple(bias.shape) != (rows,):
        raise ValueError(f"bias: sizes {tuple(bias.shape)} given, must be ({rows},)")


def apply(
    x: Tensor,
    factors: Sequence[Tensor],
    bias: Tensor | None,
    activation: str | None,
    layout: str,
    backend: str,
    packed: int = 0,
    flags: int = 0,
) -> Tensor:
    """ks_linear for arguments of which all but x were checked. `packed` is the number of frozen factors,
    `flags` are added to the settings of the operators."""
    if x.dtype != factors[0].dtype:
        _check_dtype(x, factors[0].dtype)
    if backend == "kernel" and _operators.is_transformed_while_compiled():
        backend = "einsum"
    if backend != "kernel":
        _check_features(x, factors, layout)
        return _apply_torch(x, factors, bias, activation, layout, backend)
    _library.check_usable("backend: 'kernel'")
    _check_features(x, factors, layout)
    mode = float32_mode() if x.dtype in _IN_FLOAT32 else "fp32"
    # A differentiated activation is an operation of its own, which saves its input.
    if activation is None or _operators.is_differentiated(x, bias, *factors):
        y = _operators.linear(x, factors, bias, SETTINGS["none", layout, mode] | flags, packed)
        return y if activation is None else ACTIVATIONS[activation](y)
    return _operators.linear(x, factors, bias, SETTINGS[activation, layout, mode] | flags, packed)


_IN_FLOAT32 = (torch.float32,)


def check_x(x: Tensor, factors: Sequence[Tensor], layout: str) -> None:
    """That x fits the factors."""
    if x.dtype != factors[0].dtype:
        _check_dtype(x, factors[0].dtype)
    _check_features(x, factors, layout)


def _check_features(x: Tensor, factors: Sequence[Tensor], layout: str) -> None:
    a, _, c, d = factors[-1].shape
    _library.check_features("x", x, layout, a * c * d, meaning="in_features, ")


def _check_dtype(x: Tensor, dtype: torch.dtype) -> None:
    """The kernels take float32 values for x of half types, but that is for autocast: torch's own products
    take one dtype only."""
    if not _is_autocast(x):
        raise ValueError(f"x: dtype {x.dtype} given, must be that of the factors, {dtype}")


def _is_autocast(x: Tensor) -> bool:
    device = x.device.type
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


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
        bias = bias.to(y.dtype)  # under autocast the product alone is in another dtype
        y = y + (bias if layout == "batch_first" else bias.view(-1, *[1] * (y.dim() - 1)))
    return y if activation is None else ACTIVATIONS[activation](y)
