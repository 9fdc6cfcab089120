"""KSLinear: a linear layer whose matrix is a product of Kronecker-sparse factors."""

from __future__ import annotations

import math
import operator
import sys
import warnings
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Proxy
from torch.nn import functional

from kronsparse.chains import Chain, ChainLike, Pattern, as_chain, chain_text, checked
from kronsparse.checks import LAYOUTS, check_option, check_size
from kronsparse.torch import _library, _operators, backends, freezing
from kronsparse.torch._library import CHECKS_VERSIONS, SETTINGS
from kronsparse.torch._operators import apply_eager, is_special, needs_grad
from kronsparse.torch.functional import ACTIVATIONS, apply, check_bias, check_x
from kronsparse.torch.lazy_matrix import LazyMatrix

_is_grad_enabled = torch.is_grad_enabled
_precision = torch._C._get_float32_matmul_precision  # past a layer of Python
_MODES = {"highest": "fp32", "high": "tf32", "medium": "tf32"}
_NO_WEIGHT = (
    "weight: cannot be assigned, because the matrix of a KSLinear is the product of its factors; assign "
    "factor0, factor1, ..., or make a layer of a matrix by KSLinear.from_linear. Layers that share their "
    "matrix with another one, as an embedding does, stay dense; quantizers of nn.Linear cannot take it, "
    "kronsparse.torch.quantize_int8 does"
)


