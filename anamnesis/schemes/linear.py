"""Which weights are those of linear layers that quantising libraries take, by their names."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from anamnesis.base.dtypes import DType
from anamnesis.schemes.stacks import is_stack

__all__ = ["LEFT", "T5_WO", "linear_refusal", "refusal", "with_head"]

T5_WO = "T5's wo, kept in float32 by transformers"

# Modules that are no nn.Linear by their name, or that transformers and llm-compressor leave.
LEFT = {
    "embedding": re.compile(
        r"(^|[._])(embed\w*|wte|wpe|wide_embeddings|\w+_embeddings?|shared|token_embd"
        r"|relative_attention_bias|(pos|position|segment)_emb|position_encoding|codebook"
        r"|(iou|obj_score|presence|hq|audio_bos_eos)_token|mask_tokens|query_feat|prompt_ctx)$",
        re.IGNORECASE,
    ),
    "output head": re.compile(
        r"(^|\.)(lm_head|embed_out|output|output_layer|score|classifier|lm_head\.(decoder|out_proj)"
        r"|(entity_)?predictions\.decoder|vocab_projector|output_projection|generator_lm_head|lm_loss"
        r"|pred_layer\.proj|unembedding_projection)$|^(proj_out|head|decoder|head\.decoder)$"
    ),
    # Its `_keep_in_fp32_modules`, which some layers need for what their code asks of a weight.
    T5_WO: re.compile(r"(^|\.)DenseReluDense\.wo$"),
    "kept in float32 by transformers": re.compile(
        r"(^|\.)(indexer(\.scorer)?\.weights_proj"
        r"|compressor(\.indexer)?\.(kv|gate)_proj)$|(^|\.)(qformer|codec_model)\."
    ),
    "router": re.compile(r"(^|\.)(gate|router|shared_expert_gate|router\.layer)(\.weight)?$"),
    "norm": re.compile(r"norm\d*$|(^|\.)ln_\w+$", re.IGNORECASE),
}


def linear_refusal(
    name: str, shape: tuple[int, ...], dtype: DType, left: Collection[str] = tuple(LEFT)
) -> str | None:
    """Return why a weight is not that of an nn.Linear which a library would quantise, by its name.

    transformers and llm-compressor ask a module for its class; a file has only names. Output heads
    and routers are nn.Linear, but left as they are by both (`get_keys_to_not_convert`; `ignore` of
    llm-compressor's recipes). `left` are those of `LEFT` that the library leaves.
    """
    if is_stack(name, shape):
        return "a stack of experts"
    return refusal(name, shape, dtype, left, 2)


def refusal(
    name: str, shape: tuple[int, ...], dtype: DType, left: Collection[str], n_dims: int
) -> str | None:
    """Return why a weight is none of so many dimensions whose module none of `left` has."""
    module, _, last = name.rpartition(".")
    if last != "weight":
        return "not called a weight"
    if dtype.kind != "float":
        return dtype.name
    if len(shape) != n_dims:
        return "not a matrix"
    if 0 in shape:
        return "no values"
    return next((what for what in left if LEFT[what].search(module)), None)


def with_head(plain: Sequence[str]) -> list[str]:
    """Return the modules that were left plain, an output head among them in any case.

    One that is tied to an embedding is in no file. It has to be named all the same, or programs
    make a quantised layer of it and miss its scales.
    """
    has_one = any(f"{name}.".startswith("lm_head.") for name in plain)
    return [*plain, *([] if has_one else ["lm_head"])]
