"""LFM 2 of Liquid AI: short convolutions, and attention in some layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anamnesis.architectures.arch import Arch, Find, Key, Rule
from anamnesis.architectures.config_of_keys import needed
from anamnesis.architectures.conversion_operations import Reshape
from anamnesis.architectures.model_facts import CONFIG, Facts, real
from anamnesis.architectures.table.blocks import FULL, OUTER, layer, layer_kinds, plain
from anamnesis.architectures.table.experts import experts
from anamnesis.architectures.table.llama import KEYS
from anamnesis.base.errors import ParseError, UnsupportedError

_CONV = "conv"
_KV_HEADS = "attention.head_count_kv"
_RULES = (
    OUTER[0],
    Rule("model.embedding_norm", ("token_embd_norm",)),
    OUTER[2],
    *plain(
        {
            "operator_norm": "attn_norm",
            "ffn_norm": "ffn_norm",
            "self_attn.q_proj": "attn_q",
            "self_attn.k_proj": "attn_k",
            "self_attn.v_proj": "attn_v",
            "self_attn.out_proj": "attn_output",
            "self_attn.q_layernorm": "attn_q_norm",
            "self_attn.k_layernorm": "attn_k_norm",
            "conv.in_proj": "shortconv.in_proj",
            "conv.out_proj": "shortconv.out_proj",
            "feed_forward.w1": "ffn_gate",
            "feed_forward.w3": "ffn_up",
            "feed_forward.w2": "ffn_down",
        }
    ),
    layer(  # [channels, 1, length] as [channels, length]
        "conv.conv",
        "shortconv.conv",
        Reshape(lambda s: (s[0], *s[2:]), lambda s: (s[0], 1, s[1]) if len(s) == 2 else s),
    ),
)
_EXPERTS = (
    *experts("feed_forward", "w1", "w3", "w2"),
    layer("feed_forward.gate", "ffn_gate_inp"),
    Rule(
        "model.layers.{bid}.feed_forward.expert_bias", ("blk.{bid}.exp_probs_b.bias",), exact=True
    ),
)
_CONV_BIASES = {"conv_bias": ("shortconv.in_proj.bias", "shortconv.out_proj.bias")}
_KEYS = (*KEYS, Key("shortconv.l_cache", "conv_L_cache"))


def _layer_types(facts: Facts) -> Mapping[str, Any]:
    """Return the kind of each layer, which older files give as the numbers of those that attend."""
    full = facts.get("full_attn_idxs")
    if full is not None and not isinstance(full, list):
        raise ParseError(f"full_attn_idxs is {full!r}, no list", source=CONFIG)
    n = facts.n_layers
    kinds = [_CONV if full is not None and i not in full else FULL for i in range(n)]
    return {"layer_types": kinds, "num_key_value_heads": facts.get("num_attention_heads")}


def _by_layers(facts: Facts) -> Mapping[str, Any]:
    """Return key-value heads of each layer, none of those that convolve."""
    n = facts.n_layers
    kinds, heads = facts.get("layer_types"), facts.number("num_key_value_heads")
    if not isinstance(kinds, list) or len(kinds) != n:
        raise ParseError(f"layer_types are not {n} words, one for each layer", source=CONFIG)
    return {_KV_HEADS: {"type": "int32", "value": [0 if k == _CONV else heads for k in kinds]}}


def _lfm2(facts: Facts) -> Mapping[str, Any]:
    rows = {"type": "uint32", "value": _feed_forward(facts)}
    return {**_by_layers(facts), "feed_forward_length": rows}


def _lfm2moe(facts: Facts) -> Mapping[str, Any]:
    if not facts.get("norm_topk_prob") or facts.get("routed_scaling_factor") != 1:
        raise UnsupportedError(
            f"{CONFIG}: norm_topk_prob or routed_scaling_factor is not what llama.cpp takes"
            " lfm2moe to have, true and 1"
        )
    return _by_layers(facts)


def _feed_forward(facts: Facts) -> int:
    """Return the rows of an MLP: two thirds of what config.json says, times a factor, rounded."""
    n = facts.number("intermediate_size" if facts.get("block_ff_dim") is None else "block_ff_dim")
    if not facts.get("block_auto_adjust_ff_dim"):
        return n
    n = int(2 * n / 3)
    n = int(real(facts.values, "block_ffn_dim_multiplier", 1.0) * n)
    step = facts.number("block_multiple_of")
    return step * -(-n // step)


def _lfm2_config(find: Find, config: Mapping[str, Any]) -> Mapping[str, Any]:
    heads = needed(find, _KV_HEADS)
    heads = heads if isinstance(heads, list) else [heads] * config["num_hidden_layers"]
    return {
        "num_key_value_heads": max(heads),
        "layer_types": layer_kinds([n == 0 for n in heads], _CONV),
    }


ARCHS = (
    Arch(
        gguf="lfm2",
        hf=("Lfm2ForCausalLM", "LFM2ForCausalLM"),
        model_type="lfm2",
        rules=_RULES,
        keys=_KEYS,
        computed=_lfm2,
        uncomputed=_lfm2_config,
        derived=_layer_types,
        config={"block_auto_adjust_ff_dim": False},
        switches=_CONV_BIASES,
        spelt={"attention.layer_norm_rms_epsilon": "norm_eps"},
    ),
    Arch(
        gguf="lfm2moe",
        hf=("Lfm2MoeForCausalLM",),
        model_type="lfm2_moe",
        rules=(*_RULES, *_EXPERTS),
        keys=(
            Key("expert_feed_forward_length", "moe_intermediate_size"),
            Key("leading_dense_block_count", "num_dense_layers"),
            *_KEYS,
        ),
        fixed={"expert_gating_func": {"type": "uint32", "value": 2}},
        computed=_lfm2moe,
        uncomputed=_lfm2_config,
        derived=_layer_types,
        switches={**_CONV_BIASES, "use_expert_bias": ("exp_probs_b.bias",)},
        config={"norm_topk_prob": True, "routed_scaling_factor": 1.0},
        spelt={"attention.layer_norm_rms_epsilon": "norm_eps", "expert_count": "num_experts"},
    ),
)
