"""Models converted: dense linear layers become chains, and chains dense layers."""

from __future__ import annotations

import copy
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, overload

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils.parametrize import is_parametrized

from kronsparse.chains import Chain
from kronsparse.checks import check_option, check_size
from kronsparse.torch import backends
from kronsparse.torch.calibration import Calibration, covariances
from kronsparse.torch.conversion_report import ConversionReport, LayerReport
from kronsparse.torch.dense_layers import VALUES, dense_from, kind_of, layer_from, matrix_of
from kronsparse.torch.hugging_face import note_in_config
from kronsparse.torch.linear import KSLinear
from kronsparse.torch.rules import (
    Candidate,
    Rule,
    Rules,
    as_rules,
    chain_for,
    check_all_match,
    choose,
    real_dtype,
)

HEADS = ("lm_head", "head", "heads", "classifier", "score", "qa_outputs", "embed_out", "output_projection")
"""last or first parts of names that say a layer is a model's head"""
_REPORT = "_kronsparse_report"
_POLISH_WEIGHTED = 2

Progress = Callable[[int, int, str], object]
AnyModule = TypeVar("AnyModule", bound=nn.Module)


class _Place(NamedTuple):
    """A dense layer of a model, wherever it stands."""

    candidate: Candidate
    module: nn.Module
    refusal: str
    """why it should stay dense; nothing where it need not"""
    is_final: bool
    """whether an exact rule cannot change that"""


