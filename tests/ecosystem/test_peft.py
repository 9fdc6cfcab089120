"""PEFT's BOFT and OFT as chains, against PEFT; LoRA on top of KSLinear."""

import copy
import io
import warnings

import peft
import pytest
import torch
from kronsparse import peft as ours
from kronsparse.torch import KSLinear, convert
from torch import nn

ours.prepare()


class Small(nn.Module):
    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.first = nn.Linear(64, 96, dtype=dtype)
        self.second = nn.Linear(96, 64, bias=False, dtype=dtype)
        self.head = nn.Linear(64, 10, dtype=dtype)

    def forward(self, x):
        return self.head(self.second(torch.tanh(self.first(x))))


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(8, 4, 3, padding=1)

    def forward(self, x):
        return self.first(x)


def boft(factors=2, size=8, **options):
    settings = {"target_modules": ["first", "second"], "init_weights": False, **options}
    return peft.BOFTConfig(boft_n_butterfly_factor=factors, boft_block_size=size, **settings)


def oft(**options):
    settings = {"target_modules": ["first", "second"], "init_weights": False, "oft_block_size": 8, **options}
    return peft.OFTConfig(**settings)


def pair(config, model=None, **options):
    """PEFT's model, and an accelerated copy of it."""
    theirs = peft.get_peft_model(model or Small(), config, **options)
    return theirs, ours.accelerate(copy.deepcopy(theirs))


def gradients(model, x):
    x = x.clone().requires_grad_()
    y = model(x)
    (y.float() ** 2).sum().backward()
    return [y, x.grad, *(p.grad for p in model.parameters() if p.requires_grad)]


def assert_same(theirs, accelerated, x, tolerance):
    for wanted, found in zip(gradients(theirs, x), gradients(accelerated, x), strict=True):
        assert wanted.dtype == found.dtype
        assert (wanted - found).float().norm() <= tolerance * wanted.float().norm(), wanted.shape


