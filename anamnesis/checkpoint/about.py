"""What a language model says of itself: architecture, context, vocabulary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from anamnesis.formats.base import Container, TypedMetadata

# In config.json, by llama.cpp's converter's order of preference.
CONTEXT_LENGTH = (
    *("max_position_embeddings", "n_ctx", "n_positions", "max_length"),
    *("max_sequence_length", "model_max_length"),
)
_TOKENS = "tokenizer.ggml.tokens"


class About(NamedTuple):
    """Three facts of a header or a config.json, each None where it is not said."""

    architecture: str | None = None
    context_length: int | None = None
    n_vocabulary: int | None = None


def about(containers: Iterable[Container], config: Mapping[str, Any]) -> About:
    """Return what the header of a GGUF says, or what config.json does; no array is read."""
    first = next(iter(containers))
    return _of_gguf(first.metadata) if first.id == "gguf" else _of_config(config)


def _of_gguf(metadata: Mapping[str, Any]) -> About:
    name = _text(metadata.get("general.architecture"))
    n_tokens = metadata.n_items(_TOKENS) if isinstance(metadata, TypedMetadata) else None
    return About(
        name,
        _count(metadata.get(f"{name}.context_length")),
        n_tokens or _count(metadata.get(f"{name}.vocab_size")),
    )


def _of_config(config: Mapping[str, Any]) -> About:
    classes = config.get("architectures")
    name = _text(classes[0]) if isinstance(classes, list) and classes else None
    text = config.get("text_config")
    told = {**config, **text} if isinstance(text, Mapping) else config
    lengths = (_count(told.get(fact)) for fact in CONTEXT_LENGTH)
    return About(
        name or _text(config.get("model_type")),
        next(filter(None, lengths), None),
        _count(told.get("vocab_size")),
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _count(value: Any) -> int | None:
    return value if type(value) is int and value > 0 else None
