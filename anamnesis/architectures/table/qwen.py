"""Qwen's models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from anamnesis.architectures.arch import Find, Naming
from anamnesis.architectures.model_facts import Facts, unsupported
from anamnesis.architectures.pooling import RANK
from anamnesis.architectures.table.bert import labelled, output_labels
from anamnesis.architectures.table.llama import kv_heads
from anamnesis.architectures.table.rows import ROWS

_CLASSIFIER = "Qwen3ForSequenceClassification"


class _Bare(Naming):
    """Names of a model that embeds texts, which are those of the decoder without its head."""

    def there(self, name: str, facts: Facts) -> str:
        """`layers.0.x` -> `model.layers.0.x`."""
        is_bare = name.startswith(("layers.", "embed_tokens.", "norm."))
        return f"model.{name}" if is_bare else name


def check_sparse(facts: Facts) -> Mapping[str, Any]:
    """Return nothing: each layer has experts."""
    for fact, value in (("decoder_sparse_step", 1), ("mlp_only_layers", [])):
        if facts.get(fact) not in (None, value):
            raise unsupported(
                f"{fact} is {facts.get(fact)!r}, and llama.cpp has experts in each layer"
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
    replace(ROWS["qwen2"], naming=_Bare(), derived=kv_heads),
    replace(ROWS["qwen2_moe"], computed=check_sparse, derived=kv_heads),
    replace(
        ROWS["qwen3"],
        computed=_ranking,
        uncomputed=_ranking_config,
        naming=_Bare(),
        derived=kv_heads,
    ),
    replace(ROWS["qwen3_moe"], computed=check_sparse, derived=kv_heads),
)
