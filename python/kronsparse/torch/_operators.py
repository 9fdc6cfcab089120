"""multiply, adjoint and gradient with derivatives of any order, in both modes, autocast and vmap.

Each operator is linear in each of its inputs, and its derivatives are again these three. They are written
once, as autograd functions: eager code and torch.func use those; the operators themselves, which
torch.compile, torch.export and torch.jit.trace see, are registered with the same formulas, but in reverse
mode only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, library
from torch.autograd import forward_ad

from kronsparse.torch._library import SETTINGS, why_unusable

# Found once: every small product asks them.
_is_any_autocast_enabled = torch._C._is_any_autocast_enabled
_are_functorch_transforms_active = torch._C._are_functorch_transforms_active
_count_dispatch_modes = torch._C._len_torch_dispatch_stack
_is_traced_by_jit = torch._C._is_tracing


def multiply(
    x: Tensor,
    values: Tensor,
    bias: Tensor | None = None,
    activation: str = "none",
    layout: str = "batch_first",
    mode: str = "fp32",
    packing: str = "each_call",
) -> Tensor:
    """K x + bias, activated. An activation is refused where a gradient is needed.

    `packing` says when values are packed: "each_call", "on_change" (of the tensor or of its version) or
    "frozen" (the same, and a CUDA graph keeps what it was captured with).
    """
    if _is_recorded():
        y: Tensor = torch.ops.kronsparse.multiply(x, values, bias, activation, layout, mode, packing)
        return y
    if _is_any_autocast_enabled() and torch.is_autocast_enabled(x.device.type):
        return _multiply_autocast(x, values, bias, activation, layout, mode, packing)
    return _call(_Multiply, x, values, bias, activation, layout, mode, packing)


def adjoint(
    x: Tensor, values: Tensor, layout: str = "batch_first", mode: str = "fp32", packing: str = "each_call"
) -> Tensor:
    """K^H x."""
    if _is_recorded():
        y: Tensor = torch.ops.kronsparse.adjoint(x, values, layout, mode, packing)
        return y
    return _call(_Adjoint, x, values, layout, mode, packing)


def gradient(
    x: Tensor, g: Tensor, a: int, b: int, c: int, d: int, layout: str = "batch_first", mode: str = "fp32"
) -> Tensor:
    """The gradient of K x with respect to the values (a, b, c, d), given that with respect to K x."""
    if _is_recorded():
        grad_values: Tensor = torch.ops.kronsparse.gradient(x, g, a, b, c, d, layout, mode)
        return grad_values
    return _call(_Gradient, x, g, a, b, c, d, layout, mode)


def _is_recorded() -> bool:
    """Whether calls become a graph, of the operators themselves: autograd functions are none of its nodes."""
    return torch.compiler.is_compiling() or _is_traced_by_jit()


def _call(function: type[torch.autograd.Function], *inputs: Any) -> Tensor:
    y: Tensor
    # Within forward-mode differentiation going past apply() would lose the tangents.
    if _are_functorch_transforms_active() or forward_ad._current_level >= 0:
        y = function.apply(*inputs)
    elif needs_grad(*inputs):
        # The apply() of torch.autograd.Function is for torch.func, and reads a signature at each call.
        y = super(torch.autograd.Function, function).apply(*inputs)  # type: ignore[misc]
    else:
        y = function.forward(*inputs)
    return y


def needs_grad(*inputs: Any) -> bool:
    """Whether a result of these will be differentiated."""
    if not torch.is_grad_enabled():
        return False
    return any(isinstance(input, Tensor) and input.requires_grad for input in inputs)


def is_differentiated(*inputs: Any) -> bool:
    """The same of both modes. Which inputs have tangents torch.func does not tell: all may."""
    return forward_ad._current_level >= 0 or needs_grad(*inputs)


def multiply_by_all(
    x: Tensor,
    factors: Sequence[Tensor],
    bias: Tensor | None,
    activation: str,
    layout: str,
    mode: str,
    packing: str,
) -> Tensor:
    """The product with all factors, left factor first, for inputs of which `is_plain` holds."""
    operator = _multiply_plain
    if len(factors) > 1:
        inner = SETTINGS["none", layout, mode, packing]
        for values in reversed(factors[1:]):
            x = operator(x, values, None, inner, _version(values))
    outer = SETTINGS[activation, layout, mode, packing]
    y: Tensor = operator(x, factors[0], bias, outer, _version(factors[0]))
    return y


def _version(values: Tensor) -> int:
    try:
        return values._version
    except RuntimeError:  # made in inference mode
        return -1


def is_plain(x: Tensor, factors: Sequence[Tensor], bias: Tensor | None) -> bool:
    """Whether there is nothing to do but multiply: no derivative, no transform, no autocast, no tracing.

    Who records calls (torch.jit.trace, make_fx) would record the version of the values as a constant.
    """
    return not (
        torch.compiler.is_compiling()
        or _is_traced_by_jit()
        or (torch.is_grad_enabled() and needs_grad(x, bias, *factors))
        or forward_ad._current_level >= 0
        or _is_any_autocast_enabled()
        or _are_functorch_transforms_active()
        or _count_dispatch_modes()
    )


def _below_autograd(operator: Callable[..., Tensor], *inputs: Any) -> Tensor:
    """Calls an operator past its registered derivatives, which cost more than a small product."""
    with torch._C._AutoDispatchBelowAutograd():
        return operator(*inputs)


def _address(values: Tensor, packing: str) -> int:
    """Where values lie whose plans are kept; 0 where nothing is, or where only torch's transforms know."""
    if packing == "each_call":
        return 0
    try:
        return values.data_ptr()
    except RuntimeError:  # it has no memory of its own
        return 0