def convert(
    model: nn.Module,
    rules: Rules,
    calibration: Calibration | None = None,
    *,
    values: str = "factorize",
    inplace: bool = False,
    heads: bool = False,
    polish: int | None = None,
    weighting: str = "covariance",
    batch: int = 4096,
    measure: bool = False,
    progress: Progress | bool = False,
) -> nn.Module:
    """A new model whose linear layers are chains where rules say so. `report_of` tells what was done.

    `rules` is a chain for every layer, a dictionary, or a list of `Rule`. Keys of a dictionary are exact
    names, regular expressions (compiled, or text after "re:"), classes, or sizes (out_features, in_features);
    values are chains, numbers of parameters, shares of them (0.25 or "25%"), "advise(25%)" for the fastest
    chain within a share, or None for layers that stay dense. An exact name goes before other keys, and None
    before chains. A rule that matches nothing and rules that disagree are errors, and the model is then as it
    was.

    Layers are nn.Linear and Hugging Face's Conv1D. Heads stay dense unless `heads` is true or they are named
    exactly; so do layers whose weights another module has too, as a tied embedding. A layer that a rule
    without a name matches and its chain does not fit stays dense, and the report says why.

    - `calibration`: inputs of the model, a list of tensors, tuples or dictionaries, or a function that is
      called with the model. Values then minimise the errors of outputs, by the covariance of the inputs, or
      by its diagonal alone with `weighting` "diagonal", which takes less memory and time
    - `values`: "factorize", or "fresh" as for new layers
    - `inplace`: changes the model itself, and returns it
    - `polish`: sweeps of least squares after the factorisation; 0, or 2 with a covariance
    - `batch`, `measure`: samples that times of the report are for; whether they are measured, too
    - `progress`: is called with the number of layers done, that of all, and a name; True prints lines

    >>> model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64), nn.Linear(64, 10))
    >>> small = convert(model, {nn.Linear: "monarch(blocks=8)", "3": None})
    >>> small[0]
    KSLinear(in_features=64, out_features=256, chain=1x32x8x8*8x8x8x1, bias=True)
    >>> report_of(small).summary()
    '2 of 3 linear layers are chains; their matrices had 33408 parameters and have 5760'
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model: {type(model).__name__} given, must be a torch.nn.Module")
    check_option("values", values, VALUES)
    check_option("weighting", weighting, ("covariance", "diagonal"))
    check_size("batch", batch)
    given = as_rules(rules)
    places = _places(model, heads)
    layers = [place.candidate for place in places]
    converted_before = {name for name, module in model.named_modules() if isinstance(module, KSLinear)}
    check_all_match(given, layers, converted_before)
    plans = [_plan(place, choose(given, place.candidate), batch) for place in places]
    _check_something_fits(given, places, plans)
    _check_tied(places, plans)
    report = ConversionReport(
        [report for report, _ in plans], batch, _device_of(model), calibration is not None
    )
    chosen = [
        (place, rule, report)
        for place, (report, rule) in zip(places, plans, strict=True)
        if rule is not None and report.chain is not None
    ]
    tell = _print_progress if progress is True else progress or (lambda *_: None)
    sweeps = polish if polish is not None else (_POLISH_WEIGHTED if calibration is not None else 0)
    weighted = {}
    if calibration is not None:
        wanted = [place.module for place, rule, _ in chosen if (rule.values or values) == "factorize"]
        weighted = covariances(model, wanted, calibration, weighting == "diagonal")
    memo: dict[int, Any] = {}
    made: dict[int, KSLinear] = {}
    by_weight: dict[int, tuple[KSLinear, LayerReport]] = {}
    for number, (place, rule, line) in enumerate(chosen):
        tell(number, len(chosen), place.candidate.name)
        module: Any = place.module
        tied = by_weight.get(id(module.weight))
        if tied is not None:
            layer = _tied_layer(tied[0], module)
            line.error, line.lower_bound = tied[1].error, tied[1].lower_bound
        else:
            assert line.chain is not None
            covariance = weighted[id(module)]() if id(module) in weighted else None
            how = rule.values or values
            try:
                layer, line.error, line.lower_bound = layer_from(module, line.chain, how, covariance, sweeps)
            except ValueError as error:
                raise ValueError(f"{line.name or 'model'}: {error}") from None
            if rule.max_error is not None and line.error > rule.max_error:
                line.chain, line.parameters = None, line.dense_parameters
                line.reason = f"an error of {line.error:.3g}, more than {rule.max_error:g}"
                continue
            by_weight[id(module.weight)] = layer, line
        if layer.bias is not None:  # the same one, or its copy: other modules may have it, too
            layer.bias = module.bias if inplace else copy.deepcopy(module.bias, memo)
        if measure:
            line.measured_s, line.dense_measured_s = _measure(layer, module, batch)
        made[id(module)] = layer
    tell(len(chosen), len(chosen), "")
    converted = _replaced(model, {id(p.module): p for p in places}, made, inplace, memo)
    converted.__dict__[_REPORT] = report
    note_in_config(converted, chains_of(converted))
    return converted


def report_of(model: nn.Module) -> ConversionReport:
    """The report of `convert` on this model.

    >>> print(report_of(convert(nn.Linear(8, 8), "butterfly", values="fresh")).layers[0].chain)
    1x2x2x4*2x2x2x2*4x2x2x1
    """
    report = model.__dict__.get(_REPORT)
    if not isinstance(report, ConversionReport):
        raise ValueError("model: was not made by convert(), must be the model that convert() returned")
    return report


def chains_of(model: nn.Module) -> dict[str, str]:
    """The chain of every KSLinear of a model, by name: with fresh values, rules that make the same model.

    >>> chains_of(nn.Sequential(KSLinear(8, 8, "low_rank(rank=2)")))
    {'0': '1x8x2x1*1x2x8x1'}
    """
    found = model.named_modules(remove_duplicate=False)
    return {name: str(module.chain) for name, module in found if isinstance(module, KSLinear)}


@overload
def to_dense(what: AnyModule, inplace: bool = False) -> nn.Module: ...
@overload
def to_dense(what: Sequence[Tensor]) -> Tensor: ...
def to_dense(what: nn.Module | Sequence[Tensor], inplace: bool = False) -> nn.Module | Tensor:
    """Given a model, a new one, or the same `inplace`, whose chains are dense layers again, nn.Linear or what
    they were made of. Given factors (a, b, c, d), left factor first, their matrix, differentiable.

    >>> to_dense([torch.ones(1, 2, 1, 1), torch.ones(1, 1, 3, 1)])
    tensor([[1., 1., 1.],
            [1., 1., 1.]])
    >>> to_dense(nn.Sequential(KSLinear(8, 4)))
    Sequential(
      (0): Linear(in_features=8, out_features=4, bias=True)
    )
    """
    if not isinstance(what, nn.Module):
        return backends.to_dense(what)
    memo: dict[int, Any] = {}
    made: dict[int, nn.Module] = {}
    places: dict[int, _Place] = {}
    by_factors: dict[tuple[int, ...], nn.Parameter] = {}
    for name, module in what.named_modules(remove_duplicate=False):
        if not isinstance(module, KSLinear):
            continue
        if id(module) in places:
            place = places[id(module)]
            names = (*place.candidate.other_names, name)
            places[id(module)] = place._replace(candidate=place.candidate._replace(other_names=names))
            continue
        dense = dense_from(module)
        linear: Any = dense[0] if isinstance(dense, nn.Sequential) else dense
        linear.weight = by_factors.setdefault(tuple(map(id, module.factors)), linear.weight)
        if module.bias is not None:
            linear.bias = module.bias if inplace else copy.deepcopy(module.bias, memo)
        made[id(module)] = dense
        sizes = Candidate(name, module.out_features, module.in_features)
        places[id(module)] = _Place(sizes, module, "", False)
    converted = _replaced(what, places, made, inplace, memo)
    converted.__dict__.pop(_REPORT, None)
    note_in_config(converted, {})
    return converted


def _places(model: nn.Module, heads: bool) -> list[_Place]:
    found: dict[int, tuple[list[str], nn.Module]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        if kind_of(module):
            found.setdefault(id(module), ([], module))[0].append(name)
    owners: dict[int, list[str]] = {}
    for name, module in model.named_modules():
        for parameter in module._parameters.values():
            if parameter is not None:
                is_linear = bool(kind_of(module))
                owners.setdefault(id(parameter), []).append("" if is_linear else name or "the model")
    of_embeddings = getattr(model, "get_output_embeddings", None)
    try:
        output = of_embeddings() if of_embeddings is not None else None
    except (AttributeError, NotImplementedError):
        output = None
    places = []
    for names, module in found.values():
        weight: Any = module.weight
        refusal, is_final = _why_dense(model, names, module, owners.get(id(weight), [])), True
        if not refusal and not heads and (module is output or any(map(_is_head, names))):
            refusal, is_final = "a head: they stay dense unless heads=True or named exactly", False
        is_matrix = weight is not None and not is_lazy(weight) and weight.dim() == 2
        rows, cols = map(int, weight.shape) if is_matrix else (1, 1)
        if kind_of(module) == "Conv1D":
            rows, cols = cols, rows
        candidate = Candidate(names[0], rows, cols, type(module).__mro__, tuple(names[1:]))
        places.append(_Place(candidate, module, refusal, is_final))
    return places


def _is_head(name: str) -> bool:
    parts = name.split(".")
    return parts[0] in HEADS or parts[-1] in HEADS or name == "fc"


def _why_dense(model: nn.Module, names: Sequence[str], module: nn.Module, owners: Sequence[str]) -> str:
    """Why a dense layer cannot be replaced; nothing where it can."""
    kind = type(module)
    weight: Any = module.weight
    if is_parametrized(module) or "weight" not in module._parameters:
        return "its weight is computed: parametrized or pruned"
    if is_lazy(weight):
        return "its weight has no sizes yet: call the model once first"
    if weight is None or weight.dim() != 2 or not real_dtype(weight.dtype) or type(weight.data) is not Tensor:
        return f"its weight is a {type(weight).__name__} of {getattr(weight, 'dtype', 'nothing')}: quantized"
    if isinstance(module, nn.Linear) and kind.forward is not nn.Linear.forward:
        return f"a {kind.__name__}, whose forward is its own"
    if hasattr(module, "_hf_hook"):
        return "moved by a hook of accelerate: convert before device_map"
    if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks:
        return "has hooks, which would be lost: remove them first"
    others = [owner for owner in owners if owner]
    if others:
        return f"its weight is that of {others[0]}, too"
    for name in names:
        parent = model.get_submodule(name.rpartition(".")[0]) if "." in name else model
        if parent is not module and isinstance(parent, nn.MultiheadAttention):
            return "nn.MultiheadAttention multiplies by its matrix, not by the layer"
        if any(part.startswith("lora_") for part in name.split(".")):
            return "a part of an adapter"
    return ""


def set_chain(line: LayerReport, rule: Rule, predict: Callable[[Chain], float]) -> bool:
    """Takes the rule's chain for a layer into its line; false, with the reason there, if it stays dense."""
    assert rule.chain is not None
    try:
        chain = chain_for(rule.chain, line.rows, line.cols, predict)
    except ValueError as error:
        if rule.name is not None:
            raise ValueError(f"rules: {rule} does not fit {line.name!r}: {error}") from None
        line.reason = f"does not fit: {error}"
        return False
    if chain.nnz >= line.rows * line.cols:
        line.reason = f"{rule} would have as many parameters"
        return False
    line.chain, line.parameters, line.reason = chain, chain.nnz, str(rule)
    return True


