"""KSLinear on several processes: tensor parallel, FSDP2's shards, and inputs that are DTensors.

Nothing here is imported with `kronsparse.torch`: torch.distributed may be missing, and takes its time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ParallelStyle
from torch.distributed.tensor.placement_types import Placement as TensorPlacement

from kronsparse.chains import chain_text
from kronsparse.torch import backends, freezing, placements
from kronsparse.torch._library import features_dimension
from kronsparse.torch.functional import ACTIVATIONS, apply
from kronsparse.torch.linear import KSLinear
from kronsparse.torch.placements import WHOLE, Group, Placement, Stage, cut_features, cut_samples, move

__all__ = ["KSParallel", "ParallelKSLinear", "shard_evenly"]


class KSParallel(ParallelStyle):
    """A style for torch's `parallelize_module`: the factors of a KSLinear are shared out evenly.

    `cuts` has a letter for each factor, left factor first: the one of its sizes (a, b, c, d) that is divided.
    For a Monarch layer, (1, b, c, d) and (a, b, c, 1), "ca" needs nothing between the factors and adds up y
    (an all-reduce), "db" nothing between them and gathers y (an all-gather); "da" has an all-to-all between
    them, and another, or an all-gather, after them. Without `cuts` those are taken by which the least goes
    between the processes in a step of training.

    `input_layouts` is how x is given: Replicate() (the default), the features cut, Shard(-1), or Shard(0) in
    batch_last, or a dimension of the batch cut, as in sequence parallel. `output_layouts` is the same of y.
    Tensors are local ones; x may be a DTensor, and y is one with `use_local_output=False`. Parameters become
    DTensors.

    >>> import torch
    >>> from torch.distributed.device_mesh import init_device_mesh
    >>> from torch.distributed.tensor.parallel import parallelize_module
    >>> torch.distributed.init_process_group(
    ...     "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    ... )
    >>> mesh = init_device_mesh("cpu", (1,))
    >>> model = torch.nn.Sequential(KSLinear(64, 64))
    >>> model = parallelize_module(model, mesh, {"0": KSParallel(cuts="da")})
    >>> model[0]  # doctest: +ELLIPSIS
    ParallelKSLinear(in_features=64, ..., cuts=da, processes=1)
    >>> model(torch.ones(2, 64)).shape
    torch.Size([2, 64])
    >>> torch.distributed.destroy_process_group()
    """

    def __init__(
        self,
        cuts: str | None = None,
        *,
        input_layouts: TensorPlacement | None = None,
        output_layouts: TensorPlacement | None = None,
        use_local_output: bool = True,
    ) -> None:
        super().__init__()
        self.cuts = cuts
        self.input_layouts = input_layouts or Replicate()
        self.output_layouts = output_layouts or Replicate()
        self.use_local_output = use_local_output

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        if type(module) is not KSLinear:
            raise TypeError(f"module: {type(module).__name__} given, must be a KSLinear")
        if device_mesh.ndim != 1:
            raise ValueError(
                f"device_mesh: {device_mesh.ndim} dimensions given, must be one, as in mesh['tp']"
            )
        plan = _plan(self, module, device_mesh)
        module.unfreeze()
        for name, stage in zip(module._factor_names, plan.stages, strict=True):
            self._distribute(module, name, device_mesh, Shard(stage.dimension))
        if module.bias is not None:
            is_cut = plan.last.kind == "features"
            self._distribute(module, "bias", device_mesh, Shard(0) if is_cut else Replicate())
        # parallelize_module takes no other module in the place of one.
        module.__class__ = ParallelKSLinear
        module.__dict__["_plan"] = plan
        return module

    def _distribute(self, module: KSLinear, name: str, mesh: DeviceMesh, placement: TensorPlacement) -> None:
        given = module._parameters.get(name)
        if given is None:
            raise ValueError(f"module: its {name} is computed at each call, must be a parameter")
        if isinstance(given, DTensor):
            raise ValueError(
                f"module: its {name} is a DTensor, must be a plain tensor: was it parallelised before?"
            )
        shared = distribute_tensor(given, mesh, [placement], src_data_rank=self.src_data_rank)
        module.register_parameter(name, nn.Parameter(shared, requires_grad=given.requires_grad))

    def __repr__(self) -> str:
        return (
            f"KSParallel(cuts={self.cuts!r}, input_layouts={self.input_layouts}, "
            f"output_layouts={self.output_layouts}, use_local_output={self.use_local_output})"
        )


class _Part(NamedTuple):
    """Neighbouring factors with nothing between the processes between them."""

    names: tuple[str, ...]
    """left factor first"""
    before: Placement
    after: Placement
    gradient_is_sum: bool


class _Plan(NamedTuple):
    """The work of a parallel layer at each call."""

    group: Group
    cuts: str
    stages: tuple[Stage, ...]
    parts: tuple[_Part, ...]
    """in the order in which they are applied"""
    first: Placement
    last: Placement
    input_layout: TensorPlacement
    output_layout: TensorPlacement
    use_local_output: bool


def _plan(style: KSParallel, layer: KSLinear, mesh: DeviceMesh) -> _Plan:
    group = Group(mesh, layer.layout)
    first = _placement("input_layouts", style.input_layouts, layer.layout)
    last = _placement("output_layouts", style.output_layouts, layer.layout)
    for argument, placement, given in (
        ("input_layouts", first, layer.in_features),
        ("output_layouts", last, layer.out_features),
    ):
        if placement.kind == "features" and given % group.processes:
            raise ValueError(
                f"{argument}: the features cut, and the layer has {given}, which is no multiple of the "
                f"{group.processes} processes"
            )
    cuts = style.cuts
    if cuts is None:
        cuts = placements.least_traffic(layer.chain, group.processes, first, last)
    stages = _stages(cuts, layer, group.processes)
    return _Plan(
        group,
        cuts,
        stages,
        _parts(stages, layer._factor_names, first),
        first,
        last,
        style.input_layouts,
        style.output_layouts,
        style.use_local_output,
    )


def _stages(cuts: str, layer: KSLinear, processes: int) -> tuple[Stage, ...]:
    chain = layer.chain
    if len(cuts) != len(chain) or not set(cuts) <= set("abcd"):
        raise ValueError(
            f"cuts: {cuts!r} given, must have one of the letters a, b, c, d for each of the {len(chain)} "
            f"factors of {chain_text(chain)}"
        )
    found = []
    for index, (letter, pattern) in enumerate(zip(cuts, chain, strict=True)):
        ways = placements.stages(pattern, processes)
        if letter not in ways:
            raise ValueError(
                f"cuts: {letter!r} given for factor{index}, {pattern}, must be one of "
                f"{', '.join(ways) or 'none'}: {processes} processes share a size that is a multiple of them"
            )
        found.append(ways[letter])
    return tuple(found)


def _parts(stages: Sequence[Stage], names: Sequence[str], first: Placement) -> tuple[_Part, ...]:
    parts: list[_Part] = []
    for name, stage in zip(reversed(names), reversed(stages), strict=True):
        if parts and parts[-1].after == stage.before:
            parts[-1] = parts[-1]._replace(names=(name, *parts[-1].names), after=stage.after)
        else:
            parts.append(_Part((name,), stage.before, stage.after, stage.gradient_is_sum))
    return tuple(parts)


def _placement(argument: str, given: TensorPlacement, layout: str) -> Placement:
    """torch's placement as ours. Features are the last dimension by -1: a batch may have any number of
    dimensions."""
    if type(given) is Replicate:
        return WHOLE
    if type(given) is Shard:
        if given.dim == features_dimension(layout):
            return cut_features(1)
        if given.dim >= (layout == "batch_last"):
            return cut_samples(given.dim)
    raise ValueError(
        f"{argument}: {given} given, must be Replicate(), Shard({features_dimension(layout)}) for the "
        "features, or Shard(n) for dimension n of the batch, counted from the first"
    )


class ParallelKSLinear(KSLinear):
    """A KSLinear whose factors `KSParallel` has shared out among processes. All of them call it together.

    Factors and bias are DTensors, so that optimisers, clipping, `torch.distributed.checkpoint` and FSDP2 know
    them. `to_dense()` and `weight` gather the factors first.
    """

    _plan: _Plan
    _frozen_parts: list[freezing.Frozen] | None = None
    _frozen_versions: list[tuple[int, int]]
    takes_distributed = True

    def forward(self, x: Tensor) -> Tensor:
        plan = self._plan
        backend = self._torch_backend(self.factors[0])
        frozen = self._unchanged_parts()
        y, placement = self._local_input(x), plan.first
        bias = _local(self.bias)
        activation = self.activation
        is_last_fused = plan.parts[-1].after == plan.last
        for index, part in enumerate(plan.parts):
            y = move(y, placement, part.before, plan.group, part.gradient_is_sum)
            placement = part.after
            factors = [_local(getattr(self, name)) for name in part.names]
            packed = frozen[index].packed if frozen is not None and backend == "kernel" else 0
            if is_last_fused and index == len(plan.parts) - 1:
                return self._output(apply(y, factors, bias, activation, self.layout, backend, packed))
            y = apply(y, factors, None, None, self.layout, backend, packed)
        y = move(y, placement, plan.last, plan.group)
        if bias is not None:
            # Each process has the gradient of its own samples.
            bias = move(bias, WHOLE, WHOLE, plan.group, gradient_is_sum=plan.last.kind == "samples")
            bias = bias.to(y.dtype)  # under autocast the product alone is in another dtype
            y = y + (bias if self.layout == "batch_first" else bias.view(-1, *[1] * (y.dim() - 1)))
        return self._output(y if activation is None else ACTIVATIONS[activation](y))

    def _local_input(self, x: Tensor) -> Tensor:
        plan = self._plan
        if isinstance(x, DTensor) and x.device_mesh != plan.group.mesh:
            raise ValueError(f"x: a DTensor on {x.device_mesh} given, must be on {plan.group.mesh}")
        for argument, placement in (("input_layouts", plan.first), ("output_layouts", plan.last)):
            if placement.kind == "samples" and placement.where >= x.dim() - (self.layout == "batch_first"):
                raise ValueError(
                    f"x: sizes {tuple(x.shape)} given, must have a dimension {placement.where} in its batch: "
                    f"{argument} is Shard({placement.where})"
                )
        if isinstance(x, DTensor):
            if plan.first.kind == "samples":
                placements.check_divided(x.shape, plan.first.where, plan.group.processes)
            x = x.redistribute(placements=[plan.input_layout]).to_local()
        features = features_dimension(self.layout)
        expected = self.in_features
        if plan.first.kind == "features":
            expected //= plan.group.processes
        if x.dim() == 0 or x.shape[features] != expected:
            raise ValueError(
                f"x: local sizes {tuple(x.shape)} given, that of the features must be {expected}: "
                f"input_layouts is {plan.input_layout} on {plan.group.processes} processes"
            )
        return x

    def _output(self, y: Tensor) -> Tensor:
        plan = self._plan
        if plan.use_local_output:
            return y
        return DTensor.from_local(y, plan.group.mesh, [plan.output_layout], run_check=False)

    def to_dense(self) -> Tensor:
        """W, the out_features x in_features matrix, on every process; differentiable."""
        return backends.to_dense([_gathered(values) for values in self.factors])

    @property
    def weight(self) -> Tensor:
        """The same."""
        return self.to_dense()

    @weight.setter
    def weight(self, given: object) -> None:
        KSLinear.weight.fset(self, given)  # type: ignore[attr-defined]

    def freeze(self) -> ParallelKSLinear:
        """As of KSLinear: every process keeps packed copies of its parts. `auto` never takes one dense
        product here."""
        reason = freezing.why_not(self)
        if reason:
            raise RuntimeError(f"layer: cannot be frozen: {reason}")
        self._frozen_parts = [freezing.Frozen(self._own_factors(part)) for part in self._plan.parts]
        self._frozen_versions = self._versions()
        return self

    def unfreeze(self) -> ParallelKSLinear:
        """Undoes `freeze()`, and returns the layer."""
        self._frozen_parts = None
        return self

    @property
    def is_frozen(self) -> bool:
        """Whether the factors are promised to stay."""
        return self._frozen_parts is not None

    def _own_factors(self, part: _Part) -> list[Tensor]:
        """The memory of the factors in this process: the same tensors at each call."""
        return [getattr(self, name)._local_tensor for name in part.names]

    def _versions(self) -> list[tuple[int, int]]:
        """Changes show in a DTensor's version, and not in that of the memory behind it."""
        return [(id(values), values._version) for values in self.factors]

    def _unchanged_parts(self) -> list[freezing.Frozen] | None:
        if self._frozen_parts is None:
            return None
        for part, frozen in zip(self._plan.parts, self._frozen_parts, strict=True):
            factors = self._own_factors(part)
            if frozen.is_changed(factors):
                raise frozen.refuse(part.names, factors)
        pairs = zip(self._factor_names, self._frozen_versions, self._versions(), strict=True)
        for name, before, now in pairs:
            if before != now:
                raise RuntimeError(freezing.changed(name, "was changed"))
        return self._frozen_parts

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, cuts={self._plan.cuts}, processes={self._plan.group.processes}"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_frozen_parts"}


