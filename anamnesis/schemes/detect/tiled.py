"""Whether scales are in rows, as in ModelOpt, or in tiles, as in ComfyUI.

Names are alike, and so are shapes of 128 n rows with 4 n scales each. Then a marker, metadata, the
config or the user says it; or the shapes of others, for a file is of one producer.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import NamedTuple

from anamnesis.base.printable import abbreviate
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.detect.config_facts import QuantFacts
from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.schemes.detect.markers import has_markers, layer_of
from anamnesis.schemes.libraries.comfy_metadata import COMFY_METADATA_KEY, UNMARKED, ComfyLayer
from anamnesis.schemes.views.tiles import is_tiled

PRODUCERS = {"modelopt": False, "comfyui": True}  # and whether scales are in tiles
_REMEDY = "say which with layout='modelopt' or layout='comfyui'"


class _Kind(NamedTuple):
    """A number that both have."""

    scales: tuple[str, ...]
    per_scale: int
    words: str
    more: tuple[str, str] = ("", "")


# By the dtype of codes.
_KINDS = {
    "U8": _Kind(("F8_E4M3",), 8, "NVFP4", (", first codes in low bits", ", in high bits")),
    "F8_E4M3": _Kind(("U8", "F8_E8M0"), 32, "MXFP8"),
}


def with_tiles(ledger: Ledger, facts: QuantFacts) -> QuantFacts:
    """Return facts that say where scales lie, if the user, the config or shapes do."""
    if facts.tiles is not None:
        return facts
    is_comfy = has_markers(ledger, facts.comfy_layers)
    is_said = facts.method is not None or (facts.declared is not None and not is_comfy)
    shown = (_may_lie(codes, ledger) for codes in ledger.stored.values())
    if is_said or {one for may in shown if len(may) == 1 for one in may} == {False}:
        return replace(facts, tiles=False)
    return facts


def tiled_layer(codes: StoredTensor, ledger: Ledger, facts: QuantFacts) -> ComfyLayer | None:
    """Return what is said of a layer of ComfyUI's; None if it is none of these."""
    # Without a marker it is one if its scales are in tiles.
    layer, found = layer_of(codes.name, ledger, facts.comfy_layers), _may_lie(codes, ledger)
    if layer is not None or True not in found:
        return layer
    if facts.tiles is not None:
        return UNMARKED if facts.tiles else None
    kind = _KINDS[codes.dtype.name]
    if False not in found:
        raise codes.unsupported(
            f"{codes} is ComfyUI's {kind.words} by its scales in tiles, but has no marker, which "
            "would say which rows and columns are padding",
            remedy="layout='comfyui' takes all of them",
        )
    rows, tiles = kind.more
    missed = facts.missed.get("comfy_layers")
    other = "and no config or marker says which"
    if missed:
        other = f"and __metadata__ {COMFY_METADATA_KEY} names {abbreviate(missed, 3)} instead"
    elif has_markers(ledger, facts.comfy_layers):
        other = "and nothing says which, while the file says so of other layers"
    raise codes.unsupported(
        f"{codes} may be ModelOpt's {kind.words} (scales in rows{rows}) or ComfyUI's (scales in "
        f"tiles{tiles}): the shapes are the same, {other}",
        remedy=_REMEDY,
    )


def kept_shape(codes: StoredTensor, layer: ComfyLayer, rows: int, cols: int) -> tuple[int, int]:
    """Return how many rows and columns of codes are no padding."""
    kept = layer.shape or (rows, cols)
    if kept[0] > rows or kept[1] > cols:
        raise codes.malformed(f"{codes} is smaller than its orig_shape {list(kept)}")
    return kept


def _may_lie(codes: StoredTensor, ledger: Ledger) -> set[bool]:
    """Return whether scales beside codes may be in tiles by their shape; nothing without any."""
    kind = _KINDS.get(codes.dtype.name)
    scale = ledger.stored.get(f"{codes.name}_scale") if kind else None
    if kind is None or scale is None or scale.dtype.name not in kind.scales:
        return set()
    if len(codes.shape) != 2 or codes.shape[1] % kind.per_scale:
        return set()
    rows, cols = codes.shape[0], codes.shape[1] // kind.per_scale
    return {
        *([False] if prod(scale.shape) == rows * cols else []),
        *([True] if is_tiled(scale, rows, cols) else []),
    }