def _packing_of_saved(ctx: Any, values: Tensor) -> str:
    """What was asked for, if these are the values of the call: hooks (saved_tensors_hooks) may have made a
    copy, and a plan for that would never be found again."""
    packing: str = ctx.packing
    return packing if _address(values, packing) == ctx.address else "each_call"


# vmap: where only x has the mapped dimension it is one more of the batch. Where the values have it too, the
# products are blocks of one larger matrix, with a pattern of size · a instead of a.


def _to_blocks(x: Tensor, dimension: int | None, size: int, layout: str) -> Tensor:
    """x with the mapped dimension made the outer part of its features."""
    x = x.unsqueeze(0).expand(size, *x.shape) if dimension is None else x.movedim(dimension, 0)
    if layout == "batch_first":
        return x.movedim(0, -2).flatten(-2)
    return x.flatten(0, 1)


def _from_blocks(y: Tensor, size: int, layout: str) -> tuple[Tensor, int]:
    if layout == "batch_first":
        return y.unflatten(-1, (size, -1)), y.dim() - 1
    return y.unflatten(0, (size, -1)), 0


def _stack(values: Tensor, dimension: int | None, size: int) -> Tensor:
    values = values.expand(size, *values.shape) if dimension is None else values.movedim(dimension, 0)
    return values.flatten(0, 1)


def _multiply_vmap(
    info: Any,
    in_dims: tuple[Any, ...],
    x: Tensor,
    values: Tensor,
    bias: Tensor | None = None,
    activation: str = "none",
    layout: str = "batch_first",
    mode: str = "fp32",
    packing: str = "each_call",
) -> tuple[Tensor, int]:
    size = info.batch_size
    x_at, values_at, bias_at = (*in_dims, None)[:3]  # arguments left out have no entry
    if values_at is None and bias_at is None:
        outermost = 0 if layout == "batch_first" else x.dim() - 1
        x = x.movedim(x_at, outermost)
        return multiply(x, values, bias, activation, layout, mode, packing), outermost
    if bias is not None:
        bias = _stack(bias, bias_at, size)
    x = _to_blocks(x, x_at, size, layout)
    values = _stack(values, values_at, size)
    return _from_blocks(multiply(x, values, bias, activation, layout, mode), size, layout)


