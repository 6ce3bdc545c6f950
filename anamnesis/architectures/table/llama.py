"""Llama, Mistral and Mixtral."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from anamnesis.architectures.arch import Arch, Find, Key, Vocabulary
from anamnesis.architectures.model_facts import Facts
from anamnesis.architectures.rope_factors import scaled_factors
from anamnesis.architectures.rule_operations import Permute
from anamnesis.architectures.table.blocks import (
    ATTENTION_BIASES,
    MLP,
    MLP_BIASES,
    NORMS,
    OUTER,
    experts,
    layer,
    plain,
    stacks,
)
from anamnesis.base.errors import UnsupportedError

PERMUTED = (
    layer("self_attn.q_proj", "attn_q", Permute("num_attention_heads")),
    layer(
        "self_attn.k_proj",
        "attn_k",
        Permute("num_key_value_heads"),
    ),
    *plain({"self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output"}),
)
BIASES = {"attention_bias": ATTENTION_BIASES, "mlp_bias": MLP_BIASES}
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
    rules=(*OUTER, *NORMS, *PERMUTED, *MLP),
    keys=KEYS,
    computed=rope_dimensions,
    uncomputed=rotating,
    switches=BIASES,
    extra=scaled_factors,
    derived=head_dim,
    vocabulary=Vocabulary("llama"),
)
_MISTRAL = replace(LLAMA, hf=("MistralForCausalLM",), model_type="mistral", switches={})
ARCHS = (
    LLAMA,
    _MISTRAL,
    replace(
        _MISTRAL,
        hf=("MixtralForCausalLM",),
        model_type="mixtral",
        rules=(
            *OUTER,
            *NORMS,
            *PERMUTED,
            *experts("block_sparse_moe", "w1", "w3", "w2"),
            *stacks("mlp"),
            layer("block_sparse_moe.gate", "ffn_gate_inp"),
            layer("mlp.gate", "ffn_gate_inp"),
        ),
        derived=kv_heads,
    ),
)
