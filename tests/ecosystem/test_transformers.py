"""Models of transformers with chains: saved, loaded, initialised, trained, generated with."""

import json
import subprocess
import sys

import kronsparse.peft
import kronsparse.transformers
import peft
import pytest
import torch
import transformers
from kronsparse.torch import KSLinear, LazyMatrix, convert, freeze, report_of, to_dense
from kronsparse.transformers import KronsparseConfig
from torch import nn

RULES = {nn.Linear: "monarch(blocks=8)"}


def llama(**options):
    settings = transformers.LlamaConfig(
        **{
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "vocab_size": 128,
            **options,
        }
    )
    return transformers.LlamaForCausalLM(settings).eval()


def gpt2():
    settings = transformers.GPT2Config(n_embd=64, n_layer=2, n_head=4, vocab_size=128, n_positions=32)
    return transformers.GPT2LMHeadModel(settings).eval()


def bert():
    settings = transformers.BertConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, vocab_size=128
    )
    return transformers.BertForSequenceClassification(settings).eval()


TOKENS = torch.arange(10).view(2, 5) + 3


@pytest.fixture(params=[llama, gpt2, bert])
def dense(request):
    return request.param()


def rules_for(model):
    if isinstance(model, transformers.GPT2LMHeadModel):
        return {transformers.pytorch_utils.Conv1D: "monarch(blocks=8)"}
    return RULES


def chains_in(model):
    return [module for module in model.modules() if isinstance(module, KSLinear)]


def test_round_trip(dense, tmp_path):
    small = convert(dense, rules_for(dense))
    small.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())["quantization_config"]
    assert config["quant_method"] == "kronsparse" and config["chains"] == report_of(small).chains
    loaded = type(dense).from_pretrained(tmp_path)
    assert len(chains_in(loaded)) == len(chains_in(small)) > 0
    assert torch.equal(loaded(TOKENS).logits, small(TOKENS).logits)
    assert loaded.config.quantization_config == small.config.quantization_config
    loaded.float()  # which quantized models refuse
    # And once more, and dense again.
    loaded.save_pretrained(tmp_path / "again")
    again = type(dense).from_pretrained(tmp_path / "again")
    assert torch.equal(again(TOKENS).logits, small(TOKENS).logits)
    restored = to_dense(again)
    assert not hasattr(restored.config, "quantization_config")
    restored.save_pretrained(tmp_path / "dense")
    reloaded = type(dense).from_pretrained(tmp_path / "dense")
    assert not chains_in(reloaded)
    torch.testing.assert_close(reloaded(TOKENS).logits, small(TOKENS).logits, rtol=1e-4, atol=1e-5)


def test_auto_classes_and_models_without_their_head(tmp_path):
    small = convert(llama(), RULES)
    small.save_pretrained(tmp_path)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert loaded.model.layers[0].mlp.up_proj.factor0.dtype == torch.bfloat16
    body = transformers.AutoModel.from_pretrained(tmp_path)
    wanted = small.model(TOKENS).last_hidden_state
    assert torch.equal(body(TOKENS).last_hidden_state, wanted)
    body.save_pretrained(tmp_path / "body")
    with_head = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "body")
    assert torch.equal(with_head.model(TOKENS).last_hidden_state, wanted)


def test_a_dense_checkpoint_is_converted_while_it_is_loaded(tmp_path):
    model = llama()
    model.save_pretrained(tmp_path)
    config = KronsparseConfig(RULES, values="factorize")
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, quantization_config=config)
    assert torch.equal(loaded(TOKENS).logits, convert(model, RULES)(TOKENS).logits)
    loaded.save_pretrained(tmp_path / "small")
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "small")
    assert torch.equal(again(TOKENS).logits, loaded(TOKENS).logits)


def test_dense_weights_beside_the_configuration_of_chains_are_factorised(tmp_path):
    model = llama()
    small = convert(model, RULES)
    model.save_pretrained(tmp_path)
    small.config.save_pretrained(tmp_path)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert torch.equal(loaded(TOKENS).logits, small(TOKENS).logits)


def test_pickled_dense_weights_beside_the_configuration_of_chains(tmp_path):
    model = llama()
    small = convert(model, RULES)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    small.config.save_pretrained(tmp_path)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert torch.equal(loaded(TOKENS).logits, small(TOKENS).logits)


@pytest.mark.parametrize("name", ["model.safetensors", "model.safetensors.index.json"])
def test_a_file_that_the_command_converted(name, tmp_path, monkeypatch):
    from kronsparse.__main__ import main

    model = llama()
    model.save_pretrained(tmp_path / "dense", max_shard_size="50KB" if "index" in name else "5GB")
    small = convert(model, RULES)
    (tmp_path / "small").mkdir()
    (tmp_path / "rules.toml").write_text('[[rule]]\nchain = "monarch(blocks=8)"\n')
    monkeypatch.chdir(tmp_path)
    command = f"kronsparse convert dense/{name} --config dense/config.json --rules rules.toml small/{name}"
    monkeypatch.setattr(sys, "argv", command.split())
    assert main() == 0
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "small")
    assert torch.equal(loaded(TOKENS).logits, small(TOKENS).logits)


