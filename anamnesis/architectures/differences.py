"""What llama.cpp computes otherwise than transformers, or does not load."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from anamnesis.architectures.arch import Arch
from anamnesis.architectures.model_facts import CONFIG, Facts, malformed, unsupported
from anamnesis.architectures.rope_factors import ENDS, LENGTHS, LONGROPE, scaled_factors
from anamnesis.base.errors import ParseError, UnsupportedError
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


class Difference(NamedTuple):
    """A fact of config.json that a GGUF cannot say."""

    fact: str
    archs: str
    differs: Callable[[Case], bool]
    does: str
    loads: bool = True
    kept: tuple[str, ...] | None = None


UNTIED = ("qwen2moe", "olmo2", "stablelm", "gpt-oss")  # of which llama.cpp wants a head
_ROPE = ("rope_parameters",)
_WINDOW = ("sliding_window", "use_sliding_window", "max_window_layers", "layer_types")
_WINDOWS = {  # what the way back needs of them
    "llama": ("architectures", "model_type", *_WINDOW),  # Llama's own class has none
    "mistral3 qwen2 qwen2moe qwen3 qwen3moe starcoder2 smollm3": _WINDOW,
    "phi3": (),  # whose header says it
}
_RAMP = {"beta_fast": 32, "beta_slow": 1}
_ROUNDS = "rounds the ends of YaRN's ramp"
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
_BY_TANH = "takes gelu by tanh"
_SILU_ARCHS = (
    "llama mistral3 qwen2 qwen2moe qwen3 qwen3moe qwen3next qwen35 qwen35moe phi3 deepseek2"
    " glm4moe granite granitemoe olmo2 smollm3 seed_oss ernie4_5 cohere2 stablelm"
)
_AS_WIDE = "qwen2 qwen2moe olmo2 cohere2 stablelm starcoder2 phi3 lfm2 lfm2moe"
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


def _is_yarn(case: Case) -> bool:
    return bool(case.key("rope.scaling.type") == "yarn")


def _has_another_ramp(fact: str, case: Case) -> bool:
    """Return whether YaRN's ramp begins or ends elsewhere, which one architecture alone reads."""
    given = case.facts.rope.get(fact)
    return _is_yarn(case) and case.arch.gguf != "mistral3" and given not in (None, _RAMP[fact])


def _is_rounded(case: Case) -> bool:
    return not _is_yarn(case) or case.facts.rope.get("truncate") is not False


def _is_lite(case: Case) -> bool:
    """Return whether llama.cpp takes a DeepSeek to be one of those without rank of queries."""
    return case.key("attention.q_lora_rank") not in (None, 0) and lacks_query_rank(case.facts)


def lacks_query_rank(facts: Facts) -> bool:
    """Return whether llama.cpp reads no q_lora_rank, by layers and tokens."""
    return facts.n_layers in (26, 27) or (facts.n_layers, facts.get("vocab_size")) == (48, 128256)


def _is_of_another_width(case: Case) -> bool:
    queries = case.weights.get("blk.0.attn_q.weight")
    return queries is not None and queries.shape[:1] != (case.key("embedding_length"),)


def _unless(
    fact: str, archs: str, values: Sequence[Any], does: str, loads: bool = True
) -> Difference:
    """Return the difference of a fact that is given, and none of these values."""
    return Difference(fact, archs, lambda case: case.get(fact) not in (None, *values), does, loads)


