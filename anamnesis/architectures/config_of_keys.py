"""GGUF's keys as config.json: what model_keys does, backwards."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from anamnesis.architectures.arch import Arch, Find, Key, patterns
from anamnesis.architectures.differences import KEPT, kept_facts
from anamnesis.architectures.keys import (
    BEFORE_ROPE,
    BEHIND_ROPE,
    BLOCK_COUNT,
    YARN,
    model_keys,
    why_not,
)
from anamnesis.architectures.model_facts import LAYERS_MAX, Facts, read_facts
from anamnesis.architectures.rope_factors import (
    ATTENTION_FACTOR,
    LONG,
    LONGROPE,
    ORIGINAL,
    attention_scale,
    llama3_factors,
    llama3_scalings,
    longrope_scale,
    original_length,
    scaled_factors,
)
from anamnesis.architectures.tokenizers.stored import token_id
from anamnesis.base.dtypes import DTYPES
from anamnesis.base.errors import ParseError, UnsupportedError
from anamnesis.base.lazy import NDArray, np
from anamnesis.base.plain_json import json_table
from anamnesis.base.printable import shortened
from anamnesis.formats.base import n_items
from anamnesis.schemes.core.weight import Weight

_MOST_FACTORS = 1 << 16  # of a rope
# What transformers calls a fact, where the first of the converter's spellings is a rare one.
_SPELT = {"feed_forward_length": "intermediate_size"}
_TYPES = "tokenizer.ggml.token_type_count"
_TABLE: Mapping[str, Any] = json_table(__file__)
_TOKENS: Mapping[str, str] = _TABLE["tokens"]  # keys of special tokens, and config.json's facts
_KINDS = {
    **dict.fromkeys(("uint32", "int32"), (int,)),
    "float32": (int, float),
    "bool": (bool,),
    "string": (str,),
}
# What arithmetic with values of other kinds ends in.
_OF_ANOTHER_KIND = (TypeError, ValueError, KeyError, ZeroDivisionError, OverflowError)
# What a header may lack: llama.cpp takes what the class does, or has not read it for long.
_ANY: Sequence[str] = _TABLE["any"]
_THETA = "rope.freq_base"
# Of models without a rope, which have one of these.
_OF_POSITIONS = frozenset({"position_embd.weight", "enc.blk.{bid}.attn_rel_b.weight"})
# What llama.cpp takes where a header says nothing, if that is neither 0 nor 1.
_UNSAID: Mapping[str, Any] = _TABLE["unsaid"]


def shortest(value: Any) -> Any:
    """Return a float32 as the shortest decimal that rounds to it: 1e-05, not 9.99999974e-06."""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ParseError(f"a number of the header is {value}, which JSON cannot say")
        return float(str(np.float32(value)))
    if isinstance(value, list):
        return [shortest(one) for one in value]
    return value


def config_facts(
    arch: Arch, metadata: Mapping[str, Any], weights: Mapping[str, Weight]
) -> tuple[dict[str, Any], set[str]]:
    """Return config.json, and the keys that it says."""
    taken: set[str] = set()
    n_layers = metadata.get(f"{arch.gguf}.block_count")

    def find(name: str) -> Any:
        key = f"{arch.gguf}.{name}"
        if key not in metadata:
            return None
        taken.add(key)
        why = why_not(arch, name, metadata[key], n_layers)
        if why:
            raise ParseError(f"{key} {why}")
        return shortest(metadata[key])

    config = _of_keys(arch, find)
    if _OF_POSITIONS.isdisjoint(patterns(arch.rules)):
        config["rope_parameters"] = _rope(find)
    embedding = weights.get("token_embd.weight")
    if embedding is not None and embedding.shape:
        config["vocab_size"] = embedding.shape[0]
    types = weights.get("token_types.weight")
    if types is not None and types.shape:
        config["type_vocab_size"] = types.shape[0]
        if metadata.get(_TYPES, types.shape[0]) != types.shape[0]:
            raise ParseError(
                f"{_TYPES} is {metadata[_TYPES]!r}, and 'token_types.weight' has {types.shape[0]:,}"
            )
    config["tie_word_embeddings"] = "output.weight" not in weights
    n_tokens = n_items(metadata, "tokenizer.ggml.tokens") or 0
    for key_name, fact in _TOKENS.items():  # or null: classes have ids of their own
        config[fact] = token_id(metadata, key_name, n_tokens)
    for fact, some in arch.switches.items():
        if fact:
            ends = tuple(f".{tail}" for tail in some)
            config[fact] = any(name.endswith(ends) for name in weights)
    try:
        config |= arch.uncomputed(find, config)
    except _OF_ANOTHER_KIND as error:
        raise ParseError(f"a key {arch.gguf}.* is missing or of another kind: {error}") from None
    config |= arch.unextra(lambda name: small_values(weights.get(name)), config)
    if KEPT in metadata:
        config |= kept_facts(metadata[KEPT])
        taken.add(KEPT)
    _match_factors(arch, config, weights)
    return dict(config), taken


def check_required(arch: Arch, facts: Facts, metadata: Mapping[str, Any]) -> None:
    """Refuse a header that config.json does not say: made of that, a key has another value."""
    try:
        made = model_keys(arch, facts)
    except (ParseError, UnsupportedError) as error:
        raise UnsupportedError(f"the header gives a config.json that is refused: {error}") from None
    for key, typed in made.items():
        value, name = typed["value"], key.removeprefix(f"{arch.gguf}.")
        if key in metadata:
            given = metadata[key]
            words = f"{key} is {shortened(repr(given))}"
        else:
            given = value if name in arch.fixed or name in _ANY else _unsaid(name, made, arch.gguf)
            words = f"the header has no {key}"
        if not _is_same(value, given):
            raise UnsupportedError(
                f"{words}, and config.json of {arch.hf[0]} can only say {shortened(repr(value))}"
            )


def _unsaid(name: str, made: Mapping[str, Any], arch: str) -> Any:
    """Return what llama.cpp takes of a key that a header lacks."""
    of = {key.removeprefix(f"{arch}."): typed["value"] for key, typed in made.items()}
    head = of["embedding_length"] // of["attention.head_count"]
    computed = {
        "attention.head_count_kv": of["attention.head_count"],
        "attention.key_length": head,
        "attention.value_length": head,
        "rope.dimension_count": of.get("attention.key_length", head),
        ORIGINAL: of.get("context_length"),
    }
    of_zeros = {name: of[name]} if of[name] in (0, 1) else {}
    known = {**of_zeros, **_UNSAID, **computed}
    return known.get(f"{arch}.{name}", known.get(name))


def _is_same(made: Any, given: Any) -> bool:
    if isinstance(given, list) or isinstance(made, list):
        n = len(given if isinstance(given, list) else made)
        some, others = (x if isinstance(x, list) else [x] * n for x in (made, given))
        return len(some) == len(others) and all(map(_is_same, some, others))
    if isinstance(made, float) and given is not None:
        return math.isclose(made, given, rel_tol=1e-6)  # as near as a quotient of float32 is
    return bool(made == given)


class _Config(dict[str, Any]):
    """Facts of config.json, of which a row may ask for one that no key said."""

    key_of: dict[str, str]

    def __missing__(self, fact: str) -> Any:
        lacks = f"{self.key_of[fact]}, which is" if fact in self.key_of else "a key that says"
        raise ParseError(f"the header lacks {lacks} {fact} in config.json")


def _of_keys(arch: Arch, find: Find) -> _Config:
    """Return the facts that keys say one by one, if they do not contradict each other."""
    config = _Config(architectures=[arch.hf[0]], model_type=arch.model_type, **arch.config)
    config.key_of = {}
    for key in (BLOCK_COUNT, *BEFORE_ROPE, *BEHIND_ROPE, *arch.keys):
        value = find(key.name)
        fact = arch.spelt.get(key.name, _SPELT.get(key.name, key.fact))
        config.key_of.setdefault(fact, f"{arch.gguf}.{key.name}")
        if value is not None:
            config[fact] = _word(key, value)
    for name in arch.fixed:
        find(name)
    if config["num_attention_heads"] > config["hidden_size"]:
        raise ParseError(f"{arch.gguf}.attention.head_count is more than embedding_length")
    n_layers = config["num_hidden_layers"]
    if n_layers > LAYERS_MAX:
        raise ParseError(f"{arch.gguf}.block_count is {n_layers:,}, more than {LAYERS_MAX}")
    lengths = {find("attention.key_length"), find("attention.value_length")} - {None}
    if len(lengths) > 1 and find("attention.key_length_mla") is None:
        raise ParseError("attention.key_length and value_length differ, which are one head_dim")
    return config


def needed(find: Find, name: str) -> Any:
    """Return a key's value."""
    value = find(name)
    if value is None:
        raise ParseError(f"the header has no *.{name}, which config.json needs")
    return value


