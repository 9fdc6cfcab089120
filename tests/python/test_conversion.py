"""Dense layers and models made chains, and dense again; the matrix of a layer; checkpoints in files."""

import copy
import math
import re

import pytest
import torch
import torch.nn.utils.prune
from kronsparse.torch import (
    KSLinear,
    LazyMatrix,
    Rule,
    convert,
    freeze,
    report_of,
    to_dense,
)
from torch import nn


class Conv1D(nn.Module):  # as transformers has it, which these tests do without
    def __init__(self, nf, nx):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(nx, nf))
        self.bias = nn.Parameter(torch.zeros(nf))

    def forward(self, x):
        return x @ self.weight + self.bias


Conv1D.__module__ = "transformers.pytorch_utils"


def mlp():
    return nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64), nn.LayerNorm(64))


# The matrix of a layer, for code that expects an nn.Linear.


def test_weight_is_the_matrix_and_its_gradient_reaches_the_factors():
    layer = KSLinear(16, 24, "monarch(blocks=4)", dtype=torch.float64)
    x = torch.randn(5, 16, dtype=torch.float64)
    nn.functional.linear(x, layer.weight, layer.bias).square().sum().backward()
    found = [values.grad.clone() for values in layer.factors]
    layer.zero_grad()
    layer(x).square().sum().backward()
    for ours, theirs in zip(found, layer.factors, strict=True):
        torch.testing.assert_close(ours, theirs.grad)


def test_asking_for_sizes_multiplies_nothing(monkeypatch):
    layer = KSLinear(16, 24)
    monkeypatch.setattr(LazyMatrix, "_multiplied_out", lambda self: pytest.fail("it is multiplied out"))
    weight = layer.weight
    assert isinstance(weight, torch.Tensor) and weight.requires_grad and weight.grad is None
    assert (weight.shape, weight.dtype, weight.device.type) == ((24, 16), torch.float32, "cpu")
    assert weight.size(0) == 24 and weight.dim() == 2 and weight.numel() == 24 * 16
    assert weight.data.shape == (24, 16) and not weight.data.requires_grad


@pytest.mark.parametrize(
    "write",
    [
        lambda layer: layer.weight.data.normal_(),
        lambda layer: layer.weight.data.copy_(torch.zeros(8, 8)),
        lambda layer: nn.init.xavier_uniform_(layer.weight),
        lambda layer: layer.weight.add_(1),
        lambda layer: layer.weight.__setitem__(0, 1),
        lambda layer: layer.weight.__iadd__(1),
        lambda layer: torch.add(torch.ones(8, 8), 1, out=layer.weight),
        lambda layer: setattr(layer.weight, "data", torch.ones(8, 8)),
        lambda layer: setattr(layer.weight, "requires_grad", False),
    ],
)
def test_writing_to_the_matrix_is_refused(write):
    layer = KSLinear(8, 8)
    before = layer.to_dense()
    with pytest.raises(RuntimeError, match=r"^weight: .* the product of its factors"):
        write(layer)
    assert torch.equal(layer.to_dense(), before)


@pytest.mark.parametrize("given", [nn.Parameter(torch.ones(8, 8)), torch.ones(8, 8), None])
def test_assigning_the_matrix_is_refused(given):
    layer = KSLinear(8, 8)
    with pytest.raises(AttributeError, match="weight: cannot be assigned"):
        layer.weight = given
    assert [name for name, _ in layer.named_parameters()] == ["factor0", "factor1", "bias"]


def test_the_matrix_has_no_address():
    with pytest.raises(RuntimeError, match="no memory of its own"):
        KSLinear(8, 8).weight.data_ptr()


def test_frozen_layers_keep_the_matrix():
    layer = KSLinear(64, 64).requires_grad_(False).eval().freeze()
    first, second = layer.weight + 0, layer.weight + 0
    assert torch.equal(first, second)
    assert layer._frozen.dense_bytes() == 64 * 64 * 4


def test_weight_in_compiled_code():
    layer = KSLinear(8, 8)
    compiled = torch.compile(lambda x: x @ layer.weight.T, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(torch.eye(8)), layer.to_dense().T)


@pytest.mark.parametrize("is_training", [True, False])
def test_multihead_attention(is_training):
    dense = nn.MultiheadAttention(16, 2, batch_first=True).train(is_training)
    attention = copy.deepcopy(dense)
    attention.out_proj = KSLinear.from_linear(dense.out_proj, "dense")
    x = torch.randn(3, 5, 16)
    with torch.set_grad_enabled(is_training):
        torch.testing.assert_close(attention(x, x, x)[0], dense(x, x, x)[0])


