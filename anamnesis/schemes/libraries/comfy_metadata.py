"""What ComfyUI's files say of each quantised layer: in markers or metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from anamnesis.base.errors import ParseError
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.settings import Expected

MARKER = "comfy_quant"
COMFY_METADATA_KEY = "_quantization_metadata"
_MAX_MARKER = 65_536
_BLOCKWISE = "_blockwise"
# The kind, the bits and the block of each format; of blocks the marker says the size.
_FORMATS: dict[str, tuple[str, int, tuple[int, int] | None]] = {
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2"), ("float", 8, None)),
    "float8_e4m3fn_rowwise": ("float", 8, (1, 0)),
    "float8_e4m3fn_blockwise": ("float", 8, None),
    "mxfp8": ("float", 8, (1, 32)),
    "nvfp4": ("float", 4, (1, 16)),
    **dict.fromkeys(("int8_tensorwise", "int8_blockwise"), ("int", 8, None)),
}
_ROTATED = "convrot"  # by a Hadamard matrix, which is not undone here
# What markers of ComfyUI-INT8-Fast say in place of a format: the dtypes of the parts tell it.
_WITHOUT_FORMAT = ("per_row", _ROTATED)


class ComfyLayer(NamedTuple):
    """One layer."""

    format: str
    shape: tuple[int, int] | None
    block: int | None = None


UNMARKED = ComfyLayer("", None)


def read_layer(layer: Mapping[str, Any] | str) -> ComfyLayer:
    """Read what is said of a layer; raise KeyError, TypeError or ValueError if it is malformed."""
    if isinstance(layer, str):  # as some converters write in metadata
        layer = {"format": layer}
    shape, block = layer.get("orig_shape"), layer.get("group_size")
    if block is not None and (type(block) is not int or block < 1):
        raise ValueError(block)
    params = layer.get("params")
    given = {**params, **layer} if isinstance(params, dict) else layer
    is_whole = "format" in layer or not any(key in layer for key in _WITHOUT_FORMAT)
    name = str(layer["format"]).lower() if is_whole else ""
    rotated = any(value for key, value in given.items() if key.startswith(_ROTATED))
    if rotated and not is_rotated(name):
        name = f"{_ROTATED} {name}".strip()
    if shape is None:
        return ComfyLayer(name, None, block)
    rows, cols = shape
    if type(rows) is not int or type(cols) is not int or rows < 0 or cols < 0:
        raise ValueError(shape)
    return ComfyLayer(name, (rows, cols), block)


def read_layers(metadata: Mapping[str, str]) -> dict[str, ComfyLayer]:
    """Read what a file's metadata say of layers."""
    try:
        layers = json.loads(metadata.get(COMFY_METADATA_KEY, "{}")).get("layers", {})
        return {name: read_layer(layer) for name, layer in layers.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ParseError(f"__metadata__ {COMFY_METADATA_KEY} must map layers to formats") from None


def read_marker(marker: StoredTensor) -> ComfyLayer:
    """Return what the marker beside a layer says of it."""
    try:
        given = json.loads(marker.read() if marker.n_bytes <= _MAX_MARKER else b"")
        return read_layer({**given})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        what = f"{marker.name} must hold JSON with a format, and maybe an orig_shape"
        raise marker.malformed(what) from None


def is_rotated(format: str) -> bool:
    """Return whether weights of a format were rotated."""
    return format.startswith(_ROTATED)


def may_be_of(layer: ComfyLayer, kind: str, bits: int) -> bool:
    """Return whether codes of so many bits may be those of a layer, by its format."""
    row = _FORMATS.get(layer.format.removeprefix(_ROTATED).strip())
    return row is None or row[:2] == (kind, bits)


def expected_of(layer: ComfyLayer) -> Expected | None:
    """Return what is said of a layer in the words of all; None where the format is not known."""
    row = _FORMATS.get(layer.format)
    if row is None:
        return None
    kind, bits, block = row
    if layer.format.endswith(_BLOCKWISE) and layer.block:
        block = (layer.block, layer.block)
    return Expected(f"ComfyUI's marker, {layer.format},", kind, bits, block)
