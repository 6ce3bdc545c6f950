"""Decoders of several makers that are like Llama but for a norm or two."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from anamnesis.architectures.arch import Arch, Find, Key, Vocabulary
from anamnesis.architectures.conversion_operations import Halves, Stack
from anamnesis.architectures.model_facts import CONFIG, Facts, real
from anamnesis.architectures.table import blocks
from anamnesis.architectures.table.llama import (
    BIASES,
    KEYS,
    LLAMA,
    PERMUTED,
    head_dim,
    kv_heads,
    rope_dimensions,
)
from anamnesis.base.errors import UnsupportedError

_PATTERN = "attention.sliding_window_pattern"
_OLMO_PERIOD = 4  # every fourth layer of Olmo 3 sees all
_OLMO_RULES = (
    *blocks.OUTER,
    *blocks.ATTENTION,
    *blocks.HEAD_NORMS,
    *blocks.plain(
        {
            "post_attention_layernorm": "post_attention_norm",
            "post_feedforward_layernorm": "post_ffw_norm",
        }
    ),
    *blocks.MLP,
)

_OLMO_SHAPES = {"attn_q_norm": "heads*key", "attn_k_norm": "kv*key"}  # of all heads at once


def _olmo_windows(facts: Facts) -> Mapping[str, Any]:
    return {
        _PATTERN: {"type": "bool", "value": blocks.of_kind(facts, blocks.SLIDING, _OLMO_PERIOD)}
    }


def _olmo3(find: Find, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what Olmo 3 has beside Olmo 2, if it is one."""
    given, rope = find(_PATTERN), config["rope_parameters"]
    if not config.get("sliding_window"):
        return {}
    if given is None:
        given = [(i + 1) % _OLMO_PERIOD != 0 for i in range(config["num_hidden_layers"])]
    theta = find("rope.freq_base_swa") or rope["rope_theta"]
    return {
        "architectures": ["Olmo3ForCausalLM"],
        "model_type": "olmo3",
        "layer_types": blocks.layer_kinds(given),
        "rope_parameters": {
            blocks.FULL: dict(rope),
            blocks.SLIDING: {"rope_type": "default", "rope_theta": theta},
        },
    }


_OLMO2 = Arch(
    gguf="olmo2",
    hf=("Olmo2ForCausalLM",),
    model_type="olmo2",
    rules=_OLMO_RULES,
    keys=(blocks.WINDOW,),
    derived=kv_heads,
    uncomputed=_olmo3,
    shapes=_OLMO_SHAPES,
    switches={"attention_bias": blocks.ATTENTION_BIASES},
)
_OLMOS = (
    _OLMO2,
    replace(_OLMO2, hf=("Olmo3ForCausalLM",), model_type="olmo3", computed=_olmo_windows),
)


_GRANITE_KEYS = (
    *KEYS,
    Key("attention.scale", "attention_multiplier", "float32"),
    Key("embedding_scale", "embedding_multiplier", "float32"),
    Key("residual_scale", "residual_multiplier", "float32"),
    Key("logit_scale", "logits_scaling", "float32"),
)
_SHARED_KEY = Key("expert_shared_feed_forward_length", "shared_intermediate_size")
_EXPERTS = (
    blocks.apart("block_sparse_moe.input_linear", ("ffn_gate_exps", "ffn_up_exps"), Halves()),
    blocks.layer("block_sparse_moe.output_linear", "ffn_down_exps"),
    blocks.layer("block_sparse_moe.router.layer", "ffn_gate_inp"),
)
_SHARED = (
    blocks.apart("shared_mlp.input_linear", ("ffn_gate_shexp", "ffn_up_shexp"), Halves()),
    blocks.layer("shared_mlp.output_linear", "ffn_down_shexp"),
)


def _granite_heads(facts: Facts) -> Mapping[str, Any]:
    """Return what a head has; transformers' class has no head_dim, whatever config.json says."""
    head_dim = facts.number("hidden_size") // facts.number("num_attention_heads")
    return {
        "rope.dimension_count": {"type": "uint32", "value": head_dim},
        "attention.key_length": None,
        "attention.value_length": None,
    }


