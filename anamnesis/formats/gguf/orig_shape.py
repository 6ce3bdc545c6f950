"""`comfy.gguf.orig_shape`: shapes of tensors that lie in rows of whole blocks."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

from anamnesis.base.source import Source
from anamnesis.base.stored import StoredTensor
from anamnesis.formats.gguf.limits import GGUF_MAX_DIMS
from anamnesis.formats.gguf.metadata import GgufMetadata

SHAPE_KEY = "comfy.gguf.orig_shape."  # ComfyUI-GGUF's


def own_shapes(
    metadata: GgufMetadata, tensors: Iterable[StoredTensor], source: Source
) -> dict[str, tuple[int, ...]]:
    """Return the shapes of tensors whose rows were cut anew, so that they are whole blocks."""
    given = {key.removeprefix(SHAPE_KEY) for key in metadata if key.startswith(SHAPE_KEY)}
    shapes = {}
    for tensor in tensors if given else ():
        if tensor.name not in given:
            continue
        key = SHAPE_KEY + tensor.name
        shape: Any = metadata[key] if (metadata.n_items(key) or 0) <= GGUF_MAX_DIMS else None
        is_shape = isinstance(shape, list) and all(type(n) is int and n >= 0 for n in shape)
        if not is_shape or prod(shape) != tensor.n_elements:
            raise source.error(
                f"{key} must be the shape of as many values as {tensor.describe()} has, not"
                f" {shape if is_shape else metadata.fields[key].describe()}"
            )
        shapes[tensor.name] = tuple(shape)
    return shapes