def _adjoint_vmap(
    info: Any,
    in_dims: tuple[Any, ...],
    x: Tensor,
    values: Tensor,
    layout: str = "batch_first",
    mode: str = "fp32",
    packing: str = "each_call",
) -> tuple[Tensor, int]:
    size = info.batch_size
    if in_dims[1] is None:
        outermost = 0 if layout == "batch_first" else x.dim() - 1
        return adjoint(x.movedim(in_dims[0], outermost), values, layout, mode, packing), outermost
    x = _to_blocks(x, in_dims[0], size, layout)
    return _from_blocks(adjoint(x, _stack(values, in_dims[1], size), layout, mode), size, layout)


def _gradient_vmap(
    info: Any,
    in_dims: tuple[Any, ...],
    x: Tensor,
    g: Tensor,
    a: int,
    b: int,
    c: int,
    d: int,
    layout: str = "batch_first",
    mode: str = "fp32",
) -> tuple[Tensor, int]:
    size = info.batch_size
    x = _to_blocks(x, in_dims[0], size, layout)
    g = _to_blocks(g, in_dims[1], size, layout)
    stacked = gradient(x, g, size * a, b, c, d, layout, mode)
    return stacked.unflatten(0, (size, a)), 0


class _Multiply(torch.autograd.Function):
    @staticmethod
    def forward(*inputs: Any) -> Tensor:
        return _below_autograd(_multiply_operator, *inputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, values, _, activation, ctx.layout, ctx.mode, ctx.packing = inputs
        ctx.save_for_forward(x, values)
        ctx.address = _address(values, ctx.packing)
        ctx.shape = output.shape
        if activation != "none":
            raise NotImplementedError(
                f"activation: {activation!r} given to kronsparse::multiply where a gradient is needed, must "
                "be 'none' there; kronsparse.torch.ks_linear applies it as an operation of its own"
            )
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, values)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, values = ctx.saved_tensors
        grad_x = grad_values = grad_bias = None
        if ctx.needs_input_grad[0]:
            grad_x = adjoint(g, values, ctx.layout, ctx.mode, _packing_of_saved(ctx, values))
        if ctx.needs_input_grad[1]:
            a, b, c, d = values.shape
            grad_values = gradient(x, g, a, b, c, d, ctx.layout, ctx.mode).to(values.dtype)
        # Arguments left out in a call of the operator have no entry.
        if len(ctx.needs_input_grad) > 2 and ctx.needs_input_grad[2]:
            grad_bias = _sum_over_batch(g, ctx.layout)
        return grad_x, grad_values, grad_bias, None, None, None, None

    @staticmethod
    def jvp(
        ctx: Any, dx: Tensor | None, dvalues: Tensor | None, dbias: Tensor | None, *_: None
    ) -> Tensor | None:
        x, values = ctx.saved_tensors
        dy = _sum(
            None if dx is None else multiply(dx, values, None, "none", ctx.layout, ctx.mode, ctx.packing),
            None if dvalues is None else multiply(x, dvalues, None, "none", ctx.layout, ctx.mode),
        )
        if dbias is not None:
            per_row = dbias if ctx.layout == "batch_first" else dbias.view(-1, *[1] * (x.dim() - 1))
            dy = per_row.expand(ctx.shape) if dy is None else dy + per_row
        return dy

    vmap = staticmethod(_multiply_vmap)


class _Adjoint(torch.autograd.Function):
    @staticmethod
    def forward(*inputs: Any) -> Tensor:
        return _below_autograd(torch.ops.kronsparse.adjoint.default, *inputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, values, ctx.layout, ctx.mode, ctx.packing = inputs
        ctx.save_for_forward(x, values)
        ctx.address = _address(values, ctx.packing)
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, values)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, values = ctx.saved_tensors
        grad_x = grad_values = None
        if ctx.needs_input_grad[0]:
            packing = _packing_of_saved(ctx, values)
            grad_x = multiply(g, values, None, "none", ctx.layout, ctx.mode, packing)
        if ctx.needs_input_grad[1]:
            # K^H x is linear in the conjugates of the values: x and g change places.
            a, b, c, d = values.shape
            grad_values = gradient(g, x, a, b, c, d, ctx.layout, ctx.mode).to(values.dtype)
        return grad_x, grad_values, None, None, None

    @staticmethod
    def jvp(ctx: Any, dx: Tensor | None, dvalues: Tensor | None, *_: None) -> Tensor | None:
        x, values = ctx.saved_tensors
        return _sum(
            None if dx is None else adjoint(dx, values, ctx.layout, ctx.mode, ctx.packing),
            None if dvalues is None else adjoint(x, dvalues, ctx.layout, ctx.mode),
        )

    vmap = staticmethod(_adjoint_vmap)


