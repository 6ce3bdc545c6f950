"""Ministral 3 and Mistral Small 3, whose text models llama.cpp calls mistral3."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anamnesis.architectures.arch import Arch, Find, Vocabulary
from anamnesis.architectures.facts import Facts, missing
from anamnesis.architectures.rope import llama3_factors
from anamnesis.architectures.table.blocks import MLP, NORMS, OUTER
from anamnesis.architectures.table.llama import KEYS, PERMUTED, head_dim, rope_dimensions

__all__ = ["ARCHS"]

_LOG_MULTIPLIER = "rope.scaling.yarn_log_multiplier"
_TEMPERATURE = "attention.temperature_scale"
# Keys, and what rope_parameters calls them.
_FURTHER = {_LOG_MULTIPLIER: "mscale_all_dim", _TEMPERATURE: "llama_4_scaling_beta"}


def _mistral3(facts: Facts) -> Mapping[str, Any]:
    """Return llama's keys, and those of scaled attention, which Mistral Small 3 does not have."""
    keys = dict(rope_dimensions(facts))
    if facts.get("model_type") != "ministral3":
        return keys
    for key, name in _FURTHER.items():
        value = facts.rope.get(name)
        if not isinstance(value, (int, float)):
            raise missing([f"rope_parameters.{name}"])
        keys[key] = {"type": "float32", "value": float(value)}
    return keys


def _mistral3_config(find: Find, config: Mapping[str, Any]) -> Mapping[str, Any]:
    find("rope.dimension_count")
    told = {name: find(key) for key, name in _FURTHER.items()}
    if None in told.values():
        return {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}
    return {"rope_parameters": {**config.get("rope_parameters", {}), **told}}


ARCHS = (
    Arch(
        gguf="mistral3",
        hf=("Ministral3ForCausalLM", "Mistral3ForConditionalGeneration"),
        model_type="ministral3",
        rules=(*OUTER, *NORMS, *PERMUTED, *MLP),
        keys=KEYS,
        computed=_mistral3,
        uncomputed=_mistral3_config,
        extra=llama3_factors,
        derived=head_dim,
        vocabulary=Vocabulary("llama"),
    ),
)
