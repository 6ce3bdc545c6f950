"""What llama.cpp computes otherwise than transformers, or does not load.

differences.json has a row for each: a fact of config.json that a GGUF cannot say; when llama.cpp
differs, in a word of `WHEN` or unless the fact has a value; what it does; and the facts that are
kept for the way back, where that is not the fact itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from anamnesis.architectures.arch import Arch
from anamnesis.architectures.model_facts import CONFIG, Facts, malformed, unsupported
from anamnesis.architectures.rope_factors import ENDS, LENGTHS, LONGROPE, scaled_factors
from anamnesis.base.errors import ParseError, UnsupportedError
from anamnesis.base.plain_json import json_table
from anamnesis.base.printable import shortened
from anamnesis.schemes.core.weight import Weight


class Case(NamedTuple):
    """A model: its row, its facts, its keys without the architecture's name, its tensors."""

    arch: Arch
    facts: Facts
    keys: Mapping[str, Any]
    weights: Mapping[str, Weight]

    def get(self, fact: str) -> Any:
        value = self.facts.get(fact)
        return self.facts.rope.get(fact) if value is None else value

    def key(self, name: str) -> Any:
        typed = self.keys.get(f"{self.arch.gguf}.{name}")
        return typed["value"] if isinstance(typed, Mapping) else typed


