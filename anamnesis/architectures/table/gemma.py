"""Gemma 2, and the text models of Gemma 3 and of Gemma 4."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from anamnesis.architectures.arch import Find
from anamnesis.architectures.model_facts import (
    HEAD_DIM_MAX,
    Facts,
    malformed,
    missing,
    real,
    unsupported,
)
from anamnesis.architectures.table import layer_kinds as blocks
from anamnesis.architectures.table.rows import ROWS
from anamnesis.base.lazy import np

_WINDOW, _CAP = "attention.sliding_window", "final_logit_softcapping"

# Layers of the models of 27B, by which llama.cpp knows that a query is not scaled by its length.
_GEMMA2_27B, _GEMMA3_27B = 46, 62
_GEMMA2_THETA = 10000.0  # llama.cpp's own, which goes unsaid
_LOCAL_THETA = 10000.0  # of windows, llama.cpp's own where a header has none
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
        local = _LOCAL_THETA
    if local is not None:
        given["rope_parameters"] = {
            "full_attention": config["rope_parameters"],
            "sliding_attention": {"rope_theta": local, "rope_type": "default"},
        }
    if config.get("sliding_window") is None:
        kinds = ["full_attention"] * config["num_hidden_layers"]
        return given | {"sliding_window_pattern": 1, "layer_types": kinds}
    return given | dict(blocks.types_by_window(find, config))


# --- Gemma 4: windows, shared keys, embeddings of layers -----------------------------------------

_GEMMA4_PERIOD, _GLOBAL_HEAD_DIM = 6, 512  # transformers' own
_PARTIAL, _STILL = 0.25, 1e30
_PATTERN = "attention.sliding_window_pattern"
_KV_HEADS, _FFN = "attention.head_count_kv", "feed_forward_length"
_LENGTHS = ("attention.key_length", "attention.value_length")


def _of_full(facts: Facts, name: str, elsewhere: str) -> Any:
    """Return what layers with full attention have instead of a fact; None if it is the same."""
    # transformers says it by the numbers of layers since 5.20, and before by a name of its own.
    if facts.get(elsewhere) is not None:
        return facts.get(elsewhere)
    given = facts.get("per_layer_config")
    if given is None:
        return None
    if not isinstance(given, Mapping) or not all(
        isinstance(one, Mapping) for one in given.values()
    ):
        raise malformed("per_layer_config is no object of objects")
    for i, kind in enumerate(blocks.layer_types(facts, blocks.SLIDING, _GEMMA4_PERIOD)):
        value = given.get(str(i), {}).get(name)
        if kind == blocks.FULL and value is not None:
            return value
    return None


def _head_dim(facts: Facts) -> int:
    n = _of_full(facts, "head_dim", "global_head_dim") or _GLOBAL_HEAD_DIM
    if type(n) is not int or not 0 < n <= HEAD_DIM_MAX:
        raise malformed(f"global_head_dim is {n!r}, not an integer from 1 to {HEAD_DIM_MAX:,}")
    return n


def _kv_heads(facts: Facts) -> Any:
    """Return key-value heads, a list where layers have different numbers of them."""
    some = facts.get("num_key_value_heads")
    full = _of_full(facts, "num_key_value_heads", "num_global_key_value_heads")
    if full is None or (
        facts.get("per_layer_config") is None and not facts.get("attention_k_eq_v")
    ):
        return {"type": "uint32", "value": some}
    windowed = blocks.of_kind(facts, blocks.SLIDING, _GEMMA4_PERIOD)
    return {"type": "int32", "value": [some if is_one else full for is_one in windowed]}


def _feed_forward(facts: Facts) -> Any:
    """Return the rows of an MLP: twice as many in layers that share keys and values, or not."""
    n = facts.number("intermediate_size")
    if not facts.get("use_double_wide_mlp"):
        return {"type": "uint32", "value": n}
    layers = facts.n_layers
    own = layers - (facts.get("num_kv_shared_layers") or 0)
    return {"type": "int32", "value": [n if i < own else 2 * n for i in range(layers)]}


def _check_layers(facts: Facts) -> None:
    """Refuse facts of layers that contradict each other."""
    if facts.get("enable_moe_block"):
        facts.number("num_experts")
    rows, n = facts.get("vocab_size_per_layer_input"), facts.number("vocab_size")
    if facts.get("hidden_size_per_layer_input") and rows != n:
        raise malformed(
            f"vocab_size_per_layer_input is {rows!r} and vocab_size {n:,}, which llama.cpp takes to"
            " be equal"
        )
    shared = facts.get("num_kv_shared_layers") or 0
    if type(shared) is not int or not 0 <= shared < facts.n_layers:
        raise malformed(f"num_kv_shared_layers is {shared!r}, no number of layers")
    kinds = blocks.layer_types(facts, blocks.SLIDING, _GEMMA4_PERIOD)
    own = kinds[: len(kinds) - shared]
    lone = next((kind for kind in kinds if kind not in own), None)
    if lone is not None:
        raise malformed(f"num_kv_shared_layers is {shared}, and no layer before has {lone}")


def _gemma4(facts: Facts) -> Mapping[str, Any]:
    _check_layers(facts)
    full, windowed = _head_dim(facts), facts.number("head_dim")
    part = real(facts.local_rope, "partial_rotary_factor", 1.0)
    numbers = {
        **dict.fromkeys(_LENGTHS, full),
        **{f"{name}_swa": windowed for name in _LENGTHS},
        "rope.dimension_count": full,
        "rope.dimension_count_swa": int(windowed * part),
        "embedding_length_per_layer_input": facts.get("hidden_size_per_layer_input") or 0,
    }
    keys: dict[str, Any] = {
        name: {"type": "uint32", "value": value} for name, value in numbers.items()
    }
    if not facts.get("enable_moe_block"):
        keys |= dict.fromkeys(("expert_count", "expert_used_count"))
    keys[_PATTERN] = {
        "type": "bool",
        "value": blocks.of_kind(facts, blocks.SLIDING, _GEMMA4_PERIOD),
    }
    keys[_KV_HEADS], keys[_FFN] = _kv_heads(facts), _feed_forward(facts)
    if facts.get("use_bidirectional_attention") == "all":
        keys["attention.causal"] = {"type": "bool", "value": False}
    return keys if facts.get(_CAP) else keys | {_CAP: None}


def _still(facts: Facts) -> Mapping[str, Any]:
    """Return `rope_freqs.weight` [d / 2]: what does not rotate has endless wavelengths."""
    kind = facts.rope.get("rope_type", "proportional")
    if kind != "proportional":
        raise unsupported(
            f"rope_type of full attention is {kind!r}; llama.cpp has 'proportional' only"
        )
    half = _head_dim(facts) // 2
    n = int(_head_dim(facts) * real(facts.rope, "partial_rotary_factor", _PARTIAL) / 2)
    if not 0 <= n <= half:
        raise malformed("partial_rotary_factor is not from 0 to 1")
    return {"rope_freqs.weight": np.array([1.0] * n + [_STILL] * (half - n), np.float32)}


def _gemma4_config(find: Find, config: Mapping[str, Any]) -> Mapping[str, Any]:
    n = config["num_hidden_layers"]
    windowed = find(_PATTERN)
    kinds = [blocks.SLIDING if (i + 1) % _GEMMA4_PERIOD else blocks.FULL for i in range(n)]
    kinds = kinds if windowed is None else blocks.layer_kinds(windowed)
    heads, rows = config.get("num_key_value_heads"), config.get("intermediate_size")
    given: dict[str, Any] = {
        "layer_types": kinds,
        "head_dim": find("attention.key_length_swa"),
        "global_head_dim": find("attention.key_length"),
        "hidden_size_per_layer_input": find("embedding_length_per_layer_input") or 0,
        "vocab_size_per_layer_input": config.get("vocab_size"),
        "enable_moe_block": find("expert_count") is not None,
        "rope_parameters": {
            blocks.FULL: {
                "rope_type": "proportional",
                "partial_rotary_factor": _PARTIAL,
                "rope_theta": config["rope_parameters"]["rope_theta"],
            },
            blocks.SLIDING: {
                "rope_type": "default",
                "rope_theta": find("rope.freq_base_swa") or _LOCAL_THETA,
            },
        },
    }
    for name in ("attention.value_length", "rope.dimension_count"):
        find(name), find(f"{name}_swa")
    if isinstance(heads, list):
        by_kind = dict(zip(kinds, heads, strict=True))
        given["num_key_value_heads"] = by_kind.get(blocks.SLIDING, heads[0])
        given["num_global_key_value_heads"] = by_kind.get(blocks.FULL, heads[0])
        given["attention_k_eq_v"] = True
    if isinstance(rows, list):
        given["intermediate_size"] = rows[0]
        given["use_double_wide_mlp"] = True
    return given


def _rotating(find: Find, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return how much of a head with full attention rotates, by the factors that are 1."""
    factors = find("rope_freqs.weight")
    if factors is None or not len(factors):
        return {}
    rope = dict(config["rope_parameters"])
    part = int((factors == 1).sum()) / len(factors)
    return {
        "rope_parameters": {
            **rope,
            blocks.FULL: {**rope[blocks.FULL], "partial_rotary_factor": part},
        }
    }


ARCHS = (
    replace(ROWS["gemma2"], computed=_gemma2, uncomputed=_gemma2_config),
    replace(
        ROWS["gemma3_text"],
        computed=_gemma3,
        derived=lambda facts: {"vocab_size": _GEMMA3_VOCABULARY},
        uncomputed=_gemma3_config,
    ),
    replace(
        ROWS["gemma4_text"],
        computed=_gemma4,
        uncomputed=_gemma4_config,
        unextra=_rotating,
        extra=_still,
    ),
)