class _Gradient(torch.autograd.Function):
    @staticmethod
    def forward(*inputs: Any) -> Tensor:
        return _below_autograd(torch.ops.kronsparse.gradient.default, *inputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, g, *ctx.pattern, ctx.layout, ctx.mode = inputs
        ctx.save_for_forward(x, g)
        ctx.save_for_backward(x, g)

    @staticmethod
    def backward(ctx: Any, h: Tensor) -> tuple[Tensor | None, ...]:
        x, g = ctx.saved_tensors
        grad_x = grad_g = None
        if ctx.needs_input_grad[0]:
            grad_x = adjoint(g, h, ctx.layout, ctx.mode)
        if ctx.needs_input_grad[1]:
            grad_g = multiply(x, h, None, "none", ctx.layout, ctx.mode)
        return grad_x, grad_g, None, None, None, None, None, None

    @staticmethod
    def jvp(ctx: Any, dx: Tensor | None, dg: Tensor | None, *_: None) -> Tensor | None:
        x, g = ctx.saved_tensors
        a, b, c, d = ctx.pattern
        return _sum(
            None if dx is None else gradient(dx, g, a, b, c, d, ctx.layout, ctx.mode),
            None if dg is None else gradient(x, dg, a, b, c, d, ctx.layout, ctx.mode),
        )

    vmap = staticmethod(_gradient_vmap)


def _sum(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    """Of tangents, of which those that are None are zero."""
    if first is None or second is None:
        return second if first is None else first
    return first + second


def _sum_over_batch(g: Tensor, layout: str) -> Tensor:
    batch = range(g.dim() - 1) if layout == "batch_first" else range(1, g.dim())
    return g.sum(tuple(batch)) if g.dim() > 1 else g


def _multiply_autocast(
    x: Tensor,
    values: Tensor,
    bias: Tensor | None = None,
    activation: str = "none",
    layout: str = "batch_first",
    mode: str = "fp32",
    packing: str = "each_call",
) -> Tensor:
    """Computes in the autocast dtype. Float32 values stay: the kernel packs them in x's dtype, and the
    packed ones are found again by the parameter's version, which those of a copy would not be."""
    device = x.device.type
    dtype = torch.get_autocast_dtype(device)

    def cast(tensor: Tensor) -> Tensor:
        return tensor.to(dtype) if _autocast_applies(tensor) else tensor

    x = cast(x)
    if values.dtype != torch.float32 or x.dtype != dtype:
        given, values = values, cast(values)
        packing = packing if values is given else "each_call"
    if bias is not None:
        bias = cast(bias)
    with torch.autocast(device, enabled=False):
        return multiply(x, values, bias, activation, layout, mode, packing)


def _autocast_applies(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and tensor.dtype != torch.float64


def _register() -> library.Library:
    for name, function in (("multiply", _Multiply), ("adjoint", _Adjoint), ("gradient", _Gradient)):
        operator = f"kronsparse::{name}"
        library.register_autograd(operator, function.backward, setup_context=function.setup_context)
        library.register_vmap(operator, function.vmap)
    fragment = library.Library("kronsparse", "FRAGMENT")
    for key in ("AutocastCPU", "AutocastCUDA"):
        fragment.impl("multiply", _multiply_autocast, key)
    return fragment


if not why_unusable:
    _registered = _register()  # registrations last as long as the library object
    _multiply_operator = torch.ops.kronsparse.multiply.default  # found once: each call would search for it
    _multiply_plain = torch.ops.kronsparse.multiply_plain.default
