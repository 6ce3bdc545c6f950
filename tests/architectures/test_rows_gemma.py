"""Gemma 2 and 3: what llama.cpp assumes is checked, norms have 1 more, padding goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anamnesis.architectures.config_of_keys import config_facts
from anamnesis.architectures.keys import model_keys
from anamnesis.base.errors import ParseError, UnsupportedError
from helpers.arch_rows import facts_of, keys_of, published, taken

WINDOW, FULL = "sliding_attention", "full_attention"
PATTERN = "attention.sliding_window_pattern"
LAYER = "model.layers.0."
NAMES = {
    "model.norm.weight": "output_norm.weight",
    f"{LAYER}input_layernorm.weight": "blk.0.attn_norm.weight",
    f"{LAYER}post_attention_layernorm.weight": "blk.0.post_attention_norm.weight",
    f"{LAYER}pre_feedforward_layernorm.weight": "blk.0.ffn_norm.weight",
    f"{LAYER}post_feedforward_layernorm.weight": "blk.0.post_ffw_norm.weight",
    f"{LAYER}self_attn.q_norm.weight": "blk.0.attn_q_norm.weight",
    f"{LAYER}self_attn.k_norm.weight": "blk.0.attn_k_norm.weight",
}


def test_norms_have_one_more_and_the_embedding_no_padding(tmp_path: Path) -> None:
    config = {**published("gemma-3-1b-it"), "vocab_size": 5}
    shapes = {"model.embed_tokens.weight": (8, 6), **dict.fromkeys(NAMES, (6,))}
    shapes |= {f"{LAYER}self_attn.q_proj.weight": (4, 6)}
    found = taken(tmp_path, config, shapes)
    embedding = found.hf["model.embed_tokens.weight"]
    assert found.gguf.keys() == {*NAMES.values(), "token_embd.weight", "blk.0.attn_q.weight"}
    assert np.array_equal(found.gguf["token_embd.weight"], embedding[:5])
    for hf, gguf in NAMES.items():
        assert np.array_equal(found.gguf[gguf], found.hf[hf] + np.float32(1))
        assert np.array_equal(found.back[hf], found.gguf[gguf] - np.float32(1))
    query = f"{LAYER}self_attn.q_proj.weight"
    assert np.array_equal(found.gguf["blk.0.attn_q.weight"], found.hf[query])


@pytest.mark.parametrize("name", ["gemma-2-9b-it", "gemma-3-1b-it", "gemma-2-27b"])
def test_a_scale_that_llama_cpp_does_not_take_is_refused(name: str) -> None:
    config = {**published(name), "query_pre_attn_scalar": 111}
    with pytest.raises(UnsupportedError, match=r"config\.json: query_pre_attn_scalar is 111, and"):
        keys_of(config)


@pytest.mark.parametrize(
    "fact", ["attn_logit_softcapping", "final_logit_softcapping", "sliding_window"]
)
def test_gemma_2_without_a_number_that_llama_cpp_makes_up_is_refused(fact: str) -> None:
    with pytest.raises(ParseError, match=f"has no {fact}, which the GGUF header needs"):
        keys_of({**published("gemma-2-9b-it"), fact: None})


def test_gemma_3_with_a_cap_of_attention_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"attn_logit_softcapping is 50\.0"):
        keys_of({**published("gemma-3-1b-it"), "attn_logit_softcapping": 50.0})


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"layer_types": [*([WINDOW] * 5), FULL] * 4 + [WINDOW] * 2}, None),
        ({"layer_types": [WINDOW, FULL] * 13}, [True, False] * 13),
        ({"sliding_window_pattern": 2}, [True, False] * 13),
        ({"_sliding_window_pattern": 26}, [True] * 25 + [False]),
    ],
)
def test_another_pattern_of_windows_is_said(facts: dict[str, Any], expected: Any) -> None:
    told = {**published("gemma-3-1b-it"), "sliding_window_pattern": None, **facts}
    assert keys_of(told).get(PATTERN) == expected


@pytest.mark.parametrize("told", [[True, False] * 13, 2])
def test_a_pattern_that_is_said_comes_back(told: Any) -> None:
    arch, facts = facts_of({**published("gemma-3-1b-it"), "layer_types": [WINDOW, FULL] * 13})
    metadata = {key: value["value"] for key, value in model_keys(arch, facts).items()}
    config, said = config_facts(arch, {**metadata, f"gemma3.{PATTERN}": told}, {})
    assert config["layer_types"] == [WINDOW, FULL] * 13
    assert f"gemma3.{PATTERN}" in said


def test_local_theta_is_llama_cpps_own_where_older_files_do_not_say_it() -> None:
    arch, facts = facts_of(published("gemma-3-1b-it"))
    metadata = {key: value["value"] for key, value in model_keys(arch, facts).items()}
    del metadata["gemma3.rope.freq_base_swa"]
    config, _ = config_facts(arch, metadata, {})
    told = {kind: rope["rope_theta"] for kind, rope in config["rope_parameters"].items()}
    assert told == {"full_attention": 1e6, "sliding_attention": 1e4}


def test_gemma_3_without_windows_says_none() -> None:
    keys = keys_of({**published("gemma-3-1b-it"), "sliding_window_pattern": 1})
    assert not {"attention.sliding_window", PATTERN} & keys.keys()


def test_gemma_2_says_another_theta_than_llama_cpps_own() -> None:
    assert "rope.freq_base" not in keys_of(published("gemma-2-9b-it"))
    told = {**published("gemma-2-9b-it"), "rope_theta": 20000.0}
    assert keys_of(told)["rope.freq_base"] == 20000.0


@pytest.mark.parametrize("kinds", [["chunked_attention"] * 26, [FULL] * 25, "sliding_attention"])
def test_layer_types_that_are_none_are_refused(kinds: Any) -> None:
    with pytest.raises(ParseError, match="layer_types are no 26 of"):
        keys_of({**published("gemma-3-1b-it"), "layer_types": kinds})