def _plan(place: _Place, rule: Rule | None, batch: int) -> tuple[LayerReport, Rule | None]:
    """A line of the report, and the rule where the layer is to be converted."""
    layer = place.candidate
    whole = layer.rows * layer.cols
    line = LayerReport(layer.name, layer.rows, layer.cols, parameters=whole, other_names=layer.other_names)
    if rule is None or rule.chain is None:
        line.reason = "no rule" if rule is None else f"skipped by {rule}"
        return line, None
    if place.refusal and (place.is_final or rule.name is None):
        if rule.name is not None:
            raise ValueError(f"rules: {rule} names a layer that must stay dense: {place.refusal}")
        line.reason = place.refusal
        return line, None
    weight: Any = place.module.weight
    has_bias = getattr(place.module, "bias", None) is not None

    def predict(chain: Chain) -> float:
        return _predicted(chain, weight, batch, has_bias)

    if not set_chain(line, rule, predict):
        return line, None
    assert line.chain is not None
    line.predicted_s = predict(line.chain)
    line.dense_predicted_s = _predicted(None, weight, batch, has_bias, (layer.rows, layer.cols))
    return line, rule


def _check_something_fits(
    rules: Sequence[Rule], places: Sequence[_Place], plans: Sequence[tuple[LayerReport, Rule | None]]
) -> None:
    """That a rule with a chain converts a layer, or would if no other rule went before it."""
    for rule in rules:
        if rule.chain is None:
            continue
        matched = [
            line for place, (line, _) in zip(places, plans, strict=True) if rule.matches(place.candidate)
        ]
        reasons = {
            line.reason for line in matched if not line.is_converted and not line.reason.startswith("skipped")
        }
        if len(reasons) and not any(line.is_converted for line in matched):
            raise ValueError(
                f"rules: {rule} converts none of the {len(matched)} linear layers it matches: "
                f"{'; '.join(sorted(reasons))}"
            )


