"""Qwen's models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anamnesis.architectures.arch import Arch, Find, Key, Rule
from anamnesis.architectures.model_facts import CONFIG, Facts
from anamnesis.architectures.pooling import RANK
from anamnesis.architectures.table import blocks
from anamnesis.architectures.table.bert import labelled, output_labels
from anamnesis.architectures.table.experts import EXPERTS
from anamnesis.architectures.table.llama import POOLING, kv_heads
from anamnesis.base.errors import UnsupportedError

SHARED_EXPERT = blocks.plain(
    {
        "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
        "mlp.shared_expert.up_proj": "ffn_up_shexp",
        "mlp.shared_expert.down_proj": "ffn_down_shexp",
        "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    }
)
EXPERTS_SPELT = {"expert_count": "num_experts"}
EXPERT_KEYS = (
    Key("expert_feed_forward_length", "moe_intermediate_size"),
    Key("expert_shared_feed_forward_length", "shared_expert_intermediate_size"),
)


_CLASSIFIER = "Qwen3ForSequenceClassification"


@dataclass(frozen=True, slots=True)
class _Bare:
    """Names of a model that embeds texts, which are those of the decoder without its head."""

    def there(self, name: str, facts: Facts) -> str:
        """`layers.0.x` -> `model.layers.0.x`."""
        is_bare = name.startswith(("layers.", "embed_tokens.", "norm."))
        return f"model.{name}" if is_bare else name

    def back(self, name: str, facts: Facts) -> str:
        """Return the name: that of a decoder."""
        return name


def check_sparse(facts: Facts) -> Mapping[str, Any]:
    """Return nothing: each layer has experts."""
    for fact, value in (("decoder_sparse_step", 1), ("mlp_only_layers", [])):
        if facts.get(fact) not in (None, value):
            raise UnsupportedError(
                f"{CONFIG}: {fact} is {facts.get(fact)!r}, and llama.cpp has experts in each layer"
            )
    return {}


def _ranking(facts: Facts) -> Mapping[str, Any]:
    """Return the keys of a reranker: the head of one is cut, or it is a classifier."""
    if facts.get("pooling_type") != RANK and facts.get("architectures") != [_CLASSIFIER]:
        return {}
    return {"pooling_type": {"type": "uint32", "value": RANK}, **output_labels(facts)}


def _ranking_config(find: Find, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what makes a reranker a classifier, which is what is left of it."""
    if config.get("pooling_type") != RANK:
        return {}
    return {"architectures": [_CLASSIFIER], **labelled(find)}


ARCHS = (
    Arch(
        gguf="qwen2",
        hf=("Qwen2ForCausalLM", "Qwen2Model"),
        model_type="qwen2",
        rules=(*blocks.OUTER, *blocks.NORMS, *blocks.ATTENTION, *blocks.MLP),
        switches={"": blocks.QKV_BIASES},
        keys=(POOLING,),
        naming=_Bare(),
        pools=True,
        derived=kv_heads,
    ),
    Arch(
        gguf="qwen2moe",
        spelt=EXPERTS_SPELT,
        hf=("Qwen2MoeForCausalLM",),
        model_type="qwen2_moe",
        rules=(
            *blocks.OUTER,
            *blocks.NORMS,
            *blocks.ATTENTION,
            *EXPERTS,
            *SHARED_EXPERT,
        ),
        keys=EXPERT_KEYS,
        computed=check_sparse,
        config={"norm_topk_prob": False},  # as llama.cpp computes it
        switches={"qkv_bias": blocks.QKV_BIASES},
        derived=kv_heads,
    ),
    Arch(
        gguf="qwen3",
        hf=("Qwen3ForCausalLM", "Qwen3Model", _CLASSIFIER),
        model_type="qwen3",
        rules=(
            *blocks.OUTER,
            Rule("score", ("cls.output",)),
            *blocks.NORMS,
            *blocks.ATTENTION,
            *blocks.HEAD_NORMS,
            *blocks.MLP,
        ),
        groups={"cls.output": "all?"},  # of rerankers
        switches={"attention_bias": blocks.ATTENTION_BIASES},
        computed=_ranking,
        uncomputed=_ranking_config,
        keys=(POOLING,),
        naming=_Bare(),
        pools=True,
        ranks=True,
        derived=kv_heads,
    ),
    Arch(
        gguf="qwen3moe",
        spelt=EXPERTS_SPELT,
        hf=("Qwen3MoeForCausalLM",),
        model_type="qwen3_moe",
        rules=(*blocks.OUTER, *blocks.NORMS, *blocks.ATTENTION, *blocks.HEAD_NORMS, *EXPERTS),
        keys=EXPERT_KEYS[:1],
        computed=check_sparse,
        config={"norm_topk_prob": True},  # as llama.cpp computes it
        switches={"attention_bias": blocks.ATTENTION_BIASES},
        derived=kv_heads,
    ),
)
