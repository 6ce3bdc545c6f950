"""What llama.cpp computes otherwise than transformers, and what it does not load."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from anamnesis.architectures.arch import Arch
from anamnesis.architectures.differences import DIFFERENCES, Case
from anamnesis.architectures.model_facts import CONFIG, Facts
from anamnesis.base.errors import ParseError, UnsupportedError
from anamnesis.base.printable import shortened
from anamnesis.schemes.core.weight import Weight

KEPT = "anamnesis.config"  # a key of ours, with facts that llama.cpp's keys cannot say

# Tensors that have a bias, beside queries, keys and values; no key: nobody has looked.
_QKV = ("attn_q", "attn_k", "attn_v", "attn_qkv")
_GATED = ("attn_output", "ffn_gate", "ffn_up", "ffn_down")
_OF_EXPERTS = ("exp_probs_b",)
_OF_STATES = ("ssm_dt",)
_BIASES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("llama", "mistral3", "granite", "granitemoe"), _GATED),
    **dict.fromkeys(("deepseek2", "glm4moe", "lfm2", "lfm2moe"), _OF_EXPERTS),
    **dict.fromkeys(("qwen3next", "qwen35", "qwen35moe"), _OF_STATES),
    **dict.fromkeys(("qwen2moe", "qwen3", "qwen3moe", "smollm3", "seed_oss", "cohere2"), ()),
    **dict.fromkeys(("gemma2", "gemma3", "gemma4", "phi3", "olmo2"), ()),
    "qwen2": ("output",),
    "ernie4_5": ("attn_output",),
    "stablelm": ("output_norm", "attn_norm", "ffn_norm"),
    "starcoder2": (
        *("attn_output", "ffn_up", "ffn_down"),
        *("output_norm", "attn_norm", "ffn_norm"),
    ),
    "gpt-oss": (
        *("attn_output", "ffn_gate_inp"),
        *("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"),
    ),
}


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
        if (one.archs and arch.gguf not in one.archs.split()) or not one.differs(case):
            continue
        value = shortened(json.dumps(case.get(one.fact), default=str))
        given = f"{one.fact} is {value}, and it {one.does}"
        if not one.loads:
            raise UnsupportedError(f"{CONFIG}: llama.cpp does not load this: {given}")
        found += [given] if one.does else []
        kept |= _kept(case, (one.fact,) if one.kept is None else one.kept)
    found += [f"{fact} is not set, and it adds the biases that are stored" for fact in unsaid]
    if not kept:
        return tuple(found), {}
    try:
        text = json.dumps(kept, allow_nan=False)
    except ValueError:
        raise ParseError(f"{' or '.join(kept)} has a number that is none", source=CONFIG) from None
    return tuple(found), {KEPT: {"type": "string", "value": text}}


def _ends(tail: str, weights: Mapping[str, Weight]) -> bool:
    return tail.endswith(".bias") and any(name.endswith(f".{tail}") for name in weights)


def _kept(case: Case, facts: tuple[str, ...]) -> dict[str, Any]:
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
        names = {fact for one in DIFFERENCES for fact in one.kept or (one.fact,)}
        if isinstance(found, dict) and found.keys() <= names and json.dumps(found, allow_nan=False):
            return found
    except (TypeError, ValueError, RecursionError):
        pass
    raise ParseError(f"{KEPT} is no JSON object of facts that {CONFIG} may have")


def check_biases(
    arch: Arch, weights: Mapping[str, Weight], names: Mapping[str, tuple[str, ...]]
) -> None:
    """Refuse a bias that llama.cpp has no place for, with which it loads no file."""
    known = _BIASES.get(arch.gguf)
    if known is None:
        return
    places = {*_QKV, *known}
    for name in weights:
        if name.endswith(".bias") and name.split(".")[-2] not in places:
            raise UnsupportedError(
                f"llama.cpp does not load this: {arch.gguf} has no place for the bias"
                f" {names[name][0]!r}"
            )
