"""safetensors files made by hand, sharing no code with the package's own writer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

Entry = tuple[str, Sequence[int], bytes]  # dtype, shape, the bytes
WriteModel = Callable[..., Path]  # the fixture `write_model`


def file_bytes(header: bytes | str, data: bytes = b"") -> bytes:
    """Return a file of a header, whatever it says, and the bytes after it."""
    raw = header.encode() if isinstance(header, str) else header
    return len(raw).to_bytes(8, "little") + raw + data


def safetensors_bytes(
    tensors: Mapping[str, Entry], metadata: Mapping[str, str] | None = None
) -> bytes:
    """Return a file of `tensors`, their bytes one after the other in this order.

    Nothing is checked, so that wrong lengths give wrong files.
    """
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    end = 0
    for name, (dtype, shape, raw) in tensors.items():
        begin, end = end, end + len(raw)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
    return file_bytes(json.dumps(header), b"".join(raw for _, _, raw in tensors.values()))


def write_safetensors(
    path: Path, tensors: Mapping[str, Entry], metadata: Mapping[str, str] | None = None
) -> Path:
    """Write such a file, its folder too, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(safetensors_bytes(tensors, metadata))
    return path


def write_index(folder: Path, weight_map: Mapping[str, str]) -> Path:
    """Write model.safetensors.index.json and return its path."""
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {}, "weight_map": dict(weight_map)}))
    return path
