"""GLM-4.5 and its kin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anamnesis.architectures.arch import Arch, Find, Vocabulary
from anamnesis.architectures.config_of_keys import needed
from anamnesis.architectures.model_facts import Facts, real
from anamnesis.architectures.table.blocks import ATTENTION, MLP, OUTER, QKV_BIASES, plain
from anamnesis.architectures.table.deepseek import CORRECTION, EXPERT_KEYS, SHARED, SPELT
from anamnesis.architectures.table.experts import EXPERTS

_LAYERS = plain(
    {
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "post_attention_norm",
        "self_attn.q_norm": "attn_q_norm",
        "self_attn.k_norm": "attn_k_norm",
    }
)
# Of the layers behind the last, which predict several tokens at once.
_PREDICTING = plain(
    {
        "eh_proj": "nextn.eh_proj",
        "enorm": "nextn.enorm",
        "hnorm": "nextn.hnorm",
        "embed_tokens": "nextn.embed_tokens",
        "shared_head.head": "nextn.shared_head_head",
        "shared_head.norm": "nextn.shared_head_norm",
    }
)
_PREDICTED = "nextn_predict_layers"
# By <|endoftext|> as the end of a turn, chats would not end.
_TOKENS = {"bos": "[gMASK]", "eot": "<|user|>", "unk": "<|endoftext|>", "eom": "<|observation|>"}


def _keys(facts: Facts) -> Mapping[str, Any]:
    n, more = facts.number("num_hidden_layers"), facts.get("num_nextn_predict_layers")
    if more:
        facts.number("num_nextn_predict_layers")
    part = real(facts.rope, "partial_rotary_factor", 0.5)
    keys: dict[str, Any] = {
        "block_count": {"type": "uint32", "value": n + (more or 0)},
        "rope.dimension_count": {"type": "uint32", "value": int(facts.head_dim * part)},
    }
    if more is not None:
        keys[_PREDICTED] = {"type": "uint32", "value": more}
    if facts.get("norm_topk_prob") is not None:
        keys["expert_weights_norm"] = {"type": "bool", "value": facts.get("norm_topk_prob")}
    return keys


def _config(find: Find, config: Mapping[str, Any]) -> Mapping[str, Any]:
    more = find(_PREDICTED) or 0
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    part = needed(find, "rope.dimension_count") / config.get("head_dim", hidden // heads)
    return {
        "num_hidden_layers": config["num_hidden_layers"] - more,
        "num_nextn_predict_layers": more,
        "partial_rotary_factor": part,
        "rope_parameters": {**config["rope_parameters"], "partial_rotary_factor": part},
        "norm_topk_prob": bool(find("expert_weights_norm")),
    }


ARCHS = (
    Arch(
        gguf="glm4moe",
        hf=("Glm4MoeForCausalLM",),
        model_type="glm4_moe",
        rules=(*OUTER, *ATTENTION, *MLP, *EXPERTS, *SHARED, CORRECTION, *_LAYERS, *_PREDICTING),
        keys=EXPERT_KEYS,
        fixed={"expert_gating_func": {"type": "uint32", "value": 2}},  # sigmoid
        computed=_keys,
        spelt=SPELT,
        uncomputed=_config,
        switches={
            "attention_bias": QKV_BIASES,
            "use_qk_norm": ("attn_q_norm.weight", "attn_k_norm.weight"),
        },
        vocabulary=Vocabulary("gpt2", {"fallbacks": _TOKENS}),
        config={"hidden_act": "silu"},
    ),
)
