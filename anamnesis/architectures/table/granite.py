"""IBM's Granite, dense and with experts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from anamnesis.architectures.arch import Key
from anamnesis.architectures.model_facts import Facts
from anamnesis.architectures.rule_operations import Halves
from anamnesis.architectures.table.blocks import NORMS, OUTER, apart, layer
from anamnesis.architectures.table.llama import BIASES, KEYS, LLAMA, PERMUTED, kv_heads

_KEYS = (
    *KEYS,
    Key("attention.scale", "attention_multiplier", "float32"),
    Key("embedding_scale", "embedding_multiplier", "float32"),
    Key("residual_scale", "residual_multiplier", "float32"),
    Key("logit_scale", "logits_scaling", "float32"),
)
_SHARED_KEY = Key("expert_shared_feed_forward_length", "shared_intermediate_size")
_EXPERTS = (
    apart("block_sparse_moe.input_linear", ("ffn_gate_exps", "ffn_up_exps"), Halves()),
    layer("block_sparse_moe.output_linear", "ffn_down_exps"),
    layer("block_sparse_moe.router.layer", "ffn_gate_inp"),
)
_SHARED = (
    apart("shared_mlp.input_linear", ("ffn_gate_shexp", "ffn_up_shexp"), Halves()),
    layer("shared_mlp.output_linear", "ffn_down_shexp"),
)


def _heads(facts: Facts) -> Mapping[str, Any]:
    """Return what a head has; transformers' class has no head_dim, whatever config.json says."""
    head_dim = facts.number("hidden_size") // facts.number("num_attention_heads")
    return {
        "rope.dimension_count": {"type": "uint32", "value": head_dim},
        "attention.key_length": None,
        "attention.value_length": None,
    }


_GRANITE = replace(
    LLAMA,
    gguf="granite",
    hf=("GraniteForCausalLM",),
    model_type="granite",
    keys=_KEYS,
    computed=_heads,
    derived=kv_heads,
)
_MOE = replace(
    _GRANITE,
    gguf="granitemoe",
    hf=("GraniteMoeForCausalLM",),
    model_type="granitemoe",
    rules=(*OUTER, *NORMS, *PERMUTED, *_EXPERTS),
    switches={"attention_bias": BIASES["attention_bias"]},
)
ARCHS = (
    _GRANITE,
    _MOE,
    replace(
        _MOE,
        hf=("GraniteMoeSharedForCausalLM",),
        model_type="granitemoeshared",
        rules=(*_MOE.rules, *_SHARED),
        keys=(*_KEYS, _SHARED_KEY),
    ),
)
