"""Layers written to files and read again, and the weights of ksmm."""

import json
import math

import pytest
import torch
import torch.nn.utils.parametrize
import torch.nn.utils.prune
from conftest import dense_product
from kronsparse.torch import KSLinear, from_ksmm, load_factors, save_factors


def make(**options):
    return KSLinear(16, 24, "monarch(blocks=4)", **{"dtype": torch.float64, **options})


def test_safetensors(tmp_path):
    from safetensors import safe_open

    layer = make(layout="batch_last", activation="silu")
    path = tmp_path / "layer.safetensors"
    save_factors(layer, path)
    loaded = load_factors(path)
    x = torch.randn(16, 3, dtype=torch.float64)
    assert torch.equal(loaded(x), layer(x))
    assert (loaded.chain, loaded.layout, loaded.activation) == (layer.chain, "batch_last", "silu")
    with safe_open(path, "pt") as file:
        header = file.metadata()["kronsparse"]
    for words in ('"version": 1', '"chain": "1x6x4x4*4x4x4x1"', "left factor first", "batch_last"):
        assert words in header


def tied(layer):
    layer.factor1 = layer.factor0


def views_of_one_vector(layer):
    size = sum(values.numel() for values in layer.parameters())
    torch.nn.utils.vector_to_parameters(torch.randn(size, dtype=torch.float64), layer.parameters())


@pytest.mark.parametrize(
    "change",
    [
        lambda layer: torch.nn.utils.parametrize.register_parametrization(layer, "factor0", torch.nn.Tanh()),
        lambda layer: torch.nn.utils.parametrizations.weight_norm(layer, "factor1"),
        lambda layer: torch.nn.utils.prune.random_unstructured(layer, "factor0", 0.5),
        lambda layer: torch.nn.utils.prune.random_unstructured(layer, "bias", 0.5),
        tied,
        views_of_one_vector,
    ],
    ids=["parametrized", "weight_norm", "pruned", "pruned_bias", "tied", "views"],
)
def test_files_have_the_factors_that_are_multiplied_by(change, tmp_path):
    layer = KSLinear(16, 16, [(1, 16, 16, 1), (1, 16, 16, 1)], dtype=torch.float64)
    change(layer)
    save_factors(layer, tmp_path / "layer.safetensors")
    loaded = load_factors(tmp_path / "layer.safetensors")
    for ours, theirs in zip([*loaded.factors, loaded.bias], [*layer.factors, layer.bias], strict=True):
        assert torch.equal(ours, theirs)


def test_files_of_complex_factors(tmp_path):
    path = tmp_path / "layer.safetensors"
    layer = make(dtype=torch.complex64)
    layer.factor0 = torch.nn.Parameter(layer.factor0.detach().conj())
    save_factors(layer, path)
    assert torch.equal(load_factors(path).factor0, layer.factor0)
    with pytest.raises(
        ValueError, match=r"layer: dtype torch.complex128 given, must be one that safetensors"
    ):
        save_factors(make(dtype=torch.complex128), path)


HEADER = {"version": 1, "chain": "1x2x2x1*1x2x3x1", "order": "left factor first", "layout": "batch_first"}
FACTORS = {"factor0": torch.ones(1, 2, 2, 1), "factor1": torch.ones(1, 2, 3, 1)}