CONFIGS = {
    "boft1": boft(1),
    "boft2": boft(2),
    "boft3": boft(3, 4),
    "boft_odd": boft(1, 3, target_modules=["second"]),
    "boft_whole": boft(1, 32),
    "oft": oft(),
    "oft_solve": oft(use_cayley_neumann=False),
    "oft_shared": oft(block_share=True),
    "coft": oft(coft=True, eps=1e-2),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_float32(name):
    theirs, accelerated = pair(CONFIGS[name])
    assert_same(theirs, accelerated, torch.randn(3, 5, 64), 1e-5)


@pytest.mark.parametrize("casts", [True, False])
@pytest.mark.parametrize("name", ["boft1", "boft2", "oft"])
def test_bfloat16(name, casts):
    """Beside float32, our error is that of PEFT or a rounding more."""
    exact = peft.get_peft_model(Small(), CONFIGS[name])
    half = peft.get_peft_model(Small(torch.bfloat16), CONFIGS[name], autocast_adapter_dtype=casts)
    with torch.no_grad():
        for to, of in zip(exact.parameters(), half.parameters(), strict=True):
            to.copy_(of)
    accelerated = ours.accelerate(copy.deepcopy(half))
    x = torch.randn(64, 64).bfloat16()
    wanted = gradients(exact, x.float())
    for truth, peers, found in zip(wanted, gradients(half, x), gradients(accelerated, x), strict=True):
        assert found.dtype == peers.dtype
        allowed = 1.5 * (peers - truth).norm() + 2**-6 * truth.norm()
        assert (found - truth).norm() <= allowed


@pytest.mark.parametrize("name", ["boft2", "oft"])
def test_autocast(name):
    theirs, accelerated = pair(CONFIGS[name])
    x = torch.randn(16, 64)
    with torch.autocast("cpu", torch.bfloat16):
        assert_same(theirs, accelerated, x, 0.06)


def test_convolutions():
    config = boft(2, 4, target_modules=["first"])
    theirs, accelerated = pair(config, Convolutions())
    assert_same(theirs, accelerated, torch.randn(2, 8, 6, 6), 1e-5)


@pytest.mark.parametrize("name", ["boft1", "boft2", "oft"])
def test_several_adapters_are_applied_in_order(name):
    theirs = peft.get_peft_model(Small(), CONFIGS[name])
    theirs.add_adapter("other", CONFIGS[name])
    x = torch.randn(5, 64)
    accelerated = ours.accelerate(copy.deepcopy(theirs))
    for active in ("default", "other"):
        for model in (theirs, accelerated):
            model.set_adapter(active)
        torch.testing.assert_close(accelerated(x), theirs(x), rtol=1e-4, atol=1e-5)
    for model in (theirs, accelerated):
        model.base_model.set_adapter(["default", "other"])
    torch.testing.assert_close(accelerated(x), theirs(x), rtol=1e-4, atol=1e-5)


def test_adapters_added_later():
    theirs, accelerated = pair(CONFIGS["boft2"])
    accelerated.add_adapter("later", CONFIGS["boft2"])
    accelerated.set_adapter("later")
    assert not any("boft_P" in module._buffers for module in accelerated.modules())
    theirs.add_adapter("later", CONFIGS["boft2"])
    theirs.set_adapter("later")
    theirs.load_state_dict(accelerated.state_dict())
    x = torch.randn(5, 64)
    torch.testing.assert_close(accelerated(x), theirs(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["boft1", "boft2", "oft"])
def test_merge_unmerge_and_disable(name):
    theirs, accelerated = pair(CONFIGS[name])
    x = torch.randn(5, 64)
    wanted = theirs(x)
    plain = copy.deepcopy(accelerated)
    with plain.disable_adapter(), theirs.disable_adapter():
        torch.testing.assert_close(plain(x), theirs(x))
    accelerated.merge_adapter(safe_merge=True)
    torch.testing.assert_close(accelerated(x), wanted, rtol=1e-3, atol=1e-4)
    accelerated.unmerge_adapter()
    torch.testing.assert_close(accelerated(x), wanted, rtol=1e-3, atol=1e-4)
    unloaded = accelerated.merge_and_unload()
    assert type(unloaded.first) is nn.Linear
    torch.testing.assert_close(unloaded(x), wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("factors", [1, 2])
def test_dropout_draws_the_same_blocks(factors):
    theirs, accelerated = pair(boft(factors, boft_dropout=0.4))
    x = torch.randn(5, 64)
    for seed in range(3):
        results = []
        for model in (theirs, accelerated):
            torch.manual_seed(seed)
            results.append(model(x))
        torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)
    assert (accelerated(x) != accelerated(x)).any()


@pytest.mark.parametrize("name", ["boft2", "oft"])
def test_checkpoints_are_those_of_peft(name, tmp_path):
    theirs, accelerated = pair(CONFIGS[name])
    assert theirs.state_dict().keys() == accelerated.state_dict().keys()
    accelerated.save_pretrained(tmp_path)
    base = Small()
    state = theirs.base_model.model.state_dict()
    base.load_state_dict({key.replace("base_layer.", ""): state[key] for key in state if "oft_" not in key})
    loaded = peft.PeftModel.from_pretrained(base, tmp_path)
    x = torch.randn(5, 64)
    torch.testing.assert_close(loaded(x), theirs(x))
    torch.testing.assert_close(ours.accelerate(loaded)(x), theirs(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("factors", [1, 2, 3])
def test_nothing_of_the_size_of_x_is_kept_but_x_and_y(factors):
    """However many factors there are: training takes as much memory with three as with one."""
    _, accelerated = pair(boft(factors, 4, target_modules=["first"]))
    layer, x = accelerated.base_model.model.first, torch.randn(1000, 64, requires_grad=True)
    kept = {}
    with torch.autograd.graph.saved_tensors_hooks(
        lambda one: kept.setdefault(one.data_ptr(), one), lambda one: one
    ):
        layer(x)
    assert sum(one.numel() for one in kept.values() if one.numel() >= x.numel()) == 1000 * (64 + 96)


@pytest.mark.parametrize("name", ["boft1", "boft2", "oft"])
def test_gradients_of_gradients(name):
    theirs, accelerated = pair(CONFIGS[name])
    x = torch.randn(5, 64)
    found = []
    for model in (theirs, accelerated):
        parameters = [p for p in model.parameters() if p.requires_grad]
        first = torch.autograd.grad(model(x).square().sum(), parameters, create_graph=True)
        sum(one.square().sum() for one in first).backward()
        found.append([p.grad for p in parameters])
    for wanted, ours_ in zip(*found, strict=True):
        torch.testing.assert_close(ours_, wanted, rtol=1e-3, atol=1e-3 * float(wanted.abs().max()))


def test_memory_of_permutations_is_given_back_and_restored():
    theirs, accelerated = pair(CONFIGS["boft2"])
    layer = theirs.base_model.model.first
    assert "boft_P" in layer._buffers
    mine = accelerated.base_model.model.first
    assert "boft_P" not in mine._buffers and torch.equal(mine.boft_P, layer.boft_P)
    assert ours.accelerate(accelerated) is accelerated  # twice is once
    restored = ours.restore(accelerated)
    assert type(restored.base_model.model.first) is type(layer)
    assert torch.equal(restored.base_model.model.first.boft_P, layer.boft_P)
    x = torch.randn(5, 64)
    assert torch.equal(restored(x), theirs(x))


def test_copies_and_pickles():
    _, accelerated = pair(CONFIGS["boft2"])
    file = io.BytesIO()
    torch.save(accelerated, file)
    file.seek(0)
    x = torch.randn(5, 64)
    assert torch.equal(torch.load(file, weights_only=False)(x), accelerated(x))
    assert torch.equal(copy.deepcopy(accelerated)(x), accelerated(x))


def test_a_model_without_such_layers_is_refused():
    with pytest.raises(ValueError, match="no BOFT or OFT layer"):
        ours.accelerate(Small())


def test_training_goes_on():
    _, accelerated = pair(boft(2, init_weights=True))
    optimiser = torch.optim.Adam([p for p in accelerated.parameters() if p.requires_grad], 0.01)
    x, wanted = torch.randn(64, 64), torch.randn(64, 10)
    losses = []
    for _ in range(20):
        loss = (accelerated(x) - wanted).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss))
    assert losses[-1] < 0.9 * losses[0]


# LoRA on top of KSLinear.


@pytest.fixture
def small():
    ours.register()
    ours.register()
    return convert(Small(), {nn.Linear: "monarch(blocks=8)"}, values="fresh")


def lora(**options):
    return peft.LoraConfig(**{"r": 4, "init_lora_weights": False, **options})


@pytest.mark.parametrize("targets", ["all-linear", ["first", "second"]])
def test_lora_on_kslinear(small, targets):
    x = torch.randn(5, 64)
    dense = small.first.to_dense()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = peft.get_peft_model(copy.deepcopy(small), lora(target_modules=targets))
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert any("first.lora_A" in name for name in names) and not any("factor" in name for name in names)
    layer = model.base_model.model.first
    a, b = layer.lora_A["default"].weight, layer.lora_B["default"].weight
    wanted = x @ (dense + b @ a * layer.scaling["default"]).T + small.first.bias
    torch.testing.assert_close(layer(x), wanted, rtol=1e-4, atol=1e-4)
    model(x).sum().backward()
    assert a.grad is not None


def test_merging_is_exact_and_unmerging_brings_the_chain_back(small):
    model = peft.get_peft_model(small, lora(target_modules=["first", "second"]))
    x = torch.randn(5, 64)
    wanted = model(x)
    state = model.state_dict()
    for safe in (True, False):
        model.merge_adapter(safe_merge=safe)
        torch.testing.assert_close(model(x), wanted, rtol=1e-3, atol=1e-4)
        model.unmerge_adapter()
        assert torch.equal(model(x), wanted)
        assert model.state_dict().keys() == state.keys()
        assert isinstance(model.base_model.model.first.base_layer, KSLinear)
    unloaded = model.merge_and_unload()
    assert type(unloaded.first) is nn.Linear
    torch.testing.assert_close(unloaded(x), wanted, rtol=1e-3, atol=1e-4)


def test_lora_checkpoints_and_modules_to_save(small, tmp_path):
    base = copy.deepcopy(small)
    model = peft.get_peft_model(small, lora(target_modules=["first"], modules_to_save=["second"]))
    x = torch.randn(5, 64)
    with torch.no_grad():
        model.base_model.model.second.modules_to_save["default"].factor0.mul_(2)
    model.save_pretrained(tmp_path)
    loaded = peft.PeftModel.from_pretrained(base, tmp_path)
    torch.testing.assert_close(loaded(x), model(x))


def test_unload_gives_the_chain_back(small):
    model = peft.get_peft_model(small, lora(target_modules="all-linear"))
    assert isinstance(model.unload().first, KSLinear)


def test_adapters_that_only_some_layers_have_are_merged_one_after_the_other(small):
    model = peft.get_peft_model(small, lora(target_modules=["first", "second"]))
    model.add_adapter("other", lora(r=2, target_modules=["first"]))
    model.base_model.set_adapter(["default", "other"])
    x = torch.randn(5, 64)
    wanted = model(x)
    model.merge_adapter(["other"])
    assert isinstance(model.base_model.model.second.base_layer, KSLinear)
    model.merge_adapter(["default"])
    torch.testing.assert_close(model(x), wanted, rtol=1e-3, atol=1e-4)
    copied = copy.deepcopy(model)
    for one in (model, copied):
        one.unmerge_adapter()
        assert torch.equal(one(x), wanted)
        assert isinstance(one.base_model.model.second.base_layer, KSLinear)


def test_a_merge_that_fails_leaves_the_chain(small):
    model = peft.get_peft_model(small, lora(target_modules=["first"]))
    layer = model.base_model.model.first
    with torch.no_grad():
        layer.lora_A["default"].weight[0, 0] = float("nan")
    with pytest.raises(ValueError, match="NaNs detected"):
        model.merge_adapter(safe_merge=True)
    assert isinstance(layer.base_layer, KSLinear) and not layer.merged


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"use_dora": True}, "config: .*use_dora.*a KSLinear takes LoRA and rsLoRA alone"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights: 'pissa' given for a KSLinear, must not change"),
        ({"init_lora_weights": "olora"}, "init_lora_weights: 'olora' given"),
    ],
)
def test_variants_that_need_the_matrix_are_refused(small, options, message):
    with pytest.raises(ValueError, match=message):
        peft.get_peft_model(small, lora(target_modules=["first"], **options))