DIFFERENCES = (
    Difference(
        "norm_topk_prob",
        "qwen2moe",
        lambda case: bool(case.get("norm_topk_prob")),
        "does not norm the weights of a token's experts",
    ),
    Difference(
        "norm_topk_prob",
        "qwen3moe qwen3next",
        lambda case: not case.get("norm_topk_prob"),
        "norms the weights of a token's experts",
    ),
    Difference(
        "norm_topk_prob",
        "deepseek2",
        lambda case: case.arch.model_type == "deepseek_v2" and bool(case.get("norm_topk_prob")),
        "norms the weights of a token's experts",
        kept=(),
    ),
    Difference(
        "use_bidirectional_attention",
        "gemma3",
        lambda case: bool(case.get("use_bidirectional_attention")),
        "lets a token see those before it alone",
    ),
    Difference(
        "tie_word_embeddings",
        "gemma2",
        lambda case: case.get("tie_word_embeddings") is False,
        "takes the embedding for the head",
    ),
    Difference(
        "n_group",
        "deepseek2",
        lambda case: (
            case.arch.model_type == "deepseek_v2" and _is_above(case.key("expert_group_count"), 1)
        ),
        "chooses groups of experts by their two best, not by their best",
        kept=(),
    ),
    _unless("hidden_act", _SILU_ARCHS, _SILU, "takes silu"),
    _unless("hidden_act", "starcoder2", _TANH, _BY_TANH),
    _unless("hidden_act", "bert", (*_TANH, *_ERF), _BY_TANH),
    Difference("hidden_act", "bert", lambda case: case.get("hidden_act") in _TANH, ""),
    _unless("hidden_activation", "gemma2 gemma3 gemma4", _TANH, _BY_TANH),
    _unless("swiglu_limit", "gpt-oss", (7,), "clamps at 7"),
    _unless("swiglu_alpha", "gpt-oss", (1.702,), "takes 1.702"),
    *(
        Difference(
            "sliding_window", archs, _is_windowed, "lets each token see all before it", kept=kept
        )
        for archs, kept in _WINDOWS.items()
    ),
    Difference(
        "rope_parameters",
        "olmo2",
        lambda case: case.key("rope.freq_base_swa") not in (None, case.key("rope.freq_base")),
        "takes the rope_theta of full attention in each layer",
        kept=(),
    ),
    Difference(
        "rope_type",
        "",
        _is_scaled_otherwise,
        "does not scale frequencies so in this architecture",
        kept=_ROPE,
    ),
    Difference("rope_type", "", _is_unusual, "", kept=_ROPE),
    *(
        Difference(fact, "", partial(_has_another_ramp, fact), f"takes {n}", kept=())
        for fact, n in _RAMP.items()
    ),
    Difference(
        "truncate",
        "",
        lambda case: case.arch.gguf != "gpt-oss" and not _is_rounded(case),
        _ROUNDS,
        kept=_ROPE,
    ),
    Difference("truncate", "gpt-oss", lambda case: not _is_rounded(case), _ROUNDS, kept=()),
    Difference(
        "truncate", "gpt-oss", lambda case: _is_rounded(case) and _is_yarn(case), "", kept=_ROPE
    ),
    Difference(
        "attention_factor",
        "deepseek2 mistral3",
        lambda case: (
            case.facts.rope.get("attention_factor") is not None
            and case.key("rope.scaling.yarn_log_multiplier") is not None
        ),
        "takes what mscale gives",
        kept=_ROPE,
    ),
    Difference(
        "attention_factor",
        "gemma3",
        lambda case: case.key("rope.scaling.attn_factor") is not None,
        "scales the attention of windows by it, too",
        kept=(),
    ),
    Difference(
        "factor",
        "deepseek2",
        lambda case: (
            case.key("rope.scaling.type") is not None
            and case.key("rope.scaling.yarn_log_multiplier") is None
        ),
        "scales all of attention by it, if there is no mscale_all_dim",
        kept=(),
    ),
    Difference(
        "linear_value_head_dim",
        "qwen3next qwen35 qwen35moe",
        lambda case: case.get("linear_value_head_dim") != case.get("linear_key_head_dim"),
        "takes it to be linear_key_head_dim",
        loads=False,
    ),
    _unless(
        "moe_layer_freq",
        "deepseek2",
        (1,),
        "wants experts in all layers behind the first dense ones",
        loads=False,
    ),
    Difference("q_lora_rank", "deepseek2", _is_lite, "takes it to be null", loads=False),
    Difference(
        "use_bias",
        "starcoder2",
        lambda case: case.get("use_bias") is False,
        "wants biases",
        loads=False,
    ),
    Difference(
        "tie_word_embeddings",
        " ".join(UNTIED),
        lambda case: "output.weight" not in case.weights,
        "wants a head (output.weight)",
        loads=False,
    ),
    Difference(
        "head_dim",
        _AS_WIDE,
        _is_of_another_width,
        "takes all heads together to be as wide as hidden_size",
        loads=False,
    ),
)


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
        if (one.archs and arch.gguf not in one.archs.split()) or not one.differs(case):
            continue
        value = shortened(json.dumps(case.get(one.fact), default=str))
        given = f"{one.fact} is {value}, and it {one.does}"
        if not one.loads:
            raise unsupported(f"llama.cpp does not load this: {given}")
        found += [given] if one.does else []
        kept |= _kept(case, (one.fact,) if one.kept is None else one.kept)
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
    if arch.biases is None:  # nobody has looked
        return
    places = {*_QKV, *arch.biases}
    for name in weights:
        if name.endswith(".bias") and name.split(".")[-2] not in places:
            raise UnsupportedError(
                f"llama.cpp does not load this: {arch.gguf} has no place for the bias"
                f" {names[name][0]!r}"
            )
