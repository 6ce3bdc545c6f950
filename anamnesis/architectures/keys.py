"""Metadata of a model: config.json as GGUF's keys behind the architecture's name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anamnesis.architectures.arch import Arch, Key, patterns
from anamnesis.architectures.model_facts import (
    FLOAT32_MOST,
    Facts,
    malformed,
    missing,
    real,
    unsupported,
)
from anamnesis.architectures.rope_factors import (
    ATTENTION_FACTOR,
    LONGROPE,
    ORIGINAL,
    attention_factor,
    attention_scale,
    longrope_keys,
    scaled_factors,
)
from anamnesis.base.lazy import np
from anamnesis.base.plain_json import json_table
from anamnesis.formats.gguf.values import typed

BLOCK_COUNT = Key("block_count", "num_hidden_layers")
_WORDS_OF = {"expert_gating_func": {"softmax": 1, "sigmoid": 2, "sqrtsoftplus": 4}}

_TABLE: Mapping[str, Any] = json_table(__file__)


def keys_of(given: Mapping[str, str]) -> tuple[Key, ...]:
    """Return the keys of a table: by their names each fact, and its type if it is not uint32."""
    parted = ((name, said.partition(" ")) for name, said in given.items())
    return tuple(
        Key(name, fact, kind or "uint32", _WORDS_OF.get(name)) for name, (fact, _, kind) in parted
    )


# In the order of llama.cpp's converter.
BEFORE_ROPE, BEHIND_ROPE = (keys_of(_TABLE[place]) for place in ("before_rope", "behind_rope"))
# What a rope calls the keys `rope.scaling.*`, transformers' word first.
YARN = {name: words.split() for name, words in _TABLE["yarn"].items()}


def _names(words: str | list[str]) -> frozenset[str]:
    return frozenset((words if isinstance(words, str) else " ".join(words)).split())


# What the values of keys are that no `Key` says it of; whole numbers by default.
_KINDS = {
    name: kind for kind in (float, bool, str) for name in _names(_TABLE["kinds"][kind.__name__])
}
# What config.json calls a key that no row has a fact for.
_FACTS: Mapping[str, str] = _TABLE["facts"]
_OF_KEYS = {"float32": float, "bool": bool, "string": str}
_LISTS, _OF_LAYERS, _POSITIVE = (
    _names(_TABLE[some]) for some in ("lists", "of_layers", "positive")
)
_NO_NUMBERS = {*_LISTS, "attention.recurrent_layers"}
_LOG_MULTIPLIER = "rope.scaling.yarn_log_multiplier"
_GROUPS, _GROUPS_USED = "expert_group_count", "expert_group_used_count"
_ONE = {"type": "uint32", "value": 1}
_IS_YARN = {"type": "string", "value": "yarn"}


def model_keys(arch: Arch, facts: Facts) -> dict[str, Any]:
    """Return the keys of a model behind its architecture's name, typed, in the
    converter's order.
    """
    keys: dict[str, Any] = {}
    _put(keys, facts, (BLOCK_COUNT, *BEFORE_ROPE))
    if facts.get("is_causal") is False:
        keys["attention.causal"] = {"type": "bool", "value": False}
    keys |= _rope_keys(facts)
    if arch.extra is scaled_factors and facts.rope.get("rope_type") in LONGROPE:
        keys |= longrope_keys(facts)
    _put(keys, facts, BEHIND_ROPE)
    _put(keys, facts, arch.keys)
    keys |= arch.fixed
    keys |= arch.computed(facts)
    if keys.get(_GROUPS) and keys.get(_GROUPS) == keys.get(_GROUPS_USED) != _ONE:
        keys |= dict.fromkeys((_GROUPS, _GROUPS_USED))  # all of them, which llama.cpp does not load
    if keys.get("rope.scaling.type") == _IS_YARN and keys.get(_LOG_MULTIPLIER) is None:
        keys |= _attention_keys(facts.rope)
    _check(arch, keys)
    names = patterns(arch.rules)
    for name in (*_TABLE["required"].split(), *arch.required):
        if keys.get(name) is None and (
            name != "feed_forward_length" or "blk.{bid}.ffn_up.weight" in names
        ):
            raise missing(fact_of(arch, name))
    return {f"{arch.gguf}.{name}": value for name, value in keys.items() if value is not None}


def fact_of(arch: Arch, key: str) -> str:
    """Return what config.json calls the fact behind a key."""
    spelt = arch.spelt.get(key) or _FACTS.get(key)
    known = (BLOCK_COUNT, *BEFORE_ROPE, *BEHIND_ROPE, *arch.keys)
    found = spelt or next((k.fact for k in known if k.name == key), None)
    return found or f"{key} of the GGUF header"


def why_not(arch: Arch, name: str, value: Any, n_layers: Any) -> str:
    """Return what is wrong with a key's value, either way; an empty text if it is sound."""
    key = next((k for k in (*BEHIND_ROPE, *arch.keys) if k.name == name), None)
    kind = _KINDS.get(name, int) if key is None else _OF_KEYS.get(key.type, int)
    some = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    if some is value and name not in (_LISTS | _OF_LAYERS):
        return "is a list"
    if some is not value and name in _NO_NUMBERS:
        return "is no list"
    if some is value and name in _OF_LAYERS and len(some) != n_layers:
        return f"has {len(some):,} values, not one for each layer"
    if name == "attention.sliding_window_pattern" and some is not value:
        kind = int  # a period
    wrong = next((one for one in some if not _is(kind, one, name in _POSITIVE)), None)
    if wrong is None:
        return ""
    return f"is {wrong!r}, not {'positive' if wrong in (0, False) else _WORDS[kind]}"