@pytest.mark.parametrize(
    ("message", "header", "tensors"),
    [
        ("no 'kronsparse' entry", None, FACTORS),
        ("line 1 column 1", "not JSON", FACTORS),
        ("header: 5 given, must be an object", 5, FACTORS),
        ("version: None given, must be a number up to 1", {}, FACTORS),
        ("version: 99 given", {**HEADER, "version": 99}, FACTORS),
        ("version: 'x' given", {**HEADER, "version": "x"}, FACTORS),
        ("order: 'right factor first' given", {**HEADER, "order": "right factor first"}, FACTORS),
        ("layout: None given", {**HEADER, "layout": None}, FACTORS),
        ("activation: 'tanh' given", {**HEADER, "activation": "tanh"}, FACTORS),
        ("chain: '1x2x2x1' given, must be that of", {**HEADER, "chain": "1x2x2x1"}, FACTORS),
        ("chain: None given, must be that of", {**HEADER, "chain": None}, FACTORS),
        ("chain: .* given, must be that of", HEADER, {"factor0": torch.ones(1, 2, 3, 1)}),
        ("tensors: factor0, factor2 given", HEADER, {"factor0": torch.ones(1), "factor2": torch.ones(1)}),
        ("tensors: factor0, weight given", HEADER, {"factor0": torch.ones(1), "weight": torch.ones(1)}),
        ("chain: no patterns", HEADER, {"bias": torch.ones(2)}),
        ("bias: sizes .1,. given, must be .2,.", HEADER, {**FACTORS, "bias": torch.ones(1)}),
    ],
)
def test_files_that_contradict_themselves_are_refused(tmp_path, message, header, tensors):
    from safetensors.torch import save_file

    path = tmp_path / "other.safetensors"
    text = header if header is None or isinstance(header, str) else json.dumps(header)
    save_file(tensors, path, text and {"kronsparse": text})
    with pytest.raises(ValueError, match=f"path: .*other.safetensors' cannot be read: .*{message}"):
        load_factors(path)


def ksmm_storage(values, algo):
    """As ksmm's layers of this algo store a factor."""
    a, b, c, d = values.shape
    blocks = values.permute(0, 3, 1, 2).reshape(a * d, b, c)
    return {
        "einsum": lambda: values,
        "bmm": lambda: blocks,
        "kernel": lambda: values.permute(0, 3, 2, 1).reshape(a * d * c, b),
        "dense": lambda: dense_product([values]),
        "sparse": lambda: dense_product([values]).to_sparse_csr(),
        "bsr": lambda: torch.block_diag(*blocks).to_sparse_bsr((math.gcd(b, c),) * 2),
    }[algo]()


@pytest.mark.filterwarnings("ignore:.*beta state", "ignore:Sparse invariant checks")
@pytest.mark.parametrize("algo", ["einsum", "bmm", "kernel", "dense", "sparse", "bsr"])
@pytest.mark.parametrize("bs_last", [False, True])
def test_weights_of_ksmm(algo, bs_last):
    left, right = torch.randn(2, 3, 4, 5), torch.randn(1, 8, 6, 5)  # 30x40 times 40x30
    bias = torch.randn(30)
    state = {"factors.0": ksmm_storage(right, algo), "factors.1": ksmm_storage(left, algo)}
    state["bias"] = bias.view(-1, 1) if bs_last else bias
    layer = from_ksmm(state, [tuple(right.shape), tuple(left.shape)], algo, bs_last)
    assert torch.equal(layer.factor0, left)
    assert torch.equal(layer.factor1, right)
    assert torch.equal(layer.bias, bias)
    assert layer.layout == ("batch_last" if bs_last else "batch_first")


@pytest.mark.parametrize(
    ("message", "state", "pattern", "algo"),
    [
        (
            "state: no factors given, must have one for each of the 1 patterns, factors.0",
            {},
            (2, 2, 4, 1),
            "bmm",
        ),
        ("state: factors.1 given", {"factors.1": torch.ones(2, 2, 4)}, (2, 2, 4, 1), "bmm"),
        (
            "state: factors.0, factors.1 given",
            {"factors.0": torch.ones(2, 2, 4), "factors.1": torch.ones(2, 2, 4)},
            (2, 2, 4, 1),
            "bmm",
        ),
        *(
            (
                rf"factors.0: sizes \(2, 2, 4\) given, must be those of .* in algo '{algo}', ",
                {"factors.0": torch.ones(2, 2, 4)},
                pattern,
                algo,
            )
            for pattern, algo in [
                ((2, 4, 2, 1), "bmm"),
                ((1, 2, 4, 3), "bmm"),
                ((2, 2, 4, 1), "kernel"),
                ((2, 2, 4, 1), "einsum"),
                ((2, 2, 4, 1), "dense"),
            ]
        ),
    ],
)
def test_weights_of_ksmm_that_contradict_the_patterns_are_refused(message, state, pattern, algo):
    with pytest.raises(ValueError, match=message):
        from_ksmm(state, [pattern], algo)
