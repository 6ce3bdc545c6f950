"""Decoders that are like Llama but for a norm or two, of several makers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from anamnesis.architectures.arch import Arch, Find, Key, Vocabulary
from anamnesis.architectures.model_facts import CONFIG, Facts, real
from anamnesis.architectures.rule_operations import Stack
from anamnesis.architectures.table.blocks import (
    ATTENTION,
    ATTENTION_BIASES,
    MLP,
    MLP_BIASES,
    NORMS,
    OUTER,
    QKV_BIASES,
    WINDOW,
    layer,
    plain,
    types_by_window,
    window_pattern,
)
from anamnesis.architectures.table.llama import KEYS, LLAMA, head_dim, kv_heads, rope_dimensions
from anamnesis.base.errors import UnsupportedError

_NO_SCALING = {"rope.scaling.type": {"type": "string", "value": "none"}}
_PERIOD = 4  # llama.cpp's own, which files cannot say: of SmolLM 3 and Cohere 2
_THETA = 10000.0  # llama.cpp's own


def _smollm3(facts: Facts) -> Mapping[str, Any]:
    """Return llama's keys; which layers rotate is llama.cpp's own knowledge."""
    n = facts.n_layers
    rotate = [int((i + 1) % _PERIOD != 0) for i in range(n)]
    if facts.get("no_rope_layers") not in (None, [], rotate):
        raise UnsupportedError(
            f"{CONFIG}: no_rope_layers is not every fourth layer, which llama.cpp takes smollm3"
            " to leave without rope"
        )
    return rope_dimensions(facts)


def _cohere2(facts: Facts) -> Mapping[str, Any]:
    """Return how much of a head rotates."""
    if facts.get("attention_bias"):
        raise UnsupportedError(f"{CONFIG}: attention_bias is set; llama.cpp's cohere2 has none")
    if facts.get("rotary_pct") not in (None, 1.0):
        raise UnsupportedError(
            f"{CONFIG}: rotary_pct is not 1, of which transformers knows nothing"
        )
    dim = facts.number("hidden_size") // facts.number("num_attention_heads")
    return {
        "rope.dimension_count": {"type": "uint32", "value": dim},
        **_NO_SCALING,
        **window_pattern(facts, _PERIOD),
    }


def _cohere2_config(find: Find, config: Mapping[str, Any]) -> Mapping[str, Any]:
    find("rope.dimension_count")
    return types_by_window(find, config)


def _stablelm(facts: Facts) -> Mapping[str, Any]:
    """Return how much of a head rotates; not how fast, if that is what llama.cpp assumes."""
    dim = facts.number("hidden_size") // facts.number("num_attention_heads")
    part = real(facts.rope, "partial_rotary_factor", 1.0)
    keys: dict[str, Any] = {
        "rope.dimension_count": {"type": "uint32", "value": int(part * dim)},
        "attention.key_length": None,
        "attention.value_length": None,
        "attention.layer_norm_rms_epsilon": None,
    }
    return keys if facts.rope.get("rope_theta") != _THETA else keys | {"rope.freq_base": None}


def _stablelm_config(find: Find, config: Mapping[str, Any]) -> Mapping[str, Any]:
    rope = dict(config.get("rope_parameters") or {"rope_theta": _THETA, "rope_type": "default"})
    dim = config["hidden_size"] // config["num_attention_heads"]
    n = find("rope.dimension_count")
    part = 1.0 if n is None else n / dim
    return {"rope_parameters": {**rope, "partial_rotary_factor": part}}


ARCHS = (
    replace(
        LLAMA,
        gguf="smollm3",
        hf=("SmolLM3ForCausalLM",),
        model_type="smollm3",
        computed=_smollm3,
        extra=None,
        derived=kv_heads,
    ),
    Arch(
        gguf="seed_oss",
        hf=("SeedOssForCausalLM",),
        model_type="seed_oss",
        rules=(
            *OUTER,
            *plain(
                {
                    "input_layernorm": "attn_norm",
                    "post_attention_layernorm": "post_attention_norm",
                }
            ),
            *ATTENTION,
            *MLP,
        ),
        switches={
            "attention_bias": QKV_BIASES,
            "attention_out_bias": ("attn_output.bias",),
            "mlp_bias": MLP_BIASES,
        },
        derived=kv_heads,
    ),
    Arch(
        gguf="ernie4_5",
        hf=("Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM"),
        model_type="ernie4_5",
        rules=(*OUTER, *NORMS, *ATTENTION, *MLP),
        switches={"use_bias": (*MLP_BIASES, *ATTENTION_BIASES)},
        derived=head_dim,
        vocabulary=Vocabulary("llama"),
    ),
    Arch(
        gguf="cohere2",
        hf=("Cohere2ForCausalLM",),
        model_type="cohere2",
        rules=(*OUTER, layer("input_layernorm", "attn_norm"), *ATTENTION, *MLP),
        keys=(Key("logit_scale", "logit_scale", "float32"), WINDOW, *KEYS),
        computed=_cohere2,
        uncomputed=_cohere2_config,
        derived=kv_heads,
    ),
    Arch(
        gguf="stablelm",
        hf=("StableLmForCausalLM", "StableLMEpochForCausalLM"),
        model_type="stablelm",
        rules=(
            *OUTER,
            *NORMS,
            *ATTENTION,
            layer("self_attn.q_layernorm.norms.{xid}", "attn_q_norm", Stack("num_attention_heads")),
            layer(
                "self_attn.k_layernorm.norms.{xid}",
                "attn_k_norm",
                Stack("num_key_value_heads"),
            ),
            *MLP,
        ),
        keys=(Key("use_parallel_residual", "use_parallel_residual", "bool"),),
        computed=_stablelm,
        uncomputed=_stablelm_config,
        shapes={"attn_q_norm": "heads key", "attn_k_norm": "kv key"},
        groups={"ffn_norm": "in-turn"},
        switches={
            "use_qkv_bias": QKV_BIASES,
            "qk_layernorm": ("attn_q_norm.weight", "attn_k_norm.weight"),
            "": ("attn_norm.bias", "ffn_norm.bias", "output_norm.bias"),
        },
        derived=kv_heads,
    ),
    Arch(
        gguf="starcoder2",
        hf=("Starcoder2ForCausalLM",),
        model_type="starcoder2",
        rules=(
            *OUTER,
            *NORMS,
            *ATTENTION,
            *plain({"mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}),
        ),
        switches={
            "use_bias": (*ATTENTION_BIASES, "ffn_up.bias", "ffn_down.bias"),
            "": ("attn_norm.bias", "ffn_norm.bias", "output_norm.bias"),
        },
        derived=kv_heads,
        spelt={"attention.layer_norm_epsilon": "norm_epsilon"},
    ),
)