def test_transformer_encoder_layers_call_the_layer_in_eval_mode():
    dense = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    layer = convert(dense, {"linear1": "low_rank(rank=2)", "linear2": "low_rank(rank=2)"}, values="fresh")
    calls = []
    layer.linear1.register_forward_hook(lambda *_: calls.append(1))
    x = torch.randn(3, 5, 16)
    with torch.no_grad():
        torch.testing.assert_close(layer(x), to_dense(layer).eval()(x), rtol=1e-4, atol=1e-5)
    assert calls == [1]


# One layer.


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_from_linear(dtype):
    linear = nn.Linear(32, 64, dtype=dtype).requires_grad_(False).eval()
    layer = KSLinear.from_linear(linear, "monarch(blocks=2, rank=15)")
    assert layer.factor0.dtype == dtype and not layer.training
    assert not any(parameter.requires_grad for parameter in layer.parameters())
    assert torch.equal(layer.bias, linear.bias)
    difference = (layer.to_dense() - linear.weight).norm() / linear.weight.norm()
    assert 0 < difference < 0.15
    budget = KSLinear.from_linear(linear, 400)
    assert sum(values.numel() for values in budget.factors) <= 400


def test_from_linear_by_the_covariance_of_inputs():
    linear = nn.Linear(32, 32, bias=False)
    scale = torch.logspace(0, -3, 32)
    x = torch.randn(1000, 32) * scale
    plain = KSLinear.from_linear(linear, "low_rank(rank=8)")
    weighted = KSLinear.from_linear(linear, "low_rank(rank=8)", covariance=x.T @ x / 1000, polish=2)
    errors = [(layer(x) - linear(x)).norm() for layer in (plain, weighted)]
    assert errors[1] < 0.3 * errors[0]


def test_conv1d_is_transposed_and_comes_back():
    conv = Conv1D(24, 16)
    layer = KSLinear.from_linear(conv, "dense")
    x = torch.randn(3, 16)
    torch.testing.assert_close(layer(x), conv(x), rtol=1e-4, atol=1e-5)
    assert layer.replaced == "Conv1D"
    # A checkpoint of the dense model has it transposed, square or not.
    square = KSLinear.from_linear(Conv1D(16, 16), "dense")
    state = Conv1D(16, 16).state_dict()
    with pytest.warns(UserWarning, match="a dense matrix, factorised"):
        square.load_state_dict(state)
    torch.testing.assert_close(square.to_dense(), state["weight"].T, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("linear", "chain", "options", "words"),
    [
        (nn.Conv2d(4, 4, 1), "dense", {}, "linear: Conv2d given, must be an nn.Linear"),
        (nn.Linear(8, 8, device="meta"), "monarch", {}, "nothing to factorise"),
        (nn.Linear(8, 8), "kaleidoscope", {}, "not chainable"),
        (nn.Linear(8, 8), "monarch", {"values": "new"}, "values: 'new' given, must be one of"),
        (nn.Linear(8, 6), "butterfly", {}, "must be equal"),
    ],
)
def test_from_linear_refuses(linear, chain, options, words):
    with pytest.raises((ValueError, TypeError), match=re.escape(words)):
        KSLinear.from_linear(linear, chain, **options)


def test_a_matrix_that_is_not_finite_is_refused():
    linear = nn.Linear(8, 8)
    with torch.no_grad():
        linear.weight[3, 4] = math.nan
    with pytest.raises(ValueError, match="not finite"):
        KSLinear.from_linear(linear)


# Dense checkpoints in models with chains.


def test_loading_a_dense_checkpoint_factorises():
    dense = mlp()
    model = convert(dense, "low_rank(rank=16)", values="fresh")
    with pytest.warns(UserWarning, match=r"0\.weight: a dense matrix, factorised into .* error of 0\."):
        assert not any(model.load_state_dict(dense.state_dict()))
    best = convert(dense, "low_rank(rank=16)")
    torch.testing.assert_close(model[0].to_dense(), best[0].to_dense())


def test_a_dense_checkpoint_that_does_not_fit_changes_nothing():
    layer = KSLinear(8, 8)
    before = layer.to_dense()
    with pytest.raises(RuntimeError, match=r"weight: sizes \(4, 4\) given, must be \(8, 8\)"):
        layer.load_state_dict({"weight": torch.ones(4, 4), "bias": torch.zeros(8)})
    assert torch.equal(layer.to_dense(), before)
    with pytest.raises(RuntimeError, match=r"Missing key.*factor0"):
        layer.load_state_dict({"bias": torch.zeros(8)})


