"""Phi-3 and Phi-4."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from anamnesis.architectures.arch import Arch, Find, Vocabulary
from anamnesis.architectures.config_of_keys import shortest
from anamnesis.architectures.facts import CONFIG, Facts, missing, real
from anamnesis.architectures.table.blocks import NORMS, OUTER, plain
from anamnesis.architectures.table.llama import kv_heads
from anamnesis.base.errors import ParseError

_LONG, _SHORT = "rope_factors_long.weight", "rope_factors_short.weight"
_FACTORS = {_LONG: "long_factor", _SHORT: "short_factor"}
_ORIGINAL = "rope.scaling.original_context_length"
_ATTENTION_FACTOR = "rope.scaling.attn_factor"
_ROPE_KINDS = ("su", "longrope", "yarn")  # the three are one for transformers' class


def _rope_dimensions(facts: Facts) -> int:
    """Return how many values of a head rotate."""
    part = real(facts.rope, "partial_rotary_factor", 1.0)
    return int(part * facts.number("hidden_size")) // facts.number("num_attention_heads")


def _original(facts: Facts) -> int:
    length = facts.rope.get("original_max_position_embeddings")
    if type(length) is not int or length < 2:
        raise missing("original_max_position_embeddings")
    return length


def _attention_factor(length: int, original: int) -> float:
    """Return what longrope multiplies cosines and sines by."""
    scale = length / original
    return math.sqrt(1 + math.log(scale) / math.log(original)) if scale > 1 else 1.0


def _keys(facts: Facts) -> Mapping[str, Any]:
    window = facts.get("sliding_window") or 0  # by 0 llama.cpp knows Phi-4
    keys = {
        _ORIGINAL: {"type": "uint32", "value": _original(facts)},
        "rope.dimension_count": {"type": "uint32", "value": _rope_dimensions(facts)},
        "attention.sliding_window": {"type": "uint32", "value": window},
        **dict.fromkeys(("rope.scaling.type", "attention.key_length", "attention.value_length")),
    }
    if facts.rope.get("long_factor"):
        made = _attention_factor(facts.number("max_position_embeddings"), _original(facts))
        told = real(facts.rope, "attention_factor", made)
        keys[_ATTENTION_FACTOR] = {"type": "float32", "value": told}
    return keys


def _factors(facts: Facts) -> Mapping[str, Any]:
    """Return what divides frequencies beyond the original length, and within it: [n_rot / 2]."""
    if not facts.rope.get("long_factor"):
        return {}
    kind = facts.rope.get("rope_type")
    if str(kind).lower() not in _ROPE_KINDS:
        raise ParseError(f"rope_type is {kind!r}, which has no long_factor", source=CONFIG)
    n = _rope_dimensions(facts) // 2
    return {name: _numbers(facts.rope, told, n) for name, told in _FACTORS.items()}


def _numbers(rope: Mapping[str, Any], name: str, n: int) -> Any:
    told = rope.get(name)
    if not isinstance(told, list) or len(told) != n:
        raise ParseError(f"{name} is no list of {n} numbers", source=CONFIG)
    return np.array([real({name: value}, name, 1.0) for value in told], np.float32)


def _config(find: Find, config: Mapping[str, Any]) -> Mapping[str, Any]:
    told: dict[str, Any] = {"sliding_window": find("attention.sliding_window") or None}
    rope = dict(config["rope_parameters"])
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    n = find("rope.dimension_count") or hidden // heads
    rope["partial_rotary_factor"] = told["partial_rotary_factor"] = n * heads / hidden
    original = find(_ORIGINAL)
    if original is None:
        original = config["max_position_embeddings"]
    if original < 2:
        raise ParseError(f"{_ORIGINAL} is {original}, not more than 1")
    told["original_max_position_embeddings"] = original
    rope.pop("original_max_position_embeddings", None)
    attention = find(_ATTENTION_FACTOR)
    made = np.float32(_attention_factor(config["max_position_embeddings"], original))
    if attention is not None and np.float32(attention) != made:
        rope["attention_factor"] = attention
    return {**told, "rope_parameters": rope}


def _factors_back(find: Find, config: Mapping[str, Any]) -> Mapping[str, Any]:
    found = {told: find(name) for name, told in _FACTORS.items()}
    if any(values is None for values in found.values()):
        return {}
    rope = {told: shortest(values.tolist()) for told, values in found.items()}
    return {"rope_parameters": {**config["rope_parameters"], **rope, "rope_type": "longrope"}}


ARCHS = (
    Arch(
        gguf="phi3",
        hf=("Phi3ForCausalLM",),
        model_type="phi3",
        rules=(
            *OUTER,
            *NORMS,
            *plain(
                {
                    "self_attn.qkv_proj": "attn_qkv",
                    "self_attn.o_proj": "attn_output",
                    "mlp.gate_up_proj": "ffn_up",
                    "mlp.down_proj": "ffn_down",
                }
            ),
        ),
        shapes={"ffn_up": "2*f h"},
        computed=_keys,
        extra=_factors,
        derived=kv_heads,
        uncomputed=_config,
        unextra=_factors_back,
        vocabulary=Vocabulary("phi3"),
        config={"hidden_act": "silu"},
    ),
)
