"""Metadata of a model: config.json as GGUF's keys behind the architecture's name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anamnesis.architectures.arch import Arch, Key, patterns
from anamnesis.architectures.model_facts import CONFIG, FLOAT32_MOST, Facts, missing, real
from anamnesis.architectures.rope_factors import (
    ATTENTION_FACTOR,
    LONGROPE,
    ORIGINAL,
    attention_factor,
    attention_scale,
    longrope_keys,
    scaled_factors,
)
from anamnesis.base.errors import ParseError, UnsupportedError
from anamnesis.base.lazy import np
from anamnesis.formats.gguf.values import typed

BLOCK_COUNT = Key("block_count", "num_hidden_layers")
_GATING = {"softmax": 1, "sigmoid": 2, "sqrtsoftplus": 4}

# In the order of llama.cpp's converter.
BEFORE_ROPE = (
    Key("context_length", "max_position_embeddings"),
    Key("embedding_length", "hidden_size"),
    Key("feed_forward_length", "intermediate_size"),
    Key("attention.head_count", "num_attention_heads"),
    Key("attention.head_count_kv", "num_key_value_heads"),
)
BEHIND_ROPE = (
    Key("attention.layer_norm_rms_epsilon", "rms_norm_eps", "float32"),
    Key("attention.layer_norm_epsilon", "layer_norm_eps", "float32"),
    Key("expert_count", "num_local_experts"),
    Key("expert_used_count", "num_experts_per_tok"),
    Key("expert_group_count", "n_group"),
    Key("expert_group_used_count", "topk_group"),
    Key("expert_gating_func", "scoring_func", values=_GATING),
    Key("attention.key_length", "head_dim"),
    Key("attention.value_length", "head_dim"),
)
# Without these llama.cpp does not load a file.
REQUIRED = (
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "attention.head_count",
)

_WINDOW, _RMS, _LAYER_NORM = (
    f"attention.{name}"
    for name in ("sliding_window", "layer_norm_rms_epsilon", "layer_norm_epsilon")
)
_REQUIRED_OF: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("bert", "nomic-bert", "starcoder2", "stablelm"), (_LAYER_NORM,)),
    **dict.fromkeys(("granite", "granitemoe"), (_RMS, "logit_scale", "attention.scale")),
    **dict.fromkeys(("gemma4", "gpt-oss"), (_RMS, _WINDOW)),
    **dict.fromkeys(("deepseek2", "glm4moe"), (_RMS, "expert_shared_count")),
    "cohere2": (_LAYER_NORM, _WINDOW, "logit_scale"),
}

# What the values of keys are that no `Key` says it of; whole numbers by default.
_KINDS: Mapping[str, type] = {
    **dict.fromkeys(("rope.freq_base", "rope.freq_base_swa", "rope.scaling.factor"), float),
    **dict.fromkeys(("rope.scaling.attn_factor", "rope.scaling.yarn_log_multiplier"), float),
    **dict.fromkeys(("rope.scaling.yarn_ext_factor", "rope.scaling.yarn_attn_factor"), float),
    **dict.fromkeys(("rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow"), float),
    "attention.temperature_scale": float,
    **dict.fromkeys(("attention.causal", "expert_weights_norm"), bool),
    **dict.fromkeys(("attention.recurrent_layers", "attention.sliding_window_pattern"), bool),
    **dict.fromkeys(("rope.scaling.type", "classifier.output_labels"), str),
}
# What config.json calls a key that no row has a fact for.
_FACTS = {
    "nextn_predict_layers": "num_nextn_predict_layers",
    "attention.key_length_mla": "(qk_nope_head_dim + qk_rope_head_dim)",
    "attention.recurrent_layers": "layer_types",
    "ssm.inner_size": "(linear_value_head_dim * linear_num_value_heads)",
    "embedding_length_per_layer_input": "hidden_size_per_layer_input",
    "rope.freq_base": "rope_theta",
    "rope.scaling.factor": "factor of the rope",
}
_OF_KEYS = {"float32": float, "bool": bool, "string": str}
_LISTS = {"rope.dimension_sections", "classifier.output_labels"}
_NO_NUMBERS = {*_LISTS, "attention.recurrent_layers"}
_OF_LAYERS = {
    *("feed_forward_length", "attention.head_count_kv", "attention.recurrent_layers"),
    "attention.sliding_window_pattern",
}
_POSITIVE = {
    *("block_count", "context_length", "embedding_length", "attention.head_count"),
    *(
        "attention.key_length",
        "attention.value_length",
        "rope.freq_base",
        "rope.freq_base_swa",
        "rope.scaling.factor",
        "rope.dimension_count",
        "rope.dimension_count_swa",
    ),
    *("ssm.time_step_rank", "full_attention_interval"),
}

_LOG_MULTIPLIER = "rope.scaling.yarn_log_multiplier"
_GROUPS, _GROUPS_USED = "expert_group_count", "expert_group_used_count"
_ONE = {"type": "uint32", "value": 1}
_IS_YARN = {"type": "string", "value": "yarn"}
_YARN = (
    ("yarn_ext_factor", ("extrapolation_factor",)),
    ("yarn_attn_factor", ("attention_factor", "attn_factor")),
    ("yarn_beta_fast", ("beta_fast",)),
    ("yarn_beta_slow", ("beta_slow",)),
)


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
    if arch.computed is not None:
        keys |= arch.computed(facts)
    if keys.get(_GROUPS) and keys.get(_GROUPS) == keys.get(_GROUPS_USED) != _ONE:
        keys |= dict.fromkeys((_GROUPS, _GROUPS_USED))  # all of them, which llama.cpp does not load
    if keys.get("rope.scaling.type") == _IS_YARN and keys.get(_LOG_MULTIPLIER) is None:
        keys |= _attention_keys(facts.rope)
    _check(arch, keys)
    names = patterns(arch.rules)
    for name in (*REQUIRED, *_REQUIRED_OF.get(arch.gguf, (_RMS,))):
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
            raise ParseError(f"{name} of the GGUF header: {error}", source=CONFIG) from None
        why = "" if value is None else why_not(arch, name, value["value"], n_layers)
        if why:
            raise ParseError(f"{fact_of(arch, name)} {why}", source=CONFIG)


def _put(keys: dict[str, Any], facts: Facts, said: tuple[Key, ...]) -> None:
    for key in said:
        value = facts.get(key.fact)
        if value is not None:
            keys[key.name] = _typed(key, value)


def _typed(key: Key, value: Any) -> Mapping[str, Any]:
    if key.values is not None:
        if not isinstance(value, (str, int)) or value not in key.values:
            raise UnsupportedError(f"{CONFIG}: {key.fact} is {value!r}, which GGUF has no word for")
        value = key.values[value]
    if key.type == "float32" and type(value) is int and abs(value) < 1 << 127:
        value = float(value)
    made = {"type": key.type, "value": value}
    try:
        typed(made)
    except ValueError as error:
        raise ParseError(f"{key.fact} is {value!r}: {error}", source=CONFIG) from None
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
        for name, spellings in _YARN:
            value = next((rope[s] for s in spellings if rope.get(s) is not None), None)
            if value is not None:
                keys[f"rope.scaling.{name}"] = _float(spellings[0], value)
    if kind in LONGROPE:
        keys["rope.scaling.type"] = {"type": "string", "value": "longrope"}
    sections = rope.get("mrope_section")
    if sections is not None:
        if not isinstance(sections, list):
            raise ParseError(f"mrope_section is {sections!r}, no list", source=CONFIG)
        padded = [*sections, 0, 0, 0, 0][:4]
        keys["rope.dimension_sections"] = _typed(
            Key("rope.dimension_sections", "mrope_section", "int32"), padded
        )
    if rope.get("rope_theta") is not None:
        keys["rope.freq_base"] = _float("rope_theta", rope["rope_theta"])
    if facts.local_rope.get("rope_theta") is not None:
        keys["rope.freq_base_swa"] = _float("rope_local_base_freq", facts.local_rope["rope_theta"])
    return keys
