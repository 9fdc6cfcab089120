"""Frozen layers: their weights stay, so packed copies of them are kept.

A layer keeps nothing of its weights: they are read at every call, and may change in any way between calls.
`KSLinear.freeze` and `freeze` are a promise that they stay. The layer then keeps its factors packed as the
kernels want them, up to three times their bytes, and, where ``auto`` finds one dense product faster, the
product of the factors. What it keeps goes with `KSLinear.unfreeze`, with `train()`, and with the layer.

A factor that was changed, replaced or moved while its layer is frozen is an error at the next call, wherever
torch shows it: another tensor, another address, another version. Changes past torch's version counter are not
seen: writing to ``.data`` in place or through NumPy, fused optimisers, collectives of torch.distributed.
Unfreeze before those.
"""

from __future__ import annotations

import operator
import os
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from kronsparse.torch import _library
from kronsparse.torch.backends import to_dense

if TYPE_CHECKING:
    from kronsparse.torch.linear import KSLinear

Model = TypeVar("Model", bound=nn.Module)

_version_of = operator.attrgetter("_version")
_address_of = Tensor.data_ptr
_MOST_CHOICES = 1024
_alive: weakref.WeakSet[Frozen] = weakref.WeakSet()


class MemoryInfo(NamedTuple):
    """The memory that is kept in this process."""

    plans: int
    """plans that are kept: kernels chosen for a problem; they hold no weights and no memory of a GPU"""
    plans_at_most: int
    """the largest number of plans that are kept; those used last stay"""
    frozen_layers: int
    """layers that are frozen now"""
    packed_bytes: int
    """bytes of packed factors that frozen layers keep, and of those that CUDA graphs were captured with"""
    dense_bytes: int
    """bytes of dense products that frozen layers keep"""


def memory_info() -> MemoryInfo:
    """How much memory this process keeps for plans and frozen layers.

    >>> memory_info().plans_at_most
    4096
    """
    _library.check_usable("memory_info()")
    plans, plans_at_most, layers, packed = torch.ops.kronsparse.memory_info()
    return MemoryInfo(plans, plans_at_most, layers, packed, sum(one.dense_bytes() for one in list(_alive)))


def freeze(model: Model) -> Model:
    """Freezes every KSLinear of a model, and returns the model. If one cannot be frozen, none is.

    >>> from kronsparse.torch import KSLinear
    >>> model = freeze(torch.nn.Sequential(KSLinear(64, 64), torch.nn.ReLU(), KSLinear(64, 64)))
    >>> model[0].is_frozen
    True
    """
    layers = _layers_of(model)
    for name, layer in layers:
        reason = why_not(layer)
        if reason:
            raise RuntimeError(f"{name or 'model'}: cannot be frozen: {reason}")
    for _, layer in layers:
        layer.freeze()
    return model


def unfreeze(model: Model) -> Model:
    """Undoes `freeze`, for every KSLinear of a model.

    >>> from kronsparse.torch import KSLinear
    >>> unfreeze(freeze(torch.nn.Sequential(KSLinear(64, 64))))[0].is_frozen
    False
    """
    for _, layer in _layers_of(model):
        layer.unfreeze()
    return model


def _layers_of(model: nn.Module) -> list[tuple[str, KSLinear]]:
    from kronsparse.torch.linear import KSLinear

    if not isinstance(model, nn.Module):
        raise TypeError(f"model: {type(model).__name__} given, must be a torch.nn.Module")
    return [(name, module) for name, module in model.named_modules() if isinstance(module, KSLinear)]


def why_not(layer: KSLinear) -> str:
    """Why a layer cannot be frozen; nothing where it can."""
    for name in layer._factor_names:
        values = layer._parameters.get(name)
        if values is None:
            return (
                f"{name} is computed at each call; torch.nn.utils.parametrize.remove_parametrizations makes "
                "it a parameter"
            )
        if values.is_meta and hasattr(layer, "_hf_hook"):
            return f"{name} is offloaded by accelerate, which brings it anew at each call"
        if is_traceable_wrapper_subclass(values) and not layer.takes_distributed:
            return f"{name} is a {type(values).__name__}, which has no memory of its own"
    return ""


def changed(name: str, what: str) -> str:
    """The message for a factor to which something was done that a frozen layer does not allow."""
    return (
        f"{name}: {what} while its layer is frozen; call unfreeze() before weights are changed, and freeze() "
        "again afterwards"
    )


class Frozen:
    """The memory of a frozen layer, and its way to see that a factor has changed."""

    def __init__(self, factors: Sequence[Tensor]) -> None:
        first = factors[0]
        self.factors = tuple(factors)
        self.addresses = [values.data_ptr() for values in factors]
        self.versions = None if any(map(Tensor.is_inference, factors)) else [*map(_version_of, factors)]
        self.seen = [*zip(self.factors, self.addresses, self.versions or [None] * len(factors), strict=True)]
        self.packed = 0
        """the number of the packed values; 0 where there are no kernels for the device"""
        self.choices: dict[Any, str] = {}
        """what "auto" took, by the size of x and its dtype"""
        self.dense: dict[torch.dtype, Tensor] = {}
        if not _library.why_unusable and first.device.type in ("cpu", "cuda"):
            versions = self.versions or [-1] * len(self.factors)
            detached = [values.detach() for values in factors]
            self.packed = torch.ops.kronsparse.freeze(detached, versions)
            weakref.finalize(self, _release, self.packed, os.getpid()).atexit = False
        _alive.add(self)

    def is_changed(self, factors: Sequence[Tensor]) -> bool:
        """Whether torch shows that these are not the factors that were frozen, or not their values."""
        for values, (old, address, version) in zip(factors, self.seen):  # noqa: B905
            if (
                values is not old
                or _address_of(values) != address
                or (version is not None and values._version != version)
            ):
                return True
        return False

    def refuse(self, names: Sequence[str], factors: Sequence[Tensor | None]) -> RuntimeError:
        """The error that names the factor that was changed."""
        for index, (name, values) in enumerate(zip(names, factors, strict=True)):
            if values is not self.factors[index]:
                what = "was replaced"
            elif values.data_ptr() != self.addresses[index]:
                what = "was given other memory"
            elif self.versions is not None and values._version != self.versions[index]:
                what = "was changed"
            else:
                continue
            return RuntimeError(changed(name, what))
        raise AssertionError("nothing was changed")

    def matrix(self, dtype: torch.dtype) -> Tensor:
        """The product of the factors in this dtype; made once, in float32 at least."""
        found = self.dense.get(dtype)
        if found is None:
            with torch.no_grad(), torch.autocast(self.factors[0].device.type, enabled=False):
                factors = [values.detach() for values in self.factors]
                if dtype in (torch.float16, torch.bfloat16):
                    factors = [values.float() for values in factors]
                found = self.dense[dtype] = to_dense(factors).to(dtype).contiguous()
        return found

    def remember(self, key: Any, backend: str) -> None:
        """Keeps the backend that was chosen for a batch."""
        if len(self.choices) >= _MOST_CHOICES:
            self.choices.clear()
        self.choices[key] = backend

    def dense_bytes(self) -> int:
        """The bytes of the dense products that are kept."""
        return sum(matrix.numel() * matrix.element_size() for matrix in list(self.dense.values()))


def _release(packed: int, process: int) -> None:
    if os.getpid() == process:  # a process that was forked off has no GPU to free memory of
        torch.ops.kronsparse.release(packed)
