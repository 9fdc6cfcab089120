"""Conversion of files: the same as that of models, whole or not at all."""

import copy
import json
import math
import sys

import pytest
import torch
import torch.nn.utils.prune
from kronsparse.__main__ import main
from kronsparse.torch import (
    Rule,
    convert,
    convert_file,
    load_converted,
    rules_from_toml,
)
from torch import nn


@pytest.fixture
def checkpoint(tmp_path):
    from safetensors.torch import save_file

    model = nn.ModuleDict({"up": nn.Linear(16, 64), "down": nn.Linear(64, 16), "lm_head": nn.Linear(16, 16)})
    path = tmp_path / "dense.safetensors"
    save_file({**model.state_dict(), "up.count": torch.tensor(3), "mask": torch.tensor([True])}, path)
    return model, path


def test_a_file_is_converted_as_the_model_is(checkpoint, tmp_path):
    from safetensors import safe_open

    model, path = checkpoint
    target = tmp_path / "small.safetensors"
    report = convert_file(path, "monarch(blocks=4)", target)
    assert report.chains == {"up": "1x16x4x4*4x4x4x1", "down": "1x4x4x4*4x4x16x1"}
    with safe_open(target, "pt") as file:
        names = set(file.keys())
        assert int(file.get_tensor("up.count")) == 3 and bool(file.get_tensor("mask"))
        header = json.loads(file.metadata()["kronsparse"])
    assert header["chains"] == report.chains and header["order"] == "left factor first"
    assert {"up.factor0", "up.factor1", "up.bias", "lm_head.weight"} < names and "up.weight" not in names
    same = convert(model, "monarch(blocks=4)")
    with safe_open(target, "pt") as file:
        assert torch.equal(file.get_tensor("up.factor0"), same["up"].factor0)


def test_embeddings_of_files_are_known_by_their_names(tmp_path):
    from safetensors.torch import save_file

    names = (
        "shared",
        "wte",
        "model.embed_tokens",
        "block.0.SelfAttention.relative_attention_bias",
        "lm_head",
    )
    values = {f"{name}.weight": torch.randn(64, 64) for name in (*names, "up")}
    save_file(values, tmp_path / "a.safetensors")
    report = convert_file(tmp_path / "a.safetensors", "monarch", tmp_path / "b.safetensors")
    assert report.chains.keys() == {"up"} and len(report.kept) == len(names)


def test_converted_files_are_loaded(checkpoint, tmp_path):
    from safetensors.torch import save_file

    model, _ = checkpoint
    save_file(model.state_dict(), tmp_path / "dense.safetensors")
    convert_file(tmp_path / "dense.safetensors", {"up": "low_rank(rank=3)"}, tmp_path / "small.safetensors")
    loaded = load_converted(copy.deepcopy(model), tmp_path / "small.safetensors")
    assert torch.equal(loaded["up"].to_dense(), convert(model, {"up": "low_rank(rank=3)"})["up"].to_dense())
    assert torch.equal(loaded["down"].weight, model["down"].weight)
    load_converted(loaded, tmp_path / "small.safetensors")  # that has the chains already
    with pytest.raises(ValueError, match="has no chains in its header"):
        load_converted(model, tmp_path / "dense.safetensors")


def test_transposed_matrices_of_files(tmp_path):
    from safetensors.torch import save_file

    values = {
        "c_fc.weight": torch.randn(16, 24),
        "c_fc.bias": torch.zeros(24),
    }  # as transformers' Conv1D has them
    save_file(values, tmp_path / "a.safetensors")
    report = convert_file(
        tmp_path / "a.safetensors",
        {"c_fc": "low_rank(rank=5)"},
        tmp_path / "b.safetensors",
        transposed="c_.*",
    )
    assert (report.layers[0].rows, report.layers[0].cols) == (24, 16)
    with pytest.raises(ValueError, match="transposed: 'x' given, must match"):
        convert_file(tmp_path / "a.safetensors", "monarch", tmp_path / "b.safetensors", transposed="x")


