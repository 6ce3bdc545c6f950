"""LFM 2 of Liquid AI: short convolutions, and attention in some layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from anamnesis.architectures.arch import Find
from anamnesis.architectures.config_of_keys import needed
from anamnesis.architectures.model_facts import Facts, malformed, real, unsupported
from anamnesis.architectures.table.layer_kinds import FULL, layer_kinds
from anamnesis.architectures.table.rows import ROWS

_CONV = "conv"
_KV_HEADS = "attention.head_count_kv"


def _layer_types(facts: Facts) -> Mapping[str, Any]:
    """Return the kind of each layer, which older files give as the numbers of those that attend."""
    full = facts.get("full_attn_idxs")
    if full is not None and not isinstance(full, list):
        raise malformed(f"full_attn_idxs is {full!r}, no list")
    n = facts.n_layers
    kinds = [_CONV if full is not None and i not in full else FULL for i in range(n)]
    return {"layer_types": kinds, "num_key_value_heads": facts.get("num_attention_heads")}


def _by_layers(facts: Facts) -> Mapping[str, Any]:
    """Return key-value heads of each layer, none of those that convolve."""
    n = facts.n_layers
    kinds, heads = facts.get("layer_types"), facts.number("num_key_value_heads")
    if not isinstance(kinds, list) or len(kinds) != n:
        raise malformed(f"layer_types are not {n} words, one for each layer")
    return {_KV_HEADS: {"type": "int32", "value": [0 if k == _CONV else heads for k in kinds]}}


def _lfm2(facts: Facts) -> Mapping[str, Any]:
    """Return the rows of an MLP, too: two thirds of what config.json says, times a factor."""
    n = facts.number("intermediate_size" if facts.get("block_ff_dim") is None else "block_ff_dim")
    if facts.get("block_auto_adjust_ff_dim"):
        n = int(2 * n / 3)
        n = int(real(facts.values, "block_ffn_dim_multiplier", 1.0) * n)
        step = facts.number("block_multiple_of")
        n = step * -(-n // step)  # rounded up
    return {**_by_layers(facts), "feed_forward_length": {"type": "uint32", "value": n}}


def _lfm2moe(facts: Facts) -> Mapping[str, Any]:
    if not facts.get("norm_topk_prob") or facts.get("routed_scaling_factor") != 1:
        raise unsupported(
            "norm_topk_prob or routed_scaling_factor is not what llama.cpp takes"
            " lfm2moe to have, true and 1"
        )
    return _by_layers(facts)


def _lfm2_config(find: Find, config: Mapping[str, Any]) -> Mapping[str, Any]:
    heads = needed(find, _KV_HEADS)
    heads = heads if isinstance(heads, list) else [heads] * config["num_hidden_layers"]
    return {
        "num_key_value_heads": max(heads),
        "layer_types": layer_kinds([n == 0 for n in heads], _CONV),
    }


ARCHS = tuple(
    replace(ROWS[name], computed=keys, uncomputed=_lfm2_config, derived=_layer_types)
    for name, keys in (("lfm2", _lfm2), ("lfm2_moe", _lfm2moe))
)