# Models.


def test_convert_leaves_the_model_alone():
    model = mlp()
    state = copy.deepcopy(model.state_dict())
    small = convert(model, "monarch(blocks=8)")
    assert isinstance(model[0], nn.Linear) and isinstance(small[0], KSLinear)
    assert all(torch.equal(model.state_dict()[name], state[name]) for name in state)
    with torch.no_grad():
        small[0].bias.add_(1), small[3].weight.add_(1)
    assert all(torch.equal(model.state_dict()[name], state[name]) for name in state)
    assert convert(model, "monarch(blocks=8)", inplace=True) is model
    assert isinstance(model[2], KSLinear)


def test_values_are_close_and_the_certificate_holds():
    model = mlp()
    report = report_of(convert(model, "monarch(blocks=8, rank=4)"))
    for layer in report.converted:
        assert 0 < layer.lower_bound <= layer.error + 1e-6 < 1
    fresh = report_of(convert(model, "monarch(blocks=8, rank=4)", values="fresh"))
    assert all(math.isnan(layer.error) for layer in fresh.converted)
    assert report.chains == fresh.chains == {
        "0": "1x16x32x8*8x32x8x1",
        "2": "1x8x32x8*8x32x16x1",
    }  # fmt: skip


def test_rules_by_name_expression_type_and_size():
    model = nn.ModuleDict(
        {
            "a": nn.Linear(64, 64),
            "b": nn.Linear(64, 64),
            "c": nn.Linear(64, 32),
            "d": nn.Linear(64, 64, bias=False),
            "conv": Conv1D(64, 32),
            "lm_head": nn.Linear(64, 100),
        }
    )
    rules = {
        "a": "low_rank(rank=4)",
        re.compile("b|c"): 0.25,
        nn.Linear: "25%",
        (64, 32): 600,
        "re:d": None,
    }
    with pytest.raises(ValueError, match="disagree about 'b'"):
        convert(model, rules, values="fresh")
    del rules[nn.Linear]
    small = convert(model, rules, values="fresh")
    report = report_of(small)
    assert str(small["a"].chain) == "1x64x4x1*1x4x64x1"
    assert small["b"].chain.nnz <= 1024 and small["c"].chain.nnz <= 512
    assert isinstance(small["conv"], KSLinear) and small["conv"].chain.nnz <= 600
    why = {layer.name: layer.reason for layer in report.kept}
    assert why.keys() == {"d", "lm_head"}
    assert why["d"].startswith("skipped by Rule(None") and why["lm_head"] == "no rule"


def test_heads_stay_dense_unless_named():
    model = nn.ModuleDict({"body": nn.Linear(64, 64), "lm_head": nn.Linear(64, 64)})
    assert isinstance(convert(model, "monarch")["lm_head"], nn.Linear)
    assert isinstance(convert(model, "monarch", heads=True)["lm_head"], KSLinear)
    assert isinstance(convert(model, {"lm_head": "monarch"})["lm_head"], KSLinear)
    with pytest.raises(ValueError, match=r"converts none of the 1 linear layers it matches: a head"):
        convert(model, {re.compile("lm_head"): "monarch"})


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"0.wrong": "monarch"}, "Rule('monarch', name='0.wrong') matches no linear layer"),
        ({"first": "monarch"}, "matches no linear layer; there are 2: 0, 2"),
        ({nn.Bilinear: "monarch"}, "matches no linear layer"),
        ({re.compile("0|2"): 0.25, (128, 64): 0.5}, "disagree about '0'"),
        ({"0": "butterfly"}, "does not fit '0'"),
        ({"0": "nonsense"}, "does not fit '0': chain: 'nonsense' given"),
        ({"0": 2.5}, "as a share of the parameters, must be above 0"),
        ("butterfly", "converts none of the 2 linear layers it matches: does not fit"),
        ({3: "monarch"}, "the key 3 given, must be a name"),
        ([], "must be rules, and at least one"),
        (None, "None given"),
        (
            [Rule("monarch", pattern="0|2"), Rule("dense", name="0"), Rule(0.5, name="0")],
            "disagree about '0'",
        ),
        ({"0": "advise(0.001%)"}, "does not fit '0'"),
    ],
)
def test_wrong_rules_change_nothing(rules, words):
    model = mlp()
    before = [type(module) for module in model.modules()]
    with pytest.raises(ValueError, match=re.escape(words)):
        convert(model, rules, inplace=True)
    assert [type(module) for module in model.modules()] == before


