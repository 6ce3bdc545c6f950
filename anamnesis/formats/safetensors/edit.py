"""The header of a safetensors file with other metadata, its tensors as they lie."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from anamnesis.formats.base import Container
from anamnesis.formats.safetensors.read import LENGTH_BYTES, METADATA_KEY
from anamnesis.formats.safetensors.write import check_metadata, header_bytes


def edited(container: Container, new: Mapping[str, Any], gone: Collection[str]) -> bytes:
    """Return the header behind its length, as long as it was if that is long enough."""
    text = container.source.read(LENGTH_BYTES, container.header_bytes - LENGTH_BYTES)
    header: dict[str, Any] = json.loads(text)
    metadata = {k: v for k, v in {**container.metadata, **new}.items() if k not in gone}
    check_metadata(metadata)
    header = {METADATA_KEY: metadata, **{k: v for k, v in header.items() if k != METADATA_KEY}}
    if not metadata:
        del header[METADATA_KEY]
    raw = header_bytes(header)
    if len(raw) > container.header_bytes:
        return raw
    return len(text).to_bytes(LENGTH_BYTES, "little") + raw[LENGTH_BYTES:].ljust(len(text))