def small_values(weight: Weight | None) -> NDArray[np.float32] | None:
    """Return what a small tensor has, in its own float32; None if it is another, or none."""
    if (
        weight is None
        or weight.own_dtype is not DTYPES["F32"]
        or prod(weight.shape) > _MOST_FACTORS
    ):
        return None
    values = np.frombuffer(weight.parts[0].read(), "<f4")
    return values.reshape(weight.shape) if values.size == prod(weight.shape) else None


def _word(key: Key, value: Any) -> Any:
    items = value if isinstance(value, list) else [value]
    if not all(type(item) in _KINDS[key.type] for item in items):
        given = shortened(repr(value))
        raise ParseError(f"*.{key.name} of the header is {given}, no {key.type}")
    if key.values is None:
        return value
    words = [word for word, number in key.values.items() if number == value]
    if not words:
        raise UnsupportedError(f"{key.name} is {value!r}, which config.json has no word for")
    return words[0]


def _rope(find: Any) -> dict[str, Any]:
    theta = find(_THETA)
    rope: dict[str, Any] = {"rope_theta": _UNSAID[_THETA] if theta is None else theta}
    kind = find("rope.scaling.type")
    rope["rope_type"] = "default" if kind in (None, "none") else kind
    factor = find("rope.scaling.factor")
    if factor is not None and kind not in (None, "none"):
        rope["factor"] = factor
    original = find(ORIGINAL)
    if original is not None:
        rope["original_max_position_embeddings"] = original
    for key, (fact, *_) in YARN.items():
        value = find(f"rope.scaling.{key}")
        if value is not None:
            rope[fact] = value
    ratio = find(ATTENTION_FACTOR) if kind in ("yarn", *LONGROPE) else None
    if kind in LONGROPE and ratio is not None:
        rope["attention_factor"] = ratio
    elif isinstance(ratio, float) and isinstance(factor, float) and "attention_factor" not in rope:
        rope["attention_factor"] = shortest(ratio * attention_scale(factor))
    sections = find("rope.dimension_sections")
    if sections is not None:
        while sections and sections[-1] == 0:
            sections.pop()
        rope["mrope_section"] = sections
    return rope


