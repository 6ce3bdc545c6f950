"""DeepSeek's V2, V3 and R1, and Kimi-K2."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from anamnesis.architectures.arch import Arch, Find, Key, Rule
from anamnesis.architectures.config_of_keys import needed, shortest
from anamnesis.architectures.conversion_operations import PerHead, Turn
from anamnesis.architectures.differences import lacks_query_rank
from anamnesis.architectures.model_facts import CONFIG, Facts, real
from anamnesis.architectures.table.blocks import MLP, NORMS, OUTER, plain
from anamnesis.architectures.table.experts import EXPERTS
from anamnesis.base.errors import UnsupportedError

_HEADS = "num_attention_heads"
_ATTENTION = (
    *plain(
        {
            "self_attn.q_proj": "attn_q",
            "self_attn.q_a_proj": "attn_q_a",
            "self_attn.q_a_layernorm": "attn_q_a_norm",
            "self_attn.q_b_proj": "attn_q_b",
            "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
            "self_attn.kv_a_layernorm": "attn_kv_a_norm",
            "self_attn.o_proj": "attn_output",
        }
    ),
    # [H (nope + v), rank] -> [H, rank, nope], [H, v, rank]
    Rule(
        "model.layers.{bid}.self_attn.kv_b_proj",
        ("blk.{bid}.attn_k_b", "blk.{bid}.attn_v_b"),
        (PerHead(_HEADS, ("qk_nope_head_dim", "v_head_dim")), Turn((0,))),
    ),
)
SHARED = plain(
    {
        "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
        "mlp.shared_experts.up_proj": "ffn_up_shexp",
        "mlp.shared_experts.down_proj": "ffn_down_shexp",
    }
)
CORRECTION = Rule(
    "model.layers.{bid}.mlp.gate.e_score_correction_bias",
    ("blk.{bid}.exp_probs_b.bias",),
    exact=True,
)
EXPERT_KEYS = (
    Key("leading_dense_block_count", "first_k_dense_replace"),
    Key("expert_feed_forward_length", "moe_intermediate_size"),
    Key("expert_shared_count", "n_shared_experts"),
    Key("expert_weights_scale", "routed_scaling_factor", "float32"),
)
_KEYS = (
    Key("vocab_size", "vocab_size"),
    Key("attention.q_lora_rank", "q_lora_rank"),
    Key("attention.kv_lora_rank", "kv_lora_rank"),
    Key("attention.value_length", "kv_lora_rank"),
    Key("attention.value_length_mla", "v_head_dim"),
    Key("rope.dimension_count", "qk_rope_head_dim"),
    *EXPERT_KEYS,
)
_NEEDED = ("num_experts_per_tok", "moe_intermediate_size", "v_head_dim")
_BY_GROUPS = "group_limited_greedy"
SPELT = {"expert_count": "n_routed_experts", "expert_gating_func": "scoring_func"}
_LOG_MULTIPLIER = "rope.scaling.yarn_log_multiplier"
_LAYER = re.compile(r"model\.layers\.(0|[1-9][0-9]{0,5})\.")


def _left(facts: Facts, name: str) -> bool:
    """Return whether llama.cpp does not take a tensor: a tied head, layers behind the last one."""
    if name == "lm_head.weight":
        return bool(facts.get("tie_word_embeddings"))
    found = _LAYER.match(name)
    layer = -1 if found is None else int(found[1])
    if layer < facts.number("num_hidden_layers"):
        return False
    return f"model.layers.{layer}.eh_proj.weight" in facts.names  # it predicts further tokens


def _keys(facts: Facts, scores: str) -> Mapping[str, Any]:
    if facts.get("scoring_func") not in (None, scores):
        raise UnsupportedError(
            f"{CONFIG}: scoring_func is {facts.get('scoring_func')!r}, and the class takes {scores}"
        )
    if facts.get("rope_interleave") is False:
        raise UnsupportedError(f"{CONFIG}: rope_interleave is false, which llama.cpp cannot do")
    for name in _NEEDED:
        facts.number(name)
    rank, rope = facts.number("kv_lora_rank"), facts.number("qk_rope_head_dim")
    nope = facts.number("qk_nope_head_dim")
    keys: dict[str, Any] = {
        # One head for all, whose keys are what k_b and v_b are multiplied by, and the rope's part.
        "attention.head_count_kv": {"type": "uint32", "value": 1},
        "attention.key_length": {"type": "uint32", "value": rank + rope},
        "attention.key_length_mla": {"type": "uint32", "value": nope + rope},
    }
    if facts.get("q_lora_rank") is None and not lacks_query_rank(facts):
        keys["attention.q_lora_rank"] = {"type": "uint32", "value": 0}
    if facts.get("norm_topk_prob"):
        keys["expert_weights_norm"] = {"type": "bool", "value": True}
    if facts.rope.get("mscale_all_dim") is not None:
        scale = real(facts.rope, "mscale_all_dim", 0.0)
        if scale and facts.rope.get("mscale") != scale:
            raise UnsupportedError(
                f"{CONFIG}: mscale is {facts.rope.get('mscale')!r} and mscale_all_dim {scale!r},"
                " which llama.cpp takes to be equal"
            )
        keys[_LOG_MULTIPLIER] = {"type": "float32", "value": 0.1 * scale}
    return keys


def _keys_v2(facts: Facts) -> Mapping[str, Any]:
    """Return V2's keys; where it chooses experts of all groups at once, without groups."""
    keys = dict(_keys(facts, "softmax"))
    if facts.get("topk_method") != _BY_GROUPS and facts.get("n_group") not in (None, 1):
        keys |= dict.fromkeys(("expert_group_count", "expert_group_used_count"))
    return keys