_GRANITE = replace(
    LLAMA,
    gguf="granite",
    hf=("GraniteForCausalLM",),
    model_type="granite",
    keys=_GRANITE_KEYS,
    computed=_granite_heads,
    derived=kv_heads,
)
_MOE = replace(
    _GRANITE,
    gguf="granitemoe",
    hf=("GraniteMoeForCausalLM",),
    model_type="granitemoe",
    rules=(*blocks.OUTER, *blocks.NORMS, *PERMUTED, *_EXPERTS),
    switches={"attention_bias": BIASES["attention_bias"]},
)
_GRANITES = (
    _GRANITE,
    _MOE,
    replace(
        _MOE,
        hf=("GraniteMoeSharedForCausalLM",),
        model_type="granitemoeshared",
        rules=(*_MOE.rules, *_SHARED),
        keys=(*_GRANITE_KEYS, _SHARED_KEY),
    ),
)


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
        **blocks.window_pattern(facts, _PERIOD),
    }


def _cohere2_config(find: Find, config: Mapping[str, Any]) -> Mapping[str, Any]:
    find("rope.dimension_count")
    return blocks.types_by_window(find, config)


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
    *_GRANITES,
    *_OLMOS,
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
            *blocks.OUTER,
            *blocks.plain(
                {
                    "input_layernorm": "attn_norm",
                    "post_attention_layernorm": "post_attention_norm",
                }
            ),
            *blocks.ATTENTION,
            *blocks.MLP,
        ),
        switches={
            "attention_bias": blocks.QKV_BIASES,
            "attention_out_bias": ("attn_output.bias",),
            "mlp_bias": blocks.MLP_BIASES,
        },
        derived=kv_heads,
    ),
    Arch(
        gguf="ernie4_5",
        hf=("Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM"),
        model_type="ernie4_5",
        rules=(*blocks.OUTER, *blocks.NORMS, *blocks.ATTENTION, *blocks.MLP),
        switches={"use_bias": (*blocks.MLP_BIASES, *blocks.ATTENTION_BIASES)},
        derived=head_dim,
        vocabulary=Vocabulary("llama"),
    ),
    Arch(
        gguf="cohere2",
        hf=("Cohere2ForCausalLM",),
        model_type="cohere2",
        rules=(
            *blocks.OUTER,
            blocks.layer("input_layernorm", "attn_norm"),
            *blocks.ATTENTION,
            *blocks.MLP,
        ),
        keys=(Key("logit_scale", "logit_scale", "float32"), blocks.WINDOW, *KEYS),
        computed=_cohere2,
        uncomputed=_cohere2_config,
        derived=kv_heads,
    ),
    Arch(
        gguf="stablelm",
        hf=("StableLmForCausalLM", "StableLMEpochForCausalLM"),
        model_type="stablelm",
        rules=(
            *blocks.OUTER,
            *blocks.NORMS,
            *blocks.ATTENTION,
            blocks.layer(
                "self_attn.q_layernorm.norms.{xid}", "attn_q_norm", Stack("num_attention_heads")
            ),
            blocks.layer(
                "self_attn.k_layernorm.norms.{xid}",
                "attn_k_norm",
                Stack("num_key_value_heads"),
            ),
            *blocks.MLP,
        ),
        keys=(Key("use_parallel_residual", "use_parallel_residual", "bool"),),
        computed=_stablelm,
        uncomputed=_stablelm_config,
        shapes={"attn_q_norm": "heads key", "attn_k_norm": "kv key"},
        groups={"ffn_norm": "in-turn"},
        switches={
            "use_qkv_bias": blocks.QKV_BIASES,
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
            *blocks.OUTER,
            *blocks.NORMS,
            *blocks.ATTENTION,
            *blocks.plain({"mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}),
        ),
        switches={
            "use_bias": (*blocks.ATTENTION_BIASES, "ffn_up.bias", "ffn_down.bias"),
            "": ("attn_norm.bias", "ffn_norm.bias", "output_norm.bias"),
        },
        derived=kv_heads,
        spelt={"attention.layer_norm_epsilon": "norm_epsilon"},
    ),
)
