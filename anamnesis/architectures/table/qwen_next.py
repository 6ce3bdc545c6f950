"""Qwen 3-Next and 3.5: linear attention, and layers that predict ahead."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from anamnesis.architectures import operations
from anamnesis.architectures.arch import Arch, Find, Key, Rule
from anamnesis.architectures.conversion_operations import Mapped, Reshape
from anamnesis.architectures.model_facts import CONFIG, Facts, real
from anamnesis.architectures.table import blocks, qwen
from anamnesis.architectures.table.experts import EXPERTS
from anamnesis.base.errors import ParseError
from anamnesis.schemes.core.weight import Weight

_LINEAR = "linear_attention"
_INTERVAL, _PARTIAL = 4, 0.25
_SECTIONS = [11, 11, 10, 0]  # of all models whose config.json does not say it
_RECURRENT, _NEXTN = "attention.recurrent_layers", "nextn_predict_layers"
_INNER, _ROTATING = "ssm.inner_size", "rope.dimension_count"


# --- heads of linear attention --------------------------------------------------------------------
#
# K key heads are shared by r = V / K value heads each. Hugging Face has value heads by key heads,
# [K, r]; llama.cpp has them as its broadcast repeats key heads, [r, K].


def _key_heads(facts: Facts) -> tuple[int, int]:
    """Return how many there are, and how many value heads share one."""
    n, n_values = facts.number("linear_num_key_heads"), facts.number("linear_num_value_heads")
    if n_values % n:
        raise ParseError(
            f"linear_num_value_heads is {n_values}, not a multiple of linear_num_key_heads, {n}",
            source=CONFIG,
        )
    return n, n_values // n


def _tiled(facts: Facts, first: int, size: int, of: int, name: str) -> list[int]:
    """Return indices that put value heads of `size`, behind the `first`, into llama.cpp's order."""
    n, shared = _key_heads(facts)
    _check_size(name, of, first + n * shared * size)
    heads = [key * shared + value for value in range(shared) for key in range(n)]
    return [*range(first), *(first + head * size + i for head in heads for i in range(size))]


def _check_size(name: str, n: int, of_heads: int) -> None:
    if n != of_heads:
        raise ParseError(
            f"{name} has {n:,} rows or columns of heads, not the {of_heads:,} that {CONFIG} says"
        )


@dataclass(frozen=True, slots=True)
class _ValueRows:
    """Rows of value heads by llama.cpp's order of them."""

    after_keys: bool = False
    is_scalar: bool = False

    def there(self, weights: Sequence[Weight], facts: Facts) -> list[Weight]:
        """(.. K, r, d) -> (.. r, K, d)."""
        return [operations.in_order(w, w.name, self._order(w, facts)) for w in weights]

    def back(self, weights: Sequence[Weight], facts: Facts) -> list[Weight]:
        """(.. r, K, d) -> (.. K, r, d)."""
        return [
            operations.in_order(w, w.name, operations.inverse(self._order(w, facts)))
            for w in weights
        ]

    def _order(self, weight: Weight, facts: Facts) -> list[int]:
        first = 0
        if self.after_keys:
            first = 2 * facts.number("linear_num_key_heads") * facts.number("linear_key_head_dim")
        size = 1 if self.is_scalar else facts.number("linear_value_head_dim")
        return _tiled(facts, first, size, weight.shape[0], weight.name)


@dataclass(frozen=True, slots=True)
class _ValueColumns:
    """Columns of value heads by llama.cpp's order of them."""

    def there(self, weights: Sequence[Weight], facts: Facts) -> list[Weight]:
        """(rows, K r d) -> (rows, r K d)."""
        return [operations.gathered_columns(w, w.name, self._order(w, facts)) for w in weights]

    def back(self, weights: Sequence[Weight], facts: Facts) -> list[Weight]:
        """(rows, r K d) -> (rows, K r d)."""
        return [
            operations.gathered_columns(w, w.name, operations.inverse(self._order(w, facts)))
            for w in weights
        ]

    def _order(self, weight: Weight, facts: Facts) -> list[int]:
        size = facts.number("linear_value_head_dim")
        return _tiled(facts, 0, size, weight.shape[-1], weight.name)


@dataclass(frozen=True, slots=True)
class _Apart:
    """Rows of queries, keys, values and gates that each key head has, as two matrices."""

    def there(self, weights: Sequence[Weight], facts: Facts) -> list[Weight]:
        """(K (q k v z), cols) -> (all q, all k, all v; cols), (all z; cols)."""
        (weight,) = weights
        n = weight.shape[0]
        joined, gates = self._orders(facts, n, weight.name)
        return [
            operations.gathered_rows(
                weight.name, [weight], n, order, (len(order), *weight.shape[1:])
            )
            for order in (joined, gates)
        ]

    def back(self, weights: Sequence[Weight], facts: Facts) -> list[Weight]:
        """(all q, all k, all v; cols), (all z; cols) -> (K (q k v z), cols)."""
        n = sum(weight.shape[0] for weight in weights)
        joined, gates = self._orders(facts, n, weights[0].name)
        order = operations.inverse([*joined, *gates])
        shape = (len(order), *weights[0].shape[1:])
        return [operations.gathered_rows(weights[0].name, weights, len(order), order, shape)]

    def _orders(self, facts: Facts, of: int, name: str) -> tuple[list[int], list[int]]:
        n, shared = _key_heads(facts)
        keys = facts.number("linear_key_head_dim")
        values = shared * facts.number("linear_value_head_dim")
        period = 2 * (keys + values)
        _check_size(name, of, n * period)
        parts, start = [], 0
        for size in (keys, keys, values, values):
            rows = [head * period + start + i for head in range(n) for i in range(size)]
            parts.append(rows)
            start += size
        return [*parts[0], *parts[1], *parts[2]], parts[3]


