"""Decoders of several makers that are like Llama but for a norm or two."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from anamnesis.architectures.arch import Find
from anamnesis.architectures.model_facts import Facts, real, unsupported
from anamnesis.architectures.rope_factors import scaled_factors
from anamnesis.architectures.table import layer_kinds as blocks
from anamnesis.architectures.table.llama import head_dim, kv_heads, rope_dimensions, rotating
from anamnesis.architectures.table.rows import ROWS

_PATTERN = "attention.sliding_window_pattern"
_OLMO_PERIOD = 4  # every fourth layer of Olmo 3 sees all


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


def _granite_heads(facts: Facts) -> Mapping[str, Any]:
    """Return what a head has; transformers' class has no head_dim, whatever config.json says."""
    head_dim = facts.number("hidden_size") // facts.number("num_attention_heads")
    return {
        "rope.dimension_count": {"type": "uint32", "value": head_dim},
        "attention.key_length": None,
        "attention.value_length": None,
    }


_NO_SCALING = {"rope.scaling.type": {"type": "string", "value": "none"}}
_PERIOD = 4  # llama.cpp's own, which files cannot say: of SmolLM 3 and Cohere 2
_THETA = 10000.0  # llama.cpp's own


def _smollm3(facts: Facts) -> Mapping[str, Any]:
    """Return llama's keys; which layers rotate is llama.cpp's own knowledge."""
    rotate = [int((i + 1) % _PERIOD != 0) for i in range(facts.n_layers)]
    if facts.get("no_rope_layers") not in (None, [], rotate):
        raise unsupported(
            "no_rope_layers is not every fourth layer, which llama.cpp takes smollm3"
            " to leave without rope"
        )
    return rope_dimensions(facts)


def _cohere2(facts: Facts) -> Mapping[str, Any]:
    """Return how much of a head rotates."""
    if facts.get("attention_bias"):
        raise unsupported("attention_bias is set; llama.cpp's cohere2 has none")
    if facts.get("rotary_pct") not in (None, 1.0):
        raise unsupported("rotary_pct is not 1, of which transformers knows nothing")
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
    *(
        replace(
            ROWS[name],
            computed=_granite_heads,
            uncomputed=rotating,
            extra=scaled_factors,
            derived=kv_heads,
        )
        for name in ("granite", "granitemoe", "granitemoeshared")
    ),
    replace(ROWS["olmo2"], uncomputed=_olmo3, derived=kv_heads),
    replace(ROWS["olmo3"], computed=_olmo_windows, uncomputed=_olmo3, derived=kv_heads),
    replace(ROWS["smollm3"], computed=_smollm3, uncomputed=rotating, derived=kv_heads),
    replace(ROWS["seed_oss"], derived=kv_heads),
    replace(ROWS["ernie4_5"], derived=head_dim),
    replace(ROWS["cohere2"], computed=_cohere2, uncomputed=_cohere2_config, derived=kv_heads),
    replace(ROWS["stablelm"], computed=_stablelm, uncomputed=_stablelm_config, derived=kv_heads),
    replace(ROWS["starcoder2"], derived=kv_heads),
)