OWN = """
import sys
import torch
import transformers
from kronsparse.torch import KSLinear

class Config(transformers.PretrainedConfig):
    model_type = "own"

class Own(transformers.PreTrainedModel):
    config_class = Config
    def __init__(self, config):
        super().__init__(config)
        self.dense = torch.nn.Linear(64, 64)
        self.chain = KSLinear(64, 64)
        self.post_init()

class Dense(Own):
    def __init__(self, config):
        super().__init__(config)
        self.chain = torch.nn.Linear(64, 64)

torch.use_deterministic_algorithms(True)
torch.utils.deterministic.fill_uninitialized_memory = True  # with NaN
Dense(Config()).save_pretrained(sys.argv[1])
loaded = Own.from_pretrained(sys.argv[1])
for name, parameter in loaded.named_parameters():
    assert parameter.isfinite().all() and parameter.abs().max() < 1, name
assert 0.03 < loaded.chain.to_dense().std() < 0.12  # as nn.Linear's: 1/sqrt(3 * 64) is 0.07
own = Own(Config())
own.save_pretrained(sys.argv[1] + "/own")
again = Own.from_pretrained(sys.argv[1] + "/own")
assert all(torch.equal(a, b) for a, b in zip(own.parameters(), again.parameters(), strict=True))
"""


def test_a_class_with_chains_loads_a_dense_checkpoint_initialised(tmp_path):
    """In a process that never imports kronsparse.transformers."""
    done = subprocess.run(
        [sys.executable, "-c", OWN, str(tmp_path)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_wrong_configurations(tmp_path):
    with pytest.raises(ValueError, match="rules: must be given"):
        KronsparseConfig()
    with pytest.raises(ValueError, match="needs a later kronsparse"):
        KronsparseConfig(chains={"a": "1x2x2x1"}, version=2)
    small = convert(llama(), RULES)
    small.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    config["quantization_config"]["chains"] = {"wrong": "1x2x2x1"}
    path.write_text(json.dumps(config))
    with pytest.raises(ValueError, match="chains: wrong given, must be names of layers"):
        transformers.AutoModelForCausalLM.from_pretrained(tmp_path)


def test_chains_of_layers_that_the_model_has_not_are_no_new_weights(tmp_path):
    """A part that is missing as a whole may be; a layer beside others may not."""
    small = convert(llama(), RULES)
    small.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    chains = config["quantization_config"]["chains"]
    chains["other_head.dense"] = "1x2x2x1"
    path.write_text(json.dumps(config))
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert torch.equal(loaded(TOKENS).logits, small(TOKENS).logits)
    chains["model.layers.0.mlp.experts.0"] = "1x2x2x1"
    path.write_text(json.dumps(config))
    for kind in (transformers.AutoModelForCausalLM, transformers.AutoModel):
        with pytest.raises(ValueError, match=r"chains: model\.layers\.0\.mlp\.experts\.0 given"):
            kind.from_pretrained(tmp_path)


def test_half_precision_shards_and_dtypes(tmp_path):
    small = convert(llama(), RULES).bfloat16()
    small.save_pretrained(tmp_path, max_shard_size="50KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    for dtype, wanted in ((None, torch.bfloat16), ("auto", torch.bfloat16), (torch.float32, torch.float32)):
        loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=dtype)
        for one, other in zip(loaded.parameters(), small.parameters(), strict=True):
            assert one.dtype == wanted and torch.equal(one, other.to(wanted))


def test_mixtures_of_experts():
    """Experts are tensors of three dimensions, and no layers: they stay."""
    settings = transformers.MixtralConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=128,
        num_local_experts=4,
    )
    model = transformers.MixtralForCausalLM(settings).eval()
    small = convert(model, RULES)
    assert report_of(small).chains and all("self_attn" in name for name in report_of(small).chains)
    torch.testing.assert_close(small(TOKENS).logits, to_dense(small)(TOKENS).logits, rtol=1e-4, atol=1e-4)


def test_images():
    settings = transformers.ViTConfig(
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        image_size=32,
        patch_size=8,
    )
    model = transformers.ViTForImageClassification(settings).eval()
    small = convert(model, RULES)
    assert len(chains_in(small)) == 12
    x = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(small(x).logits, to_dense(small)(x).logits, rtol=1e-4, atol=1e-4)


def test_generate():
    small = convert(llama(), RULES)
    settings = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    dense = to_dense(small)
    assert torch.equal(small.generate(TOKENS, **settings), dense.generate(TOKENS, **settings))


@pytest.mark.parametrize("checkpointing", [False, True])
def test_trainer(checkpointing, tmp_path):
    torch.use_deterministic_algorithms(False)
    small = convert(llama(), RULES)
    data = [{"input_ids": row, "labels": row} for row in torch.randint(0, 128, (8, 12))]
    settings = transformers.TrainingArguments(
        str(tmp_path),
        max_steps=12,
        learning_rate=1e-2,
        per_device_train_batch_size=8,
        report_to=[],
        gradient_checkpointing=checkpointing,
        logging_steps=1,
        use_cpu=True,
        save_steps=6,
        disable_tqdm=True,
    )
    trainer = transformers.Trainer(small, settings, train_dataset=data)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses[-1] < 0.8 * losses[0]
    # A checkpoint of the Trainer is a model.
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "checkpoint-12")
    assert torch.equal(loaded(TOKENS).logits, trainer.model.eval()(TOKENS).logits)
    again = transformers.Trainer(convert(llama(), RULES), settings, train_dataset=data)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-6"))
    assert again.state.global_step == 12