# --- layers that predict further tokens -----------------------------------------------------------

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


@dataclass(frozen=True, slots=True)
class _Further:
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


# --- keys -----------------------------------------------------------------------------------------

_KEYS = (
    Key("ssm.conv_kernel", "linear_conv_kernel_dim"),
    Key("ssm.state_size", "linear_key_head_dim"),
    Key("ssm.group_count", "linear_num_key_heads"),
    Key("ssm.time_step_rank", "linear_num_value_heads"),
    Key("full_attention_interval", "full_attention_interval"),
)


def _interval(facts: Facts) -> Mapping[str, Any]:
    return {"full_attention_interval": _INTERVAL}


def _linear(facts: Facts) -> Mapping[str, Any]:
    qwen.check_sparse(facts)
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


# --- rows -----------------------------------------------------------------------------------------

_PLUS_ONE = Mapped("plus-one", "minus-one")
_SQUEEZE = Reshape(lambda s: (s[0], *s[2:]), lambda s: (s[0], 1, *s[1:]))
_COMMON = (
    blocks.OUTER[0],
    blocks.OUTER[2],
    Rule("model.norm", ("output_norm",), (_PLUS_ONE,)),
    blocks.layer("input_layernorm", "attn_norm", _PLUS_ONE),
    blocks.layer("post_attention_layernorm", "post_attention_norm", _PLUS_ONE),
    *blocks.ATTENTION,
    blocks.layer("self_attn.q_norm", "attn_q_norm", _PLUS_ONE),
    blocks.layer("self_attn.k_norm", "attn_k_norm", _PLUS_ONE),
    blocks.layer("linear_attn.norm", "ssm_norm"),
    blocks.layer("eh_proj", "nextn.eh_proj"),
    blocks.layer("enorm", "nextn.enorm", _PLUS_ONE),
    blocks.layer("hnorm", "nextn.hnorm", _PLUS_ONE),
    blocks.layer("shared_head.norm", "nextn.shared_head_norm", _PLUS_ONE),
)
_ATTENDING = "model.layers.{bid}.linear_attn"
_NEXT = (
    *_COMMON,
    Rule(f"{_ATTENDING}.in_proj_qkvz", ("blk.{bid}.attn_qkv", "blk.{bid}.attn_gate"), (_Apart(),)),
    blocks.layer("linear_attn.in_proj_ba", "ssm_ba"),
    blocks.layer("linear_attn.conv1d", "ssm_conv1d", _SQUEEZE),
    blocks.layer("linear_attn.out_proj", "ssm_out"),
    Rule(
        f"{_ATTENDING}.A_log",
        ("blk.{bid}.ssm_a",),
        (Mapped("minus-exp", "log-of-minus"),),
        exact=True,
    ),
    Rule(f"{_ATTENDING}.dt_bias", ("blk.{bid}.ssm_dt.bias",), exact=True),
)
_SCALARS = _ValueRows(is_scalar=True)
_35 = (
    *_COMMON,
    blocks.layer("linear_attn.in_proj_qkv", "attn_qkv", _ValueRows(after_keys=True)),
    blocks.layer("linear_attn.in_proj_z", "attn_gate", _ValueRows()),
    blocks.layer("linear_attn.in_proj_b", "ssm_beta", _SCALARS),
    blocks.layer("linear_attn.in_proj_a", "ssm_alpha", _SCALARS),
    blocks.layer("linear_attn.conv1d", "ssm_conv1d", _SQUEEZE, _ValueRows(after_keys=True)),
    blocks.layer("linear_attn.out_proj", "ssm_out", _ValueColumns()),
    Rule(
        f"{_ATTENDING}.A_log",
        ("blk.{bid}.ssm_a",),
        (_SCALARS, Mapped("minus-exp", "log-of-minus")),
        exact=True,
    ),
    Rule(f"{_ATTENDING}.dt_bias", ("blk.{bid}.ssm_dt.bias",), (_SCALARS,), exact=True),
)

# A query has a gate beside it.
_SHAPES = {"attn_q": "2*heads*key h", "attn_qkv": "2*groups*state+inner h"}

_QWEN3_NEXT = Arch(
    gguf="qwen3next",
    spelt=qwen.EXPERTS_SPELT,
    hf=("Qwen3NextForCausalLM",),
    model_type="qwen3_next",
    rules=(*_NEXT, *EXPERTS, *qwen.SHARED_EXPERT),
    keys=(*qwen.EXPERT_KEYS, *_KEYS),
    computed=_linear,
    uncomputed=_linear_config,
    derived=_interval,
    naming=_Further(),
    shapes=_SHAPES,
    switches={"attention_bias": blocks.ATTENTION_BIASES},
    groups={"attn_qkv": "recurs"},
)
_QWEN3_5_MOE = replace(
    _QWEN3_NEXT,
    gguf="qwen35moe",
    hf=("Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration"),
    model_type="qwen3_5_moe_text",
    rules=(*_35, *EXPERTS, *qwen.SHARED_EXPERT),
    computed=_linear_35,
)
ARCHS = (
    _QWEN3_NEXT,
    replace(
        _QWEN3_5_MOE,
        gguf="qwen35",
        spelt={},
        hf=("Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration"),
        model_type="qwen3_5_text",
        rules=(*_35, *blocks.MLP),
        keys=_KEYS,
    ),
    _QWEN3_5_MOE,
)
