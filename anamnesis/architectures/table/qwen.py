"""Qwen's models: with attention, and from 3-Next on with linear attention."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from anamnesis.architectures.arch import Find, Naming
from anamnesis.architectures.model_facts import Facts, real, unsupported
from anamnesis.architectures.pooling import RANK
from anamnesis.architectures.table import layer_kinds as blocks
from anamnesis.architectures.table.bert import labelled, output_labels
from anamnesis.architectures.table.llama import kv_heads
from anamnesis.architectures.table.rows import ROWS

_CLASSIFIER = "Qwen3ForSequenceClassification"


class _Bare(Naming):
    """Names of a model that embeds texts, which are those of the decoder without its head."""

    def there(self, name: str, facts: Facts) -> str:
        """`layers.0.x` -> `model.layers.0.x`."""
        is_bare = name.startswith(("layers.", "embed_tokens.", "norm."))
        return f"model.{name}" if is_bare else name


def _check_sparse(facts: Facts) -> Mapping[str, Any]:
    """Return nothing: each layer has experts."""
    for fact, value in (("decoder_sparse_step", 1), ("mlp_only_layers", [])):
        if facts.get(fact) not in (None, value):
            raise unsupported(
                f"{fact} is {facts.get(fact)!r}, and llama.cpp has experts in each layer"
            )
    return {}


def _ranking(facts: Facts) -> Mapping[str, Any]:
    """Return the keys of a reranker: the head of one is cut, or it is a classifier."""
    if facts.get("pooling_type") != RANK and facts.get("architectures") != [_CLASSIFIER]:
        return {}
    return {"pooling_type": {"type": "uint32", "value": RANK}, **output_labels(facts)}


def _ranking_config(find: Find, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what makes a reranker a classifier, which is what is left of it."""
    if config.get("pooling_type") != RANK:
        return {}
    return {"architectures": [_CLASSIFIER], **labelled(find)}


# --- linear attention, and layers that predict further tokens -------------------------------------

_LINEAR = "linear_attention"
_INTERVAL, _PARTIAL = 4, 0.25
_SECTIONS = [11, 11, 10, 0]  # of all models whose config.json does not say it
_RECURRENT, _NEXTN = "attention.recurrent_layers", "nextn_predict_layers"
_INNER, _ROTATING = "ssm.inner_size", "rope.dimension_count"

_NUMBER = "(0|[1-9][0-9]{0,5})"
_MTP = re.compile(rf"(?:model\.)?mtp\.(?:layers\.{_NUMBER}\.(.+)|(\w+)\.(\w+))")
_LAYER = re.compile(rf"model\.layers\.{_NUMBER}\.")
_IN_LAYER = re.compile(rf"model\.layers\.{_NUMBER}\.((.+)\.(\w+)|.+)")
_PREDICTING = {
    "fc": "eh_proj",
    "pre_fc_norm_embedding": "enorm",
    "pre_fc_norm_hidden": "hnorm",
    "norm": "shared_head.norm",
}


class _Further(Naming):
    """Names of `mtp.`, whose layers llama.cpp counts behind the others."""

    def there(self, name: str, facts: Facts) -> str:
        """`mtp.layers.0.x` -> `model.layers.N.x`, `mtp.fc.x` -> `model.layers.N.eh_proj.x`."""
        given = _MTP.fullmatch(name)
        if given is None or (given[3] and given[3] not in _PREDICTING):
            return name
        n = facts.number("num_hidden_layers")
        if given[1]:
            return f"model.layers.{n + int(given[1])}.{given[2]}"
        return f"model.layers.{n}.{_PREDICTING[given[3]]}.{given[4]}"

    def back(self, name: str, facts: Facts) -> str:
        """`model.layers.N.x` -> `mtp.layers.0.x`, or `mtp.fc.x` if there is one for all."""
        given = _IN_LAYER.fullmatch(name)
        n = facts.number("num_hidden_layers")
        if given is None or int(given[1]) < n:
            return name
        for own, called in _PREDICTING.items():
            if given[3] == called:
                return f"mtp.{own}.{given[4]}"
        return f"mtp.layers.{int(given[1]) - n}.{given[2]}"


def _linear(facts: Facts) -> Mapping[str, Any]:
    _check_sparse(facts)
    n = facts.number("num_hidden_layers")
    numbers = [int(m[1]) for name in facts.names if (m := _LAYER.match(name))]
    n_further = max(0, *(i + 1 - n for i in numbers)) if numbers else 0
    interval = facts.number("full_attention_interval")
    recurrent = blocks.of_kind(facts, _LINEAR, interval) + [False] * n_further
    part = real(facts.rope, "partial_rotary_factor", _PARTIAL)
    inner = facts.number("linear_value_head_dim") * facts.number("linear_num_value_heads")
    keys: dict[str, Any] = {
        "block_count": {"type": "uint32", "value": len(recurrent)},
        _INNER: {"type": "uint32", "value": inner},
        _RECURRENT: {"type": "bool", "value": recurrent},
        _ROTATING: {"type": "uint32", "value": int(facts.head_dim * part)},
    }
    return keys | {_NEXTN: {"type": "uint32", "value": n_further}} if n_further else keys


def _linear_35(facts: Facts) -> Mapping[str, Any]:
    """Return the keys of Qwen 3.5, which has sections of three positions, of text the same ones."""
    keys = dict(_linear(facts))
    if facts.rope.get("mrope_section") is None:
        keys["rope.dimension_sections"] = {"type": "int32", "value": _SECTIONS}
    return keys


def _linear_config(find: Find, config: Mapping[str, Any]) -> Mapping[str, Any]:
    n_further = find(_NEXTN) or 0
    n = config["num_hidden_layers"] - n_further
    recurrent = find(_RECURRENT)
    if recurrent is None:
        period = config.get("full_attention_interval", _INTERVAL)
        recurrent = [(i + 1) % period != 0 for i in range(n)]
    given: dict[str, Any] = {
        "num_hidden_layers": n,
        "layer_types": blocks.layer_kinds(recurrent[:n], _LINEAR),
    }
    inner, rotating = find(_INNER), find(_ROTATING)
    if inner is not None:
        given["linear_value_head_dim"] = inner // config["linear_num_value_heads"]
    head = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
    given["head_dim"] = head
    if rotating is not None:
        rope = dict(config["rope_parameters"])
        given["rope_parameters"] = {**rope, "partial_rotary_factor": rotating / head}
    return given | {"mtp_num_hidden_layers": n_further} if n_further else given


ARCHS = (
    replace(ROWS["qwen2"], naming=_Bare(), derived=kv_heads),
    replace(ROWS["qwen2_moe"], computed=_check_sparse, derived=kv_heads),
    replace(
        ROWS["qwen3"],
        computed=_ranking,
        uncomputed=_ranking_config,
        naming=_Bare(),
        derived=kv_heads,
    ),
    replace(ROWS["qwen3_moe"], computed=_check_sparse, derived=kv_heads),
    *(
        replace(
            ROWS[name],
            computed=keys,
            uncomputed=_linear_config,
            derived=lambda facts: {"full_attention_interval": _INTERVAL},
            naming=_Further(),
        )
        for name, keys in (
            ("qwen3_next", _linear),
            ("qwen3_5_text", _linear_35),
            ("qwen3_5_moe_text", _linear_35),
        )
    ),
)
