"""Products with derivatives of any order, in both modes, autocast and vmap.

A product is linear in x and in each of its factors, so that its derivatives are products again. They are
written once: eager code uses autograd functions, one as short as it can be for reverse mode, one for
torch.func and forward mode; the operators themselves, which torch.compile, torch.export and torch.jit.trace
see, are registered with the same formulas, but in reverse mode only, so that transforms inside of
compiled code take torch's own products.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, library
from torch.autograd import forward_ad

from kronsparse.torch._library import ADJOINT, layout_of, raise_if_out_of_memory, why_unusable

# Found once: every small product asks them.
_is_any_autocast_enabled = torch._C._is_any_autocast_enabled
_are_functorch_transforms_active = torch._C._are_functorch_transforms_active
_is_traced_by_jit = torch._C._is_tracing
_is_compiling = torch.compiler.is_compiling
_is_grad_enabled = torch.is_grad_enabled
_ACTIVATION = 255
_SAVES_NOTHING = _ACTIVATION | ADJOINT
_MOST_TOLD_APART = 60  # gradients that fit into the bits of a number


def linear(
    x: Tensor, factors: Sequence[Tensor], bias: Tensor | None, settings: int, packed: int = 0
) -> Tensor:
    """K x + bias, activated, or K^H x: what the settings say. An activation is refused where a gradient is
    needed.

    `packed` is the number of frozen values, or 0: then they are read and packed now.
    """
    if _is_any_autocast_enabled() and torch.is_autocast_enabled(x.device.type):
        return _linear_autocast(x, factors, bias, settings, packed)
    return _linear(x, factors, bias, settings, packed)


def _linear(
    x: Tensor, factors: Sequence[Tensor], bias: Tensor | None, settings: int, packed: int = 0
) -> Tensor:
    """The same in the dtype of x."""
    y: Tensor
    # Recorded calls become a graph, of the operators themselves: autograd functions are none of its nodes.
    if _is_compiling():
        factors = list(factors)
        saves = len(factors) > 1 and not settings & ADJOINT and needs_grad(*factors)
        if saves and not torch._C._are_functorch_transforms_active():
            y, _ = torch.ops.kronsparse.linear_saving(x, factors, bias, settings, packed)
        else:
            y = torch.ops.kronsparse.linear(x, factors, bias, settings, packed)
        return y
    if _is_traced_by_jit():
        y = torch.ops.kronsparse.linear(x, list(factors), bias, settings, packed)
        return y
    try:
        # Within forward-mode differentiation going past apply() would lose the tangents.
        if _are_functorch_transforms_active() or forward_ad._current_level >= 0:
            y = _Transformed.apply(x, bias, settings, packed, *factors)  # type: ignore[no-untyped-call]
        elif needs_grad(x, bias, *factors):
            y = apply_eager(x, bias, settings, packed, *factors)
        else:
            y = plain(x, factors, bias, settings, packed)
    except (RuntimeError, MemoryError) as error:
        raise_if_out_of_memory(error)
        raise
    return y


def gradient(x: Tensor, g: Tensor, a: int, b: int, c: int, d: int, settings: int) -> Tensor:
    """The gradient of K x with respect to the values (a, b, c, d), given that with respect to K x."""
    y: Tensor
    if _is_compiling() or _is_traced_by_jit():
        y = torch.ops.kronsparse.gradient(x, g, a, b, c, d, settings)
        return y
    try:
        y = _Gradient.apply(x, g, a, b, c, d, settings)  # type: ignore[no-untyped-call]
    except (RuntimeError, MemoryError) as error:
        raise_if_out_of_memory(error)
        raise
    return y


def needs_grad(*inputs: Tensor | None) -> bool:
    """Whether a result of these will be differentiated in reverse mode."""
    return _is_grad_enabled() and any(input is not None and input.requires_grad for input in inputs)


def is_differentiated(*inputs: Tensor | None) -> bool:
    """The same of both modes. Which inputs have tangents torch.func does not tell: all may."""
    return forward_ad._current_level >= 0 or needs_grad(*inputs)


def is_special() -> bool:
    """Whether more is to be done than to multiply and to differentiate in reverse mode."""
    return (
        _is_compiling()
        or _is_traced_by_jit()
        or _is_any_autocast_enabled()
        or _are_functorch_transforms_active()
        or forward_ad._current_level >= 0
    )


def is_transformed_while_compiled() -> bool:
    """Whether torch.func or forward mode is at work in code that is being compiled. There torch knows no
    derivatives of operators: grad is an error within torch, and jvp would be zero."""
    return _is_compiling() and (_are_functorch_transforms_active() or forward_ad._current_level >= 0)


# Formulas. x and g are those of the product with K, whichever of them was given: K^H x is linear in the
# conjugates of the values, and with g in the place of x its gradient is the same.


def _wanted(needs_x: bool, needs_factors: Sequence[bool]) -> int:
    if len(needs_factors) > _MOST_TOLD_APART:
        return -1
    wanted = int(needs_x)
    for index, needed in enumerate(needs_factors):
        if needed:
            wanted |= 2 << index
    return wanted


def _gradients(
    g: Tensor,
    x: Tensor | None,
    factors: Sequence[Tensor],
    intermediates: Tensor | None,
    settings: int,
    packed: int,
    needs_x: bool,
    needs_factors: Sequence[bool],
) -> tuple[Tensor | None, list[Tensor | None]]:
    """The gradients of x and of the factors, given that of the product."""
    settings &= ~_ACTIVATION
    none: list[Tensor | None] = [None] * len(factors)
    if x is None or True not in needs_factors:
        return _linear(g, factors, None, settings ^ ADJOINT, packed) if needs_x else None, none
    is_adjoint = bool(settings & ADJOINT)
    if _is_differentiated_again():
        grad_x = _linear(g, factors, None, settings ^ ADJOINT, packed) if needs_x else None
        of_x, of_g = (g, x) if is_adjoint else (x, g)
        return grad_x, _factor_gradients(of_x, of_g, factors, settings & ~ADJOINT, needs_factors)
    if is_adjoint:
        grad_x = _linear(g, factors, None, settings ^ ADJOINT, packed) if needs_x else None
        _, found = _gradients(x, g, factors, None, settings ^ ADJOINT, packed, False, needs_factors)
        return grad_x, found
    wanted = _wanted(needs_x, needs_factors)
    operator = torch.ops.kronsparse.linear_backward if _is_compiling() else backward_operator
    made = iter(operator(g, x, factors, intermediates, settings, packed, wanted))
    grad_x = next(made) if wanted & 1 else None
    return grad_x if needs_x else None, [
        next(made) if wanted >> (index + 1) & 1 else None for index in range(len(factors))
    ]


def _factor_gradients(
    x: Tensor, g: Tensor, factors: Sequence[Tensor], settings: int, needs_factors: Sequence[bool]
) -> list[Tensor | None]:
    """The same of the factors alone, as operations that can be differentiated again."""
    found: list[Tensor | None] = [None] * len(factors)
    for index, values in enumerate(factors):
        if needs_factors[index]:
            right, left = factors[index + 1 :], factors[:index]
            of_x = _linear(x, right, None, settings) if len(right) else x
            of_g = _linear(g, left, None, settings | ADJOINT) if len(left) else g
            a, b, c, d = values.shape
            found[index] = gradient(of_x, of_g, a, b, c, d, settings)
    return found


def _sum_over_batch(g: Tensor, settings: int) -> Tensor:
    dimensions = g.dim()
    if dimensions == 2:
        return g.sum(0 if layout_of(settings) == "batch_first" else 1)
    if dimensions < 2:
        return g
    batch = range(dimensions - 1) if layout_of(settings) == "batch_first" else range(1, dimensions)
    return g.sum(tuple(batch))


def _refuse_activation(settings: int) -> None:
    if settings & _ACTIVATION:
        raise NotImplementedError(
            "activation: given to kronsparse::linear where a gradient is needed, must be none there; "
            "kronsparse.torch.ks_linear applies it as an operation of its own"
        )


class _Eager(torch.autograd.Function):
    """Reverse mode and nothing else: on the way of every small product that is trained."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, bias: Tensor | None, settings: int, packed: int, *factors: Tensor
    ) -> Tensor:
        ctx.given = settings, packed
        y: Tensor
        if len(factors) > 1 and not settings & _SAVES_NOTHING and factors[0].requires_grad:  # nearly always
            y, intermediates = saving(x, factors, bias, settings, packed)
            ctx.save_for_backward(x, intermediates, *factors)
            return y
        needs = ctx.needs_input_grad
        _refuse_activation(settings)
        if True in needs[4:]:
            if len(factors) > 1 and not settings & ADJOINT:
                y, intermediates = saving(x, factors, bias, settings, packed)
                ctx.save_for_backward(x, intermediates, *factors)
            else:
                y = plain(x, factors, bias, settings, packed)
                ctx.save_for_backward(x, None, *factors)
        else:
            y = plain(x, factors, bias, settings, packed)
            if needs[0]:
                ctx.save_for_backward(None, None, *factors)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        needs = ctx.needs_input_grad
        settings, packed = ctx.given
        grad_x = None
        gradients: Sequence[Tensor | None] = (None,) * (len(needs) - 4)
        try:
            grad_bias = _sum_over_batch(g, settings) if needs[1] else None
            x, intermediates, *factors = ctx.saved_tensors or (None, None)
            if (
                x is not None
                and not settings & ADJOINT
                and False not in needs[4:]
                and len(factors) <= _MOST_TOLD_APART
                and not _is_differentiated_again()
            ):
                # The gradients of all factors are wanted, and nothing more: nearly always.
                if needs[0]:
                    made = backward_operator(g, x, factors, intermediates, settings, packed, -1)
                    return made[0], grad_bias, None, None, *made[1:]
                wanted = (2 << len(factors)) - 2
                made = backward_operator(g, x, factors, intermediates, settings, packed, wanted)
                return None, grad_bias, None, None, *made
            if factors:
                grad_x, gradients = _gradients(
                    g, x, factors, intermediates, settings, packed, needs[0], needs[4:]
                )
        except (RuntimeError, MemoryError) as error:
            raise_if_out_of_memory(error)
            raise
        return grad_x, grad_bias, None, None, *gradients


