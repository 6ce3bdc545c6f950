"""Llama, Mistral, Mixtral, Ministral 3 and Mistral Small 3."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from anamnesis.architectures.arch import Find
from anamnesis.architectures.model_facts import Facts, missing, real, unsupported
from anamnesis.architectures.rope_factors import scaled_factors
from anamnesis.architectures.table.rows import ROWS
from anamnesis.base.errors import UnsupportedError


def kv_heads(facts: Facts) -> Mapping[str, Any]:
    """Return as many key-value heads as there are heads."""
    return {"num_key_value_heads": facts.get("num_attention_heads")}


def head_dim(facts: Facts) -> Mapping[str, Any]:
    """Return what a head has if config.json does not say it, and as many key-value heads."""
    return {"head_dim": facts.head_dim, **kv_heads(facts)}


def rope_dimensions(facts: Facts) -> Mapping[str, Any]:
    """Return the values of a head that rotate: all."""
    return {"rope.dimension_count": {"type": "uint32", "value": facts.head_dim}}


def rotating(find: Find, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return nothing: transformers knows that all of a head rotates."""
    given = find("rope.dimension_count")
    head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    if given not in (None, head):
        raise UnsupportedError(
            f"{given} of {head} values of a head rotate, which config.json of"
            f" {config['model_type']} cannot say"
        )
    return {}


_LOG_MULTIPLIER = "rope.scaling.yarn_log_multiplier"
_TEMPERATURE = "attention.temperature_scale"
_MSCALE = 1.0
# Keys, and what rope_parameters calls them.
_FURTHER = {_LOG_MULTIPLIER: "mscale_all_dim", _TEMPERATURE: "llama_4_scaling_beta"}


def _mistral3_keys(facts: Facts) -> Mapping[str, Any]:
    """Return llama's keys, and those of scaled attention, which Mistral Small 3 does not have."""
    keys = dict(rope_dimensions(facts))
    if facts.get("model_type") != "ministral3":
        return keys
    if facts.rope.get("mscale") != _MSCALE:
        raise unsupported(
            f"rope_parameters.mscale is {facts.rope.get('mscale')!r}, and llama.cpp,"
            f" whose files cannot say it, takes {_MSCALE}"
        )
    for key, name in _FURTHER.items():
        if facts.rope.get(name) is None:
            raise missing(f"rope_parameters.{name}")
        keys[key] = {"type": "float32", "value": real(facts.rope, name, 0.0)}
    return keys


def _mistral3_config(find: Find, config: Mapping[str, Any]) -> Mapping[str, Any]:
    rotating(find, config)
    given = {name: find(key) for key, name in _FURTHER.items()}
    if None in given.values():
        return {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}
    rope = config["rope_parameters"]
    return {"rope_parameters": {**rope, **given, "mscale": _MSCALE}}


ARCHS = (
    *(
        replace(
            ROWS[name],
            computed=rope_dimensions,
            uncomputed=rotating,
            extra=scaled_factors,
            derived=derived,
        )
        for name, derived in (("llama", head_dim), ("mistral", head_dim), ("mixtral", kv_heads))
    ),
    replace(
        ROWS["ministral3"],
        computed=_mistral3_keys,
        uncomputed=_mistral3_config,
        extra=scaled_factors,
        derived=head_dim,
    ),
)