@pytest.mark.parametrize(
    ("conditions", "words"),
    [
        ({"name": 3}, "name: 3 given, must be text"),
        ({"pattern": 3}, "pattern: 3 given, must be text or"),
        ({"type": 3}, "type: 3 given, must be a class"),
        ({"shape": (3,)}, "shape: (3,) given, must be (out_features"),
        ({"shape": "ab"}, "shape: 'ab' given"),
        ({"min_size": "large"}, "min_size: 'large' given, must be an integer"),
        ({"max_error": -1}, "max_error: -1 given"),
    ],
)
def test_wrong_conditions(conditions, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        Rule("monarch", **conditions)


def test_a_layer_that_is_a_chain_already_is_named():
    once = convert(mlp(), {"0": "monarch"})
    with pytest.raises(
        ValueError, match=r"Rule\('butterfly', name='0'\) matches a layer that is a chain already"
    ):
        convert(once, {"0": "butterfly"})
    assert isinstance(convert(once, {"2": "monarch"})[2], KSLinear)


def test_an_error_of_a_layer_names_it_and_changes_nothing():
    model = mlp()
    with torch.no_grad():
        model[2].weight[0, 0] = math.inf
    with pytest.raises(ValueError, match="2: linear: an element of its matrix is not finite"):
        convert(model, "monarch", inplace=True)
    assert type(model[0]) is nn.Linear


@pytest.mark.parametrize("make", [dict, list])
def test_rules_that_agree_are_one(make):
    rules = [Rule("monarch", pattern=".*"), Rule("monarch", type="Linear"), Rule(None, name="2")]
    small = convert(mlp(), rules)
    assert isinstance(small[0], KSLinear) and isinstance(small[2], nn.Linear)


def test_chains_that_do_not_fit_stay_dense_and_say_why():
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 63))
    report = report_of(convert(model, "monarch"))
    assert [layer.is_converted for layer in report.layers] == [True, False]
    assert "no common divisor but 1" in report.layers[1].reason


def test_max_error():
    small = convert(mlp(), [Rule("monarch", max_error=0.01)])
    assert not report_of(small).converted and "an error of" in report_of(small).layers[0].reason


def test_advised_chains_keep_to_the_budget():
    report = report_of(convert(mlp(), "advise(25%, rank=32)", values="fresh"))
    for layer in report.converted:
        assert 0.5 * 0.25 <= layer.parameters / layer.dense_parameters <= 0.25
        assert layer.predicted_s > 0 and layer.dense_predicted_s > 0


def test_shared_modules_and_tied_weights():
    shared = nn.Linear(64, 64)
    other, twin = nn.Linear(64, 64), nn.Linear(64, 64, bias=False)
    twin.weight = other.weight
    embedding, head = nn.Embedding(64, 64), nn.Linear(64, 64, bias=False)
    head.weight = embedding.weight
    model = nn.ModuleDict({"a": shared, "b": shared, "c": other, "d": twin, "e": embedding, "out": head})
    for inplace in (False, True):
        small = convert(model, "monarch", inplace=inplace)
        assert small["a"] is small["b"] and isinstance(small["a"], KSLinear)
        assert small["c"].factor0 is small["d"].factor0 and small["d"].bias is None
        assert small["out"].weight is small["e"].weight
        assert report_of(small).kept[0].reason == "its weight is that of e, too"
    dense = to_dense(small)
    assert dense["a"] is dense["b"] and dense["c"].weight is dense["d"].weight
    with pytest.raises(ValueError, match="'c' and 'd' have one weight"):
        convert(dense, {"c": "monarch"})
    with pytest.raises(ValueError, match="must stay dense: its weight is that of e"):
        convert(dense, {"out": "monarch"})


