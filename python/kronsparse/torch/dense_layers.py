"""Dense layers and what becomes of them: KSLinear from nn.Linear and from Hugging Face's Conv1D, and back."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from kronsparse.chains import Chain, ChainLike, as_chain, for_budget
from kronsparse.checks import as_size, check_option
from kronsparse.torch.functional import ACTIVATIONS
from kronsparse.torch.linear import KSLinear

VALUES = ("factorize", "fresh")
_MODULES: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "gelu_tanh": lambda: nn.GELU(approximate="tanh"),
    "silu": nn.SiLU,
}
assert _MODULES.keys() == ACTIVATIONS.keys()


class Fitted(NamedTuple):
    """A layer that stands for a dense one, and how close it is."""

    layer: KSLinear
    error: float
    """that of `kronsparse.Factorization`; nan for fresh values"""
    lower_bound: float
    """no product of the chain has a smaller error"""


def kind_of(module: nn.Module) -> str:
    """ "Linear", "Conv1D" as Hugging Face has it, or nothing for other modules.

    >>> kind_of(nn.Linear(2, 3))
    'Linear'
    """
    if isinstance(module, nn.Linear):
        return "Linear"
    kind = type(module)
    is_conv1d = kind.__name__ == "Conv1D" and kind.__module__.split(".")[0] == "transformers"
    return "Conv1D" if is_conv1d else ""


def matrix_of(module: nn.Module) -> Tensor:
    """The out_features x in_features matrix of a dense layer, which Conv1D has transposed."""
    kind = kind_of(module)
    weight: Any = module.weight
    if not kind or not isinstance(weight, Tensor):
        raise TypeError(
            f"linear: {type(module).__name__} given, must be an nn.Linear or a Conv1D of transformers"
        )
    return weight.detach().t() if kind == "Conv1D" else weight.detach()


def chain_of(chain: ChainLike | int, rows: int, cols: int) -> Chain:
    """The chain, or one for so many parameters."""
    budget = as_size(chain)
    return for_budget(rows, cols, budget) if budget else as_chain(chain, rows, cols)  # type: ignore[arg-type]


def layer_from(
    linear: nn.Module,
    chain: ChainLike | int,
    values: str = "factorize",
    covariance: Tensor | None = None,
    polish: int = 0,
    activation: str | None = None,
    backend: str = "auto",
) -> Fitted:
    """The layer of `KSLinear.from_linear`, and how close it is."""
    check_option("values", values, VALUES)
    matrix = matrix_of(linear)
    rows, cols = matrix.shape
    weight: Any = linear.weight
    bias: Any = getattr(linear, "bias", None)
    layer = KSLinear(
        cols,
        rows,
        chain_of(chain, rows, cols),
        bias is not None,
        "batch_first",
        backend,
        weight.device,
        weight.dtype,
        activation,
    )
    layer.replaced = kind_of(linear)
    error = lower_bound = math.nan
    if values == "factorize":
        factors, error, lower_bound = fit(matrix, layer.chain, covariance, polish)
        with torch.no_grad():
            for parameter, found in zip(layer.factors, factors, strict=True):
                parameter.copy_(found)
    if layer.bias is not None:
        with torch.no_grad():
            layer.bias.copy_(bias)
        layer.bias.requires_grad_(bias.requires_grad)
    for parameter in layer.factors:
        parameter.requires_grad_(weight.requires_grad)
    return Fitted(layer.train(linear.training), error, lower_bound)


def fit(
    matrix: Tensor, chain: Chain, covariance: Tensor | None = None, polish: int = 0
) -> tuple[list[Tensor], float, float]:
    """Factors close to a matrix, in float32 at least and where the matrix is; their error and its lower
    bound.

    >>> factors, error, lower_bound = fit(torch.eye(4), as_chain("butterfly", 4, 4))
    >>> error < 1e-6
    True
    """
    if matrix.device.type == "meta":
        raise ValueError("linear: its weights are on the meta device: there is nothing to factorise")
    if matrix.dtype in (torch.float16, torch.bfloat16):
        matrix = matrix.float()
    if not bool(torch.isfinite(matrix).all()):
        raise ValueError("linear: an element of its matrix is not finite")
    if not chain.is_chainable:
        raise ValueError(
            f"chain: {chain} is not chainable, so there may be no best product; choose another chain, or "
            "fresh values"
        )
    try:
        from kronsparse.factorization import factorize
    except ImportError:  # without the native module torch's algorithm is left, which knows no weights
        from kronsparse.torch.factorization import factorize as factorize_tensor

        if covariance is not None:
            raise
        tensors = factorize_tensor(matrix, chain, polish)
        return tensors.factors, tensors.error, tensors.lower_bound
    device = matrix.device
    weights = None if covariance is None else covariance.detach().cpu().numpy()
    on = str(device) if device.type == "cuda" else "cpu"
    found = factorize(matrix.cpu().numpy(), chain, polish=polish, weights=weights, device=on)
    factors = [torch.from_numpy(values).to(device) for values in found.factors]
    return factors, found.error, found.lower_bound


def factors_of_state(layer: KSLinear, name: str, matrix: Tensor) -> list[Tensor]:
    """Factors for a layer whose checkpoint has a dense matrix under this name. Warns how close they are."""
    sizes = (layer.out_features, layer.in_features)
    if layer.replaced == "Conv1D" and tuple(matrix.shape) == sizes[::-1]:
        matrix = matrix.t()
    if layer.replaced == "Conv2d" and tuple(matrix.shape) == (*sizes, 1, 1):
        matrix = matrix.flatten(1)
    if tuple(matrix.shape) != sizes:
        raise ValueError(
            f"{name}: sizes {tuple(matrix.shape)} given, must be {sizes}, or the checkpoint must have factors"
        )
    factors, error, _ = fit(matrix.detach(), layer.chain)
    warnings.warn(
        f"{name}: a dense matrix, factorised into {layer.chain} with a relative error of {error:.3g}",
        UserWarning,
        stacklevel=2,
    )
    return factors


def dense_from(layer: KSLinear) -> nn.Module:
    """The nn.Linear, Conv1D or Conv2d with the layer's matrix; an activation follows in an nn.Sequential."""
    if layer.layout != "batch_first":
        raise ValueError(f"layout: {layer.layout!r} given, must be 'batch_first' for a dense layer")
    with torch.no_grad():
        factors = [values.detach() for values in layer.factors]
        is_half = factors[0].dtype in (torch.float16, torch.bfloat16)
        wide = [values.float() for values in factors] if is_half else factors
        from kronsparse.torch.backends import to_dense

        matrix = to_dense(wide).to(factors[0].dtype)
    dense: Any
    if layer.replaced == "Conv1D" and layer.bias is not None:
        from transformers.pytorch_utils import Conv1D  # type: ignore[import-not-found,unused-ignore]

        dense = Conv1D(layer.out_features, layer.in_features)
        matrix = matrix.t().contiguous()
    elif layer.replaced == "Conv2d":
        with torch.device("meta"):
            dense = nn.Conv2d(layer.in_features, layer.out_features, 1, bias=layer.bias is not None)
        matrix = matrix[:, :, None, None]
    else:
        with torch.device("meta"):
            dense = nn.Linear(layer.in_features, layer.out_features, layer.bias is not None)
    dense.weight = nn.Parameter(matrix, requires_grad=layer.factors[0].requires_grad)
    if layer.bias is not None:
        dense.bias = nn.Parameter(layer.bias.detach().clone(), requires_grad=layer.bias.requires_grad)
    made: nn.Module = dense
    if layer.activation is not None:
        made = nn.Sequential(dense, _MODULES[layer.activation]())
    return made.train(layer.training)