def test_gradient_checkpointing_gives_the_same_gradients():
    small = convert(llama(), RULES).train()
    found = []
    for turn in range(2):
        if turn:
            small.gradient_checkpointing_enable()
        small.zero_grad()
        small(TOKENS, labels=TOKENS).loss.backward()
        found.append([parameter.grad.clone() for parameter in small.parameters()])
    for plain, checkpointed in zip(*found, strict=True):
        torch.testing.assert_close(plain, checkpointed)


def test_device_map_and_offloading(tmp_path):
    import accelerate

    small = convert(llama(), RULES)
    wanted = small(TOKENS).logits
    small.save_pretrained(tmp_path)
    mapped = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, device_map="cpu")
    assert torch.equal(mapped(TOKENS).logits, wanted)
    where = {"model.embed_tokens": "cpu", "model.layers.0": "cpu", "model.layers.1": "disk"}
    where |= {"model.norm": "cpu", "model.rotary_emb": "cpu", "lm_head": "cpu"}
    on_disk = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, device_map=where, offload_folder=str(tmp_path / "offload")
    )
    assert on_disk.model.layers[1].mlp.up_proj.factor0.is_meta
    with torch.no_grad():
        assert torch.equal(on_disk(TOKENS).logits, wanted)
    accelerate.cpu_offload(small, execution_device="cpu")
    with torch.no_grad():
        assert torch.equal(small(TOKENS).logits, wanted)
    with pytest.raises(RuntimeError, match="factor0 is offloaded by accelerate"):
        freeze(small)
    with pytest.raises(ValueError, match="moved by a hook of accelerate"):
        convert(accelerate.cpu_offload(llama(), execution_device="cpu"), RULES, inplace=True)


def test_t5_asks_for_the_dtype_at_no_cost(monkeypatch):
    settings = transformers.T5Config(d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, vocab_size=128)
    model = transformers.T5ForConditionalGeneration(settings).eval()
    small = convert(model, RULES)
    assert len(chains_in(small)) > 10
    monkeypatch.setattr(LazyMatrix, "_multiplied_out", lambda _: pytest.fail("it is multiplied out"))
    with torch.no_grad():
        found = small(input_ids=TOKENS, decoder_input_ids=TOKENS).logits
    torch.testing.assert_close(
        found, to_dense(small)(input_ids=TOKENS, decoder_input_ids=TOKENS).logits, rtol=1e-4, atol=1e-4
    )


def test_token_embeddings_are_resized_around_a_dense_head():
    for tied in (True, False):
        small = convert(llama(tie_word_embeddings=tied), RULES)
        small.resize_token_embeddings(136)
        assert small(TOKENS).logits.shape[-1] == 136
    headed = convert(llama(), RULES, heads=True)
    with pytest.raises((TypeError, AttributeError, RuntimeError)):
        headed.resize_token_embeddings(136)


def test_tied_heads_stay_dense():
    small = convert(llama(tie_word_embeddings=True), RULES, heads=True)
    assert small.lm_head.weight is small.model.embed_tokens.weight
    assert "embed_tokens" in report_of(small).kept[-1].reason


def test_calibration_with_batches_of_a_tokenizer():
    model = llama()
    batches = [{"input_ids": TOKENS, "attention_mask": torch.ones_like(TOKENS)}]
    small = convert(model, {"model.layers.1.mlp.down_proj": "low_rank(rank=8)"}, batches)
    assert report_of(small).is_weighted and report_of(small).converted[0].error < 0.9


def test_lora_on_a_converted_model(tmp_path):
    kronsparse.peft.register()
    small = convert(llama(), RULES)
    model = peft.get_peft_model(
        small, peft.LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False)
    )
    assert not any("lm_head" in name and "lora" in name for name, _ in model.named_parameters())
    assert len([1 for name, _ in model.named_parameters() if "lora_A" in name]) == 14
    model.save_pretrained(tmp_path)
    loaded = peft.PeftModel.from_pretrained(convert(llama(), RULES), tmp_path)
    assert len([1 for name, _ in loaded.named_parameters() if "lora_A" in name]) == 14


def test_importing_the_layers_imports_no_transformers():
    code = (
        "import sys, kronsparse.torch, kronsparse.peft; assert not {'transformers', 'peft'} & {*sys.modules}"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=300).returncode == 0
