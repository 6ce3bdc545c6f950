"""Which weights are those of linear layers that quantising libraries take, by their names."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from anamnesis.base.dtypes import DType
from anamnesis.schemes.stacks import is_stack

__all__ = ["LEFT", "linear_refusal", "mlx_refusal", "with_head"]

# Modules that are no nn.Linear by their name, or that transformers and llm-compressor leave.
LEFT = {
    "embedding": re.compile(
        r"(^|[._])(embed\w*|wte|wpe|wide_embeddings|\w+_embeddings?|shared|token_embd)$",
        re.IGNORECASE,
    ),
    "output head": re.compile(r"(^|\.)(lm_head|embed_out|output|output_layer|score|classifier)$"),
    "router": re.compile(r"(^|\.)(gate|router|shared_expert_gate)(\.weight)?$"),
    "norm": re.compile(r"norm\d*$|(^|\.)ln_\w+$", re.IGNORECASE),
}

# mlx-lm's layers of several matrices, one for each expert.
_SWITCH = re.compile(r"(^|\.)(switch_\w+|experts)\.\w+\.weight$")


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
    return _refusal(name, shape, dtype, left, 2)


def mlx_refusal(name: str, shape: tuple[int, ...], dtype: DType) -> str | None:
    """Return why mlx-lm's `quantize_model` leaves a weight, as far as its name tells.

    It takes every linear layer and embedding, heads among them, and the stacks of experts of its
    `SwitchLinear` layers. Routers it writes in 8 bits, or does not quantise, according to the
    model's class.
    """
    is_stack = len(shape) == 3 and _SWITCH.search(name) is not None
    return _refusal(name, shape, dtype, ("router", "norm"), 3 if is_stack else 2)


def _refusal(
    name: str, shape: tuple[int, ...], dtype: DType, left: Collection[str], n_dims: int
) -> str | None:
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
    return [*plain, *(["lm_head"] if "lm_head" not in plain else [])]