@pytest.fixture
def sharded(tmp_path):
    """A model whose checkpoint is in two files."""
    from safetensors.torch import save_file

    model = nn.ModuleDict({name: nn.Linear(64, 64) for name in ("a", "b", "lm_head")})
    model["b"].bias = model["a"].bias  # in the checkpoint once
    folder = tmp_path / "dense"
    folder.mkdir()
    weights = {}
    for file, names in (
        ("1.safetensors", ["a.weight", "a.bias"]),
        ("2.safetensors", ["b.weight", "lm_head.weight", "lm_head.bias"]),
    ):
        save_file({name: model.state_dict()[name] for name in names}, folder / file, {"format": "pt"})
        weights |= dict.fromkeys(names, file)
    index = {"metadata": {"total_size": 1, "total_parameters": 1}, "weight_map": weights}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "small").mkdir()
    return model, folder / "model.safetensors.index.json", tmp_path / "small" / "model.safetensors.index.json"


def test_checkpoints_in_several_files(sharded):
    from safetensors.torch import load_file

    model, source, target = sharded
    report = convert_file(source, "monarch(blocks=4)", target)
    assert report.chains.keys() == {"a", "b"}
    index = json.loads(target.read_text())
    files = [load_file(target.with_name(f"{number}.safetensors")) for number in (1, 2)]
    assert index["weight_map"] == {name: f"{n}.safetensors" for n in (1, 2) for name in files[n - 1]}
    every = [tensor for file in files for tensor in file.values()]
    assert index["metadata"] == {
        "total_size": sum(one.nbytes for one in every),
        "total_parameters": sum(one.numel() for one in every),
    }
    assert sorted(path.name for path in target.parent.iterdir()) == [
        "1.safetensors", "2.safetensors", target.name,
    ]  # fmt: skip
    loaded = load_converted(copy.deepcopy(model), target)
    wanted = convert(model, "monarch(blocks=4)")
    x = torch.randn(3, 64)
    assert all(torch.equal(loaded[name](x), wanted[name](x)) for name in model)


def without_a_shard(index):
    index.with_name("2.safetensors").unlink()


def with_a_tensor_too_many(index):
    text = json.loads(index.read_text())
    text["weight_map"]["c.weight"] = "1.safetensors"
    index.write_text(json.dumps(text))


def with_a_file_elsewhere(index):
    index.write_text(json.dumps({"weight_map": {"a.weight": "../1.safetensors"}}))


def with_damage(index):
    truncated(index.with_name("2.safetensors"))


def with_nan_in_the_last(index):
    from safetensors.torch import load_file, save_file

    tensors = load_file(index.with_name("2.safetensors"))
    tensors["b.weight"][0, 0] = math.nan
    save_file(tensors, index.with_name("2.safetensors"))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (without_a_shard, "names '2.safetensors', which is not beside it"),
        (with_a_tensor_too_many, "different tensors: c.weight"),
        (with_a_file_elsewhere, "is no index of a checkpoint"),
        (lambda index: index.write_text("{"), "is no index of a checkpoint"),
        (with_damage, "is no safetensors file, or is damaged"),
        (with_nan_in_the_last, "b.weight: linear: an element of its matrix is not finite"),
    ],
)
def test_wrong_indices_leave_nothing_behind(sharded, damage, words):
    _, source, target = sharded
    damage(source)
    with pytest.raises(ValueError, match=words):
        convert_file(source, "monarch", target)
    assert not list(target.parent.iterdir())


def test_wrong_targets_and_options_are_seen_at_once(sharded, tmp_path, monkeypatch):
    monkeypatch.setattr("kronsparse.torch.checkpoints.fit", lambda *_: pytest.fail("it computes"))
    _, source, target = sharded
    for given, words in (
        (tmp_path / "no" / "b.index.json", "the folder '.*no' does not exist"),
        (tmp_path, "is a folder"),
        (target.with_name("b.safetensors"), "an index, NAME.index.json, becomes an index"),
        (source.with_name("b.index.json"), "lies beside the source"),
    ):
        with pytest.raises(ValueError, match=f"target: .*{words}"):
            convert_file(source, "monarch", given)
    with pytest.raises(ValueError, match=r"transposed: '\*' given, is no regular expression"):
        convert_file(source, "monarch", target, transposed="*")
    with pytest.raises(ValueError, match="values: 'wrong' given"):
        convert_file(source, "monarch", target, values="wrong")


def test_files_that_do_not_fit_the_model(sharded):
    model, source, target = sharded
    convert_file(source, "monarch", target)
    model["c"] = nn.Linear(2, 2)
    with pytest.raises(ValueError, match=r"lacks c\.weight, c\.bias"):
        load_converted(model, target)
    del model["c"], model["lm_head"]
    with pytest.raises(ValueError, match=r"the model has not, lm_head\.bias, lm_head\.weight"):
        load_converted(model, target)


