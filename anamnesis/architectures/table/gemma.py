"""Gemma 2 and the text models of Gemma 3."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from anamnesis.architectures.arch import Find
from anamnesis.architectures.model_facts import Facts, missing, unsupported
from anamnesis.architectures.table import layer_kinds as blocks
from anamnesis.architectures.table.rows import ROWS

_WINDOW, _CAP = "attention.sliding_window", "final_logit_softcapping"

# Layers of the models of 27B, by which llama.cpp knows that a query is not scaled by its length.
_GEMMA2_27B, _GEMMA3_27B = 46, 62
_GEMMA2_THETA = 10000.0  # llama.cpp's own, which goes unsaid
_GEMMA3_LOCAL_THETA = 10000.0  # likewise, in files of older converters
_GEMMA2_PERIOD, _GEMMA3_PERIOD = 2, 6
_GEMMA3_VOCABULARY = 262_208  # of the class, which a model with images leaves out


def _scalar(layers: int, of_27b: int, hidden: int, heads: int, head_dim: int) -> int:
    """Return what llama.cpp takes a query to be scaled by the root of."""
    return hidden // heads if layers == of_27b else head_dim


def _check_scale(facts: Facts, of_27b: int) -> None:
    """Refuse a scale that GGUF has no key for, if it is not the one that llama.cpp assumes."""
    layers, heads = facts.number("num_hidden_layers"), facts.number("num_attention_heads")
    taken = _scalar(layers, of_27b, facts.number("hidden_size"), heads, facts.head_dim)
    if facts.get("query_pre_attn_scalar") != taken:
        raise unsupported(
            f"query_pre_attn_scalar is {facts.get('query_pre_attn_scalar')!r}, and"
            f" llama.cpp, whose files cannot say it, takes {taken} for a model of {layers} layers"
        )


def _gemma2(facts: Facts) -> Mapping[str, Any]:
    _check_scale(facts, _GEMMA2_27B)
    for name in ("attn_logit_softcapping", "final_logit_softcapping", "sliding_window"):
        if facts.get(name) is None:  # llama.cpp has numbers of its own where there are none
            raise missing(name)
    keys = dict(blocks.window_pattern(facts, _GEMMA2_PERIOD))
    if facts.rope.get("rope_theta") == _GEMMA2_THETA:
        keys["rope.freq_base"] = None
    return keys


def _gemma3(facts: Facts) -> Mapping[str, Any]:
    _check_scale(facts, _GEMMA3_27B)
    if facts.get("attn_logit_softcapping") is not None:
        raise unsupported(
            f"attn_logit_softcapping is {facts.get('attn_logit_softcapping')!r},"
            " which llama.cpp does not have for gemma3"
        )
    keys: dict[str, Any] = {}
    if not facts.get("final_logit_softcapping"):
        keys[_CAP] = None
    if facts.get("sliding_window_pattern") == 1:  # each layer sees all
        return keys | {_WINDOW: None}
    return {**keys, **blocks.window_pattern(facts, _GEMMA3_PERIOD)}


def _scalar_of(config: Mapping[str, Any], of_27b: int) -> int:
    names = ("num_hidden_layers", "hidden_size", "num_attention_heads")
    layers, hidden, heads = (config[name] for name in names)
    return _scalar(layers, of_27b, hidden, heads, config.get("head_dim", hidden // heads))


def _gemma2_config(find: Find, config: Mapping[str, Any]) -> Mapping[str, Any]:
    return {
        "query_pre_attn_scalar": _scalar_of(config, _GEMMA2_27B),
        **blocks.types_by_window(find, config),
    }


def _gemma3_config(find: Find, config: Mapping[str, Any]) -> Mapping[str, Any]:
    given: dict[str, Any] = {"query_pre_attn_scalar": _scalar_of(config, _GEMMA3_27B)}
    local = find("rope.freq_base_swa")
    if local is None and config.get("sliding_window") is not None:
        local = _GEMMA3_LOCAL_THETA
    if local is not None:
        given["rope_parameters"] = {
            "full_attention": config["rope_parameters"],
            "sliding_attention": {"rope_theta": local, "rope_type": "default"},
        }
    if config.get("sliding_window") is None:
        kinds = ["full_attention"] * config["num_hidden_layers"]
        return given | {"sliding_window_pattern": 1, "layer_types": kinds}
    return given | dict(blocks.types_by_window(find, config))


ARCHS = (
    replace(ROWS["gemma2"], computed=_gemma2, uncomputed=_gemma2_config),
    replace(
        ROWS["gemma3_text"],
        computed=_gemma3,
        derived=lambda facts: {"vocab_size": _GEMMA3_VOCABULARY},
        uncomputed=_gemma3_config,
    ),
)
