"""Ministral 3 and Mistral Small 3, whose text models llama.cpp calls mistral3."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from anamnesis.architectures.arch import Find
from anamnesis.architectures.model_facts import CONFIG, Facts, missing, real
from anamnesis.architectures.table.llama import LLAMA, rope_dimensions, rotating
from anamnesis.base.errors import UnsupportedError

_LOG_MULTIPLIER = "rope.scaling.yarn_log_multiplier"
_TEMPERATURE = "attention.temperature_scale"
_MSCALE = 1.0
# Keys, and what rope_parameters calls them.
_FURTHER = {_LOG_MULTIPLIER: "mscale_all_dim", _TEMPERATURE: "llama_4_scaling_beta"}


def _mistral3(facts: Facts) -> Mapping[str, Any]:
    """Return llama's keys, and those of scaled attention, which Mistral Small 3 does not have."""
    keys = dict(rope_dimensions(facts))
    if facts.get("model_type") != "ministral3":
        return keys
    if facts.rope.get("mscale") != _MSCALE:
        raise UnsupportedError(
            f"{CONFIG}: rope_parameters.mscale is {facts.rope.get('mscale')!r}, and llama.cpp,"
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
    replace(
        LLAMA,
        gguf="mistral3",
        hf=("Ministral3ForCausalLM", "Mistral3ForConditionalGeneration"),
        model_type="ministral3",
        computed=_mistral3,
        uncomputed=_mistral3_config,
        switches={},
    ),
)