def truncated(path):
    path.write_bytes(path.read_bytes()[:-10])


def pickled(path):
    torch.save({"up.weight": torch.ones(4, 4)}, path)


def with_nan(path):
    from safetensors.torch import load_file, save_file

    tensors = load_file(path)
    tensors["down.weight"][0, 0] = math.nan
    save_file(tensors, path)


@pytest.mark.parametrize(
    ("damage", "rules", "words"),
    [
        (truncated, "monarch", "is no safetensors file, or is damaged"),
        (lambda path: path.write_bytes(b"nonsense"), "monarch", "is no safetensors file, or is damaged"),
        (pickled, "monarch", "looks like one of torch.save"),
        (with_nan, "monarch", "down.weight: linear: an element of its matrix is not finite"),
        (lambda path: None, {"wrong": "monarch"}, "matches no linear layer"),
        (lambda path: None, {"re:lm_head": "monarch"}, "none converts a matrix"),
        (lambda path: None, [Rule("low_rank(rank=1)", max_error=0.01)], "allows an error of 0.01"),
    ],
)
def test_wrong_files_leave_nothing_behind(checkpoint, damage, rules, words, tmp_path):
    _, path = checkpoint
    damage(path)
    target = tmp_path / "small.safetensors"
    target.write_bytes(b"as it was")
    with pytest.raises(ValueError, match=words):
        convert_file(path, rules, target)
    assert target.read_bytes() == b"as it was"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["dense.safetensors", "small.safetensors"]


@pytest.mark.parametrize("kind", ["itself", "link", "hard link"])
def test_the_source_is_not_written_over(checkpoint, kind, tmp_path):
    _, path = checkpoint
    before, target = path.read_bytes(), tmp_path / "other.safetensors"
    if kind == "link":
        target.symlink_to(path)
    elif kind == "hard link":
        target.hardlink_to(path)
    else:
        target = path
    with pytest.raises(ValueError, match=r"target: .* is the source, whose matrices would be lost"):
        convert_file(path, "monarch", target)
    assert path.read_bytes() == before


UP = "1x16x4x4*4x4x4x1"


def test_the_command(checkpoint, tmp_path, monkeypatch, capsys):
    _, path = checkpoint
    rules = tmp_path / "rules.toml"
    target = tmp_path / "small.safetensors"

    def run(*more):
        command = ["kronsparse", "convert", str(path), "--rules", str(rules), str(target), *more]
        monkeypatch.setattr(sys, "argv", command)
        code = main()
        return code, *capsys.readouterr()

    rules.write_text('[[rule]]\npattern = ".*"\nchain = "monarch(blocks=4)"\n[[rule]]\nname = "down"\n')
    code, told, progress = run("--report", str(tmp_path / "report.html"))
    assert code == 0 and "1 of 3 linear layers are chains" in told and "convert: 1 of 1" in progress
    assert target.exists() and "1x16x4x4*4x4x4x1" in (tmp_path / "report.html").read_text()
    (tmp_path / "dense").mkdir()
    config = tmp_path / "dense" / "config.json"
    config.write_text('{"model_type": "own"}')
    assert run("--config", str(config))[0] == 0
    written = json.loads((tmp_path / "config.json").read_text())
    assert written["model_type"] == "own" and written["quantization_config"]["chains"] == {"up": UP}
    target.unlink()
    for text, words in (
        ("{", "is no JSON"),
        ('{"quantization_config": {}}', "must be that of a dense model"),
    ):
        config.write_text(text)
        code, _, error = run("--config", str(config))
        assert code == 1 and words in error and not target.exists()
    code, _, error = run("--config", str(tmp_path / "config.json"))
    assert code == 1 and "lies beside the target" in error and not target.exists()
    rules.write_text('[[rule]]\nnam = "up"\n')
    code, _, error = run()
    assert code == 1 and not target.exists()
    assert "rules.toml: rules: nam given in rule 1, must be of chain, name" in error
    rules.write_text("[[rule]\n")
    assert "kronsparse convert: " in run()[2]


@pytest.mark.parametrize(
    ("text", "words"),
    [("", "nothing given"), ("a = 1", "a given"), ("[[rule]]\npattern = '('", "is no regular expression")],
)
def test_wrong_toml(text, words):
    with pytest.raises(ValueError, match=words):
        rules_from_toml(text)
