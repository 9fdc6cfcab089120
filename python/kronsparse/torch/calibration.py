"""The covariances of layers' inputs, from inputs of their model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from kronsparse.torch.dense_layers import matrix_of

Calibration = Iterable[Any] | Callable[[nn.Module], object]
MOST_BYTES = 4 << 30
"""of covariances that are kept at a time; for more layers the model is run again"""


def covariances(
    model: nn.Module, layers: Sequence[nn.Module], calibration: Calibration, diagonal: bool
) -> dict[int, Callable[[], Tensor]]:
    """A function for the covariance of each layer's inputs, by the layer's id; to be called in the order of
    the layers, once each.

    >>> model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    >>> covariances(model, [model[0]], [torch.eye(2)], diagonal=True)[id(model[0])]()
    tensor([0.5000, 0.5000])
    """
    run = _runner(model, calibration)
    groups: list[list[nn.Module]] = []
    room = 0
    for layer in layers:
        needed = _bytes(layer, diagonal)
        if not groups or needed > room:
            groups.append([])
            room = MOST_BYTES
        groups[-1].append(layer)
        room -= needed
    found: dict[int, Tensor] = {}

    def of(layer: nn.Module, group: list[nn.Module]) -> Tensor:
        if id(layer) not in found:
            found.clear()
            found.update(_collect(model, group, run, diagonal))
        return found[id(layer)]

    return {id(layer): partial(of, layer, group) for group in groups for layer in group}


def _bytes(layer: nn.Module, diagonal: bool) -> int:
    cols = int(matrix_of(layer).shape[1])
    return 4 * (cols if diagonal else cols * cols)


def _runner(model: nn.Module, calibration: Calibration) -> Callable[[], None]:
    if callable(calibration):
        function = calibration

        def run() -> None:
            function(model)

        return run
    if isinstance(calibration, (Tensor, str, Mapping)) or not isinstance(calibration, Iterable):
        raise TypeError(
            f"calibration: {type(calibration).__name__} given, must be a list of inputs, or a function of "
            "the model"
        )
    batches = list(calibration)  # it may be read more than once
    if not batches:
        raise ValueError("calibration: no inputs given, must be at least one")

    def run_batches() -> None:
        for batch in batches:
            if isinstance(batch, Mapping):
                model(**batch)
            elif isinstance(batch, (tuple, list)):
                model(*batch)
            else:
                model(batch)

    return run_batches


def _collect(
    model: nn.Module, layers: Sequence[nn.Module], run: Callable[[], None], diagonal: bool
) -> dict[int, Tensor]:
    sums: dict[int, Tensor] = {}
    counts: dict[int, int] = {}

    def hook(layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        x = inputs[0].detach().reshape(-1, inputs[0].shape[-1])
        x = x if x.dtype == torch.float64 else x.float()
        second = x.square().sum(0) if diagonal else x.t() @ x
        key = id(layer)
        sums[key] = sums[key].add_(second) if key in sums else second
        counts[key] = counts.get(key, 0) + x.shape[0]

    handles = [layer.register_forward_pre_hook(hook) for layer in layers]
    was_training = model.training
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        with torch.no_grad():
            run()
    finally:
        for handle in handles:
            handle.remove()
        if was_training:
            for module, mode in modes:
                module.training = mode
    found = {}
    for layer in layers:
        if id(layer) not in sums:
            raise ValueError(
                "calibration: a layer that is to be converted was never called; its inputs must reach every "
                "layer, or rules leave that one out"
            )
        mean = sums[id(layer)] / counts[id(layer)]
        if not bool(mean.isfinite().all()):
            raise ValueError("calibration: the inputs of a layer have elements that are not finite")
        # Directions that never occurred count a little, so that the best factors are one answer.
        floor = 1e-6 * float((mean if diagonal else mean.diagonal()).mean()) or 1e-12
        found[id(layer)] = mean.clamp_min(floor) if diagonal else mean + floor * torch.eye(len(mean)).to(mean)
    return found