def _check_tied(places: Sequence[_Place], plans: Sequence[tuple[LayerReport, Rule | None]]) -> None:
    seen: dict[int, LayerReport] = {}
    for place, (line, _) in zip(places, plans, strict=True):
        module: Any = place.module
        first = seen.setdefault(id(module.weight), line)
        if first.chain != line.chain:
            raise ValueError(
                f"rules: {first.name!r} and {line.name!r} have one weight, and would get "
                f"{first.chain or 'dense'} and {line.chain or 'dense'}: must be the same"
            )


def _tied_layer(first: KSLinear, module: nn.Module) -> KSLinear:
    """A layer with the factors of another and a bias of its own."""
    layer = KSLinear(
        first.in_features,
        first.out_features,
        first.chain,
        getattr(module, "bias", None) is not None,
        device="meta",
        dtype=first.factors[0].dtype,
    )
    layer.replaced = first.replaced
    for name in first._factor_names:
        setattr(layer, name, getattr(first, name))
    return layer.train(module.training)


def _replaced(
    model: nn.Module,
    places: Mapping[int, _Place],
    made: Mapping[int, nn.Module],
    inplace: bool,
    memo: dict[int, Any],
) -> nn.Module:
    if id(model) in made:
        return made[id(model)]
    if not inplace:
        # Objects in the memo are not copied but taken, wherever the model refers to it.
        return copy.deepcopy(model, {**memo, **made})
    for key, layer in made.items():
        candidate = places[key].candidate
        for name in (candidate.name, *candidate.other_names):
            parent, _, child = name.rpartition(".")
            setattr(model.get_submodule(parent), child, layer)
    return model


def _device_of(model: nn.Module) -> str:
    return str(next((parameter.device for parameter in model.parameters()), "cpu"))


def _predicted(
    chain: Chain | None, weight: Tensor, batch: int, has_bias: bool, sizes: tuple[int, int] = (0, 0)
) -> float:
    """Seconds of a frozen layer or of a dense one; nan where there is no prediction."""
    dtype, device = weight.dtype, weight.device
    if device.type not in ("cpu", "cuda"):
        return math.nan
    try:
        if chain is not None:
            return backends._kernel_seconds(chain, dtype, "batch_first", device, batch, has_bias, None)
        return backends._dense_seconds(*sizes, dtype, "batch_first", device, batch, has_bias, None)
    except (ValueError, RuntimeError, AttributeError):
        return math.nan


def _measure(layer: KSLinear, dense: nn.Module, batch: int, runs: int = 5) -> tuple[float, float]:
    """Seconds of the frozen layer and of the dense one, the least of a few runs by turns."""
    matrix = matrix_of(dense)
    if matrix.device.type == "meta":
        return math.nan, math.nan
    x = torch.randn(batch, matrix.shape[1], device=matrix.device, dtype=matrix.dtype)
    frozen = copy.deepcopy(layer).eval().freeze()
    seconds = {frozen: math.inf, dense: math.inf}
    with torch.no_grad():
        for turn in range(runs + 2):
            for module in seconds:
                _wait(matrix.device)
                begun = time.perf_counter()
                module(x)
                _wait(matrix.device)
                if turn > 1:
                    seconds[module] = min(seconds[module], time.perf_counter() - begun)
    return seconds[frozen], seconds[dense]


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _print_progress(done: int, total: int, name: str) -> None:
    print(f"convert: {done} of {total}{f', {name}' if name else ''}", file=sys.stderr, flush=True)
