"""The native operators of torch, loaded, with the shapes of their results and their operations counted.

A call is a whole layer. For factors (a, b, c, d), left factor first, and the matrix K of their product:

- ``kronsparse::linear(x, factors, bias, settings, packed)``  K x + bias, activated, or K^H x
- ``kronsparse::linear_saving``    the same, and the intermediates, for
- ``kronsparse::linear_backward``  the gradients of x and of all factors
- ``kronsparse::gradient(x, g)``   that of one factor alone, which closes differentiation

``settings`` is one of `SETTINGS`, with `ADJOINT` and `CHECKS_VERSIONS` added or not. Values are read and
packed at each call, unless ``packed`` is the number that ``kronsparse::freeze`` gave them. Those whose names
end in ``_plain`` have no derivatives registered: eager code brings its own.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, library
from torch.utils.flop_counter import register_flop_formula

from kronsparse import loading
from kronsparse.checks import LAYOUTS

LIBRARY = Path(__file__).absolute().parent.parent / "libkronsparse_torch.so"
OLDEST_TORCH = (2, 10)

_SETTINGS = (  # each in the order of the library's enumeration
    ("none", "relu", "gelu", "gelu_tanh", "silu"),
    LAYOUTS,
    ("fp32", "ieee", "tf32"),
)
SETTINGS = {
    tuple(name for _, name in setting): sum(number << 8 * byte for byte, (number, _) in enumerate(setting))
    for setting in itertools.product(*map(enumerate, _SETTINGS))
}
"""what operators take for an activation, a layout and a mode"""
ADJOINT = 1 << 24
"""added to a setting: the product with K^H"""
CHECKS_VERSIONS = 1 << 32
"""added to a setting: the operator asks torch whether frozen factors changed"""
DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.complex64,
    torch.complex128,
)
"""in the order of the library's enumeration"""


def _load() -> str:
    """Loads the native operators. Returns why that is impossible, or nothing."""
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if version < OLDEST_TORCH:
        return f"torch {torch.__version__} is older than {'.'.join(map(str, OLDEST_TORCH))}"
    if not LIBRARY.exists():
        return (
            f"this installation was built without torch's operators ({LIBRARY.name} is missing): "
            "install torch, then kronsparse again"
        )
    why = loading.why_refused()
    if why:
        return why
    try:
        torch.ops.load_library(LIBRARY)
    except (OSError, RuntimeError) as error:
        return f"{LIBRARY.name} cannot be loaded: {error}"
    return loading.why_refused()


why_unusable = _load()
if why_unusable:
    warnings.warn(
        f"kronsparse: the kernels cannot be used from torch: {why_unusable}. "
        "`python -m kronsparse doctor` says more.",
        RuntimeWarning,
        stacklevel=2,
    )


def check_usable(what: str) -> None:
    """Says of something why it cannot be used, where the operators cannot."""
    if why_unusable:
        raise RuntimeError(f"{what} cannot be used: {why_unusable}")


def features_dimension(layout: str) -> int:
    """The dimension in which a tensor of this layout has its features."""
    return -1 if layout == "batch_first" else 0


def layout_of(settings: int) -> str:
    """The layout in a number of settings."""
    return LAYOUTS[settings >> 8 & 255]


def rows_of(values: Sequence[int]) -> int:
    """Rows of a factor of this shape."""
    a, b, _, d = values
    return a * b * d


def cols_of(values: Sequence[int]) -> int:
    """Columns of a factor of this shape."""
    a, _, c, d = values
    return a * c * d


def check_features(argument: str, x: Tensor, layout: str, features: int, meaning: str = "") -> None:
    """That x has so many features where this layout has them."""
    if x.dim() == 0 or x.shape[features_dimension(layout)] != features:
        which = "last" if layout == "batch_first" else "first"
        raise ValueError(f"{argument}: sizes {tuple(x.shape)} given, the {which} must be {meaning}{features}")


_OUT_OF_MEMORY = ("out of memory", "memory ran out", "not enough memory", "can't allocate memory")


def raise_if_out_of_memory(error: BaseException) -> None:
    """Raises torch.OutOfMemoryError for an error that means it: its kind is lost between torch's
    libraries."""
    if isinstance(error, torch.OutOfMemoryError):
        return
    text = str(error)
    if isinstance(error, MemoryError) or any(words in text for words in _OUT_OF_MEMORY):
        raise torch.OutOfMemoryError(text or "kronsparse: out of memory") from error


def _with_features(x: Tensor, layout: str, features: int) -> Tensor:
    shape = list(x.shape)
    shape[features_dimension(layout)] = features
    return x.new_empty(shape)


