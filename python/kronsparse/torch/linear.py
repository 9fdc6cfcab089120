"""KSLinear: a linear layer whose matrix is a product of Kronecker-sparse factors."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from kronsparse.chains import Chain, ChainLike, Pattern, as_chain, chain_text, checked
from kronsparse.checks import LAYOUTS, check_option, check_size
from kronsparse.torch import backends
from kronsparse.torch.functional import ACTIVATIONS, apply, check_bias
from kronsparse.torch.plans import PLAIN_TENSORS, drop_plans, mark_stale


class KSLinear(nn.Module):
    """y = W x + bias, W being a product of Kronecker-sparse factors: a drop-in for nn.Linear.

    `chain` is a list of patterns (a, b, c, d), left factor first, their text, or a name with parameters:
    "monarch", "monarch(blocks=64)", "butterfly", "low_rank(rank=8)", "dense". Parameters are `factor0`,
    `factor1`, ..., plain tensors of shapes (a, b, c, d), and `bias`.

    x is (..., in_features) in layout "batch_first" and (in_features, ...) in "batch_last". `backend` is one
    of kernel, bmm, bsr, einsum, dense, sparse, or "auto", which takes kernel unless one dense product is
    predicted to be faster: `explain()` says which and why. `activation` (relu, gelu, gelu_tanh, silu) is
    computed by the same kernel where no gradient is needed.

    >>> layer = KSLinear(64, 128, chain="monarch(blocks=8)")
    >>> layer(torch.randn(3, 5, 64)).shape
    torch.Size([3, 5, 128])
    >>> layer
    KSLinear(in_features=64, out_features=128, chain=1x16x8x8*8x8x8x1, bias=True)
    """

    bias: nn.Parameter | None
    _chosen: dict[tuple[torch.device, torch.dtype], str]

    def __init__(
        self,
        in_features: int,
        out_features: int,
        chain: ChainLike = "monarch",
        bias: bool = True,
        layout: str = "batch_first",
        backend: str = "auto",
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        activation: str | None = None,
    ) -> None:
        super().__init__()
        check_size("in_features", in_features)
        check_size("out_features", out_features)
        check_option("layout", layout, LAYOUTS)
        if activation is not None:
            check_option("activation", activation, ACTIVATIONS)
        self.in_features = int(in_features)  # NumPy's integers are taken, too
        self.out_features = int(out_features)
        self.chain: Chain = as_chain(chain, rows=out_features, cols=in_features)
        self.layout = layout
        self.backend = backend
        self.activation = activation
        self._factor_names = tuple(f"factor{index}" for index in range(len(self.chain)))
        for name, pattern in zip(self._factor_names, self.chain, strict=True):
            self.register_parameter(name, nn.Parameter(torch.empty(pattern, device=device, dtype=dtype)))
        self.register_parameter(
            "bias", nn.Parameter(torch.empty(out_features, device=device, dtype=dtype)) if bias else None
        )
        self.reset_parameters()
        self._choose_ahead()

    @classmethod
    def from_factors(
        cls,
        factors: Sequence[Tensor],
        bias: Tensor | None = None,
        layout: str = "batch_first",
        backend: str = "auto",
        activation: str | None = None,
    ) -> KSLinear:
        """A layer with copies of these factors (a, b, c, d), left factor first, all of one dtype.

        >>> layer = KSLinear.from_factors([torch.ones(1, 3, 2, 2), torch.ones(2, 2, 4, 1)])
        >>> layer(torch.ones(8)).detach()
        tensor([8., 8., 8., 8., 8., 8.])
        """
        chain = checked(Pattern.of(values.shape) for values in factors)
        first = factors[0]
        for index, values in enumerate(factors):
            _check_dtype(f"factors[{index}]", values, first.dtype)
        if bias is not None:
            check_bias(bias, chain[0].rows)
            _check_dtype("bias", bias, first.dtype)
        layer = cls(
            chain[-1].cols,
            chain[0].rows,
            chain,
            bias is not None,
            layout,
            backend,
            first.device,
            first.dtype,
            activation,
        )
        with torch.no_grad():
            for parameter, values in zip(layer.factors, factors, strict=True):
                parameter.copy_(values)
            if layer.bias is not None and bias is not None:
                layer.bias.copy_(bias)
        return layer

    @property
    def factors(self) -> list[Tensor]:
        """The factors, left factor first."""
        return [getattr(self, name) for name in self._factor_names]

    def reset_parameters(self, variance_preserving: bool = False) -> None:
        """Draws factors from the uniform distribution on ±1/sqrt(c), and the bias from ±1/sqrt(in_features).

        Each such factor multiplies the variance of its input by 1/3, as nn.Linear does once; a product of L
        factors by 3^-L. With `variance_preserving` it is ±sqrt(3/c), and outputs have the variance of inputs.
        """
        with torch.no_grad():
            for pattern, values in zip(self.chain, self.factors, strict=True):
                bound = math.sqrt((3 if variance_preserving else 1) / pattern.c)
                _draw(values, bound)
            if self.bias is not None:
                bound = 1 / math.sqrt(self.in_features)
                _draw(self.bias, bound)

    def forward(self, x: Tensor) -> Tensor:
        # This is on the way of every small product: the operator checks sizes, and what nn.Module's own
        # attribute access would look for last is asked for first.
        parameters: dict[str, Any] = self._parameters
        try:
            factors = [parameters[name] for name in self._factor_names]
            bias = parameters["bias"]
        except KeyError:  # some are computed: torch.nn.utils.parametrize
            factors, bias = self.factors, self.bias
        # Parameters come to lie elsewhere in ways that a layer is not told of: meta tensors are replaced.
        first = factors[0]
        backend = self._chosen.get((first.device, first.dtype)) or self._choose(first.device, first.dtype)
        # What a CUDA graph is captured with may change later if it is trained, and is then packed at replay.
        packing = "frozen"
        for values in factors:
            if type(values) is Tensor:  # computed for this call: a plan for it would never be found again
                packing = "each_call"
                break
            if values.requires_grad:
                packing = "on_change"
        return apply(x, factors, bias, self.activation, self.layout, backend, packing)

    @property
    def backend(self) -> str:
        """What was asked for; may be assigned.

        >>> layer = KSLinear(4, 4, "butterfly")
        >>> layer.backend = "einsum"
        >>> layer.explain()
        'einsum: asked for'
        """
        return self._backend

    @backend.setter
    def backend(self, backend: str) -> None:
        check_option("backend", backend, ("auto", *backends.BACKENDS))
        self._backend = backend
        self._chosen = {}

    def to_dense(self) -> Tensor:
        """W, the out_features x in_features matrix; differentiable."""
        return backends.to_dense(self.factors)

    def explain(self) -> str:
        """Which backend is used, and why.

        >>> KSLinear(4, 4, "butterfly", backend="einsum").explain()
        'einsum: asked for'
        """
        first = self.factors[0]
        choice = self._choice(first.device, first.dtype)
        return f"{choice.backend}: {choice.reason}"

    def repack(self) -> None:
        """Has the factors packed again at the next call.

        Needed only after changes that torch does not count, such as writing to `.data` in place or a
        collective of torch.distributed on a parameter: see `kronsparse.torch.plans`.

        >>> layer = KSLinear(4, 4, "butterfly")
        >>> _ = layer.factor0.data.mul_(2)
        >>> layer.repack()
        """
        for values in self._factor_parameters():
            mark_stale(values)

    def extra_repr(self) -> str:
        parts = [
            f"in_features={self.in_features}, out_features={self.out_features}",
            f"chain={chain_text(self.chain)}, bias={self.bias is not None}",
        ]
        if self.layout != "batch_first":
            parts.append(f"layout={self.layout}")
        if self.backend != "auto":
            parts.append(f"backend={self.backend}")
        if self.activation is not None:
            parts.append(f"activation={self.activation}")
        return ", ".join(parts)

    def _factor_parameters(self) -> list[Tensor]:
        """Those factors that are parameters of this layer. Others are computed (torch.nn.utils.parametrize),
        have no plans that stay, and asking for them may do anything: spectral_norm changes its state."""
        found = [self._parameters.get(name) for name in self._factor_names]
        return [values for values in found if values is not None]

    def _choice(self, device: torch.device, dtype: torch.dtype) -> backends.Choice:
        if self.backend != "auto":
            return backends.Choice(self.backend, "asked for")
        return backends.choose(self.chain, dtype, self.layout, device)

    @torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
    def _chosen_backend(self, device: torch.device, dtype: torch.dtype) -> str:
        return self._choice(device, dtype).backend

    def _choose(self, device: torch.device, dtype: torch.dtype) -> str:
        backend: str = self._chosen_backend(device, dtype)
        self._chosen[device, dtype] = backend
        return backend

    def _choose_ahead(self) -> None:
        """Of calls, where that is possible: a new answer has compiled code compiled again."""
        first = self._parameters.get(self._factor_names[0])
        if first is not None:
            self._choose(first.device, first.dtype)

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        self._forget(name, param)
        super().register_parameter(name, param)

    def _forget(self, name: str, replaced_by: nn.Parameter | None) -> None:
        """Drops the plans of a factor that gives way to another."""
        values = self._parameters.get(name)
        if values is None or values is replaced_by or name not in self._factor_names:
            return
        # FSDP puts the sharded parameter, a DTensor, in the place of the gathered one, which comes back.
        if replaced_by is None or type(replaced_by) in PLAIN_TENSORS:
            drop_plans(values)

    def __delattr__(self, name: str) -> None:
        self._forget(name, None)
        super().__delattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        # FSDP assigns a parameter whenever it has gathered new values into it, past the version counter.
        if name.startswith("factor") and isinstance(value, nn.Parameter):
            mark_stale(value)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> KSLinear:
        """Moves or converts the parameters, as .to() does: plans of the old ones are of no more use."""
        for values in self._factor_parameters():
            drop_plans(values)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._choose_ahead()
        return self

    def __del__(self) -> None:
        # A layer may be gone before it was complete, or after torch itself.
        with contextlib.suppress(Exception):
            for values in self._factor_parameters():
                drop_plans(values)


def _check_dtype(argument: str, given: Tensor, dtype: torch.dtype) -> None:
    if given.dtype != dtype:
        raise ValueError(f"{argument}: dtype {given.dtype} given, must be that of factors[0], {dtype}")


def _draw(tensor: Tensor, bound: float) -> None:
    """Uniform on ±bound; complex numbers have two such parts, and together the same variance."""
    if tensor.is_complex():
        tensor, bound = torch.view_as_real(tensor), bound / math.sqrt(2)
    tensor.uniform_(-bound, bound)
