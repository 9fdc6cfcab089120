"""kronsparse-bench models without transformers: a made-up model, its layers replaced, checked and timed; a
block in both layouts; the tables."""

import math

import pytest
import torch
from bench_helpers import pretend_gpu, run_record
from kronsparse.bench import models
from kronsparse.bench.__main__ import main
from kronsparse.bench.measuring.timing import Effort
from kronsparse.bench.networks import pipeline, profiling, replacing, scenes
from kronsparse.bench.reporting import models_section
from kronsparse.bench.results.rows import read_rows
from kronsparse.chains import monarch
from kronsparse.torch import KSLinear
from torch import nn

CPU = torch.device("cpu")


class ToyAttention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, mask=None):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return self.out(nn.functional.scaled_dot_product_attention(q, k, v)), None


class ToyMLP(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return self.down(nn.functional.gelu(self.up(x)))


class ToyBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention, self.mlp = ToyAttention(width), ToyMLP(width)

    def forward(self, x, mask=None):
        x = x + self.attention(x, mask=mask)[0]
        return x + self.mlp(x)


class Toy(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.ModuleList(ToyBlock(width) for _ in range(2))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x, mask=None)
        return (x,)


@pytest.fixture
def toy(monkeypatch):
    """In the place of transformers' models, whatever the scene."""

    def build(scene, device, dtype):
        return Toy(scene.width).to(device, dtype).eval().requires_grad_(False)

    def inputs(scene, device, dtype):
        x = torch.randn(scene.batch, scene.tokens, scene.width).to(device, dtype)
        return scenes.Inputs((x,), {})

    monkeypatch.setattr(scenes, "build", build)
    monkeypatch.setattr(scenes, "inputs_of", inputs)


def run(tmp_path, *only, device="cpu"):
    path = tmp_path / "models.jsonl"
    words = [word for one in only for word in ("--only", one)]
    size = ["--small", "--milliseconds", "0.1"]
    code = main(["models", "--device", device, *size, *words, "--output", str(path)])
    return code, [row for row in read_rows(path) if row["record"] == "cell"]


def test_every_part_is_checked_and_timed(toy, tmp_path, capsys):
    code, rows = run(tmp_path, "vit f32 monarch16 graph")
    assert code == 0
    assert [row["part"] for row in rows] == ["model", "block", "ffn", "attention", *["layer"] * 8, "pipeline"]
    for row in rows:
        assert row["status"] == "ok" and row["reason"] == ""
        dense = "dense batch_first" if row["part"] == "pipeline" else "dense"
        assert min(row["seconds"].values()) > 0 and dense in row["seconds"]
        assert max(row["errors"].values()) <= row["allowed"] < 1e-5
    assert rows[0]["layers"] == 8 and rows[0]["chains"]["48x48"] == "1x3x16x16*16x16x3x1"
    assert set(rows[0]["seconds"]) == set(replacing.CONTENDERS)
    assert [row["layer"] for row in rows if row["part"] == "layer"][:2] == ["144x48", "144x48+bias"]
    told = capsys.readouterr().out
    assert told.startswith("Small models, to try the command:\n\n")
    assert "| ViT-S/16, 128 images | f32 | monarch16 | 192x48+bias | graph |" in told
    assert models_section.sections([run_record(), *rows]) == []  # no results of ViT-S
    # The same command goes on with what is left, which is nothing.
    assert len(run(tmp_path, "vit f32 monarch16 graph")[1]) == len(rows)


def test_a_wrong_answer_is_not_timed(toy, tmp_path, monkeypatch):
    right = replacing.BmmLinear.forward
    monkeypatch.setattr(replacing.BmmLinear, "forward", lambda self, x: 1.01 * right(self, x))
    code, (row,) = run(tmp_path, "vit f32 paper block eager")
    assert code == 1 and row["status"] == "wrong" and row["reason"].startswith("bmm wrong: error 0.0")
    assert "bmm" not in row["seconds"] and "kernel" in row["seconds"]


def test_a_wrong_row_of_a_layer_is_found(toy, tmp_path, monkeypatch):
    right = replacing.BmmLinear.forward

    def almost(self, x):
        y = right(self, x)
        y.view(-1, y.shape[-1])[3] = 0.0  # neither the first nor the last
        return y

    monkeypatch.setattr(replacing.BmmLinear, "forward", almost)
    code, rows = run(tmp_path, "vit f32 paper layer graph")
    assert code == 1 and all("bmm wrong" in row["reason"] for row in rows)


def test_who_fails_is_named_and_the_others_are_timed(toy, tmp_path, monkeypatch):
    def fail(self, x):
        raise RuntimeError("out of memory\nmore")

    monkeypatch.setattr(replacing.BmmLinear, "forward", fail)
    code, (row,) = run(tmp_path, "vit f32 paper block graph")
    assert code == 0 and row["status"] == "ok"
    assert row["reason"] == "bmm unavailable: RuntimeError: out of memory"


def test_compiled_cells_have_two_rows_of_one_compilation(toy, tmp_path, monkeypatch):
    compiled = []

    def compile_(module, dynamic):
        compiled.append(module)
        return module

    monkeypatch.setattr(torch, "compile", compile_)
    _, rows = run(tmp_path, "vit f32 paper block compiled")
    assert [row["run"] for row in rows] == ["compiled", "compiled-graph"]
    assert [row["name"].split()[-1] for row in rows] == ["compiled", "compiled-graph"]
    assert len(compiled) == 4 and all("auto" not in row["seconds"] for row in rows)


def test_graphs_and_calls_in_a_row_on_a_pretended_gpu(toy, monkeypatch):
    device = pretend_gpu(monkeypatch)
    effort = Effort(run_s=1e-4, total_s=1e-3, fewest=2, most=3)
    studio = models.Studio(device, effort, scenes.small_scenes(), lambda text: 1.0)
    for run in ("graph", "eager"):
        before = len(device.sleeps)
        (row,) = studio.rows(models.Cell("vit", "f32", "monarch16", "block", run))
        assert row["status"] == "ok" and set(row["seconds"]) == set(replacing.CONTENDERS)
        # A graph is enqueued while the GPU spins; an eager call is timed as its caller sees it.
        assert (len(device.sleeps) > before) == (run == "graph")
    rows = studio.rows(models.Cell("vit", "f32", "monarch16", "layer", "graph"))
    # Inputs are rotated until they exceed the cache: a graph holds as many calls as there are inputs.
    assert len(rows) == 8 and all(row["status"] == "ok" for row in rows)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_every_part_on_a_gpu(toy, tmp_path, dtype):
    runs = [f"vit {dtype} monarch16 {run}" for run in ("graph", "eager", "profile")]
    code, rows = run(tmp_path, *runs, f"vit {dtype} advised-paper model graph", device="cuda:0")
    assert code == 0 and all(row["status"] == "ok" and row["reason"] == "" for row in rows), rows
    assert {row["run"] for row in rows} == {"graph", "eager", "profile"}
    (profile,) = (row["profile"] for row in rows if row["run"] == "profile")
    assert profile["kernel"]["products of factors"] > 0 and "products of factors" not in profile["dense"]


def test_profiles_and_shares(toy, tmp_path):
    _, rows = run(tmp_path, "vit f32 paper model profile", "ViT-S/16 f32")
    shares, profile = sorted(rows, key=lambda row: row["part"])
    assert profile["profile"]["kernel"]["products of factors"] > 0
    assert profile["profile"]["dense"]["dense products"] > 0
    assert set(shares["seconds"]) == {"model", "ffn"}


def test_a_decoding_scene_times_models_and_blocks_only():
    everything = models.cells(scenes.scenes())
    parts = {cell.part for cell in everything if cell.scene == "llama-decode-16"}
    assert parts == {"model", "block"}
    assert all(cell.part == "model" and cell.run == "graph" for cell in everything[:8])
    assert len(set(everything)) == len(everything)


def test_cells_can_be_listed_and_unknown_words_are_refused(tmp_path, capsys):
    assert main(["models", "--list", "--only", "vit f16 paper graph"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "vit f16 paper model graph" and len(told) == 6
    assert main(["models", "--only", "vit f17"]) == 1
    assert "no cell has all the words of 'vit f17'" in capsys.readouterr().err


def test_copies_share_parameters_but_not_layers():
    model = nn.Sequential(nn.Linear(8, 16), nn.Sequential(nn.Linear(16, 6)))
    copied = replacing.sharing_copy(model)
    assert copied[0].weight is model[0].weight and copied[0] is not model[0]
    replacing.replace_layer(copied, "1.0", nn.Identity())
    assert isinstance(copied[1][0], nn.Identity) and isinstance(model[1][0], nn.Linear)


def test_forms_of_a_replaced_model_compute_the_same():
    torch.manual_seed(3)
    dense = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4, bias=False)).requires_grad_(False)
    replaced = replacing.Replaced(dense, {"0": monarch(16, 8, 4), "2": monarch(4, 16, 2)})
    assert replaced.parameters == (24 * 4 + 20 * 2, 128 + 64) and replaced.longest == 2
    x = torch.randn(3, 8)
    exact = replaced.reference(torch.float64)(x.double())
    for name in ("dense", "auto", "kernel", "bmm"):
        torch.testing.assert_close(replaced.form(name)(x).double(), exact, rtol=1e-4, atol=1e-5)
    assert replaced.form("rest")(x).shape == (3, 4)
    assert isinstance(replaced.form("kernel")[0], KSLinear) and replaced.form("kernel")[0].is_frozen
    assert not isinstance(dense[0], KSLinear)


def test_advised_chains_have_the_parameters_and_the_rank():
    like = monarch(64, 64, 8)
    layer = scenes.Layer(64, 64, "f32", "fp32", "batch_first", 100)
    found = scenes.advised(like, layer, lambda text: float(text.count("*")))
    assert 2 / 3 * like.nnz <= found.nnz <= like.nnz and found.shape == (64, 64)
    assert min(64, *(pattern.cols for pattern in found)) == 64
    scene = scenes.small_scenes()["vit"]
    chains = scenes.chains_for(scene, Toy(48), "advised-paper", "f32", lambda text: 1.0)
    assert set(chains) == {
        f"layers.{k}.{name}" for k in (0, 1) for name in ("attention.out", "mlp.up", "mlp.down")
    }
    with pytest.raises(ValueError, match="set paper: no layer of llama-prefill is replaced by it"):
        scenes.chains_for(scenes.scenes()["llama-prefill"], Toy(48), "paper", "f32", lambda text: 1.0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", ["dense batch_last", "kernel batch_last", "kernel batch_last heads"])
def test_a_block_with_features_outermost(name, dtype):
    torch.manual_seed(5)
    chains = {
        layer: scenes.paper_chain(scenes.small_scenes()["vit"], *sizes)
        for layer, sizes in pipeline.layer_sizes(48).items()
    }
    blocks = pipeline.make_blocks(48, 3, chains, CPU, dtype)
    x = torch.randn(2, 7, 48, dtype=dtype)
    first = blocks["kernel batch_first"](x)
    last = blocks[name](x.permute(2, 0, 1).contiguous())
    assert last.shape == (48, 2, 7)
    close = {"rtol": 1e-9, "atol": 1e-9} if dtype == torch.float64 else {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(last.permute(1, 2, 0), first, **close)
    exact = pipeline.reference_block(blocks["kernel batch_first"], torch.float64)(x.double())
    torch.testing.assert_close(first.double(), exact, **close)
    other = blocks[name](x.roll(1, 1).permute(2, 0, 1).contiguous())  # tokens in another order
    assert not torch.allclose(last, other)
    with pytest.raises(ValueError, match="attention: 'fast' given, must be one of copied, heads"):
        pipeline.LastBlock(48, 3, {}, [], "fast")


def test_a_cache_is_as_it_was_at_every_call():
    scene = scenes.small_scenes()["gpt2-decode-16"]
    cache = scenes.FullCache.random(scene, CPU, torch.float32)
    key = torch.randn(2, 2, 1, 32)
    keys, _ = cache.update(key, key, 1)
    assert keys.shape == (2, 2, 6, 32) and cache.get_seq_length() == 5
    torch.testing.assert_close(keys[:, :, -1:], key)
    picked = cache.picked(torch.tensor([1]), torch.float64)
    assert picked.keys[1].shape[0] == 1 and picked.values[0].dtype == torch.float64


def made_up(scene="vit", part="model", dtype="f16", set_name="paper", run="graph", **changes):
    seconds = {"dense": 1e-3, "auto": 0.8e-3, "kernel": 0.9e-3, "bmm": 2e-3, "rest": 0.3e-3}
    row = {"record": "cell", "scene": scene, "dtype": dtype, "set": set_name, "part": part, "run": run}
    row |= {"status": "ok", "reason": "", "seconds": seconds, "taken": {"kernel": 3}, "model_sparsity": 0.5}
    row |= changes
    return row | {"name": f"{models_section.cell_name(row)} {row.get('layer', '')}".strip()}


def test_tables_of_models():
    table = models_section.ratios_table([made_up(), made_up(dtype="f32")])
    assert table.rows[0][:10] == [
        *("ViT-S/16, 128 images", "f16", "paper", "model", "graph", "1"),
        *("0.800", "0.900", "2.000", "0.300"),
    ]
    assert [line[10] for line in table.rows] == ["0.85: reached", "0.40: **missed**"]
    wrong = made_up(status="wrong", reason="auto wrong: error 1", seconds={"dense": 1.0})
    assert models_section.ratios_table([wrong]).rows[0][6:] == [
        *("-", "-", "-", "-", "0.85: **missed**", "kernel 3", "wrong: auto wrong: error 1")
    ]
    rows = [run_record(), made_up(dtype="f32"), made_up(part="layer", layer="384x384", dtype="f32")]
    rows.append(
        made_up("ViT-S/16", "linear-share", "f32", "dense", "eager", seconds={"model": 0.2, "ffn": 0.1})
    )
    rows.append(made_up(run="profile", profile={"dense": {"norms": 1e-3}, "kernel": {"norms": 1e-3}}))
    third, seventh, eighth = (
        one(rows) for one in (models_section.table3, models_section.table7, models_section.table8)
    )
    assert third.blocks[0].rows[0][2:] == ["57.1 %", "0.89", "0.78", "50.0 %", "2.00", "0.90", "0.80"]
    assert seventh.blocks[0].rows == [["ViT-S/16", "f32", "0.09", "46 %", "0.2000", "50 %"]]
    assert [line[0] for line in eighth.blocks[0].rows] == ["N x N", "model"]
    titles = [section.title for section in models_section.sections(rows)]
    assert titles == [
        *("Models: whole ones in CUDA graphs", "Models: ViT-S/16, 128 images", "Models: where the time goes")
    ]
    assert models_section.table3([run_record()]) is None


def test_kinds_of_kernels():
    assert profiling.kind_of("flash_fwd_kernel") == "attention"
    assert profiling.kind_of("nvjet_hsh_128x256") == "dense products"
    assert profiling.kind_of("vectorized_layer_norm_kernel") == "norms"
    assert math.isclose(sum(profiling.profiled(lambda: None, on_gpu=False).values()), 0.0, abs_tol=1e-2)
