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
# The kind, the bits and the block of each format; of blocks the marker says the size. 0 bits are
# told by the length of rows.
_FORMATS: dict[str, tuple[str, int, tuple[int, int] | None]] = {
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2"), ("float", 8, None)),
    "float8_e4m3fn_rowwise": ("float", 8, (1, 0)),
    "float8_e4m3fn_blockwise": ("float", 8, None),
    "mxfp8": ("float", 8, (1, 32)),
    "nvfp4": ("float", 4, (1, 16)),
    **dict.fromkeys(("int8_tensorwise", "int8_blockwise"), ("int", 8, None)),
    "convrot_w4a4": ("int", 4, (1, 0)),
    "asym_w4a8_int8": ("int", 0, None),
    "awq_w4a16": ("int", 4, None),
    "svdquant_w4a4": ("int", 4, (1, 64)),
}
_ROTATED = "convrot"  # columns in groups, by a Hadamard matrix
_ROTATES = ("int8_tensorwise", "")  # what is rotated where that is said
_ALWAYS_ROTATED = ("convrot_w4a4", "asym_w4a8_int8")
_GROUP = 256
# Of SVDQuant, what proj_down is multiplied with; files of experiments have smoothed inputs.
_BASIS, _USUAL_BASIS = "lowrank_branch_input_basis", "raw"
# What markers of ComfyUI-INT8-Fast say in place of a format: the dtypes of the parts tell it.
_WITHOUT_FORMAT = ("per_row", _ROTATED)


class ComfyLayer(NamedTuple):
    """One layer."""

    format: str
    shape: tuple[int, int] | None
    block: int | None = None
    rotation: int = 0
    shifts: bool = False


UNMARKED = ComfyLayer("", None)


def read_layer(layer: Mapping[str, Any] | str) -> ComfyLayer:
    """Read what is said of a layer; raise KeyError, TypeError or ValueError if it is malformed."""
    if isinstance(layer, str):  # as some converters write in metadata
        layer = {"format": layer}
    params = layer.get("params")
    given = {**params, **layer} if isinstance(params, dict) else layer
    block = given.get("group_size")
    if block is not None and (type(block) is not int or block < 1):
        raise ValueError(block)
    is_whole = "format" in layer or not any(key in layer for key in _WITHOUT_FORMAT)
    name = str(layer["format"]).lower() if is_whole else ""
    name, rotation = _rotation(name, given)
    if (basis := given.get(_BASIS, _USUAL_BASIS)) != _USUAL_BASIS:
        name = f"{name} with {_BASIS} {basis}"
    shape = layer.get("orig_shape")
    if shape is not None:
        rows, cols = shape
        if type(rows) is not int or type(cols) is not int or rows < 0 or cols < 0:
            raise ValueError(shape)
        shape = rows, cols
    return ComfyLayer(name, shape, block, rotation, bool(given.get("act_unsigned", False)))


def _rotation(format: str, given: Mapping[str, Any]) -> tuple[str, int]:
    """Return the format, and columns that are rotated together; 0 if none are."""
    group = given.get(f"{_ROTATED}_groupsize")
    is_said = bool(given.get(_ROTATED, group is not None and format not in _ALWAYS_ROTATED))
    is_rotated = format in _ALWAYS_ROTATED or (format in _ROTATES and bool(given.get(_ROTATED)))
    if not is_rotated:  # no tool claims a rotation then, and such codes are not read
        return (f"{_ROTATED} {format}".strip() if is_said else format), 0
    group = _GROUP if group is None else int(group)
    if group < 1:
        raise ValueError(group)
    return format, group


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


def may_be_of(layer: ComfyLayer, kind: str, bits: int) -> bool:
    """Return whether codes of so many bits may be those of a layer, by its format."""
    row = _FORMATS.get(layer.format.removeprefix(_ROTATED).strip())
    return row is None or (row[0] == kind and row[1] in (0, bits))


def expected_of(layer: ComfyLayer) -> Expected | None:
    """Return what is said of a layer in the words of all; None where the format is not known."""
    row = _FORMATS.get(layer.format)
    if row is None:
        return None
    kind, bits, block = row
    if layer.block and layer.format.endswith("_blockwise"):
        block = (layer.block, layer.block)
    elif layer.block and layer.format in ("asym_w4a8_int8", "awq_w4a16"):
        block = (1, layer.block)
    return Expected(f"ComfyUI's marker, {layer.format},", kind, bits, block)
