"""Whose a GGUF is: llama.cpp's, or of the programs of image models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from anamnesis.checkpoint.open import Checkpoint
from anamnesis.convert.request.request import Request
from anamnesis.formats.gguf.read import ARCHITECTURE_KEY
from anamnesis.formats.gguf.values import text_of


def architecture_of(checkpoint: Checkpoint, request: Request) -> str | None:
    """Return the architecture that the header will say, as far as a GGUF or the user says it."""
    of_gguf = (c.metadata for c in checkpoint.shards.values() if c.id == "gguf")
    told = (text_of(metadata, ARCHITECTURE_KEY) for metadata in (request.metadata, *of_gguf))
    return next(filter(None, told), None)


def is_gguf_of_llama_cpp(checkpoint: Checkpoint) -> bool:
    """Return whether a model is a GGUF of those that llama.cpp runs."""
    first, *_ = checkpoint.shards.values()
    return first.id == "gguf" and is_of_llama_cpp(first.metadata, checkpoint.stored)


def is_of_llama_cpp(metadata: Mapping[str, Any], names: Iterable[str]) -> bool:
    """Return whether a GGUF is of a model that llama.cpp runs, and not of images or the like."""
    from anamnesis.architectures.rows import is_known
    from anamnesis.architectures.to_gguf import has_gguf_names
    from anamnesis.schemes.families.ggml.mixes import KEPT_OF_IMAGES

    is_of_images = metadata.get(ARCHITECTURE_KEY) in {*KEPT_OF_IMAGES, "clip"}
    return is_known(metadata) or (has_gguf_names(names) and not is_of_images)
