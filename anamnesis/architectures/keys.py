"""Metadata of a model: config.json as GGUF's keys behind the architecture's name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from anamnesis.architectures.arch import Arch, Key
from anamnesis.architectures.facts import CONFIG, Facts, missing, real
from anamnesis.architectures.rope import attention_factor, attention_scale
from anamnesis.base.errors import ParseError, UnsupportedError
from anamnesis.checkpoint.about import CONTEXT_LENGTH
from anamnesis.formats.gguf.values import typed

__all__ = [
    "ATTENTION_FACTOR",
    "BEFORE_ROPE",
    "BEHIND_ROPE",
    "BLOCK_COUNT",
    "REQUIRED",
    "model_keys",
]

BLOCK_COUNT = Key("block_count", ("num_hidden_layers", "n_layers", "n_layer", "num_layers"))
_GATING = {"softmax": 1, "sigmoid": 2, "sqrtsoftplus": 4}

# In the order of llama.cpp's converter, with its spellings of each fact.
BEFORE_ROPE = (
    Key("context_length", CONTEXT_LENGTH),
    Key("embedding_length", ("hidden_size", "n_embd", "dim")),
    Key(
        "feed_forward_length",
        (
            *("prefix_dense_intermediate_size", "dense_intermediate_size"),
            *("intermediate_size", "n_inner", "hidden_dim"),
        ),
    ),
    Key("attention.head_count", ("num_attention_heads", "n_head", "n_heads")),
    Key("attention.head_count_kv", ("num_key_value_heads", "n_kv_heads")),
)
BEHIND_ROPE = (
    Key("attention.layer_norm_rms_epsilon", ("rms_norm_eps", "norm_eps"), "float32"),
    Key(
        "attention.layer_norm_epsilon",
        ("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon"),
        "float32",
    ),
    Key("expert_count", ("num_local_experts", "num_experts", "n_routed_experts")),
    Key(
        "expert_used_count",
        ("num_experts_per_tok", "num_experts_per_token", "top_k_experts"),
    ),
    Key("expert_group_count", ("n_group",)),
    Key("expert_group_used_count", ("topk_group",)),
    Key(
        "expert_gating_func",
        (
            *("score_function", "scoring_func", "score_func", "moe_router_activation"),
            *("moe_router_activation_func", "expert_selection_fn"),
        ),
        values=_GATING,
    ),
    Key("attention.key_length", ("head_dim",)),
    Key("attention.value_length", ("head_dim",)),
)
# Without these llama.cpp does not load a file.
REQUIRED = (
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "attention.head_count",
)

ATTENTION_FACTOR = "rope.scaling.attn_factor"
_LOG_MULTIPLIER = "rope.scaling.yarn_log_multiplier"
_IS_YARN = {"type": "string", "value": "yarn"}
_YARN = (
    ("yarn_ext_factor", ("extrapolation_factor",)),
    ("yarn_attn_factor", ("attention_factor", "attn_factor")),
    ("yarn_beta_fast", ("beta_fast",)),
    ("yarn_beta_slow", ("beta_slow",)),
)


def model_keys(arch: Arch, facts: Facts) -> dict[str, Any]:
    """Return the keys of a model behind its architecture's name, typed, in the converter's order.

    Raises
    ------
    ParseError
        If config.json lacks a fact that llama.cpp needs, or has one of another kind.
    UnsupportedError
        If it has a value that GGUF has no number for.
    """
    keys: dict[str, Any] = {}
    _put(keys, facts, (BLOCK_COUNT, *BEFORE_ROPE))
    if facts.get("is_causal") is False:
        keys["attention.causal"] = {"type": "bool", "value": False}
    keys |= _rope_keys(facts)
    _put(keys, facts, BEHIND_ROPE)
    _put(keys, facts, arch.keys)
    keys |= arch.fixed
    if arch.computed is not None:
        keys |= arch.computed(facts)
    if keys.get("rope.scaling.type") == _IS_YARN and keys.get(_LOG_MULTIPLIER) is None:
        keys |= _attention_keys(facts.rope)
    _check(keys)
    for name in REQUIRED:
        if name not in keys:
            raise missing(next(k.facts for k in (BLOCK_COUNT, *BEFORE_ROPE) if k.name == name))
    return {f"{arch.gguf}.{name}": value for name, value in keys.items() if value is not None}


def _check(keys: Mapping[str, Any]) -> None:
    for name, value in keys.items():
        try:
            typed(value or 0)
        except ValueError as error:
            raise ParseError(f"{name} of the GGUF header: {error}", source=CONFIG) from None


def _put(keys: dict[str, Any], facts: Facts, said: tuple[Key, ...]) -> None:
    for key in said:
        value = facts.get(*key.facts)
        if value is not None:
            keys[key.name] = _typed(key, value)


def _typed(key: Key, value: Any) -> Mapping[str, Any]:
    if key.values is not None:
        if not isinstance(value, (str, int)) or value not in key.values:
            raise UnsupportedError(
                f"{CONFIG}: {key.facts[0]} is {value!r}, which GGUF has no word for"
            )
        value = key.values[value]
    if key.type == "float32" and type(value) is int and abs(value) < 1 << 127:
        value = float(value)
    made = {"type": key.type, "value": value}
    try:
        typed(made)
    except ValueError as error:
        raise ParseError(f"{key.facts[0]} is {value!r}: {error}", source=CONFIG) from None
    return made


def _float(name: str, value: Any) -> Mapping[str, Any]:
    return _typed(Key(name, (name,), "float32"), value)


def _attention_keys(rope: Mapping[str, Any]) -> dict[str, Any]:
    """Return what llama.cpp multiplies YaRN's usual scale by; of the others it reads none."""
    told = attention_factor(rope)
    usual = attention_scale(real(rope, "factor", 1.0))
    if told is None or np.float32(told) == np.float32(usual):
        return {}
    return {
        "rope.scaling.yarn_attn_factor": _float("attention_factor", told),
        ATTENTION_FACTOR: _float("attention_factor", told / usual),
    }