@pytest.mark.parametrize("options", [{"use_rslora": True}, {"lora_bias": True}, {"lora_dropout": 0.5}])
def test_options_of_lora_that_leave_the_matrix_alone(small, options):
    model = peft.get_peft_model(small, lora(target_modules=["first"], **options)).eval()
    x = torch.randn(5, 64)
    wanted = model(x)
    torch.testing.assert_close(model.merge_and_unload()(x), wanted, rtol=1e-3, atol=1e-4)


# The benchmark.


@pytest.mark.parametrize("copied", [True, False])
def test_the_benchmark_compares_before_it_times(copied, tmp_path, capsys):
    from kronsparse.bench.__main__ import main
    from kronsparse.bench.results.rows import read_files

    path = tmp_path / "peft.jsonl"
    command = ["peft", "--device", "cpu", "--size", "tiny", "--tokens", "8", "--runs", "1"]
    assert main([*command, "--output", str(path), *["--copy"] * copied]) == 0
    assert "| boft2 ours |" in capsys.readouterr().out
    rows = {row["contender"]: row for row in read_files([path]) if row["record"] == "peft"}
    assert len(rows) == 6 and all(row["status"] == "ok" and row["step_s"] > 0 for row in rows.values())
    for kind in ("boft1 peft", "boft1 peft uncompiled", "boft2 peft"):
        assert max(rows[kind]["difference"]) < 0.05
        assert ("a copy" in rows[kind]["implementation"]) == copied


def test_copies_compute_what_peft_does():
    from kronsparse.bench.networks.peft_contenders import CopiedBoft

    for factors, is_compiled in ((1, True), (1, False), (2, True), (3, True)):
        theirs = peft.get_peft_model(Small(), boft(factors, 4))
        layer = theirs.base_model.model.first
        copied = CopiedBoft(layer.base_layer, factors, 4, is_compiled)
        with torch.no_grad():
            copied.blocks.copy_(layer.boft_R["default"])
            copied.scale.copy_(layer.boft_s["default"])
        x = torch.randn(3, 64)
        torch.testing.assert_close(copied(x), layer(x), rtol=1e-4, atol=1e-5)