def _local(parameter: Tensor | None) -> Any:
    """The part of a parameter that this process has; FSDP2 gives plain tensors, or DTensors as before."""
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter


def _gathered(values: Tensor) -> Tensor:
    # Every process makes the same from the whole tensor, so its gradient is the same, too.
    return values.full_tensor() if isinstance(values, DTensor) else values


def shard_evenly(parameter: nn.Parameter, processes: int | None = None) -> Shard:
    """For `fully_shard(layer, shard_placement_fn=shard_evenly)`: the largest dimension that all processes
    share evenly. FSDP2 alone takes the first dimension, which of a Monarch layer's left factor is 1: one
    process would hold all of it.

    `processes` is how many share a parameter, by default those of the default group: with a mesh of several
    dimensions give `functools.partial(shard_evenly, processes=mesh["dp"].size())`. Where no dimension is
    divided the first is taken, as FSDP2 does.

    >>> from torch.nn import Parameter
    >>> import torch
    >>> shard_evenly(Parameter(torch.empty(1, 16, 9, 8)), processes=8)
    Shard(dim=1)
    """
    if processes is None:
        processes = dist.get_world_size()
    local = parameter.to_local() if isinstance(parameter, DTensor) else parameter
    return Shard(placements.evenly_divided(local.shape, processes))


