"""kronsparse-bench models with transformers' own classes, small ones, on the CPU."""

import pytest
import torch
from kronsparse.bench.__main__ import main
from kronsparse.bench.networks import scenes
from kronsparse.bench.results.rows import read_rows

transformers = pytest.importorskip("transformers", reason="needs transformers")
if int(transformers.__version__.split(".")[0]) < 5:
    pytest.skip("needs transformers >= 5", allow_module_level=True)

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    "scene", ["vit", "gpt2-prefill", "gpt2-decode-16", "llama-prefill", "llama-decode-1"]
)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_models_parts_and_checks(scene, dtype, tmp_path):
    path = tmp_path / "models.jsonl"
    options = ["--device", "cpu", "--small", "--milliseconds", "0.1", "--output", str(path)]
    assert main(["models", *options, "--only", f"{scene} {dtype} monarch16 graph"]) == 0
    rows = [row for row in read_rows(path) if row["record"] == "cell" and row["part"] != "pipeline"]
    wanted = {"model", "block"} | (set() if "decode" in scene else {"ffn", "attention", "layer"})
    assert {row["part"] for row in rows} == wanted
    for row in rows:
        assert row["status"] == "ok", row["reason"]
        assert set(row["errors"]) == {"dense", "auto", "kernel", "bmm"}


@pytest.mark.parametrize("scene", ["gpt2-decode-16", "llama-decode-16"])
def test_decoding_is_the_end_of_a_prefill(scene):
    """A token with a cache of those before it gives what the whole sequence gives in its last place."""
    small = scenes.small_scenes()
    decoded = small[scene]
    model = scenes.build(decoded, CPU, torch.float64)
    tokens = torch.randint(0, decoded.words, (decoded.batch, decoded.context + 1))
    with torch.no_grad():
        whole = model(tokens, use_cache=True)
        kept = whole.past_key_values
        keys = [kept.layers[k].keys.clone() for k in range(decoded.depth)]
        values = [kept.layers[k].values.clone() for k in range(decoded.depth)]
        for one in (*keys, *values):
            one[:, :, -1] = 7.0  # is written by the call
        cache = scenes.FullCache(keys, values)
        last = model(tokens[:, -1:], past_key_values=cache, use_cache=False)[0]
    torch.testing.assert_close(last, whole[0][:, -1:])


def test_attention_is_transformers_own():
    scene = scenes.small_scenes()["llama-prefill"]
    model = scenes.build(scene, CPU, torch.float32)
    tokens = torch.randint(0, scene.words, (2, 6))
    with torch.no_grad():
        mine = model(tokens, use_cache=False)[0]
        model.set_attn_implementation("eager")
        torch.testing.assert_close(model(tokens, use_cache=False)[0], mine)