class KSLinear(nn.Module):
    """y = W x + bias, W being a product of Kronecker-sparse factors: a drop-in for nn.Linear.

    `chain` is a list of patterns (a, b, c, d), left factor first, their text, or a name with parameters:
    "monarch", "monarch(blocks=64)", "butterfly", "low_rank(rank=8)", "dense" and others of
    `kronsparse.chains`. Parameters are `factor0`, `factor1`, ..., plain tensors of shapes (a, b, c, d), and
    `bias`.

    x is (..., in_features) in layout "batch_first" and (in_features, ...) in "batch_last". `backend` is one
    of kernel, bmm, bsr, einsum, dense, sparse, or "auto", which takes kernel, or dense where the layer is
    frozen and one dense product is faster for the batch at hand: `explain()` says which and why. `activation`
    (relu, gelu, gelu_tanh, silu) is computed by the same kernel where no gradient is needed.

    Weights are read at every call, and may change in any way between calls. `freeze()` promises that they
    stay, which makes calls faster. `load_state_dict` takes the state of an nn.Linear, too, and factorises its
    matrix.

    >>> layer = KSLinear(64, 128, chain="monarch(blocks=8)")
    >>> layer(torch.randn(3, 5, 64)).shape
    torch.Size([3, 5, 128])
    >>> layer
    KSLinear(in_features=64, out_features=128, chain=1x16x8x8*8x8x8x1, bias=True)
    """

    bias: nn.Parameter | None
    _frozen: freezing.Frozen | None = None
    takes_distributed = False
    """whether factors may be DTensors where the layer is frozen"""
    replaced: str = "Linear"
    """the kind of layer that this one was made of: Linear, Conv1D of Hugging Face, or Conv2d"""

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
        if self.factors[0].is_meta:
            _tell_transformers()
        else:
            self.reset_parameters()
        self._prepare_calls()

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

    @classmethod
    def from_linear(
        cls,
        linear: nn.Module,
        chain: ChainLike | int = "monarch",
        values: str = "factorize",
        covariance: Tensor | None = None,
        polish: int = 0,
        activation: str | None = None,
        backend: str = "auto",
    ) -> KSLinear:
        """A layer in place of an nn.Linear, or of Hugging Face's Conv1D, on its device and in its dtype.

        `chain` may be the number of parameters to spend, too. `values` are found by factorisation, which
        needs a chainable chain, or are "fresh": as drawn for a new layer. `covariance` of the inputs and
        `polish` are those of `kronsparse.factorize`. The bias is copied.

        >>> linear = torch.nn.Linear(64, 128)
        >>> layer = KSLinear.from_linear(linear, "monarch(blocks=8, rank=4)")
        >>> x = torch.ones(3, 64)
        >>> bool((layer(x) - linear(x)).norm() < 0.9 * linear(x).norm())
        True
        """
        from kronsparse.torch.dense_layers import layer_from

        return layer_from(linear, chain, values, covariance, polish, activation, backend).layer

    @property
    def factors(self) -> list[Tensor]:
        """The factors, left factor first."""
        return [getattr(self, name) for name in self._factor_names]

    @property
    def weight(self) -> Tensor:
        """The out_features x in_features matrix, for code that expects an nn.Linear. It is multiplied out at
        each use, unless only its sizes, dtype or device are asked for: see `LazyMatrix`.

        >>> KSLinear(8, 4).weight.shape
        torch.Size([4, 8])
        """
        if torch.compiler.is_compiling():
            return self.to_dense()
        frozen = self._frozen
        if frozen is None or needs_grad(*self.factors):
            return LazyMatrix(self.factors)
        factors = self.factors
        return LazyMatrix(factors, lambda: frozen.matrix(factors[0].dtype))

    @weight.setter
    def weight(self, given: object) -> None:
        raise AttributeError(_NO_WEIGHT)

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        """As in nn.Module, but for `weight`, which is computed."""
        if name == "weight":
            raise AttributeError(_NO_WEIGHT)
        super().register_parameter(name, param)

    def reset_parameters(self, variance_preserving: bool = False) -> None:
        """Draws factors and bias from uniform distributions, so that outputs vary as those of nn.Linear.

        Outputs of nn.Linear have a third of the variance of inputs: its weights are within ±1/sqrt(c). Each
        of L factors here is within ±sqrt(3^(1-1/L)/c), and their product has the same third, whatever L is.
        With `variance_preserving` they are within ±sqrt(3/c), and outputs have the variance of inputs. The
        bias is within ±1/sqrt(in_features).
        """
        self._draw_parameters((*self._factor_names, "bias"), variance_preserving)

    def _draw_parameters(self, names: Collection[str], variance_preserving: bool = False) -> None:
        """The same for parameters of these names."""
        variance = 1.0 if variance_preserving else 3 ** (-1 / len(self.chain))  # a factor's part of it
        with torch.no_grad():
            for name, pattern, values in zip(self._factor_names, self.chain, self.factors, strict=True):
                if name in names:
                    _draw(values, math.sqrt(3 * variance / pattern.c))
            if self.bias is not None and "bias" in names:
                _draw(self.bias, 1 / math.sqrt(self.in_features))

    def forward(self, x: Tensor) -> Tensor:
        # This is on the way of every small product: the operator checks sizes, and what nn.Module's own
        # attribute access would look for last is asked for first.
        if x.__class__ is not Tensor:
            if x.__class__ is Proxy:  # type: ignore[comparison-overlap]
                return self._trace(x)
            if is_distributed(x):
                return self._forward_distributed(x)
            if not isinstance(x, Tensor):
                raise TypeError(f"x: {type(x).__name__} given, must be a torch.Tensor")
        if is_special():
            return self._forward_special(x)
        frozen = self._frozen
        try:
            *factors, bias = self._get(self._parameters)
        except KeyError:  # some are computed: torch.nn.utils.parametrize
            factors, bias = self.factors, self.bias
        packed = 0
        if frozen is not None:
            if frozen.is_changed(factors):
                raise frozen.refuse(self._factor_names, factors)
            packed = frozen.packed
            if self._may_be_dense:
                key = (x.numel(), x.dtype)
                backend = frozen.choices.get(key) or self._choose(x, frozen, key)
                if backend == "dense" and not needs_grad(*factors):
                    return self._multiply_dense(x, frozen.matrix(factors[0].dtype), bias)
        if not self._takes_kernel:
            return apply(x, factors, bias, self.activation, self.layout, self._torch_backend(factors[0]))
        try:
            bare, activated = self._settings[_precision()]
            if _is_grad_enabled() and (
                x.requires_grad or factors[0].requires_grad or needs_grad(bias, *factors)
            ):
                y = apply_eager(x, bias, bare, packed, *factors)
                return y if self.activation is None else ACTIVATIONS[self.activation](y)
            return _operators.plain(x, factors, bias, activated, packed)
        except (RuntimeError, MemoryError) as error:
            # Asked afterwards: a small product would feel the questions.
            if is_distributed(factors[0]):
                return self._forward_distributed(x)
            check_x(x, factors, self.layout)
            _library.raise_if_out_of_memory(error)
            if self.backend == "auto" and x.device.type not in ("cpu", "cuda"):
                return apply(x, factors, bias, self.activation, self.layout, "bmm")
            raise

    def _forward_special(self, x: Tensor) -> Tensor:
        """For calls that are compiled, traced, transformed or cast."""
        frozen = self._frozen
        factors, bias = self.factors, self.bias
        packed = flags = 0
        backend = self._torch_backend(factors[0])
        is_recorded = torch.compiler.is_compiling() or torch._C._is_tracing()
        if is_recorded:
            is_exported = torch.compiler.is_exporting() or not torch.compiler.is_compiling()
            if is_exported and backend == "kernel" and torch.onnx.is_in_onnx_export():
                backend = "einsum"  # ONNX knows no operators of ours
            # An exported program runs in other processes, which have not frozen anything.
            if frozen is not None and torch.compiler.is_compiling() and not torch.compiler.is_exporting():
                packed, flags = frozen.packed, CHECKS_VERSIONS
        elif frozen is not None:
            if frozen.is_changed(factors):
                raise frozen.refuse(self._factor_names, factors)
            packed = frozen.packed
        return apply(x, factors, bias, self.activation, self.layout, backend, packed, flags)

    def _forward_distributed(self, x: Tensor) -> Tensor:
        """For DTensors: each process multiplies its own samples."""
        from kronsparse.torch.parallel import call_distributed

        def call(x: Tensor, factors: Sequence[Tensor], bias: Tensor | None) -> Tensor:
            return apply(x, factors, bias, self.activation, self.layout, self._torch_backend(x))

        return call_distributed(x, self.factors, self.bias, self.layout, call)

    @property
    def qconfig(self) -> Any:
        """The setting of torch.ao.quantization, which has no form for this layer, and would not say so."""
        return self._qconfig

    @qconfig.setter
    def qconfig(self, given: Any) -> None:
        self._qconfig = given
        warnings.warn(
            "torch.ao.quantization leaves a KSLinear as it is; kronsparse.torch.quantize_int8(model) keeps "
            "its factors as int8",
            UserWarning,
            stacklevel=2,
        )

    @qconfig.deleter
    def qconfig(self) -> None:
        del self._qconfig

    def _trace(self, x: Any) -> Any:
        """For torch.fx.symbolic_trace: the layer is one node of the graph."""
        return x.tracer.create_proxy("call_module", x.tracer.path_of_module(self), (x,), {})

    def __prepare_scriptable__(self) -> nn.Module:
        """Called by torch.jit.script, which cannot compile the layer, and would say so of some inner line."""
        raise RuntimeError(
            "layer: torch.jit.script cannot compile a KSLinear; torch.jit.trace, torch.export and "
            "torch.compile take it as it is, and kronsparse.torch.to_dense(model) makes a model that can be "
            "scripted"
        )

    def _torch_backend(self, first: Tensor) -> str:
        """The backend for a layer with such a factor, but for what a frozen one may take."""
        if self._backend != "auto":
            return self._backend
        return "kernel" if not _library.why_unusable and first.device.type in ("cpu", "cuda") else "bmm"

    def _multiply_dense(self, x: Tensor, matrix: Tensor, bias: Tensor | None) -> Tensor:
        check_x(x, self.factors, self.layout)
        if self.layout == "batch_first":
            y = functional.linear(x, matrix, bias)
        else:
            y = backends.multiply_dense(x, matrix, self.layout)
            if bias is not None:
                y = y + bias.view(-1, *[1] * (y.dim() - 1))
        return y if self.activation is None else ACTIVATIONS[self.activation](y)

    def freeze(self) -> KSLinear:
        """Promises that the factors stay, and returns the layer. Calls then use packed copies of the factors,
        or their dense product. The bias may still change.

        `unfreeze()` and `train()` undo it. If a factor is changed nevertheless, the next call is an error
        where torch shows the change: see `kronsparse.torch.freezing`. A copy of the layer is not frozen; a
        layer that is moved or converted is frozen anew.

        >>> layer = KSLinear(64, 64).freeze()
        >>> with torch.no_grad():
        ...     _ = layer(torch.ones(2, 64))
        ...     _ = layer.factor0.mul_(2)
        >>> layer(torch.ones(2, 64))  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        RuntimeError: factor0: was changed while its layer is frozen; ...
        >>> layer.unfreeze()(torch.ones(2, 64)).shape
        torch.Size([2, 64])
        """
        reason = freezing.why_not(self)
        if reason:
            raise RuntimeError(f"layer: cannot be frozen: {reason}")
        self._frozen = freezing.Frozen(self.factors)
        return self

    def unfreeze(self) -> KSLinear:
        """Undoes `freeze()`, releases the memory that was kept, and returns the layer.

        >>> KSLinear(64, 64).freeze().unfreeze().is_frozen
        False
        """
        self._frozen = None
        return self

    @property
    def is_frozen(self) -> bool:
        """Whether the factors are promised to stay.

        >>> KSLinear(64, 64).is_frozen
        False
        """
        return self._frozen is not None

    def train(self, mode: bool = True) -> KSLinear:
        """As in nn.Module. Training changes weights, so it unfreezes the layer."""
        if mode:
            self.unfreeze()
        super().train(mode)
        return self

    @property
    def backend(self) -> str:
        """The backend that was asked for; may be assigned.

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
        self._prepare_calls()

    def to_dense(self) -> Tensor:
        """W, the out_features x in_features matrix; differentiable."""
        return backends.to_dense(self.factors)

    def explain(self, batch: int = 4096) -> str:
        """Says which backend is used for a batch of this many samples, and why.

        >>> KSLinear(4, 4, "butterfly", backend="einsum").explain()
        'einsum: asked for'
        >>> KSLinear(64, 64).explain(batch=8)
        'kernel: weights are not frozen: they are read at each call, and not multiplied out'
        >>> KSLinear(32, 32).freeze().explain(batch=8)
        'kernel: a layer up to 48 wide, and a batch up to 64'
        """
        check_size("batch", batch)
        choice = self._choice(self.factors[0], batch)
        return f"{choice.backend}: {choice.reason}"

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

    def _prepare_calls(self) -> None:
        """Finds out once what every call would have to."""
        if "_factor_names" not in self.__dict__:
            return  # __init__ has just begun
        self._get: Callable[[dict[str, Any]], tuple[Any, ...]] = operator.itemgetter(
            *self._factor_names, "bias"
        )
        self._takes_kernel = self._backend in ("auto", "kernel") and not _library.why_unusable
        self._may_be_dense = self._backend in ("auto", "dense") and not _library.why_unusable
        self._settings = {
            precision: (
                SETTINGS["none", self.layout, mode],
                SETTINGS[self.activation or "none", self.layout, mode],
            )
            for precision, mode in _MODES.items()
        }
        if self._frozen is not None:
            self._frozen.choices.clear()

    def _choice(self, first: Tensor, batch: int) -> backends.Choice:
        if self._backend != "auto":
            return backends.Choice(self._backend, "asked for")
        choice = backends.choose(
            self.chain,
            first.dtype,
            self.layout,
            first.device,
            batch,
            self._frozen is not None,
            self.bias is not None,
            self.activation,
        )
        if choice.is_close:
            measured = backends.measured.get(self._problem(first, batch))
            if measured is not None:
                return measured
        return choice

    def _problem(self, first: Tensor, batch: int) -> backends.Measured:
        mode = backends.float32_mode() if first.dtype == torch.float32 else ""
        has_bias = self.bias is not None
        return (self.chain, first.dtype, self.layout, first.device, batch, has_bias, self.activation, mode)

    def _choose(self, x: Tensor, frozen: freezing.Frozen, key: Any) -> str:
        """The backend that a frozen layer takes for x."""
        check_x(x, self.factors, self.layout)
        batch = x.numel() // self.in_features
        first = self.factors[0]
        choice = self._choice(first, batch)
        if choice.is_close:
            if torch.cuda.is_current_stream_capturing():
                return choice.backend  # nothing can be measured, nor should this be remembered
            choice = backends.measure(
                self._problem(first, batch),
                x.detach(),
                lambda: _operators.plain(
                    x.detach(), self.factors, self.bias, self._settings[_precision()][1], frozen.packed
                ),
                lambda: self._multiply_dense(x.detach(), frozen.matrix(first.dtype), self.bias),
            )
            if choice.backend != "dense" and first.dtype in frozen.dense:
                del frozen.dense[first.dtype]
        frozen.remember(key, choice.backend)
        return choice.backend

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> KSLinear:
        """Moves or converts the parameters, as .to() does: a frozen layer is frozen anew."""
        was_frozen = self.is_frozen
        self.unfreeze()
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self.freeze() if was_frozen else self

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Takes the matrix of a dense layer, too: factors are never left as they were."""
        matrix = state_dict.get(f"{prefix}weight")
        if matrix is not None and not any(f"{prefix}{name}" in state_dict for name in self._factor_names):
            from kronsparse.torch.dense_layers import factors_of_state

            state_dict = {name: value for name, value in state_dict.items() if name != f"{prefix}weight"}
            try:
                factors = factors_of_state(self, f"{prefix}weight", matrix)
            except ValueError as error:
                error_msgs.append(str(error))
                factors = self.factors
            state_dict.update(
                {f"{prefix}{name}": one for name, one in zip(self._factor_names, factors, strict=True)}
            )
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )

    def __getstate__(self) -> dict[str, Any]:
        """For copies and files: what is kept of frozen factors stays behind."""
        return {name: value for name, value in self.__dict__.items() if name != "_frozen"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._prepare_calls()


def is_distributed(tensor: object) -> bool:
    """Whether this is a DTensor. Nothing is imported to find out."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def _tell_transformers() -> None:
    """Layers without memory are how transformers begins to load a model. It has to know how to initialise
    those that a checkpoint lacks."""
    if "transformers" in sys.modules:
        from kronsparse.torch.hugging_face import initialise_missing

        initialise_missing()


def _check_dtype(argument: str, given: Tensor, dtype: torch.dtype) -> None:
    if given.dtype != dtype:
        raise ValueError(f"{argument}: dtype {given.dtype} given, must be that of factors[0], {dtype}")


def _draw(tensor: Tensor, bound: float) -> None:
    """Uniform on ±bound; complex numbers have two such parts, and together the same variance."""
    if tensor.is_complex():
        tensor, bound = torch.view_as_real(tensor), bound / math.sqrt(2)
    tensor.uniform_(-bound, bound)
