"""ComfyUI's markers beside layers, which are dropped with their weights."""

from __future__ import annotations

from collections.abc import Mapping

from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.schemes.libraries.comfy_metadata import (
    COMFY_METADATA_KEY,
    MARKER,
    ComfyLayer,
    read_marker,
)

_ROTATION = "whether its columns are rotated, or how (convrot)"
_DROPPED = "marker of a ComfyUI layer"


def layer_of(name: str, ledger: Ledger, layers: Mapping[str, ComfyLayer]) -> ComfyLayer | None:
    """Return what is said of the layer that a tensor belongs to; None if nothing is."""
    layer = layers.get(name.rpartition(".")[0])
    marker = ledger.stored.get(_beside(name))
    if marker is None:
        return layer
    by_marker = read_marker(marker)
    if layer is not None and layer.rotation != by_marker.rotation:
        others = f"{marker.name} and __metadata__ {COMFY_METADATA_KEY}"
        raise marker.malformed(f"{others} disagree on {_ROTATION}")
    return layer or by_marker


def is_said(name: str, ledger: Ledger, layers: Mapping[str, ComfyLayer]) -> bool:
    """Return whether anything is said of the layer that a tensor belongs to."""
    return name.rpartition(".")[0] in layers or has_marker(name, ledger)


def has_marker(name: str, ledger: Ledger) -> bool:
    """Return whether the layer that a tensor belongs to has a marker."""
    return _beside(name) in ledger.stored


def has_markers(ledger: Ledger, layers: Mapping[str, ComfyLayer]) -> bool:
    """Return whether anything is said of any layer."""
    return bool(layers) or MARKER in ledger.by_end


def drop_marker(name: str, ledger: Ledger) -> None:
    """Drop the marker of the layer that a tensor belongs to, if there is one."""
    marker = _beside(name)
    if ledger.find(marker) is not None:
        ledger.drop(marker, _DROPPED)


def _beside(name: str) -> str:
    head, dot, _ = name.rpartition(".")
    return f"{head}{dot}{MARKER}"