def _is_differentiated_again() -> bool:
    return _is_grad_enabled() or _are_functorch_transforms_active() or forward_ad._current_level >= 0


# The apply() of torch.autograd.Function is for torch.func, and reads a signature at each call.
apply_eager: Callable[..., Tensor] = super(torch.autograd.Function, _Eager).apply


# vmap: where only x has the mapped dimension it is one more of the batch. Where the values have it too, the
# products are blocks of one larger matrix, with patterns of size · a instead of a.


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


def _linear_vmap(
    info: Any,
    in_dims: tuple[Any, ...],
    x: Tensor,
    factors: Sequence[Tensor],
    bias: Tensor | None,
    settings: int,
    packed: int = 0,
) -> tuple[Tensor, int]:
    size, layout = info.batch_size, layout_of(settings)
    x_at, factors_at, bias_at = in_dims[:3]
    if not isinstance(factors_at, (list, tuple)):
        factors_at = [factors_at] * len(factors)
    if bias_at is None and all(at is None for at in factors_at):
        outermost = 0 if layout == "batch_first" else x.dim() - 1
        return _linear(x.movedim(x_at, outermost), factors, bias, settings, packed), outermost
    if bias is not None:
        bias = _stack(bias, bias_at, size)
    x = _to_blocks(x, x_at, size, layout)
    stacked = [_stack(values, at, size) for values, at in zip(factors, factors_at, strict=True)]
    return _from_blocks(_linear(x, stacked, bias, settings), size, layout)


