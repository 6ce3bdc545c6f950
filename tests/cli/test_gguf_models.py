"""A directory as a GGUF, and back, on the command line: what is shown and refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anamnesis as an
from anamnesis.cli.demo_models import DEMOS
from helpers.cli_runs import amn


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    for path, raw in DEMOS["llama"].make().items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(raw)
    return folder / "llama-tiny"


@pytest.fixture
def model(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "llama-tiny"))


def changed(model: Path, **facts: Any) -> None:
    """Change facts of config.json; those that are None go."""
    path = model / "config.json"
    config = {**json.loads(path.read_text()), **facts}
    path.write_text(json.dumps({k: v for k, v in config.items() if v is not None}))


def refused(model: Path, *args: str) -> str:
    done = amn("convert", model, "--to", "gguf", *args, "--quiet")
    assert done.returncode == 1
    assert done.stderr.startswith("amn: error: ")
    assert done.stderr.count("\n") == 1
    assert not list(model.parent.glob("*.gguf*"))
    return str(done.stderr)


def shown(path: Path) -> dict[str, str]:
    rows = amn("inspect", path).stdout.splitlines()
    return {row[:13].strip(): row[13:] for row in rows if row[:1].strip()}


# --- what is shown --------------------------------------------------------------------------------


def test_both_show_the_same_facts(model: Path) -> None:
    an.convert(model, model.parent / "m.gguf", "gguf-q8_0")
    directory, gguf = shown(model), shown(model.parent / "m.gguf")
    assert directory["Arch:"] == "LlamaForCausalLM"
    assert gguf["Arch:"] == "llama"
    for told in (directory, gguf):
        assert told["Context:"] == "512 tokens"
        assert told["Vocabulary:"] == "320 tokens"
        assert told["Parameters:"].startswith("1,344,768, ")


def test_facts_of_the_text_model_count(model: Path) -> None:
    changed(model, architectures=None, text_config={"max_position_embeddings": 77})
    with an.parse(model) as opened:
        told = opened.inspect()
    assert (told.architecture, told.context_length, told.n_vocabulary) == ("llama", 77, 320)


@pytest.mark.parametrize("value", ["many", -1, 0, True, 2.5, [3]])
def test_what_is_no_number_of_tokens_is_not_shown(model: Path, value: Any) -> None:
    changed(model, max_position_embeddings=value, vocab_size=value, architectures=value)
    told = json.loads(amn("inspect", model, "--json").stdout)
    assert (told["architecture"], told["context_length"], told["n_vocabulary"]) == (
        *("llama", None),
        None,
    )


def test_a_plan_says_what_tensors_are_made_of(model: Path) -> None:
    told = json.loads(amn("plan", model, "--to", "gguf-q4_k_m", "--json").stdout)
    written = [tensor["name"] for file in told["files"] for tensor in file["tensors"]]
    assert sorted(told["names"]) == sorted(written)
    assert told["names"]["blk.1.attn_q.weight"] == ["model.layers.1.self_attn.q_proj.weight"]
    (row,) = [
        line.split()
        for line in amn("plan", model, "--to", "gguf-q4_k_m").stdout.splitlines()
        if line.startswith("  blk.1.attn_q")
    ]
    assert row[-1] == "model.layers.1.self_attn.q_proj.weight"
    kept = json.loads(amn("plan", model, "--to", "gguf", "--names", "keep", "--json").stdout)
    assert kept["names"] == {}


def test_which_names_options_speak_of(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    kept = {"blk.0.attn_q.weight": "q6_k", "blk.*.ffn_up.weight": "q8_0"}
    halved = {"model.layers.*.k_proj.weight": lambda weight: weight.numpy() / 2}
    an.convert(model, out, "gguf-q4_k_m", overrides=kept, edit=halved, drop="lm_head")
    an.convert(model, tmp_path / "f32.gguf", "gguf-f32", edit=halved)
    an.convert(model, tmp_path / "whole.gguf", "gguf-f32")
    with an.parse(out) as written:
        assert written.stored["blk.0.attn_q.weight"].dtype.name == "Q6_K"
        assert written.stored["blk.1.ffn_up.weight"].dtype.name == "Q8_0"
        assert "output.weight" not in written
    with an.parse(tmp_path / "f32.gguf") as half, an.parse(tmp_path / "whole.gguf") as whole:
        name = "blk.1.attn_k.weight"
        assert (half[name].numpy() == whole[name].numpy() / 2).all()


def test_a_recipe_says_it_too(model: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "r.toml"
    recipe.write_text('to = "gguf-q8_0"\nnames = "keep"\n')
    told = json.loads(amn("plan", model, "--recipe", recipe, "--json").stdout)
    assert told["names"] == {}
    recipe.write_text('to = "gguf-q8_0"\ntokenizer-pre = "qwen2"\n')
    an.convert(model, tmp_path / "out.gguf", **an.read_recipe(recipe))
    with an.parse(tmp_path / "out.gguf") as written:
        assert written.metadata["tokenizer.ggml.pre"] == "qwen2"
    recipe.write_text('names = "none"\n')
    with pytest.raises(ValueError, match=r"r\.toml, line 1: names: must be auto or keep, not"):
        an.read_recipe(recipe)


# --- what is refused ------------------------------------------------------------------------------


def test_what_lacks_a_tokenizer_can_keep_its_names(model: Path) -> None:
    (model / "tokenizer.json").unlink()
    why = refused(model)
    assert "no tokenizer.json, vocab.json or tokenizer.model; --names keep writes" in why
    kept = amn("convert", model, "--to", "gguf", "--names", "keep", "-o", model.parent / "k.gguf")
    assert kept.returncode == 0
    with an.parse(model.parent / "k.gguf") as written:
        assert "model.norm.weight" in written
        assert written.inspect().n_vocabulary is None


def test_an_architecture_without_a_row_is_named(model: Path) -> None:
    changed(model, architectures=["NewForCausalLM"])
    why = refused(model)
    assert "'NewForCausalLM' has no row" in why
    assert "; --names keep writes" in why


def test_a_tensor_of_no_rule_is_named(model: Path) -> None:
    with an.parse(model) as opened:
        an.save(
            {**opened, "model.extra.weight": opened["lm_head.weight"]},
            model / "new.tmp",
            "safetensors",
        )
    (model / "new.tmp").rename(model / "model.safetensors")
    assert "'model.extra.weight' is no tensor of llama" in refused(model)
    left = amn("convert", model, "--to", "gguf-f16", "--drop", "model.extra.weight", "--quiet")
    assert left.returncode == 0, left.stderr


def test_a_directory_of_no_class_is_named(model: Path) -> None:
    changed(model, architectures=None)
    assert "config.json: names no class in `architectures`" in refused(model)
    kept = amn("convert", model, "--to", "gguf-f16", "--names", "keep", "--quiet")
    assert kept.returncode == 0, kept.stderr


def test_an_adapter_is_named(model: Path) -> None:
    (model / "config.json").rename(model / "adapter_config.json")
    assert "adapter_config.json: an adapter is no whole model" in refused(model)


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        ({"general.architecture": "new", "tokenizer.ggml.model": "gpt2"}, "'new' has no row here"),
        (
            {"general.architecture": "llama"},
            "lacks llama.attention.head_count, which is num_attention_heads",
        ),
        ({"general.architecture": "flux"}, ""),
    ],
)
def test_a_gguf_of_no_row_as_a_directory(
    metadata: dict[str, str], text: str, tmp_path: Path
) -> None:
    """A model of texts is refused; one of images has no other names."""
    array = np.zeros((32, 32), np.float32)
    an.save({"blk.0.attn_q.weight": array}, tmp_path / "a.gguf", metadata=metadata)
    done = amn("convert", tmp_path / "a.gguf", "--to", "bf16", "-o", f"{tmp_path}/out/", "--quiet")
    assert (done.returncode, text in done.stderr) == (int(bool(text)), True)


def test_an_unknown_pre_tokenizer_can_be_named(model: Path) -> None:
    path = model / "tokenizer.json"
    told = json.loads(path.read_text())
    split = {"type": "Split", "pattern": {"Regex": "a|[^a]+"}, "behavior": "Isolated"}
    told["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, told["pre_tokenizer"]]}
    path.write_text(json.dumps(told))
    assert "--tokenizer-pre NAME" in refused(model)
    out = model.parent / "out.gguf"
    done = amn("convert", model, "--to", "gguf", "--tokenizer-pre", "gpt-2", "-o", out)
    assert done.returncode == 0, done.stderr
    with an.parse(out) as written:
        assert written.metadata["tokenizer.ggml.pre"] == "gpt-2"


# --- and back -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command", [("convert", "--to", "bf16"), ("remember",), ("remember", "--to", "safetensors")]
)
def test_a_slash_makes_a_directory(model: Path, command: tuple[str, ...]) -> None:
    gguf, back = model.parent / "m.gguf", model.parent / "back"
    an.convert(model, gguf, "gguf-bf16")
    done = amn(*command, gguf, "-o", f"{back}/")
    assert done.returncode == 0, done.stderr
    with an.parse(model) as before, an.parse(back) as after:
        assert before.keys() == after.keys()
        for name, weight in before.items():
            assert weight.numpy("bf16").tobytes() == after[name].numpy("bf16").tobytes(), name
    config = json.loads((back / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]


def test_without_a_slash_names_are_kept(model: Path, tmp_path: Path) -> None:
    an.convert(model, tmp_path / "m.gguf", "gguf-bf16")
    for args in (("-o", "plain.safetensors"), ("-o", "there/", "--names", "keep"), ()):
        done = amn("convert", "m.gguf", "--to", "bf16", *args, "--quiet", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    made = ("plain.safetensors", "there/m-bf16.safetensors", "m-bf16.safetensors")
    for name in made:
        with an.parse(tmp_path / name) as written:
            assert "blk.0.attn_q.weight" in written


@pytest.mark.parametrize("fact", ["num_attention_heads", "num_key_value_heads"])
def test_heads_that_the_rows_do_not_have_are_refused(fact: str, model: Path) -> None:
    config = json.loads((model / "config.json").read_text())
    head_dim = config["hidden_size"] // config["num_attention_heads"]
    for n in (config[fact] + 1, 2 * config[fact]):
        changed(model, head_dim=head_dim, **{fact: n})
        told = refused(model)
        assert f"not {n} heads ({fact}) of {head_dim}" in told