def _keys_v3(facts: Facts) -> Mapping[str, Any]:
    return _keys(facts, "sigmoid")


def _v2(facts: Facts) -> Mapping[str, Any]:
    return {"num_key_value_heads": facts.get("num_attention_heads"), "n_shared_experts": 0}


def _v3(facts: Facts) -> Mapping[str, Any]:
    """Return how experts are chosen, too, which transformers 5 leaves out: V3 has one way."""
    return {**_v2(facts), "scoring_func": "sigmoid"}


def _config(find: Find, config: Mapping[str, Any]) -> Mapping[str, Any]:
    rope_dim = needed(find, "rope.dimension_count")
    given = {
        "num_key_value_heads": config["num_attention_heads"],
        "head_dim": rope_dim,
        "qk_nope_head_dim": needed(find, "attention.key_length_mla") - rope_dim,
        "q_lora_rank": config.get("q_lora_rank") or None,
        "norm_topk_prob": bool(find("expert_weights_norm")),
        "num_nextn_predict_layers": 0,
        "n_group": config.get("n_group", 1),
        "topk_group": config.get("topk_group", 1),
    }
    if config["model_type"] == "deepseek_v2" and config.get("n_group") not in (None, 0, 1):
        given["topk_method"] = _BY_GROUPS
    multiplier = find(_LOG_MULTIPLIER)
    if multiplier is not None:
        scale = shortest(multiplier / 0.1)
        both = {"mscale": scale, "mscale_all_dim": scale}
        given["rope_parameters"] = {**config["rope_parameters"], **both}
    return given


_RULES = (*OUTER, *NORMS, *_ATTENTION, *MLP, *EXPERTS, *SHARED)
_CONSTANTS = {"hidden_act": "silu", "attention_bias": False, "moe_layer_freq": 1}

_SHAPES = {"attn_q": "heads*key_mla h", "attn_output": "h heads*value_mla"}

_V2 = Arch(
    gguf="deepseek2",
    hf=("DeepseekV2ForCausalLM",),
    model_type="deepseek_v2",
    rules=_RULES,
    keys=_KEYS,
    computed=_keys_v2,
    derived=_v2,
    shapes=_SHAPES,
    groups={"attn_q": "no-ranks"},
    spelt=SPELT,
    uncomputed=_config,
    left=_left,
    config={**_CONSTANTS, "topk_method": "greedy"},
)
ARCHS = (
    _V2,
    replace(
        _V2,
        hf=("DeepseekV3ForCausalLM",),
        model_type="deepseek_v3",
        rules=(*_RULES, CORRECTION),
        computed=_keys_v3,
        derived=_v3,
        config={**_CONSTANTS, "topk_method": "noaux_tc"},
    ),
)