def _gradient_vmap(
    info: Any, in_dims: tuple[Any, ...], x: Tensor, g: Tensor, a: int, b: int, c: int, d: int, settings: int
) -> tuple[Tensor, int]:
    size, layout = info.batch_size, layout_of(settings)
    x = _to_blocks(x, in_dims[0], size, layout)
    g = _to_blocks(g, in_dims[1], size, layout)
    return gradient(x, g, size * a, b, c, d, settings).unflatten(0, (size, a)), 0


class _Transformed(torch.autograd.Function):
    """The same as `_Eager` for torch.func's transforms and forward mode."""

    @staticmethod
    def forward(x: Tensor, bias: Tensor | None, settings: int, packed: int, *factors: Tensor) -> Tensor:
        return plain(x, factors, bias, settings, packed)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, _, ctx.settings, ctx.packed, *factors = inputs
        _refuse_activation(ctx.settings)
        ctx.shape = output.shape
        ctx.save_for_forward(x, *factors)
        ctx.save_for_backward(x if True in ctx.needs_input_grad[4:] else None, *factors)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, *factors = ctx.saved_tensors
        needs = ctx.needs_input_grad
        grad_x, gradients = _gradients(g, x, factors, None, ctx.settings, ctx.packed, needs[0], needs[4:])
        grad_bias = _sum_over_batch(g, ctx.settings) if needs[1] else None
        return grad_x, grad_bias, None, None, *gradients

    @staticmethod
    def jvp(ctx: Any, dx: Tensor | None, dbias: Tensor | None, *others: Tensor | None) -> Tensor | None:
        x, *factors = ctx.saved_tensors
        dfactors = others[2:]
        settings = ctx.settings
        dy = None if dx is None else _linear(dx, factors, None, settings, ctx.packed)
        for index, dvalues in enumerate(dfactors):
            if dvalues is not None:
                replaced = [*factors[:index], dvalues, *factors[index + 1 :]]
                dy = _sum(dy, _linear(x, replaced, None, settings))
        if dbias is not None:
            per_row = dbias if layout_of(settings) == "batch_first" else dbias.view(-1, *[1] * (x.dim() - 1))
            dy = per_row.expand(ctx.shape) if dy is None else dy + per_row
        return dy

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[Any, ...],
        x: Tensor,
        bias: Tensor | None,
        settings: int,
        packed: int,
        *factors: Tensor,
    ) -> tuple[Tensor, int]:
        dimensions = (in_dims[0], list(in_dims[4:]), in_dims[1])
        return _linear_vmap(info, dimensions, x, factors, bias, settings, packed)