_WORDS = {int: "a whole number", float: "a number of float32", bool: "true or false", str: "a text"}


def _is(kind: type, value: Any, is_positive: bool) -> bool:
    if kind is float:
        is_one = type(value) in (int, float) and abs(value) < FLOAT32_MOST
    elif kind is int:
        is_one = type(value) is int and abs(value) < 1 << 32
    else:
        return isinstance(value, kind)
    return is_one and (value > 0 if is_positive else kind is float or value >= 0)


def _check(arch: Arch, keys: Mapping[str, Any]) -> None:
    n_layers = keys["block_count"]["value"] if "block_count" in keys else None
    for name, value in keys.items():
        try:
            typed(value or 0)
        except ValueError as error:
            raise malformed(f"{name} of the GGUF header: {error}") from None
        why = "" if value is None else why_not(arch, name, value["value"], n_layers)
        if why:
            raise malformed(f"{fact_of(arch, name)} {why}")


def _put(keys: dict[str, Any], facts: Facts, said: tuple[Key, ...]) -> None:
    for key in said:
        value = facts.get(key.fact)
        if value is not None:
            keys[key.name] = _typed(key, value)


def _typed(key: Key, value: Any) -> Mapping[str, Any]:
    if key.values is not None:
        if not isinstance(value, (str, int)) or value not in key.values:
            raise unsupported(f"{key.fact} is {value!r}, which GGUF has no word for")
        value = key.values[value]
    if key.type == "float32" and type(value) is int and abs(value) < 1 << 127:
        value = float(value)
    made = {"type": key.type, "value": value}
    try:
        typed(made)
    except ValueError as error:
        raise malformed(f"{key.fact} is {value!r}: {error}") from None
    return made


def _float(name: str, value: Any) -> Mapping[str, Any]:
    return _typed(Key(name, name, "float32"), value)


def _attention_keys(rope: Mapping[str, Any]) -> dict[str, Any]:
    """Return what llama.cpp multiplies YaRN's usual scale by; of the others it reads none."""
    given = attention_factor(rope)
    usual = attention_scale(real(rope, "factor", 1.0))
    if given is None or np.float32(given) == np.float32(usual):
        return {}
    return {
        "rope.scaling.yarn_attn_factor": _float("attention_factor", given),
        ATTENTION_FACTOR: _float("attention_factor", given / usual),
    }


def _rope_keys(facts: Facts) -> dict[str, Any]:
    """Return what the rope is, of full attention and of windows."""
    rope, keys = facts.rope, dict[str, Any]()
    kind, factor = rope.get("rope_type"), rope.get("factor")
    if kind in ("linear", "yarn") and factor is not None:
        keys["rope.scaling.type"] = {"type": "string", "value": kind}
        keys["rope.scaling.factor"] = _float("factor", factor)
    if kind == "yarn" and factor is not None:
        original = rope.get("original_max_position_embeddings")
        if original is None:
            raise missing("original_max_position_embeddings")
        keys[ORIGINAL] = _typed(Key(ORIGINAL, "original_max_position_embeddings"), original)
        for name, spellings in YARN.items():
            value = next((rope[s] for s in spellings if rope.get(s) is not None), None)
            if value is not None:
                keys[f"rope.scaling.{name}"] = _float(spellings[0], value)
    if kind in LONGROPE:
        keys["rope.scaling.type"] = {"type": "string", "value": "longrope"}
    sections = rope.get("mrope_section")
    if sections is not None:
        if not isinstance(sections, list):
            raise malformed(f"mrope_section is {sections!r}, no list")
        padded = [*sections, 0, 0, 0, 0][:4]
        keys["rope.dimension_sections"] = _typed(
            Key("rope.dimension_sections", "mrope_section", "int32"), padded
        )
    if rope.get("rope_theta") is not None:
        keys["rope.freq_base"] = _float("rope_theta", rope["rope_theta"])
    if facts.local_rope.get("rope_theta") is not None:
        keys["rope.freq_base_swa"] = _float("rope_local_base_freq", facts.local_rope["rope_theta"])
    return keys