def _check_same_device(argument: str, given: Tensor | None, x: Tensor) -> None:
    """As the operators do: without data, too, a call is wrong that would be wrong with it."""
    if given is not None and given.device != x.device:
        raise RuntimeError(f"{argument}: on {given.device}, must be where x is, on {x.device}")


def _linear_fake(
    x: Tensor, factors: Sequence[Tensor], bias: Tensor | None, settings: int, packed: int = 0
) -> Tensor:
    for index, values in enumerate(factors):
        _check_same_device(f"factors[{index}]", values, x)
        if values.dtype != x.dtype and not packed:
            raise RuntimeError(f"factors[{index}]: dtype {values.dtype} given, must be that of x, {x.dtype}")
    _check_same_device("bias", bias, x)
    rows, cols = rows_of(factors[0].shape), cols_of(factors[-1].shape)
    if settings & ADJOINT:
        rows, cols = cols, rows
    layout = layout_of(settings)
    check_features("x", x, layout, cols)
    return _with_features(x, layout, rows)


_ALIGNMENT = 256


def _intermediate_bytes(x: Tensor, factors: Sequence[Tensor]) -> int:
    """The bytes of the intermediates, as the library counts them."""
    if len(factors) == 1:
        return 0
    batch = x.numel() // cols_of(factors[-1].shape)
    size = _ALIGNMENT
    for values in factors[1:]:
        bytes_ = batch * rows_of(values.shape) * x.element_size()
        size += (bytes_ + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT
    return size


def _linear_saving_fake(
    x: Tensor, factors: Sequence[Tensor], bias: Tensor | None, settings: int, packed: int = 0
) -> tuple[Tensor, Tensor]:
    y = _linear_fake(x, factors, bias, settings, packed)
    return y, x.new_empty((_intermediate_bytes(x, factors),), dtype=torch.uint8)


def _linear_backward_fake(
    g: Tensor,
    x: Tensor,
    factors: Sequence[Tensor],
    intermediates: Tensor | None,
    settings: int,
    packed: int,
    wanted: int,
) -> list[Tensor]:
    _check_same_device("g", g, x)
    layout = layout_of(settings)
    check_features("x", x, layout, cols_of(factors[-1].shape))
    check_features("g", g, layout, rows_of(factors[0].shape))
    made = [x.new_empty(x.shape)] if wanted & 1 else []
    return made + [
        x.new_empty(values.shape) for index, values in enumerate(factors) if wanted >> (index + 1) & 1
    ]


def _gradient_fake(x: Tensor, g: Tensor, a: int, b: int, c: int, d: int, settings: int) -> Tensor:
    _check_same_device("g", g, x)
    layout = layout_of(settings)
    check_features("x", x, layout, a * c * d)
    check_features("g", g, layout, a * b * d)
    return x.new_empty((a, b, c, d))


# For torch.utils.flop_counter: every value meets every sample once in each product.


def _linear_flops(
    x: Sequence[int], factors: Sequence[Sequence[int]], bias: object, settings: int, *_: object, **__: object
) -> int:
    features = rows_of(factors[0]) if settings & ADJOINT else cols_of(factors[-1])
    return 2 * (math.prod(x) // features) * sum(map(math.prod, factors))


def _linear_backward_flops(
    g: Sequence[int],
    x: Sequence[int],
    factors: Sequence[Sequence[int]],
    intermediates: object,
    settings: int,
    packed: int,
    wanted: int,
    **_: object,
) -> int:
    batch = math.prod(x) // cols_of(factors[-1])
    gradients = [index for index in range(len(factors)) if wanted >> (index + 1) & 1]
    products = sum(math.prod(factors[index]) for index in gradients)
    last = len(factors) if wanted & 1 else max(gradients, default=0)
    products += sum(map(math.prod, factors[:last]))  # g goes through these
    if intermediates is None and gradients:
        products += sum(map(math.prod, factors[min(gradients) + 1 :]))
    return 2 * batch * products


def _gradient_flops(x: Sequence[int], g: Sequence[int], a: int, b: int, *_: object, **__: object) -> int:
    return 2 * math.prod(x) * b


def _register() -> None:
    operators = torch.ops.kronsparse
    shapes: dict[str, tuple[Callable[..., Any], Callable[..., int]]] = {
        "linear": (_linear_fake, _linear_flops),
        "linear_plain": (_linear_fake, _linear_flops),
        "linear_saving": (_linear_saving_fake, _linear_flops),
        "linear_saving_plain": (_linear_saving_fake, _linear_flops),
        "linear_backward": (_linear_backward_fake, _linear_backward_flops),
        "gradient": (_gradient_fake, _gradient_flops),
    }
    for name, (fake, flops) in shapes.items():
        library.register_fake(f"kronsparse::{name}", fake)
        register_flop_formula(getattr(operators, name))(flops)


if not why_unusable:
    _register()
