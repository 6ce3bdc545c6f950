"""ComfyUI's markers beside layers, which are dropped with their weights."""

from __future__ import annotations

from collections.abc import Mapping

from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.schemes.detect.not_weights import sibling
from anamnesis.schemes.libraries.comfy_metadata import (
    COMFY_METADATA_KEY,
    MARKER,
    ComfyLayer,
    read_marker,
)


def layer_of(name: str, ledger: Ledger, layers: Mapping[str, ComfyLayer]) -> ComfyLayer | None:
    """Return what is said of the layer that a tensor belongs to; None if nothing is."""
    layer = layers.get(name.rpartition(".")[0])
    marker = ledger.stored.get(sibling(name, MARKER))
    if marker is None:
        return layer
    by_marker = read_marker(marker)
    if layer is not None and layer.rotation != by_marker.rotation:
        raise marker.malformed(
            f"{marker.name} and __metadata__ {COMFY_METADATA_KEY} disagree on whether its columns "
            "are rotated, or how (convrot)"
        )
    return layer or by_marker


def has_marker(name: str, ledger: Ledger) -> bool:
    """Return whether the layer that a tensor belongs to has a marker."""
    return sibling(name, MARKER) in ledger.stored


def has_markers(ledger: Ledger, layers: Mapping[str, ComfyLayer]) -> bool:
    """Return whether anything is said of any layer."""
    return bool(layers) or MARKER in ledger.by_end


def drop_marker(name: str, ledger: Ledger) -> None:
    """Drop the marker of the layer that a tensor belongs to, if there is one."""
    marker = sibling(name, MARKER)
    if ledger.find(marker) is not None:
        ledger.drop(marker, "marker of a ComfyUI layer")