def longrope_facts(find: Find, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what config.json says of a rope by the factors of its tensors, if there are any."""
    found = {name: find(tensor) for tensor, name in LONG.items()}
    if any(values is None for values in found.values()):
        return {}
    rope = {**config["rope_parameters"], "rope_type": LONGROPE[0]}
    rope |= {name: shortest(values.tolist()) for name, values in found.items()}
    length = config["max_position_embeddings"]
    original = original_length({**rope, **config}, length)
    given = rope.pop("attention_factor", 1.0)
    if not math.isclose(given, longrope_scale(length / original, original), rel_tol=1e-6):
        rope["attention_factor"] = given
    return {"rope_parameters": rope}


def _match_factors(arch: Arch, config: dict[str, Any], weights: Mapping[str, Weight]) -> None:
    if arch.extra is not scaled_factors:
        return
    if config["rope_parameters"]["rope_type"] in LONGROPE:
        config |= longrope_facts(lambda name: small_values(weights.get(name)), config)
    stored = weights.get("rope_freqs.weight")
    if stored is None or config["rope_parameters"].get("rope_type") == "llama3":  # which is kept
        return
    given = small_values(stored)
    if given is None or given.ndim != 1 or not given.size:
        raise ParseError(f"rope_freqs.weight is no list of F32: {list(stored.shape)}")
    for preset in llama3_scalings(given):
        rope = {**config.get("rope_parameters", {}), **preset}
        facts = read_facts({**config, "rope_parameters": rope}, arch.model_type, arch.derived)
        if are_alike(given, llama3_factors(facts)["rope_freqs.weight"]):
            config["rope_parameters"] = rope
            return
    raise UnsupportedError(
        "rope_freqs.weight: these factors are of no scaling of Llama 3's that is known, so"
        " config.json cannot say them",
    )


def are_alike(given: NDArray[np.float32] | None, factors: NDArray[np.float32]) -> bool:
    """Return whether factors differ by no more than torch's powers are off, two units."""
    if given is None or given.shape != factors.shape:
        return False
    return bool(np.all(np.abs(given.view("<i4").astype(np.int64) - factors.view("<i4")) <= 2))