def call_distributed(
    x: Tensor, factors: Sequence[Tensor], bias: Tensor | None, layout: str, call: Callable[..., Tensor]
) -> Tensor:
    """`call(x, factors, bias)` with the local tensors of DTensors: each process has some samples, and all
    factors. Those that are cut are gathered, and so are features that are."""
    parameters = [*factors, *([] if bias is None else [bias])]
    mesh = next(one.device_mesh for one in (x, *parameters) if isinstance(one, DTensor))
    for name, one in zip(
        ("x", *(f"factor{index}" for index in range(len(factors))), "bias"), (x, *parameters), strict=False
    ):
        if not isinstance(one, DTensor):
            raise ValueError(
                f"{name}: a plain tensor given beside DTensors, must be a DTensor, too: for parameters "
                "torch.distributed.tensor.distribute_module(model, mesh), or parallelize_module with "
                "kronsparse.torch.parallel.KSParallel; for x DTensor.from_local"
            )
        if one.device_mesh != mesh:
            raise ValueError(f"{name}: on {one.device_mesh}, must be on {mesh}, as the others")
    assert isinstance(x, DTensor)
    features = features_dimension(layout) % x.dim()
    kept = [
        one if type(one) is Shard and one.dim % x.dim() != features else Replicate() for one in x.placements
    ]
    # A parameter's gradient is the sum over the processes that have other samples.
    of_gradient: list[TensorPlacement] = [
        Partial() if isinstance(one, Shard) else Replicate() for one in kept
    ]
    whole = functools.partial(_whole, gradient=of_gradient)
    y = call(
        x.redistribute(placements=kept).to_local(),
        [whole(values) for values in factors],
        None if bias is None else whole(bias),
    )
    shape = list(x.shape)
    shape[features] = y.shape[features]
    stride = _strides(shape)
    return DTensor.from_local(
        y.contiguous(), mesh, kept, run_check=False, shape=torch.Size(shape), stride=stride
    )


def _whole(parameter: Any, gradient: list[TensorPlacement]) -> Tensor:
    replicated = parameter.redistribute(placements=[Replicate()] * parameter.device_mesh.ndim)
    local: Tensor = replicated.to_local(grad_placements=gradient)
    return local


def _strides(shape: Sequence[int]) -> tuple[int, ...]:
    strides = [1]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * max(size, 1))
    return tuple(reversed(strides))
