"""Phi-3 and Phi-4."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from anamnesis.architectures.arch import Find
from anamnesis.architectures.config_of_keys import longrope_facts
from anamnesis.architectures.model_facts import Facts, real
from anamnesis.architectures.rope_factors import (
    ATTENTION_FACTOR,
    LONGROPE,
    ORIGINAL,
    longrope_factors,
    longrope_keys,
)
from anamnesis.architectures.table.llama import kv_heads
from anamnesis.architectures.table.rows import ROWS
from anamnesis.base.errors import ParseError

_ROPE_KINDS = (*LONGROPE, "yarn")  # the three are one for transformers' class


def _rope_dimensions(facts: Facts) -> int:
    """Return how many values of a head rotate."""
    part = real(facts.rope, "partial_rotary_factor", 1.0)
    return int(part * facts.number("hidden_size")) // facts.number("num_attention_heads")


def _keys(facts: Facts) -> Mapping[str, Any]:
    window = facts.get("sliding_window") or 0  # by 0 llama.cpp knows Phi-4
    scaled = dict(longrope_keys(facts))
    if facts.rope.get("rope_type") not in _ROPE_KINDS:
        del scaled[ATTENTION_FACTOR]
    return {
        ORIGINAL: scaled.pop(ORIGINAL),
        "rope.dimension_count": {"type": "uint32", "value": _rope_dimensions(facts)},
        "attention.sliding_window": {"type": "uint32", "value": window},
        **dict.fromkeys(("rope.scaling.type", "attention.key_length", "attention.value_length")),
        **scaled,
    }


def _factors(facts: Facts) -> Mapping[str, Any]:
    if facts.rope.get("rope_type") not in _ROPE_KINDS:
        return {}
    return longrope_factors(facts.rope, _rope_dimensions(facts) // 2)


def _config(find: Find, config: Mapping[str, Any]) -> Mapping[str, Any]:
    given: dict[str, Any] = {"sliding_window": find("attention.sliding_window") or None}
    rope = dict(config["rope_parameters"])
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    n = find("rope.dimension_count") or hidden // heads
    rope["partial_rotary_factor"] = given["partial_rotary_factor"] = n * heads / hidden
    original = find(ORIGINAL)
    if original is None:
        original = config["max_position_embeddings"]
    if original < 2:
        raise ParseError(f"{ORIGINAL} is {original}, not more than 1")
    given["original_max_position_embeddings"] = original
    rope.pop("original_max_position_embeddings", None)
    if find(ATTENTION_FACTOR) is not None:
        rope["attention_factor"] = find(ATTENTION_FACTOR)
    return {**given, "rope_parameters": rope}


ARCHS = (
    replace(
        ROWS["phi3"],
        computed=_keys,
        uncomputed=_config,
        extra=_factors,
        unextra=longrope_facts,
        derived=kv_heads,
    ),
)