class _Gradient(torch.autograd.Function):
    @staticmethod
    def forward(*inputs: Any) -> Tensor:
        with torch._C._AutoDispatchBelowAutograd():  # past its registered derivatives
            y: Tensor = torch.ops.kronsparse.gradient.default(*inputs)
            return y

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, g, *ctx.pattern, ctx.settings = inputs
        ctx.save_for_forward(x, g)
        ctx.save_for_backward(x, g)

    @staticmethod
    def backward(ctx: Any, h: Tensor) -> tuple[Tensor | None, ...]:
        x, g = ctx.saved_tensors
        grad_x = grad_g = None
        if ctx.needs_input_grad[0]:
            grad_x = _linear(g, [h], None, ctx.settings | ADJOINT)
        if ctx.needs_input_grad[1]:
            grad_g = _linear(x, [h], None, ctx.settings)
        return grad_x, grad_g, None, None, None, None, None

    @staticmethod
    def jvp(ctx: Any, dx: Tensor | None, dg: Tensor | None, *_: None) -> Tensor | None:
        x, g = ctx.saved_tensors
        a, b, c, d = ctx.pattern
        return _sum(
            None if dx is None else gradient(dx, g, a, b, c, d, ctx.settings),
            None if dg is None else gradient(x, dg, a, b, c, d, ctx.settings),
        )

    vmap = staticmethod(_gradient_vmap)