def test_layers_that_cannot_be_replaced_say_why():
    class Own(nn.Linear):
        def forward(self, x):
            return super().forward(x) + 1

    model = nn.ModuleDict({name: nn.Linear(64, 64) for name in ("pruned", "normed", "hooked", "plain")})
    model["own"] = Own(64, 64)
    model["attention"] = nn.MultiheadAttention(64, 2)
    nn.utils.prune.random_unstructured(model["pruned"], "weight", 0.5)
    nn.utils.parametrizations.weight_norm(model["normed"])
    model["hooked"].register_forward_hook(lambda *_: None)
    model["lazy"] = nn.LazyLinear(64)
    report = report_of(convert(model, "monarch", inplace=True))  # torch cannot copy what is pruned
    assert [layer.name for layer in report.converted] == ["plain"]
    why = {layer.name: layer.reason for layer in report.kept}
    assert "computed" in why["pruned"] and "computed" in why["normed"] and "hooks" in why["hooked"]
    assert (
        "no sizes yet" in why["lazy"]
        and "forward is its own" in why["own"]
        and "MultiheadAttention" in why["attention.out_proj"]
    )


def test_calibration_makes_outputs_closer():
    model = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 32)).train()
    inputs = [torch.randn(200, 32) @ torch.diag(torch.logspace(0, -3, 32)) for _ in range(3)]
    plain = convert(model, "low_rank(rank=8)")
    wanted = model(inputs[0])

    def error(small):
        return float((small(inputs[0]) - wanted).norm())

    for calibration in (inputs, [(x,) for x in inputs], [{"input": x} for x in inputs], iter(inputs)):
        small = convert(model, {"0": "low_rank(rank=8)"}, calibration)
        assert error(small) < 0.5 * error(plain)
        assert model.training and not model[0]._forward_pre_hooks
    by_function = convert(model, "low_rank(rank=8)", lambda given: [given(x) for x in inputs])
    diagonal = convert(model, "low_rank(rank=8)", inputs, weighting="diagonal")
    assert error(by_function) < 0.5 * error(plain) and error(diagonal) < 0.7 * error(plain)
    assert report_of(diagonal).is_weighted


def test_calibration_that_needs_several_runs(monkeypatch):
    model = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 32))
    inputs = [torch.randn(200, 32)]
    once = convert(model, "low_rank(rank=8)", inputs)
    monkeypatch.setattr("kronsparse.torch.calibration.MOST_BYTES", 1)
    again = convert(model, "low_rank(rank=8)", inputs)
    torch.testing.assert_close(once[1].to_dense(), again[1].to_dense())


@pytest.mark.parametrize(
    ("calibration", "error", "words"),
    [
        ([], ValueError, "no inputs given"),
        (torch.ones(3, 64), TypeError, "Tensor given, must be a list"),
        (3, TypeError, "int given, must be a list"),
        ([torch.full((3, 64), math.nan)], ValueError, "calibration: the inputs of a layer .* not finite"),
        (lambda model: model[0](torch.ones(1, 64)), ValueError, "was never called"),
    ],
)
def test_wrong_calibration(calibration, error, words):
    with pytest.raises(error, match=words):
        convert(mlp(), "monarch", calibration)


def test_report_and_progress(capsys):
    told = []
    small = convert(mlp(), "monarch", measure=True, batch=16, progress=lambda *given: told.append(given))
    assert told == [(0, 2, "0"), (1, 2, "2"), (2, 2, "")]
    report = report_of(small)
    assert all(layer.measured_s > 0 and layer.dense_measured_s > 0 for layer in report.converted)
    text = str(report)
    assert "| 0 | 128x64 |" in text and report.summary() in text
    page = report.html()
    assert page.startswith("<!doctype html>") and "1x16x8x8*8x8x8x1" in page and "16 samples" in page
    convert(mlp(), "monarch", values="fresh", progress=True)
    assert "convert: 2 of 2" in capsys.readouterr().err
    with pytest.raises(ValueError, match="was not made by convert"):
        report_of(mlp())


def test_to_dense_undoes_it():
    model = mlp().eval()
    small = convert(model, "low_rank(rank=32)")
    dense = to_dense(small)
    assert [type(module) for module in dense.modules()] == [type(module) for module in model.modules()]
    assert not dense.training and isinstance(small[0], KSLinear)
    x = torch.randn(5, 64)
    torch.testing.assert_close(dense(x), small(x), rtol=1e-4, atol=1e-5)
    assert to_dense(small, inplace=True) is small and isinstance(small[0], nn.Linear)
    activated = to_dense(KSLinear(8, 8, activation="gelu_tanh"))
    assert isinstance(activated[1], nn.GELU) and activated[1].approximate == "tanh"
    with pytest.raises(ValueError, match="layout"):
        to_dense(KSLinear(8, 8, layout="batch_last"))


def test_a_layer_alone_and_frozen_results():
    layer = convert(nn.Linear(64, 64), "monarch")
    assert isinstance(layer, KSLinear)
    assert freeze(layer.eval()).is_frozen
