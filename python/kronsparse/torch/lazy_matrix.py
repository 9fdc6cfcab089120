"""A layer's matrix as a tensor that is multiplied out only where its elements are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from kronsparse.torch._library import cols_of, rows_of
from kronsparse.torch.backends import to_dense

_KNOWN: tuple[str, ...] = (
    "shape",
    "dtype",
    "device",
    "layout",
    "ndim",
    "requires_grad",
    "is_leaf",
    "is_cuda",
    "is_cpu",
)
_KNOWN += ("is_meta", "is_sparse", "is_quantized", "itemsize", "nbytes", "is_nested", "is_mkldnn")
_KNOWN_CALLS: tuple[str, ...] = (
    "size",
    "dim",
    "numel",
    "nelement",
    "element_size",
    "is_floating_point",
    "is_complex",
)
_KNOWN_CALLS += ("__len__", "ndimension", "is_contiguous", "stride", "__hash__", "is_inference")
_ASKED = {getattr(Tensor, name).__get__ for name in _KNOWN} | {getattr(Tensor, name) for name in _KNOWN_CALLS}
_NO_MEMORY = (
    Tensor.data_ptr,
    Tensor.untyped_storage,
    Tensor.storage,
    Tensor.register_hook,
    Tensor.retain_grad,
)
_GET_GRAD = getattr(Tensor.grad, "__get__")  # noqa: B009 (mypy takes it for a tensor)
_GET_DATA = getattr(Tensor.data, "__get__")  # noqa: B009
_WRITES = ("__setitem__", "__set__", "__delete__", "set_")


class LazyMatrix(Tensor):
    """`KSLinear.weight`: the product of a layer's factors, for code that expects the matrix of an nn.Linear.

    Asking for its dtype, device or sizes costs nothing. Any other operation multiplies the factors out, which
    takes as long as a product with in_features samples, and forgets the result: a matrix that is used twice
    is multiplied out twice. Results are differentiable with respect to the factors. Writing to it is an
    error, since a matrix has no factors in general.

    >>> from kronsparse.torch import KSLinear
    >>> layer = KSLinear(8, 4, "low_rank(rank=2)")
    >>> layer.weight.shape, layer.weight.dtype
    (torch.Size([4, 8]), torch.float32)
    >>> torch.equal(layer.weight.sum(), layer.to_dense().sum())
    True
    """

    _factors: tuple[Tensor, ...]
    _make: Callable[[], Tensor]
    _is_hf_initialized = (
        True  # transformers draws weights of layers by the name of their parent: not this one
    )

    @staticmethod
    def __new__(cls, factors: Sequence[Tensor], make: Callable[[], Tensor] | None = None) -> LazyMatrix:
        first = factors[0]
        made: LazyMatrix = Tensor._make_wrapper_subclass(
            cls,
            (rows_of(first.shape), cols_of(factors[-1].shape)),
            dtype=first.dtype,
            device=first.device,
            requires_grad=any(values.requires_grad for values in factors),
        )
        made._factors = tuple(factors)
        made._make = make or (lambda: to_dense(factors))
        return made

    def __init__(self, *_: object) -> None:
        pass

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func in _ASKED:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        if func == _GET_GRAD:
            return None  # it is that of the factors
        first = args[0] if args else kwargs.get("tensor")  # as those of torch.nn.init call it
        if func == _GET_DATA and isinstance(first, LazyMatrix):
            # A plain copy would take what is written to it, and lose it.
            return LazyMatrix([values.detach() for values in first._factors])
        if (isinstance(first, LazyMatrix) and _writes(func)) or isinstance(kwargs.get("out"), LazyMatrix):
            raise RuntimeError(
                f"weight: {_name(func)} would write to it, but the matrix of a KSLinear is the product of "
                "its factors; write to layer.factors, or make a layer of a matrix by KSLinear.from_linear"
            )
        if func in _NO_MEMORY:
            raise RuntimeError(
                f"weight: {_name(func)} asked for, but the matrix of a KSLinear has no memory of its own; "
                "layer.to_dense() makes a tensor of it"
            )
        with torch._C.DisableTorchFunctionSubclass():
            args, kwargs = tree_map_only(LazyMatrix, LazyMatrix._multiplied_out, (tuple(args), dict(kwargs)))
        return func(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        args, kwargs = tree_map_only(
            LazyMatrix, LazyMatrix._multiplied_out, (tuple(args), dict(kwargs or {}))
        )
        return func(*args, **kwargs)

    def _multiplied_out(self) -> Tensor:
        return self._make()


def _name(func: Callable[..., Any]) -> str:
    return str(getattr(func, "__name__", func))


def _writes(func: Callable[..., Any]) -> bool:
    name = _name(func)
    if name.startswith("__"):
        return name in _WRITES or (
            name.startswith("__i") and name not in ("__invert__", "__index__", "__int__")
        )
    return name.endswith("_")
