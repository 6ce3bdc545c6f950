"""Olmo 2 and 3 of the Allen Institute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from anamnesis.architectures.arch import Arch, Find
from anamnesis.architectures.model_facts import Facts
from anamnesis.architectures.table.blocks import (
    ATTENTION,
    ATTENTION_BIASES,
    FULL,
    HEAD_NORMS,
    MLP,
    OUTER,
    SLIDING,
    WINDOW,
    layer_kinds,
    of_kind,
    plain,
)
from anamnesis.architectures.table.llama import kv_heads

_PATTERN = "attention.sliding_window_pattern"
_PERIOD = 4  # every fourth layer of Olmo 3 sees all
_RULES = (
    *OUTER,
    *ATTENTION,
    *HEAD_NORMS,
    *plain(
        {
            "post_attention_layernorm": "post_attention_norm",
            "post_feedforward_layernorm": "post_ffw_norm",
        }
    ),
    *MLP,
)

_SHAPES = {"attn_q_norm": "heads*key", "attn_k_norm": "kv*key"}  # of all heads at once


def _windows(facts: Facts) -> Mapping[str, Any]:
    return {_PATTERN: {"type": "bool", "value": of_kind(facts, SLIDING, _PERIOD)}}


def _olmo3(find: Find, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what Olmo 3 has beside Olmo 2, if it is one."""
    given, rope = find(_PATTERN), config["rope_parameters"]
    if not config.get("sliding_window"):
        return {}
    if given is None:
        given = [(i + 1) % _PERIOD != 0 for i in range(config["num_hidden_layers"])]
    theta = find("rope.freq_base_swa") or rope["rope_theta"]
    return {
        "architectures": ["Olmo3ForCausalLM"],
        "model_type": "olmo3",
        "layer_types": layer_kinds(given),
        "rope_parameters": {
            FULL: dict(rope),
            SLIDING: {"rope_type": "default", "rope_theta": theta},
        },
    }


_OLMO2 = Arch(
    gguf="olmo2",
    hf=("Olmo2ForCausalLM",),
    model_type="olmo2",
    rules=_RULES,
    keys=(WINDOW,),
    derived=kv_heads,
    uncomputed=_olmo3,
    shapes=_SHAPES,
    switches={"attention_bias": ATTENTION_BIASES},
)
ARCHS = (
    _OLMO2,
    replace(_OLMO2, hf=("Olmo3ForCausalLM",), model_type="olmo3", computed=_windows),
)
