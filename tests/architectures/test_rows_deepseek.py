"""DeepSeek: kv_b is taken apart by heads, what is behind the last layer is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anamnesis.architectures.config_of_keys import config_facts
from anamnesis.architectures.keys import model_keys
from anamnesis.base.errors import ParseError, UnsupportedError
from helpers.arch_rows import facts_of, keys_of, published, taken

V3, V2 = published("DeepSeek-V3"), published("DeepSeek-V2-Lite")
TINY = {
    "num_attention_heads": 3,
    "num_key_value_heads": 3,
    "qk_nope_head_dim": 2,
    "v_head_dim": 4,
    "n_routed_experts": 2,
    "num_hidden_layers": 2,
}
LAYER = "model.layers.1."


def test_tensors_are_those_of_llama_cpp_and_come_back(tmp_path: Path) -> None:
    each = [f"{LAYER}mlp.experts.{i}.gate_proj.weight" for i in range(2)]
    shapes: dict[str, tuple[int, ...]] = {
        f"{LAYER}self_attn.kv_b_proj.weight": (18, 5),
        f"{LAYER}self_attn.kv_a_proj_with_mqa.weight": (7, 6),
        f"{LAYER}self_attn.q_a_layernorm.weight": (5,),
        f"{LAYER}mlp.gate.e_score_correction_bias": (2,),
        f"{LAYER}mlp.shared_experts.up_proj.weight": (3, 6),
        "model.layers.2.self_attn.o_proj.weight": (6, 6),
        "model.layers.2.eh_proj.weight": (6, 12),
        **dict.fromkeys(each, (4, 6)),
    }
    found = taken(tmp_path, {**V3, **TINY}, shapes)
    hf = found.hf
    kv_b = hf[f"{LAYER}self_attn.kv_b_proj.weight"].reshape(3, 6, 5)
    expected = {
        "attn_k_b.weight": kv_b[:, :2].swapaxes(1, 2),
        "attn_v_b.weight": kv_b[:, 2:],
        "attn_kv_a_mqa.weight": hf[f"{LAYER}self_attn.kv_a_proj_with_mqa.weight"],
        "attn_q_a_norm.weight": hf[f"{LAYER}self_attn.q_a_layernorm.weight"],
        "exp_probs_b.bias": hf[f"{LAYER}mlp.gate.e_score_correction_bias"],
        "ffn_up_shexp.weight": hf[f"{LAYER}mlp.shared_experts.up_proj.weight"],
        "ffn_gate_exps.weight": np.stack([hf[name] for name in each]),
    }
    assert found.gguf.keys() == {f"blk.1.{name}" for name in expected}
    for name, array in expected.items():
        assert np.array_equal(found.gguf[f"blk.1.{name}"], array)
    assert found.left == {name for name in shapes if name.startswith("model.layers.2.")}
    assert {n: (a.shape, a.tobytes()) for n, a in found.back.items()} == {
        n: (a.shape, a.tobytes()) for n, a in hf.items() if n not in found.left
    }


@pytest.mark.parametrize("method", ["group_limited_greedy", "greedy"])
def test_v2_comes_back_with_the_router_that_it_has(method: str) -> None:
    """Of all groups at once no file says a group; llama.cpp chooses by any that it says."""
    config = {**V2, "topk_method": method, "n_group": 8, "topk_group": 3}
    arch, facts = facts_of(config)
    keys = model_keys(arch, facts)
    assert ("deepseek2.expert_group_count" in keys) is (method != "greedy")
    metadata = {name: key["value"] for name, key in keys.items()}
    assert config_facts(arch, metadata, {})[0]["topk_method"] == method


def test_a_rank_of_queries_is_said_where_llama_cpp_asks_for_one() -> None:
    assert "attention.q_lora_rank" not in keys_of(V2)  # it has 27 layers
    arch, facts = facts_of({**V2, "num_hidden_layers": 28})
    metadata = {name: key["value"] for name, key in model_keys(arch, facts).items()}
    assert metadata["deepseek2.attention.q_lora_rank"] == 0
    assert config_facts(arch, metadata, {})[0]["q_lora_rank"] is None


def test_a_tied_head_is_left() -> None:
    arch, facts = facts_of({**V3, "tie_word_embeddings": True})
    assert arch.left(facts, "lm_head.weight")
    arch, facts = facts_of(V3)
    assert not arch.left(facts, "lm_head.weight")


def test_only_v3_has_a_correction_by_which_it_is_known_on_the_way_back() -> None:
    names = {
        config["model_type"]: {name for rule in facts_of(config)[0].rules for name in rule.gguf}
        for config in (V2, V3)
    }
    assert names["deepseek_v3"] - names["deepseek_v2"] == {"blk.{bid}.exp_probs_b.bias"}


def test_v3_chooses_experts_by_sigmoid_where_config_json_does_not_say_it() -> None:
    assert keys_of({**V3, "scoring_func": None})["expert_gating_func"] == 2
    assert "expert_gating_func" not in keys_of({**V2, "scoring_func": None})


def test_no_rank_of_queries_is_none_though_the_class_has_one() -> None:
    assert "attention.q_lora_rank" not in keys_of(V2)
    without = {name: value for name, value in V2.items() if name != "q_lora_rank"}
    assert keys_of(without)["attention.q_lora_rank"] == 1536


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"rope_interleave": False}, "rope_interleave is false, which llama.cpp cannot do"),
        (
            {"rope_scaling": {**V3["rope_scaling"], "mscale": 0.5}},
            r"mscale is 0\.5 and mscale_all_dim 1\.0, which llama\.cpp takes to be equal",
        ),
        ({"scoring_func": "tanh"}, "'tanh', which GGUF has no word for"),
    ],
)
def test_what_llama_cpp_would_do_otherwise_is_refused(facts: dict[str, Any], words: str) -> None:
    with pytest.raises(UnsupportedError, match=words):
        keys_of({**V3, **facts})


@pytest.mark.parametrize("fact", ["num_experts_per_tok", "v_head_dim", "kv_lora_rank"])
def test_a_fact_that_is_missing_is_named(fact: str) -> None:
    with pytest.raises(ParseError, match=f"has no {fact}"):
        keys_of({**V3, fact: None})
