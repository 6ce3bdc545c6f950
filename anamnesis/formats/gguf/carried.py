"""The header of a GGUF model in the metadata of a safetensors file, and back.

`__metadata__` holds text only, so it has the keys with their types and all arrays as `gguf.header`:
a GGUF file without tensors, in base64. The way back reads that, whatever other keys say.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from anamnesis.base.errors import ParseError
from anamnesis.base.limits import Budget, ParseLimits
from anamnesis.formats.base import CARRIED_HEADER
from anamnesis.formats.gguf.metadata import GgufMetadata
from anamnesis.formats.gguf.read import parse
from anamnesis.formats.gguf.split import SPLIT_KEYS
from anamnesis.formats.gguf.values import merged
from anamnesis.formats.gguf.write import GgufWriter
from anamnesis.formats.magic import GGUF_MAGIC
from anamnesis.sources.memory import BufferSource


def header_text(metadata: GgufMetadata, said: Mapping[str, Any]) -> dict[str, str]:
    """Return a file's keys as an entry of `__metadata__`, with what is said of them instead."""
    keys = [key for key in metadata if key not in SPLIT_KEYS]
    if not keys:
        return {}
    values = merged(metadata, {key: said[key] for key in keys if key in said})
    layout = GgufWriter().lay_out([], values)
    ((_, header),) = layout.fixed
    return {CARRIED_HEADER: base64.b64encode(header.ljust(layout.n_bytes, b"\0")).decode()}


def header_of(metadata: Mapping[str, Any], where: str, limits: ParseLimits) -> GgufMetadata | None:
    """Return the keys that `__metadata__` carries; None if it carries none."""
    text = metadata.get(CARRIED_HEADER)
    if not isinstance(text, str):
        return None
    name = f"{where}: {CARRIED_HEADER}"
    try:
        raw = base64.b64decode(text, validate=True)
    except ValueError:
        raise ParseError("is no base64; take the key out", source=name) from None
    source = BufferSource(raw, name)
    if not raw.startswith(GGUF_MAGIC):
        raise ParseError("is no GGUF header; take the key out", source=name)
    found = parse(source, raw[:8], Budget(limits)).metadata
    assert isinstance(found, GgufMetadata)
    return found
