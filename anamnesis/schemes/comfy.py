"""What ComfyUI's files say of each quantised layer: in a marker beside it, or in their metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from anamnesis.base.errors import ParseError
from anamnesis.schemes.ledger import Claim

__all__ = ["MARKER", "ComfyLayer", "drop_marker", "layer_of", "read_layer"]

MARKER = "comfy_quant"
_MAX_MARKER = 65_536
_ROTATED = "convrot"  # by a Hadamard matrix, which is not undone here


class ComfyLayer(NamedTuple):
    """One layer.

    Attributes
    ----------
    format : str
        For instance `nvfp4`; of weights that were rotated, `convrot` and that.
    shape : (int, int) or None
        That of the weight before it was padded, if it is told.
    block : int or None
        Rows and columns of the blocks that share a scale, if it is told.
    """

    format: str
    shape: tuple[int, int] | None
    block: int | None = None


def read_layer(told: Mapping[str, Any]) -> ComfyLayer:
    """Read what is said of a layer; raise KeyError, TypeError or ValueError if it is malformed."""
    shape, block = told.get("orig_shape"), told.get("group_size")
    if block is not None and (type(block) is not int or block < 1):
        raise ValueError(block)
    is_rotated = any(value for key, value in told.items() if key.startswith(_ROTATED))
    name = f"{_ROTATED} {told['format']}" if is_rotated else str(told["format"])
    if shape is None:
        return ComfyLayer(name, None, block)
    rows, cols = shape
    if type(rows) is not int or type(cols) is not int or rows < 0 or cols < 0:
        raise ValueError(shape)
    return ComfyLayer(name, (rows, cols), block)


def layer_of(name: str, claim: Claim, layers: Mapping[str, ComfyLayer]) -> ComfyLayer | None:
    """Return what is said of the layer that a tensor belongs to; None if nothing is.

    Raises
    ------
    ParseError
        If its marker is malformed.
    """
    head, dot, _ = name.rpartition(".")
    layer = layers.get(head)
    marker = claim.stored.get(f"{head}{dot}{MARKER}")
    if layer is not None or marker is None:
        return layer
    try:
        return read_layer(json.loads(marker.read() if marker.n_bytes <= _MAX_MARKER else b""))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ParseError(
            f"{marker.name} must hold JSON with a format, and maybe an orig_shape",
            offset=marker.offset,
            source=marker.source.name,
        ) from None


def drop_marker(name: str, claim: Claim) -> None:
    """Drop the marker of the layer that a tensor belongs to, if there is one."""
    head, dot, _ = name.rpartition(".")
    if claim.find(f"{head}{dot}{MARKER}") is not None:
        claim.drop(f"{head}{dot}{MARKER}", "marker of a ComfyUI layer")
