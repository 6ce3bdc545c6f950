"""GLM-4.5 and its kin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from anamnesis.architectures.arch import Find
from anamnesis.architectures.config_of_keys import needed
from anamnesis.architectures.model_facts import Facts, real
from anamnesis.architectures.table.rows import ROWS

_PREDICTED = "nextn_predict_layers"


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


ARCHS = (replace(ROWS["glm4_moe"], computed=_keys, uncomputed=_config),)
