"""Which weights libraries leave plain by name, and which linear layers they take."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Literal

from anamnesis.base.dtypes import DType
from anamnesis.schemes.core.layout import Shapes
from anamnesis.schemes.libraries.stacks import is_stack

Tool = Literal["transformers", "llm-compressor", "ModelOpt"]

# Modules that are no nn.Linear by their name, or that transformers and llm-compressor leave.
LEFT = {
    "embedding": re.compile(
        r"(^|[._])(embed\w*|wte|wpe|wide_embeddings|\w+_embeddings?|shared|token_embd"
        r"|relative_attention_bias|(pos|position|segment)_emb|position_encoding|codebook"
        r"|(iou|obj_score|presence|hq|audio_bos_eos)_token|mask_tokens|query_feat|prompt_ctx"
        r"|(embed_tokens|input_embeds_layers|point_embed|xpath_\w+_sub_embeddings)\.[0-9]+"
        r"|HashBucketCodepointEmbedder_[0-9]+|relative_attention_bias_layer\.bias_values"
        r"|embed_positions\.pe_k|reference_points|queries_features|freq_emb)$|^(transformer\.)?w$",
        re.IGNORECASE,
    ),
    "output head": re.compile(
        r"(^|\.)(lm_head|embed_out|score|classifier|lm_head\.(decoder|out_proj)|lm_heads\.[0-9]+"
        r"|(entity_)?predictions\.decoder|vocab_projector|output_projection|generator_lm_head|lm_loss"
        r"|audio_lm_head|pred_layer\.proj|unembedding_projection)$|^(transformer\.)?output_layer$"
        r"|^(output|proj_out|head|decoder|head\.decoder)$"
    ),
    # Its `_keep_in_fp32_modules`, which some layers need for what their code asks of a weight.
    "kept in float32 by transformers": re.compile(
        r"(^|\.)(DenseReluDense\.wo|indexer(\.scorer)?\.weights_proj"
        r"|compressor(\.indexer)?\.(kv|gate)_proj)$|(^|\.)(qformer|codec_model)\."
    ),
    "router": re.compile(
        r"(^|\.)(gate|router|shared_expert_gate|router\.(layer|classifier))(\.weight)?$"
    ),
    "norm": re.compile(r"norm\d*$|(^|\.)ln_\w+$", re.IGNORECASE),
}

# Linear layers with names like those of embeddings.
_NO_EMBEDDING = re.compile(
    r"(^|\.)(embedding_hidden_mapping_in|embeddings_project|entity_embedding_dense"
    r"|embedding_transformation|box_linear_embeddings|self_attn\.relative_pos_embeddings"
    r"|xpath_unitseq2_embeddings|patch_embedding_projection|vision_embed_tokens"
    r"|inputs_embeds_projector)$"
)
# What a tool takes of those all the same. Of an encoding that other programs load as well, it is
# what they load: vLLM's classifiers and gates of shared experts are plain.
_TAKEN: dict[Tool, re.Pattern[str]] = {
    "transformers": re.compile(r"(^|\.)(score|(?<!router\.)classifier|shared_expert_gate)$"),
    "llm-compressor": re.compile(r"(^|\.)DenseReluDense\.wo$"),
    "ModelOpt": re.compile(r"(^|\.)DenseReluDense\.wo$"),
}
# A layer of a block that repeats: where these lie, and its name in there.
IN_BLOCK = re.compile(r"(.*?)\.[0-9]+\.(.+)")
_NUMBER = re.compile(r"\.[0-9]+(?=\.)")
_OUT = ".out_proj.weight"
_LAST = re.compile(r"(^|\.)(score|classifier)\.weight$")
_PROJECTIONS = ("text_projection.weight", "visual_projection.weight")  # CLIP's, in their order


def linear_refusal(
    name: str, shape: tuple[int, ...], dtype: DType, tool: Tool | None = None
) -> str | None:
    """Return why a weight does not belong to an nn.Linear that a library quantises, by its name."""
    # transformers, llm-compressor and ModelOpt ask a module for its class; a file has only names.
    # Output heads are nn.Linear, but left as they are by all (`get_keys_to_not_convert`; `ignore`
    # of llm-compressor's recipes; ModelOpt's `default_disabled_quantizers`). `tool` is the one
    # whose rule it is; without it, all of `LEFT` is left.
    if is_stack(name, shape):
        return "a stack of experts"
    module = alike(name.removesuffix(".weight"))
    return refusal(name, shape, dtype, (), 2) or _left_as(module, tool)


def alike(name: str) -> str:
    """Return a name that a layer shares with its like in all blocks and of all experts."""
    return _NUMBER.sub(".0", name)


@lru_cache(maxsize=4096)  # a model has many weights, but few kinds of them
def _left_as(module: str, tool: Tool | None) -> str | None:
    """Return which of `LEFT` a module is, if a tool does not take it."""
    if tool is not None and _TAKEN[tool].search(module):
        return None
    is_layer = _NO_EMBEDDING.search(module) is not None
    kinds = (what for what in LEFT if LEFT[what].search(module))
    return next((what for what in kinds if not (is_layer and what == "embedding")), None)


def left_by_class(shapes: Shapes, tool: Tool) -> dict[str, str]:
    """Return the weights that a tool leaves, and why, by what other weights a model has."""
    # torch's MultiheadAttention has a class of its own for one of its layers. transformers leaves
    # the last layer of a model if it ends in a weight, and not in a bias.
    inner = [name for name in shapes if name.endswith(_OUT)]
    found = {
        name: "a part of torch's MultiheadAttention"
        for name in inner
        if f"{name.removesuffix(_OUT)}.in_proj_weight" in shapes and tool != "ModelOpt"
    }
    if tool == "transformers":
        last = [name for name in shapes if _LAST.search(name)]
        last += [name for name in _PROJECTIONS if name in shapes][:1]
        ends = [name for name in last if f"{name.removesuffix('weight')}bias" not in shapes]
        found |= dict.fromkeys(ends, "the last layer, without a bias")
    return found


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
    """Return the modules that were left plain, an output head among them in any case."""
    # One that is tied to an embedding is in no file. It has to be named all the same, or programs
    # make a quantised layer of it and miss its scales.
    has_one = any(f"{name}.".startswith("lm_head.") for name in plain)
    return [*plain, *([] if has_one else ["lm_head"])]