def _sum(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    """Adds tangents; None stands for zero."""
    if first is None or second is None:
        return second if first is None else first
    return first + second


def _linear_autocast(
    x: Tensor, factors: Sequence[Tensor], bias: Tensor | None, settings: int, packed: int = 0
) -> Tensor:
    """Computes in the autocast dtype. Values are converted by this call alone: nothing can become stale.
    Frozen ones are packed in the dtype of x, and need not be converted."""
    device = x.device.type
    dtype = torch.get_autocast_dtype(device)

    def cast(tensor: Tensor) -> Tensor:
        return tensor.to(dtype) if _autocast_applies(tensor) else tensor

    x = cast(x)
    if bias is not None:
        bias = cast(bias)
    if not packed or needs_grad(*factors) or x.dtype != dtype:
        converted = [cast(values) for values in factors]
        # Copies lie elsewhere than what was frozen.
        packed = packed if all(new is old for new, old in zip(converted, factors, strict=True)) else 0
        factors = converted
    with torch.autocast(device, enabled=False):
        return _linear(x, factors, bias, settings, packed)


def _autocast_applies(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and tensor.dtype != torch.float64


# Compiled and exported code calls these.


def _setup_linear(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, factors, _, ctx.settings, ctx.packed = inputs
    _refuse_activation(ctx.settings)
    ctx.set_materialize_grads(False)
    intermediates = None
    if isinstance(output, tuple):
        intermediates = output[1]
        ctx.mark_non_differentiable(intermediates)
    ctx.save_for_backward(x, intermediates, *factors)


def _backward_linear(ctx: Any, g: Tensor | None, *_: Any) -> tuple[Any, ...]:
    if g is None:
        return None, [None] * (len(ctx.saved_tensors) - 2), None, None, None
    x, intermediates, *factors = ctx.saved_tensors
    needs = ctx.needs_input_grad
    needs_factors = list(needs[1]) if isinstance(needs[1], (list, tuple)) else [needs[1]] * len(factors)
    grad_x, gradients = _gradients(
        g, x, factors, intermediates, ctx.settings, ctx.packed, needs[0], needs_factors
    )
    grad_bias = _sum_over_batch(g, ctx.settings) if needs[2] else None
    return grad_x, gradients, grad_bias, None, None


def _register() -> library.Library:
    for name in ("linear", "linear_saving"):
        library.register_autograd(f"kronsparse::{name}", _backward_linear, setup_context=_setup_linear)
    library.register_autograd(
        "kronsparse::gradient", _Gradient.backward, setup_context=_Gradient.setup_context
    )
    library.register_vmap("kronsparse::linear", _linear_vmap)
    library.register_vmap("kronsparse::gradient", _gradient_vmap)
    fragment = library.Library("kronsparse", "FRAGMENT")
    # Past torch's fallback for operators without derivatives: a small product would feel it.
    for name in ("linear_plain", "linear_saving_plain", "linear_backward"):
        fragment.impl(name, library.fallthrough_kernel, "Autograd")
    for key in ("AutocastCPU", "AutocastCUDA"):
        fragment.impl("linear", _linear_autocast, key)
    return fragment


plain: Callable[..., Tensor]
saving: Callable[..., tuple[Tensor, Tensor]]
backward_operator: Callable[..., list[Tensor]]
if not why_unusable:
    _registered = _register()  # registrations last as long as the library object
    # Found once, below the layer of Python around an operator: each call would go through it.
    plain = torch.ops.kronsparse.linear_plain.default._op
    saving = torch.ops.kronsparse.linear_saving_plain.default._op
    backward_operator = torch.ops.kronsparse.linear_backward.default._op
