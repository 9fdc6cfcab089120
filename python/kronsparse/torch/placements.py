"""The places of a tensor's elements among the processes of a group, and how they get elsewhere.

A tensor with features and samples is in one of four placements:

- `WHOLE`: every process has all of it.
- `SUM`: every process has a tensor of its size, and it is the sum of them.
- `cut_features(outer)`: its features are (outer, processes, inner), and each process has one index of the
  middle. With outer = 1 a process has a run of neighbouring features.
- `cut_samples(dimension)`: each process has a part of this dimension of the batch.

A factor (a, b, c, d) whose a is shared out takes features that are cut with outer = 1, and leaves them so. If
d is, they are cut with outer = a·c before, and a·b after. If c is, they are cut with outer = a, and what
leaves is a sum; if b is, x is whole, and what leaves is cut with outer = a.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed._functional_collectives as collectives
from torch import Tensor

from kronsparse.chains import Chain, Pattern
from kronsparse.torch._library import features_dimension

# torch 2.13 gave them other names.
_all_gather = getattr(collectives, "all_gather_single", None) or collectives.all_gather_tensor
_reduce_scatter = getattr(collectives, "reduce_scatter_single", None) or collectives.reduce_scatter_tensor


class Placement(NamedTuple):
    """One of the four; `where` is the outer size of cut features, or the dimension of cut samples."""

    kind: str
    where: int = 0


WHOLE = Placement("whole")
SUM = Placement("sum")


def cut_features(outer: int) -> Placement:
    """Features cut with this outer size."""
    return Placement("features", outer)


def cut_samples(dimension: int) -> Placement:
    """Samples cut in this dimension."""
    return Placement("samples", dimension)


class Stage(NamedTuple):
    """A factor with one of its dimensions shared out."""

    dimension: int
    """0, 1, 2 or 3 for a, b, c, d"""
    before: Placement
    after: Placement

    @property
    def gradient_is_sum(self) -> bool:
        """Whether each process computes a part of the gradient of all of x."""
        return self.before == WHOLE


def stages(pattern: Pattern, processes: int) -> dict[str, Stage]:
    """The ways to share out a factor evenly, by the letter of its dimension.

    >>> sorted(stages(Pattern(1, 16, 8, 8), 4))
    ['b', 'c', 'd']
    """
    a, b, c, _ = pattern
    ways = {
        "a": Stage(0, cut_features(1), cut_features(1)),
        "b": Stage(1, WHOLE, cut_features(a)),
        "c": Stage(2, cut_features(a), SUM),
        "d": Stage(3, cut_features(a * c), cut_features(a * b)),
    }
    return {
        letter: stage
        for size, (letter, stage) in zip(pattern, ways.items(), strict=True)
        if size % processes == 0
    }


def _is_exchange(source: Placement, target: Placement, processes: int) -> bool:
    """Whether one all-to-all is the way between two cuts."""
    if source.kind != "features" or target.kind != "features":
        return source.kind != target.kind
    small, large = sorted((source.where, target.where))
    return large % (small * processes) == 0


def _elements(source: Placement, target: Placement, processes: int) -> float:
    """The load that a process receives on this way, in units of all features of all samples."""
    others = (processes - 1) / processes
    if source in (target, WHOLE):
        return 0.0
    if source == SUM:
        return 2 * others if target == WHOLE else others
    if target != WHOLE and _is_exchange(source, target, processes):
        return others / processes
    return others


def traffic(source: Placement, target: Placement, gradient_is_sum: bool, processes: int) -> float:
    """The same, there and for gradients back.

    >>> traffic(cut_features(1), cut_features(8), False, 2)  # a quarter each way
    0.5
    >>> traffic(SUM, WHOLE, False, 2)  # an all-reduce, and nothing on the way back
    1.0
    """
    back = _elements(_of_gradient(target, gradient_is_sum), _of_gradient(source, False), processes)
    return _elements(source, target, processes) + back


def _of_gradient(placement: Placement, gradient_is_sum: bool) -> Placement:
    """The placement of a gradient, given that of its tensor."""
    if placement == WHOLE:
        return SUM if gradient_is_sum else WHOLE
    return WHOLE if placement == SUM else placement


def least_traffic(chain: Chain, processes: int, first: Placement, last: Placement) -> str:
    """The dimensions that are shared out, a letter for each factor, left factor first, so that the least goes
    between the processes in a step of training. x is given as `first`, y is left as `last`.

    >>> from kronsparse.chains import monarch
    >>> least_traffic(monarch(64, 64), 4, cut_features(1), cut_features(1))
    'da'
    >>> least_traffic(monarch(64, 64), 2, WHOLE, WHOLE)
    'db'
    """
    reached: dict[Placement, _Way] = {first: _Way(0.0, 0.0, "")}
    for pattern in reversed(chain):
        found: dict[Placement, _Way] = {}
        for letter, stage in stages(pattern, processes).items():
            for source, way in reached.items():
                there = way.over(pattern.cols, source, stage.before, stage.gradient_is_sum, processes)
                there = there._replace(letters=letter + way.letters)
                found[stage.after] = min(found.get(stage.after, there), there)
        if not found:
            raise ValueError(
                f"chain: {processes} processes cannot share out {pattern}, one of its four sizes must be a "
                "multiple of them"
            )
        reached = found
    rows = chain[0].rows
    return min(way.over(rows, source, last, False, processes) for source, way in reached.items()).letters


class _Way(NamedTuple):
    """Cuts of some factors; of equal traffic the one is less that leaves less of it to the forward pass."""

    traffic: float
    forward: float
    letters: str

    def over(
        self, features: int, source: Placement, target: Placement, gradient_is_sum: bool, processes: int
    ) -> _Way:
        """The same, and a move of so many features."""
        return self._replace(
            traffic=self.traffic + features * traffic(source, target, gradient_is_sum, processes),
            forward=self.forward + features * _elements(source, target, processes),
        )


class Group(NamedTuple):
    """The processes, and the layout of the tensors that they share."""

    mesh: Any
    layout: str

    @property
    def processes(self) -> int:
        return int(self.mesh.size())


def move(
    x: Tensor, source: Placement, target: Placement, group: Group, gradient_is_sum: bool = False
) -> Tensor:
    """x in another placement; differentiable. With `gradient_is_sum` the gradient of what is returned, which
    is whole, will be a sum."""
    if source == target and not gradient_is_sum:
        return x
    y: Tensor = _Move.apply(x, source, target, group, gradient_is_sum)  # type: ignore[no-untyped-call]
    return y


class _Move(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, source: Placement, target: Placement, group: Group, gradient_is_sum: bool
    ) -> Tensor:
        ctx.way = _of_gradient(target, gradient_is_sum), _of_gradient(source, False), group
        y = _moved(x, source, target, group)
        return x.view_as(x) if y is x else y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        return _moved(g, *ctx.way), None, None, None, None


def _moved(x: Tensor, source: Placement, target: Placement, group: Group) -> Tensor:
    if source == target:
        return x
    processes, layout = group.processes, group.layout
    if source == WHOLE:
        return _split(x, target, processes, layout)[group.mesh.get_local_rank()]
    if source == SUM:
        if target == WHOLE:
            return _wait(collectives.all_reduce(x.contiguous(), "sum", (group.mesh, 0)))
        parts = _split(x, target, processes, layout).contiguous()
        return _wait(_reduce_scatter(parts, "sum", 0, (group.mesh, 0))).squeeze(0)
    if target != WHOLE and _is_exchange(source, target, processes):
        return _exchanged(x, source, target, group)
    gathered = _all_gather(x.contiguous().unsqueeze(0), 0, (group.mesh, 0))
    whole = _join(_wait(gathered), source, layout)
    return whole if target == WHOLE else _moved(whole, WHOLE, target, group)


def _exchanged(x: Tensor, source: Placement, target: Placement, group: Group) -> Tensor:
    """One all-to-all. Of two cuts of the features the finer one has fewer of its runs in a process."""
    processes = group.processes
    splitting, joining = target, source
    if source.kind == target.kind:
        if target.where > source.where:
            splitting = cut_features(target.where // processes)
        else:
            joining = cut_features(source.where // processes)
    parts = _split(x, splitting, processes, group.layout).contiguous()
    received = _wait(collectives.all_to_all_single(parts, None, None, (group.mesh, 0)))
    return _join(received, joining, group.layout)


def _split(x: Tensor, cut: Placement, processes: int, layout: str) -> Tensor:
    """The parts of x that belong to each process, along a new first dimension."""
    parts: Tensor
    if cut.kind == "samples":
        check_divided(x.shape, cut.where, processes)
        parts = x.unflatten(cut.where, (processes, -1)).movedim(cut.where, 0)
        return parts
    features = features_dimension(layout) % x.dim()
    apart = x.unflatten(features, (cut.where, processes, -1)).movedim(features + 1, 0)
    parts = apart.flatten(features + 1, features + 2)
    return parts


def check_divided(sizes: Sequence[int], dimension: int, processes: int) -> None:
    """That samples are cut into equal parts."""
    if sizes[dimension] % processes:
        raise ValueError(
            f"x: sizes {tuple(sizes)} given, that of dimension {dimension} must be a multiple of the "
            f"{processes} processes"
        )


def _join(parts: Tensor, cut: Placement, layout: str) -> Tensor:
    """Undoes `_split`."""
    joined: Tensor
    if cut.kind == "samples":
        joined = parts.movedim(0, cut.where).flatten(cut.where, cut.where + 1)
        return joined
    features = features_dimension(layout) % (parts.dim() - 1)
    apart = parts.unflatten(features + 1, (cut.where, -1)).movedim(0, features + 1)
    joined = apart.flatten(features, features + 2)
    return joined


def _wait(tensor: Tensor) -> Tensor:
    waited: Tensor = collectives.wait_tensor(tensor)
    return waited


def evenly_divided(sizes: Sequence[int], processes: int) -> int:
    """The largest dimension that so many processes share evenly, or the first.

    >>> evenly_divided((1, 16, 9, 8), 4)
    1
    """
    divided = [at for at, size in enumerate(sizes) if size % processes == 0]
    return max(divided, key=lambda at: sizes[at], default=0)