def _rope_keys(facts: Facts) -> dict[str, Any]:
    """Return what the rope is, of full attention and of windows."""
    rope, keys = facts.rope, dict[str, Any]()
    kind, factor = rope.get("rope_type"), rope.get("factor")
    if kind in ("linear", "yarn") and factor is not None:
        keys["rope.scaling.type"] = {"type": "string", "value": kind}
        keys["rope.scaling.factor"] = _float("factor", factor)
    if kind == "yarn" and factor is not None:
        original = rope.get("original_max_position_embeddings")
        if original is None:
            raise missing(["original_max_position_embeddings"])
        name = "rope.scaling.original_context_length"
        keys[name] = _typed(Key(name, ("original_max_position_embeddings",)), original)
        for name, spellings in _YARN:
            value = next((rope[s] for s in spellings if rope.get(s) is not None), None)
            if value is not None:
                keys[f"rope.scaling.{name}"] = _float(spellings[0], value)
    if kind in ("su", "longrope"):
        keys["rope.scaling.type"] = {"type": "string", "value": "longrope"}
    sections = rope.get("mrope_section")
    if sections is not None:
        if not isinstance(sections, list):
            raise ParseError(f"mrope_section is {sections!r}, no list", source=CONFIG)
        padded = [*sections, 0, 0, 0, 0][:4]
        keys["rope.dimension_sections"] = _typed(
            Key("rope.dimension_sections", ("mrope_section",), "int32"), padded
        )
    if rope.get("rope_theta") is not None:
        keys["rope.freq_base"] = _float("rope_theta", rope["rope_theta"])
    if facts.local_rope.get("rope_theta") is not None:
        keys["rope.freq_base_swa"] = _float("rope_local_base_freq", facts.local_rope["rope_theta"])
    return keys
