"""Rules of `convert`: which layers of a model become chains, and which chains."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from kronsparse.chains import Chain, ChainLike, as_chain, for_budget
from kronsparse.checks import as_size, check_option

VALUES = ("factorize", "fresh")
# The least share of a budget that an advised chain uses: one with fewer is faster, and can do less.
USED_AT_LEAST = 0.5

ChainChoice = ChainLike | int | float | None
"""A chain; a number of parameters; their share of the dense layer's as a float or as in "25%"; "advise(25%)"
for the fastest chain within it; None for a layer that stays dense."""
Rules = ChainChoice | Mapping[Any, ChainChoice] | Sequence["Rule"]


class Candidate(NamedTuple):
    """A dense layer, as rules see it."""

    name: str
    rows: int
    cols: int
    types: tuple[type, ...] = ()
    """classes of the layer; none for a tensor in a file"""
    other_names: tuple[str, ...] = ()
    """where the same module stands, too"""


@dataclass(frozen=True)
class Rule:
    """Layers that fulfil every condition given get this chain; None leaves them dense.

    `name` is the exact name of a layer, `pattern` a regular expression that matches the whole name, `type` a
    class or its name, `shape` (out_features, in_features); `min_size` and `max_size` are limits of the
    smaller of the two. `values` is "factorize" or "fresh", as for `convert`. Where the error of a
    factorisation is more than `max_error` the layer stays dense.

    >>> Rule("monarch(blocks=32)", pattern=r".*[.]mlp[.].*", min_size=1024).matches(
    ...     Candidate("layers.3.mlp.up", 4096, 1024))
    True
    """

    chain: ChainChoice
    name: str | None = None
    pattern: str | re.Pattern[str] | None = None
    type: type | str | None = None
    shape: tuple[int, int] | None = None
    min_size: int = 0
    max_size: int | None = None
    values: str | None = None
    max_error: float | None = None

    def __post_init__(self) -> None:
        if self.values is not None:
            check_option("values", self.values, VALUES)
        if self.max_error is not None and not self.max_error >= 0:
            raise ValueError(f"max_error: {self.max_error} given, must be at least 0")
        for name, given, kinds, must in (
            ("name", self.name, str, "text"),
            ("pattern", self.pattern, (str, re.Pattern), "text or a compiled regular expression"),
            ("type", self.type, (str, type), "a class or its name"),
            ("min_size", self.min_size, int, "an integer"),
            ("max_size", self.max_size, int, "an integer"),
        ):
            if given is not None and not isinstance(given, kinds):
                raise ValueError(f"{name}: {given!r} given, must be {must}")
        if self.shape is not None and not (len(self.shape) == 2 and all(map(as_size, self.shape))):
            raise ValueError(f"shape: {self.shape!r} given, must be (out_features, in_features)")
        if isinstance(self.pattern, str):
            try:
                re.compile(self.pattern)
            except re.error as error:
                raise ValueError(
                    f"pattern: {self.pattern!r} given, is no regular expression: {error}"
                ) from None

    def __str__(self) -> str:
        shown = [
            f"{key}={getattr(value, 'pattern', None) or getattr(value, '__name__', None) or value!r}"
            for key, value in vars(self).items()
            if key != "chain" and value
        ]
        return f"Rule({', '.join([repr(self.chain), *shown])})"

    def matches(self, layer: Candidate) -> bool:
        """Whether a layer fulfils every condition."""
        names = (layer.name, *layer.other_names)
        small = min(layer.rows, layer.cols)
        return (
            (self.name is None or self.name in names)
            and (self.pattern is None or any(re.fullmatch(self.pattern, one) for one in names))
            and (self.type is None or any(_is_of(one, self.type) for one in layer.types))
            and (self.shape is None or tuple(self.shape) == (layer.rows, layer.cols))
            and small >= self.min_size
            and (self.max_size is None or small <= self.max_size)
        )

    @property
    def outcome(self) -> tuple[Any, ...]:
        """The part that rules must agree about."""
        chain = self.chain if isinstance(self.chain, (str, int, float, type(None))) else Chain(self.chain)  # type: ignore[arg-type]
        return (None,) if chain is None else (chain, self.values, self.max_error)


def _is_of(kind: type, wanted: type | str) -> bool:
    return kind.__name__ == wanted if isinstance(wanted, str) else issubclass(kind, wanted)


def as_rules(given: Rules) -> list[Rule]:
    """Rules from what `convert` takes: a list of them, a dictionary, or one chain for every layer.

    Keys of a dictionary are exact names, regular expressions (compiled, or as text after "re:"), classes and
    sizes (out_features, in_features).

    >>> as_rules({"re:.*mlp.*": "monarch", (64, 64): 0.25, "head": None})[1].shape
    (64, 64)
    """
    if isinstance(given, Mapping):
        return [_rule_of(key, chain) for key, chain in given.items()]
    if isinstance(given, Sequence) and not isinstance(given, (str, Chain)):
        rules = list(given)
        if rules and all(isinstance(rule, Rule) for rule in rules):
            return rules
        if any(isinstance(rule, Rule) for rule in rules) or not rules:
            raise ValueError(f"rules: {given!r} given, must be rules, and at least one")
    if given is None:
        raise ValueError("rules: None given, must say what becomes a chain")
    return [Rule(given)]  # type: ignore[arg-type]


def _rule_of(key: Any, chain: ChainChoice) -> Rule:
    if isinstance(key, str):
        return Rule(chain, pattern=key[3:]) if key.startswith("re:") else Rule(chain, name=key)
    if isinstance(key, re.Pattern):
        return Rule(chain, pattern=key)
    if isinstance(key, type):
        return Rule(chain, type=key)
    if isinstance(key, tuple) and len(key) == 2 and all(map(as_size, key)):
        return Rule(chain, shape=key)
    raise ValueError(
        f"rules: the key {key!r} given, must be a name, a regular expression (re.compile or 're:...'), a "
        "class, or sizes (out_features, in_features)"
    )


def rules_from_toml(text: str) -> list[Rule]:
    """Rules from TOML: tables [[rule]] with the arguments of `Rule`. No chain leaves a layer dense.

    >>> rules_from_toml('''
    ... [[rule]]
    ... pattern = '.*[.]mlp[.].*'
    ... chain = "monarch(blocks=32)"
    ... [[rule]]
    ... name = "layers.0.mlp.up"
    ... ''')[1].chain is None
    True
    """
    try:
        import tomllib
    except ImportError:  # Python 3.10
        try:
            import tomli as tomllib  # type: ignore[import-not-found,no-redef,unused-ignore]
        except ImportError:
            raise ModuleNotFoundError("rules in TOML need Python 3.11, or tomli: pip install tomli") from None
    found = tomllib.loads(text)
    unknown = found.keys() - {"rule"}
    tables = found.get("rule", [])
    if unknown or not isinstance(tables, list) or not tables:
        raise ValueError(f"rules: {', '.join(sorted(found)) or 'nothing'} given, must be tables [[rule]]")
    rules = []
    for number, table in enumerate(tables, 1):
        allowed = Rule.__dataclass_fields__.keys()
        if table.keys() - allowed:
            raise ValueError(
                f"rules: {', '.join(sorted(table.keys() - allowed))} given in rule {number}, must be of "
                f"{', '.join(allowed)}"
            )
        if "shape" in table:
            table = {**table, "shape": tuple(table["shape"])}
        rules.append(Rule(**{"chain": None, **table}))
    return rules


def choose(rules: Sequence[Rule], layer: Candidate) -> Rule | None:
    """The rule for a layer. An exact name goes before all others, and None before a chain; beyond that,
    rules that match must agree."""
    matching = [rule for rule in rules if rule.matches(layer)]
    named = [rule for rule in matching if rule.name is not None]
    skipping = [rule for rule in matching if rule.chain is None]
    pool = named or skipping or matching
    for other in pool[1:]:
        if other.outcome != pool[0].outcome:
            raise ValueError(
                f"rules: {pool[0]} and {other} disagree about {layer.name!r}; name the layer exactly to "
                "decide"
            )
    return pool[0] if pool else None


def check_all_match(
    rules: Iterable[Rule], layers: Sequence[Candidate], converted: Collection[str] = ()
) -> None:
    """That every rule matches a layer, which those that were converted before are not."""
    names = [layer.name for layer in layers]
    for rule in rules:
        if any(rule.matches(layer) for layer in layers):
            continue
        if rule.name in converted:
            raise ValueError(
                f"rules: {rule} matches a layer that is a chain already; to_dense(model) undoes it"
            )
        near = difflib.get_close_matches(rule.name, names, 3) if rule.name else []
        shown = ", ".join(near or names[:6]) + ("" if near or len(names) <= 6 else ", ...")
        hint = f"; near it: {shown}" if near else f"; there are {len(names)}: {shown}" if names else ""
        raise ValueError(f"rules: {rule} matches no linear layer{hint}")


Predict = Callable[[Chain], float]


def chain_for(choice: ChainChoice, rows: int, cols: int, predict: Predict | None = None) -> Chain:
    """The chain that a rule means for a layer of these sizes. `predict` ranks those of "advise(...)".

    >>> chain_for(0.25, 64, 64).nnz
    1024
    >>> str(chain_for("monarch", 64, 64))
    '1x8x8x8*8x8x8x1'
    """
    if isinstance(choice, float):
        return for_budget(rows, cols, _share(choice, rows * cols))
    if isinstance(choice, int):
        return for_budget(rows, cols, choice)
    if isinstance(choice, str):
        if re.fullmatch(r"[\d.]+\s*%", choice):
            return for_budget(rows, cols, _share(float(choice.rstrip("% ")) / 100, rows * cols))
        advise = re.fullmatch(r"advise\(\s*([\d.]+\s*%|\d+)?\s*(?:,\s*rank\s*=\s*(\d+)\s*)?\)", choice)
        if advise or choice == "advise":
            given = (advise and advise[1]) or "25%"
            share = given.endswith("%")
            most = _share(float(given.rstrip("% ")) / 100, rows * cols) if share else int(given)
            return _advised(rows, cols, most, int((advise and advise[2]) or 0), predict)
    assert choice is not None
    return as_chain(choice, rows, cols)


def _share(share: float, whole: int) -> int:
    if not 0 < share <= 1:
        raise ValueError(
            f"chain: {share:g} given as a share of the parameters, must be above 0 and at most 1"
        )
    return max(1, int(share * whole))


def _advised(rows: int, cols: int, most: int, rank: int, predict: Predict | None) -> Chain:
    """The fastest chain within a budget, of those that can be factorised and use half of it at least."""
    from kronsparse.bench.problems.proposals import proposals

    found = [
        one
        for one in proposals(rows, cols, most)
        if one.parameters >= USED_AT_LEAST * most and one.rank >= rank and one.chain.is_chainable
    ]
    if not found:
        raise ValueError(f"chain: none for {rows}x{cols} has {most // 2} to {most} parameters")
    if predict is None:
        return for_budget(rows, cols, most)
    # Equally fast chains: the one of the highest rank.
    return min(found, key=lambda one: (predict(one.chain), -one.rank)).chain


def real_dtype(dtype: torch.dtype) -> bool:
    """Whether matrices of this dtype can be factorised."""
    return (dtype.is_floating_point and dtype.itemsize > 1) or dtype.is_complex