# By the end of the ramp, which one architecture alone reads.
_RAMP = {"beta_fast": 32, "beta_slow": 1}
_WINDOWED = frozenset(
    {
        *("mistral", "mixtral", "ministral3", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe"),
        *("starcoder2", "smollm3", "phi3"),
    }
)
_FROM_A_LAYER_ON = ("qwen2", "qwen3")
_SILU = ("silu", "swish")
_TANH = ("gelu_pytorch_tanh", "gelu_new", "gelu_fast", "gelu_accurate", "gelu_python_tanh")
_ERF = ("gelu", "gelu_python")
_UNSCALED = (None, "default", "mrope")


def _is_above(value: Any, least: int) -> bool:
    return type(value) is int and value > least


def _is_windowed(case: Case) -> bool:
    window, kind = case.get("sliding_window"), str(case.get("model_type") or case.arch.model_type)
    if kind not in _WINDOWED or case.get("use_sliding_window") is False:
        return False
    if not _is_above(window, 0) or not _is_above(case.key("context_length"), window):
        return False
    kinds, first = case.get("layer_types"), case.get("max_window_layers")
    if isinstance(kinds, list):
        return "sliding_attention" in kinds
    return kind not in _FROM_A_LAYER_ON or type(first) is not int or case.facts.n_layers > first


def _is_scaled_otherwise(case: Case) -> bool:
    kind = case.facts.rope.get("rope_type")
    if case.facts.local_rope.get("rope_type") not in _UNSCALED:
        return True
    if kind in _UNSCALED:
        return False
    if case.arch.gguf == "phi3":
        return kind not in (*LONGROPE, "yarn")  # the three are one for its class
    if kind in ("llama3", *LONGROPE):
        return case.arch.extra is not scaled_factors
    if kind == "proportional":
        return case.arch.gguf != "gemma4"
    return kind not in ("linear", "yarn") or case.key("rope.scaling.type") != kind


def _is_unusual(case: Case) -> bool:
    """Return whether factors are those of no scaling that the way back knows."""
    rope = case.facts.rope
    if rope.get("rope_type") != "llama3" or case.arch.extra is not scaled_factors:
        return False
    length = rope.get("original_max_position_embeddings", LENGTHS[0])
    return length not in LENGTHS or any(rope.get(name, n) != n for name, n in ENDS.items())


def _is_v2(case: Case) -> bool:
    return case.arch.model_type == "deepseek_v2"


def _is_yarn(case: Case) -> bool:
    return bool(case.key("rope.scaling.type") == "yarn")


def _is_rounded(case: Case) -> bool:
    return not _is_yarn(case) or case.facts.rope.get("truncate") is not False


def lacks_query_rank(facts: Facts) -> bool:
    """Return whether llama.cpp reads no q_lora_rank, by layers and tokens."""
    return facts.n_layers in (26, 27) or (facts.n_layers, facts.get("vocab_size")) == (48, 128256)


def _is_of_another_width(case: Case) -> bool:
    queries = case.weights.get("blk.0.attn_q.weight")
    return queries is not None and queries.shape[:1] != (case.key("embedding_length"),)


WHEN: Mapping[str, Callable[[Case, str], bool]] = {
    "is set": lambda case, fact: bool(case.get(fact)),
    "is not set": lambda case, fact: not case.get(fact),
    "is false": lambda case, fact: case.get(fact) is False,
    "is set in V2": lambda case, fact: _is_v2(case) and bool(case.get(fact)),
    "chooses groups in V2": lambda case, _: (
        _is_v2(case) and _is_above(case.key("expert_group_count"), 1)
    ),
    "is not silu": lambda case, fact: case.get(fact) not in (None, *_SILU),
    "is not gelu by tanh": lambda case, fact: case.get(fact) not in (None, *_TANH),
    "is no gelu": lambda case, fact: case.get(fact) not in (None, *_TANH, *_ERF),
    "is gelu by tanh": lambda case, fact: case.get(fact) in _TANH,
    "is windowed": lambda case, _: _is_windowed(case),
    "has a theta of windows": lambda case, _: (
        case.key("rope.freq_base_swa") not in (None, case.key("rope.freq_base"))
    ),
    "is scaled otherwise": lambda case, _: _is_scaled_otherwise(case),
    "is unusual": lambda case, _: _is_unusual(case),
    "is another ramp": lambda case, fact: (
        _is_yarn(case)
        and case.arch.gguf != "mistral3"
        and case.facts.rope.get(fact) not in (None, _RAMP[fact])
    ),
    "is not rounded": lambda case, _: case.arch.gguf != "gpt-oss" and not _is_rounded(case),
    "is not rounded by gpt-oss": lambda case, _: not _is_rounded(case),
    "is rounded": lambda case, _: _is_rounded(case) and _is_yarn(case),
    "is beside mscale": lambda case, fact: (
        case.facts.rope.get(fact) is not None
        and case.key("rope.scaling.yarn_log_multiplier") is not None
    ),
    "scales attention": lambda case, _: case.key("rope.scaling.attn_factor") is not None,
    "is without mscale": lambda case, _: (
        case.key("rope.scaling.type") is not None
        and case.key("rope.scaling.yarn_log_multiplier") is None
    ),
    "is not that of keys": lambda case, fact: case.get(fact) != case.get("linear_key_head_dim"),
    "is of a lite model": lambda case, _: (
        case.key("attention.q_lora_rank") not in (None, 0) and lacks_query_rank(case.facts)
    ),
    "leaves no head": lambda case, _: "output.weight" not in case.weights,
    "is of another width": lambda case, _: _is_of_another_width(case),
}


class Difference(NamedTuple):
    """A fact of config.json that a GGUF cannot say."""

    fact: str
    does: str
    archs: str = ""  # of all, if it is empty
    when: str = ""
    unless: Any = None
    loads: bool = True
    kept: str | None = None

    def is_of(self, case: Case) -> bool:
        if self.archs and case.arch.gguf not in self.archs.split():
            return False
        if self.when:
            return WHEN[self.when](case, self.fact)
        return case.get(self.fact) not in (None, self.unless)


DIFFERENCES = tuple(Difference(**row) for row in json_table(__file__))
# Those of which llama.cpp wants a head.
UNTIED = next(one.archs.split() for one in DIFFERENCES if one.when == "leaves no head")


KEPT = "anamnesis.config"  # a key of ours, with facts that llama.cpp's keys cannot say

_QKV = ("attn_q", "attn_k", "attn_v", "attn_qkv")


def computed_otherwise(
    arch: Arch, facts: Facts, keys: Mapping[str, Any], weights: Mapping[str, Weight]
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return what llama.cpp does otherwise, a sentence for each fact, and the key for the
    way back.
    """
    case = Case(arch, facts, keys, weights)
    unsaid = [
        fact
        for fact, tails in arch.switches.items()
        if fact and not facts.get(fact) and any(_ends(tail, weights) for tail in tails)
    ]
    found, kept = [], dict[str, Any]()
    for one in DIFFERENCES:
        if not one.is_of(case):
            continue
        value = shortened(json.dumps(case.get(one.fact), default=str))
        given = f"{one.fact} is {value}, and it {one.does}"
        if not one.loads:
            raise unsupported(f"llama.cpp does not load this: {given}")
        found += [given] if one.does else []
        kept |= _kept(case, [one.fact] if one.kept is None else one.kept.split())
    found += [f"{fact} is not set, and it adds the biases that are stored" for fact in unsaid]
    if not kept:
        return tuple(found), {}
    try:
        text = json.dumps(kept, allow_nan=False)
    except ValueError:
        raise malformed(f"{' or '.join(kept)} has a number that is none") from None
    return tuple(found), {KEPT: {"type": "string", "value": text}}


def _ends(tail: str, weights: Mapping[str, Weight]) -> bool:
    return tail.endswith(".bias") and any(name.endswith(f".{tail}") for name in weights)


def _kept(case: Case, facts: Sequence[str]) -> dict[str, Any]:
    given = {
        **case.facts.values,
        "architectures": [case.arch.hf[0]],
        "model_type": case.arch.model_type,
        "rope_parameters": case.facts.rope
        if not case.facts.local_rope
        else {"full_attention": case.facts.rope, "sliding_attention": case.facts.local_rope},
    }
    return {fact: given[fact] for fact in facts if given.get(fact) is not None}


def kept_facts(given: Any) -> dict[str, Any]:
    """Return the facts of config.json that a GGUF of ours keeps beside llama.cpp's keys."""
    try:
        found = json.loads(given, parse_constant=float)
        names = {fact for one in DIFFERENCES for fact in (one.kept or one.fact).split()}
        if isinstance(found, dict) and found.keys() <= names and json.dumps(found, allow_nan=False):
            return found
    except (TypeError, ValueError, RecursionError):
        pass
    raise ParseError(f"{KEPT} is no JSON object of facts that {CONFIG} may have")


def check_biases(
    arch: Arch, weights: Mapping[str, Weight], names: Mapping[str, tuple[str, ...]]
) -> None:
    """Refuse a bias that llama.cpp has no place for, with which it loads no file."""
    if arch.biases is None:  # nobody has looked
        return
    places = {*_QKV, *arch.biases}
    for name in weights:
        if name.endswith(".bias") and name.split(".")[-2] not in places:
            raise UnsupportedError(
                f"llama.cpp does not load this: {arch.gguf} has no place for the bias"
                f" {names[name][0]!r}"
            )
