"""Rows of decoders that are Llama's but for a norm or two: what only they have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anamnesis.base.errors import ParseError, UnsupportedError
from helpers.arch_rows import keys_of, published, taken

STABLELM = {**published("stablelm-2-1_6b"), "num_attention_heads": 4, "num_key_value_heads": 2}
SMOLLM3 = published("SmolLM3-3B")
COHERE2 = published("c4ai-command-r7b-12-2024")
MINISTRAL = published("Ministral-3-8B-Instruct")
GRANITE = published("granite-3.1-3b-a800m-instruct")
LFM2 = published("LFM2-1.2B")


# --- tensors --------------------------------------------------------------------------------------


def test_norms_of_heads_are_stacked(tmp_path: Path) -> None:
    stem = "model.layers.1.self_attn"
    queries = [f"{stem}.q_layernorm.norms.{i}.weight" for i in range(4)]
    keys = [f"{stem}.k_layernorm.norms.{i}.weight" for i in range(2)]
    found = taken(tmp_path, STABLELM, dict.fromkeys([*queries, *keys], (16,)))
    for name, parts in (("blk.1.attn_q_norm.weight", queries), ("blk.1.attn_k_norm.weight", keys)):
        assert np.array_equal(found.gguf[name], np.stack([found.hf[part] for part in parts]))
    assert all(np.array_equal(found.back[name], array) for name, array in found.hf.items())


def test_granites_gates_lie_before_what_they_open(tmp_path: Path) -> None:
    stem = "model.layers.0.block_sparse_moe"
    shapes = {f"{stem}.input_linear.weight": (3, 8, 6), f"{stem}.output_linear.weight": (3, 6, 4)}
    found = taken(tmp_path, GRANITE, shapes)
    both = found.hf[f"{stem}.input_linear.weight"]
    assert np.array_equal(found.gguf["blk.0.ffn_gate_exps.weight"], both[:, :4])
    assert np.array_equal(found.gguf["blk.0.ffn_up_exps.weight"], both[:, 4:])
    assert all(np.array_equal(found.back[name], array) for name, array in found.hf.items())


def test_convolutions_have_no_dimension_of_one(tmp_path: Path) -> None:
    name = "model.layers.0.conv.conv.weight"
    found = taken(tmp_path, LFM2, {name: (6, 1, 3)})
    assert np.array_equal(found.gguf["blk.0.shortconv.conv.weight"], found.hf[name][:, 0])
    assert np.array_equal(found.back[name], found.hf[name])


# --- keys -----------------------------------------------------------------------------------------


def test_mistral_small_has_no_scaled_attention() -> None:
    text = {k: v for k, v in MINISTRAL["text_config"].items() if k != "rope_parameters"}
    config = {**MINISTRAL, "text_config": {**text, "model_type": "mistral", "rope_theta": 1e9}}
    keys = keys_of(config)
    assert keys["rope.freq_base"] == 1e9
    assert keys["rope.dimension_count"] == 128
    assert not {"attention.temperature_scale", "rope.scaling.yarn_log_multiplier"} & keys.keys()


def ministral(**rope: Any) -> dict[str, Any]:
    text = MINISTRAL["text_config"]
    told = {**text["rope_parameters"], **rope}
    return {**MINISTRAL, "text_config": {**text, "rope_parameters": told}}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (ministral(mscale=0.5), "mscale is 0.5"),
        (ministral(mscale=None), "mscale is None"),
        (ministral(llama_4_scaling_beta=None), "has no rope_parameters.llama_4_scaling_beta"),
        ({**SMOLLM3, "no_rope_layers": [1] * 36}, "no_rope_layers is not every fourth layer"),
        ({**COHERE2, "attention_bias": True}, "attention_bias is set"),
        ({**LFM2, "layer_types": ["conv"]}, "layer_types are not 16 words"),
        ({**LFM2, "block_multiple_of": 0}, "block_multiple_of is 0"),
    ],
)
def test_what_files_cannot_say_is_refused(config: dict[str, Any], words: str) -> None:
    with pytest.raises((ParseError, UnsupportedError), match=words):
        keys_of(config)


def test_a_theta_that_llama_cpp_does_not_assume_is_told() -> None:
    assert "rope.freq_base" not in keys_of(STABLELM)
    assert keys_of({**STABLELM, "rope_theta": 50000})["rope.freq_base"] == 50000.0


def test_windows_that_llama_cpp_does_not_assume_are_told() -> None:
    name = "attention.sliding_window_pattern"
    kinds = ["full_attention", "sliding_attention"] * 16
    assert name not in keys_of(COHERE2)
    assert keys_of({**COHERE2, "layer_types": kinds})[name] == [False, True] * 16


def test_layers_that_attend_are_told_by_number_or_by_kind() -> None:
    kinds = ["full_attention" if i in (2, 5, 8, 10, 12, 14) else "conv" for i in range(16)]
    told = {k: v for k, v in LFM2.items() if k != "full_attn_idxs"} | {"layer_types": kinds}
    assert keys_of(told) == keys_of(LFM2)
    heads = keys_of(LFM2)["attention.head_count_kv"]
    assert heads == [8 if kind == "full_attention" else 0 for kind in kinds]


def test_granites_heads_are_by_its_width() -> None:
    keys = keys_of({**GRANITE, "head_dim": 128})
    assert keys["rope.dimension_count"] == 1536 // 24
    assert "attention.key_length" not in keys
