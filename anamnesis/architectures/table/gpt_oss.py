"""OpenAI's gpt-oss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from anamnesis.architectures.arch import Find
from anamnesis.architectures.model_facts import Facts
from anamnesis.architectures.table import layer_kinds as blocks
from anamnesis.architectures.table.rows import ROWS

_PERIOD = 2
# What the class has where config.json says nothing of the rope.
_YARN = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 4096,
}


def _rope(facts: Facts) -> Mapping[str, Any]:
    if not facts.values.get("rope_parameters") and not facts.values.get("rope_scaling"):
        facts.rope.update({**_YARN, **facts.rope})
    return {"num_key_value_heads": facts.get("num_attention_heads")}


def _keys(facts: Facts) -> Mapping[str, Any]:
    facts.number("sliding_window")
    return blocks.window_pattern(facts, _PERIOD)


def _config(find: Find, config: Mapping[str, Any]) -> Mapping[str, Any]:
    rope = dict(config["rope_parameters"])
    if rope.get("rope_type") == "yarn":
        rope["truncate"] = False
    return {"rope_parameters": rope, **blocks.types_by_window(find, config)}


ARCHS = (replace(ROWS["gpt_oss"], computed=_keys, derived=_rope, uncomputed=_config),)
