"""Which weights of two models are the same ones."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anamnesis as an
from helpers.pairs_of_models import BF16, Arrays, llama, mixture, weights


def saved(path: Path, arrays: Arrays) -> Path:
    an.save(arrays, path)
    return path


@pytest.mark.parametrize("to", ["gguf-f32", "gguf-q4_k_m", "gguf-bf16"])
def test_a_directory_and_its_gguf_have_every_weight_in_common(tmp_path: Path, to: str) -> None:
    directory = llama(tmp_path / "a")
    an.convert(directory, tmp_path / "b.gguf", to)
    for pair in ((directory, tmp_path / "b.gguf"), (tmp_path / "b.gguf", directory)):
        found = an.compare(*pair, values=True)
        assert not found.a.only
        assert not found.b.only
        assert len(found.weights) == 21
        assert found.same is (to != "gguf-q4_k_m")
        assert not found.config
        assert [note for note in found.notes if "llama.cpp's names" in note]


def test_the_figures_are_those_that_converting_reports(tmp_path: Path) -> None:
    directory = llama(tmp_path / "a")
    told = an.convert(directory, tmp_path / "b.gguf", "gguf-q4_k_m").loss
    assert told is not None
    found = an.compare(directory, tmp_path / "b.gguf", values=True)
    for weight in found.differing:
        assert weight.difference is not None
        loss, other = weight.difference.loss, told.weights[weight.name]
        assert loss.largest == other.largest
        assert loss.n == other.n
        assert loss.squared == pytest.approx(other.squared, rel=1e-6)
        assert loss.absolute == pytest.approx(other.absolute, rel=1e-6)


@pytest.mark.parametrize(
    ("of_a", "of_b"),
    [
        ("", "module."),
        ("model.", "model.language_model."),
        ("model.", ""),
        ("", "base_model.model."),
        ("model.", "language_model.model."),
    ],
)
def test_names_below_another_prefix(tmp_path: Path, of_a: str, of_b: str) -> None:
    arrays = weights()
    inside = [name for name in arrays if name.startswith(of_a or "model.")]
    there = {of_b + n.removeprefix(of_a) if n in inside else n: a for n, a in arrays.items()}
    a, b = saved(tmp_path / "a.safetensors", arrays), saved(tmp_path / "b.safetensors", there)
    found = an.compare(a, b, values=True)
    assert found.same
    assert found.counts == {"same bytes": len(arrays)}
    assert {weight.name for weight in found.weights} == arrays.keys()


def test_other_weights_are_not_taken_for_one(tmp_path: Path) -> None:
    one, two = np.ones((4, 4), np.float32), np.full((4, 4), 2, np.float32)
    a = saved(tmp_path / "a.safetensors", {"visual.norm.weight": one})
    b = saved(tmp_path / "b.safetensors", {"text.norm.weight": two})
    found = an.compare(a, b)
    assert (list(found.a.only), list(found.b.only)) == (
        ["visual.norm.weight"],
        ["text.norm.weight"],
    )
    assert not found.same


def test_experts_one_by_one_and_as_stacks(tmp_path: Path) -> None:
    apart, stacked = (mixture(tmp_path / n, stacked=n == "s") for n in ("a", "s"))
    for pair in ((apart, stacked), (stacked, apart)):
        found = an.compare(*pair, values=True)
        assert found.same, str(found)
        assert len(found.weights) == 5
        assert sum("tensors" in weight.note for weight in found.weights) == 4


def test_stacks_of_two_kinds(tmp_path: Path) -> None:
    ours, mlx = mixture(tmp_path / "ours", stacked=True), mixture(tmp_path / "mlx", stacked="mlx")
    found = an.compare(ours, mlx, values=True)
    assert found.same, str(found)
    assert len(found.weights) == 1 + 2 * 3 * 4


def test_a_head_that_is_the_embeddings(tmp_path: Path) -> None:
    arrays = weights()
    arrays["lm_head.weight"] = arrays["model.embed_tokens.weight"].copy()
    whole = llama(tmp_path / "a", arrays)
    del arrays["lm_head.weight"]
    tied = llama(tmp_path / "b", arrays, lambda said: said.update(tie_word_embeddings=True))
    for pair in ((whole, tied), (tied, whole)):
        found = an.compare(*pair, values=True)
        head = next(weight for weight in found.weights if weight.name == "lm_head.weight")
        assert head.state == "same bytes"
        assert "has it as model.embed_tokens.weight" in head.note
        assert [change.key for change in found.config] == ["tie_word_embeddings"]


def test_a_head_that_is_lost_is_not_the_embeddings(tmp_path: Path) -> None:
    arrays = weights()
    del arrays["lm_head.weight"]
    found = an.compare(llama(tmp_path / "a"), llama(tmp_path / "b", arrays))
    assert list(found.a.only) == ["lm_head.weight"]
    assert not found.same


def test_many_names_that_end_alike_are_no_prefix(tmp_path: Path) -> None:
    one = np.ones(1, np.float32)
    a, b = (
        saved(tmp_path / f"{x}.npz", {f"{x}{i}.proj.weight": one for i in range(3000)})
        for x in "ab"
    )
    start = time.process_time()
    found = an.compare(a, b)
    assert time.process_time() - start < 3
    assert len(found.a.only) == 3000


def test_a_padded_vocabulary(tmp_path: Path) -> None:
    arrays = weights()
    name = "model.embed_tokens.weight"
    arrays[name] = np.concatenate([arrays[name], np.zeros((64, arrays[name].shape[1]), BF16)])
    found = an.compare(llama(tmp_path / "a"), llama(tmp_path / "b", arrays), values=True)
    padded = next(weight for weight in found.weights if weight.name == name)
    assert padded.state == "more rows"
    assert not found.same
    assert padded.note == "B has 64 more rows, which are not compared"


def test_layers_that_draft_tokens_are_said(tmp_path: Path) -> None:
    arrays = weights()
    arrays["mtp.fc.weight"] = np.ones((4, 4), BF16)
    a, b = saved(tmp_path / "a.safetensors", arrays), saved(tmp_path / "b.safetensors", weights())
    assert an.compare(a, b).a.only == {"mtp.fc.weight": "drafts tokens (MTP)"}


@pytest.mark.parametrize(
    ("change", "keys"),
    [
        ({"rope_theta": 5e5}, ["rope.rope_theta"]),
        ({"hidden_act": "gelu"}, ["hidden_act"]),
        ({"torch_dtype": "float32", "transformers_version": "4.0"}, []),
        ({"attention_dropout": 0.1, "use_cache": False, "initializer_range": 1.0}, []),
        ({"attention_bias": False}, []),  # as the class has it
        ({"quantization_config": {"quant_method": "none"}}, []),
    ],
)
def test_what_config_says_otherwise(
    tmp_path: Path, change: dict[str, Any], keys: list[str]
) -> None:
    a = llama(tmp_path / "a")
    b = llama(tmp_path / "b", config=lambda said: said.update(change))
    found = an.compare(a, b)
    assert [one.key for one in found.config] == keys
    assert found.same is (not keys)


def test_a_number_that_is_none_is_as_another(tmp_path: Path) -> None:
    a = llama(tmp_path / "a", config=lambda said: said.update(odd=float("nan")))
    assert an.compare(a, a).same


def test_a_gguf_whose_header_says_otherwise(tmp_path: Path) -> None:
    directory = llama(tmp_path / "a")
    an.convert(directory, tmp_path / "b.gguf", "gguf-f32")
    an.edit_metadata(tmp_path / "b.gguf", {"llama.rope.freq_base": 5e5})
    found = an.compare(directory, tmp_path / "b.gguf", values=True)
    assert [change.key for change in found.config] == ["llama.rope.freq_base"]
    assert not found.same


def test_a_model_without_a_row_is_compared_by_its_names(tmp_path: Path) -> None:
    directory = llama(tmp_path / "a", config=lambda said: said.update(architectures=["Other"]))
    an.convert(llama(tmp_path / "b"), tmp_path / "b.gguf", "gguf-f32")
    found = an.compare(directory, tmp_path / "b.gguf")
    assert not found.weights
    assert "A is not seen as GGUF" in found.notes[0]
