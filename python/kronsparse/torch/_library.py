"""The native operators of torch, loaded, with the shapes of their results and their operations counted.

Three bilinear operators, for values (a, b, c, d) and the matrix K they make:

- ``kronsparse::multiply(x, values)``  K x, with bias and activation
- ``kronsparse::adjoint(x, values)``   K^H x
- ``kronsparse::gradient(x, g)``       the gradient of K x with respect to the values, g being that of K x
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, library
from torch.utils.flop_counter import register_flop_formula

from kronsparse.checks import LAYOUTS

LIBRARY = Path(__file__).absolute().parent.parent / "libkronsparse_torch.so"
OLDEST_TORCH = (2, 10)

_SETTINGS = (  # each in the order of the library's enumeration
    ("none", "relu", "gelu", "gelu_tanh", "silu"),
    LAYOUTS,
    ("fp32", "ieee", "tf32"),
    ("each_call", "on_change", "frozen"),
)
SETTINGS = {
    tuple(name for _, name in setting): sum(number << 8 * byte for byte, (number, _) in enumerate(setting))
    for setting in itertools.product(*map(enumerate, _SETTINGS))
}
"""what multiply_plain takes for an activation, a layout, a mode and a packing"""


def _load() -> str:
    """Loads the native operators; why that is impossible, or nothing."""
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if version < OLDEST_TORCH:
        return f"torch {torch.__version__} is older than {'.'.join(map(str, OLDEST_TORCH))}"
    if not LIBRARY.exists():
        return (
            f"this installation was built without torch's operators ({LIBRARY.name} is missing): "
            "install torch, then kronsparse again"
        )
    try:
        torch.ops.load_library(LIBRARY)
    except (OSError, RuntimeError) as error:
        return f"{LIBRARY.name} cannot be loaded: {error}"
    return ""


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
    """Where a tensor of this layout has its features."""
    return -1 if layout == "batch_first" else 0


def _with_features(x: Tensor, layout: str, features: int) -> Tensor:
    shape = list(x.shape)
    shape[features_dimension(layout)] = features
    return x.new_empty(shape)


def check_features(argument: str, x: Tensor, layout: str, features: int, meaning: str = "") -> None:
    if x.dim() == 0 or x.shape[features_dimension(layout)] != features:
        which = "last" if layout == "batch_first" else "first"
        raise ValueError(f"{argument}: sizes {tuple(x.shape)} given, the {which} must be {meaning}{features}")


def _check_same_device(argument: str, given: Tensor | None, x: Tensor) -> None:
    """As the operators do: without data, too, a call is wrong that would be wrong with it."""
    if given is not None and given.device != x.device:
        raise RuntimeError(f"{argument}: on {given.device}, must be where x is, on {x.device}")


def _multiply_fake(
    x: Tensor,
    values: Tensor,
    bias: Tensor | None = None,
    activation: str = "none",
    layout: str = "batch_first",
    mode: str = "fp32",
    packing: str = "each_call",
) -> Tensor:
    a, b, c, d = values.shape
    _check_same_device("values", values, x)
    _check_same_device("bias", bias, x)
    check_features("x", x, layout, a * c * d)
    return _with_features(x, layout, a * b * d)


def _multiply_plain_fake(
    x: Tensor, values: Tensor, bias: Tensor | None, settings: int, version: int
) -> Tensor:
    return _multiply_fake(x, values, bias, layout=LAYOUTS[settings >> 8 & 255])


def _adjoint_fake(
    x: Tensor, values: Tensor, layout: str = "batch_first", mode: str = "fp32", packing: str = "each_call"
) -> Tensor:
    a, b, c, d = values.shape
    _check_same_device("values", values, x)
    check_features("x", x, layout, a * b * d)
    return _with_features(x, layout, a * c * d)


def _gradient_fake(
    x: Tensor, g: Tensor, a: int, b: int, c: int, d: int, layout: str = "batch_first", mode: str = "fp32"
) -> Tensor:
    _check_same_device("g", g, x)
    check_features("x", x, layout, a * c * d)
    check_features("g", g, layout, a * b * d)
    return x.new_empty((a, b, c, d))


# For torch.utils.flop_counter: each element of x meets b values (multiply, gradient) or c (adjoint).


def _multiply_flops(x: Sequence[int], values: Sequence[int], *_: object, **__: object) -> int:
    return 2 * math.prod(x) * values[1]


def _adjoint_flops(x: Sequence[int], values: Sequence[int], *_: object, **__: object) -> int:
    return 2 * math.prod(x) * values[2]


def _gradient_flops(x: Sequence[int], g: Sequence[int], a: int, b: int, *_: object, **__: object) -> int:
    return 2 * math.prod(x) * b


if not why_unusable:
    library.register_fake("kronsparse::multiply", _multiply_fake)
    library.register_fake("kronsparse::multiply_plain", _multiply_plain_fake)
    library.register_fake("kronsparse::adjoint", _adjoint_fake)
    library.register_fake("kronsparse::gradient", _gradient_fake)
    _operators = torch.ops.kronsparse
    register_flop_formula([_operators.multiply, _operators.multiply_plain])(_multiply_flops)
    register_flop_formula(_operators.adjoint)(_adjoint_flops)
    register_flop_formula(_operators.gradient)(_gradient_flops)
