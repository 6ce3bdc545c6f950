"""Llama, Mistral, Mixtral, Ministral 3 and Mistral Small 3."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from anamnesis.architectures.arch import Arch, Find, Key, Vocabulary
from anamnesis.architectures.conversion_operations import Permute
from anamnesis.architectures.model_facts import CONFIG, Facts, missing, real
from anamnesis.architectures.rope_factors import scaled_factors
from anamnesis.architectures.table import blocks
from anamnesis.architectures.table.experts import experts, stacks
from anamnesis.base.errors import UnsupportedError

PERMUTED = (
    blocks.layer("self_attn.q_proj", "attn_q", Permute("num_attention_heads")),
    blocks.layer(
        "self_attn.k_proj",
        "attn_k",
        Permute("num_key_value_heads"),
    ),
    *blocks.plain({"self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output"}),
)
BIASES = {"attention_bias": blocks.ATTENTION_BIASES, "mlp_bias": blocks.MLP_BIASES}
POOLING = Key("pooling_type", "pooling_type")
KEYS = (Key("vocab_size", "vocab_size"),)


def kv_heads(facts: Facts) -> Mapping[str, Any]:
    """Return as many key-value heads as there are heads."""
    return {"num_key_value_heads": facts.get("num_attention_heads")}


def head_dim(facts: Facts) -> Mapping[str, Any]:
    """Return what a head has if config.json does not say it, and as many key-value heads."""
    return {"head_dim": facts.head_dim, **kv_heads(facts)}


def rope_dimensions(facts: Facts) -> Mapping[str, Any]:
    """Return the values of a head that rotate: all."""
    return {"rope.dimension_count": {"type": "uint32", "value": facts.head_dim}}


def rotating(find: Find, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return nothing: transformers knows that all of a head rotates."""
    given = find("rope.dimension_count")
    head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    if given not in (None, head):
        raise UnsupportedError(
            f"{given} of {head} values of a head rotate, which config.json of"
            f" {config['model_type']} cannot say"
        )
    return {}


LLAMA = Arch(
    gguf="llama",
    hf=("LlamaForCausalLM", "LLaMAForCausalLM", "IQuestCoderForCausalLM"),
    model_type="llama",
    rules=(*blocks.OUTER, *blocks.NORMS, *PERMUTED, *blocks.MLP),
    keys=KEYS,
    computed=rope_dimensions,
    uncomputed=rotating,
    switches=BIASES,
    extra=scaled_factors,
    derived=head_dim,
    vocabulary=Vocabulary("llama"),
)
_MISTRAL = replace(LLAMA, hf=("MistralForCausalLM",), model_type="mistral", switches={})


_LOG_MULTIPLIER = "rope.scaling.yarn_log_multiplier"
_TEMPERATURE = "attention.temperature_scale"
_MSCALE = 1.0
# Keys, and what rope_parameters calls them.
_FURTHER = {_LOG_MULTIPLIER: "mscale_all_dim", _TEMPERATURE: "llama_4_scaling_beta"}


def _mistral3_keys(facts: Facts) -> Mapping[str, Any]:
    """Return llama's keys, and those of scaled attention, which Mistral Small 3 does not have."""
    keys = dict(rope_dimensions(facts))
    if facts.get("model_type") != "ministral3":
        return keys
    if facts.rope.get("mscale") != _MSCALE:
        raise UnsupportedError(
            f"{CONFIG}: rope_parameters.mscale is {facts.rope.get('mscale')!r}, and llama.cpp,"
            f" whose files cannot say it, takes {_MSCALE}"
        )
    for key, name in _FURTHER.items():
        if facts.rope.get(name) is None:
            raise missing(f"rope_parameters.{name}")
        keys[key] = {"type": "float32", "value": real(facts.rope, name, 0.0)}
    return keys


def _mistral3_config(find: Find, config: Mapping[str, Any]) -> Mapping[str, Any]:
    rotating(find, config)
    given = {name: find(key) for key, name in _FURTHER.items()}
    if None in given.values():
        return {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}
    rope = config["rope_parameters"]
    return {"rope_parameters": {**rope, **given, "mscale": _MSCALE}}


ARCHS = (
    LLAMA,
    _MISTRAL,
    replace(
        _MISTRAL,
        hf=("MixtralForCausalLM",),
        model_type="mixtral",
        rules=(
            *blocks.OUTER,
            *blocks.NORMS,
            *PERMUTED,
            *experts("block_sparse_moe", "w1", "w3", "w2"),
            *stacks("mlp"),
            blocks.layer("block_sparse_moe.gate", "ffn_gate_inp"),
            blocks.layer("mlp.gate", "ffn_gate_inp"),
        ),
        derived=kv_heads,
    ),
    replace(
        LLAMA,
        gguf="mistral3",
        hf=("Ministral3ForCausalLM", "Mistral3ForConditionalGeneration"),
        model_type="ministral3",
        computed=_mistral3_keys,
        uncomputed=_mistral3_config,
        switches={},
    ),
)
