"""Which stored tensors are rotated integers: what markers and metadata say alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import prod

from anamnesis.base.dtypes import DTYPES
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.layout import Field, missing, stored_parts
from anamnesis.schemes.detect.config_facts import QuantFacts
from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.schemes.detect.markers import drop_marker, layer_of
from anamnesis.schemes.families.rotated import layouts
from anamnesis.schemes.families.rotated.weight import ROTATIONS, LevelsWeight, RotatedWeight
from anamnesis.schemes.libraries.comfy_metadata import ComfyLayer
from anamnesis.sources.strided import transposed

_LEVELS = 16  # of a codebook
_ELSEWHERE = "give the whole directory if it lies in another shard"


def find_all(ledger: Ledger, facts: QuantFacts) -> None:
    """Take all rotated weights with what belongs to them."""
    ledger.take_found({"I8": (_find,)}, facts)


def _find(codes: StoredTensor, ledger: Ledger, facts: QuantFacts) -> RotatedWeight | None:
    is_weight = f".{codes.name}".endswith(".weight")
    layer = layer_of(codes.name, ledger, facts.comfy_layers) if is_weight else None
    if layer is None or not layer.rotation:
        return None
    if layer.rotation not in ROTATIONS:
        raise codes.unsupported(
            f"{codes}: columns are rotated in groups of {layer.rotation:,}; of "
            f"{', '.join(map(str, ROTATIONS))} they are read"
        )
    if len(codes.shape) < 2 or 0 in codes.shape:
        raise codes.misshapen(f"a matrix of {layer.format or 'rotated'} codes")
    weight = _KINDS[layer.format](codes, layer, ledger)
    if weight.shape[-1] % layer.rotation:
        raise codes.misshapen(f"rows of whole groups of {layer.rotation} columns")
    drop_marker(codes.name, ledger)
    return weight


def _integers(
    kind: type[layouts.ComfyRotated], codes: StoredTensor, layer: ComfyLayer, ledger: Ledger
) -> RotatedWeight:
    scales = _parts(kind.fields, codes, ledger)["scales"]
    shape = (*codes.shape[:-1], codes.shape[-1] * 8 // kind.bits)
    if scales.n_elements != 1:
        _check_rows(scales, codes)
    return kind(layer.rotation).weight(codes.name, shape, (codes, scales))


def _levels(codes: StoredTensor, layer: ComfyLayer, ledger: Ledger) -> LevelsWeight:
    found = _parts(layouts.ComfyLevels.fields, codes, ledger)
    scales, channels, book = (found.get(r) for r in ("scales", "row scales", "codebook"))
    assert scales is not None
    assert channels is not None
    size = layer.block or layouts.SIZE
    *lead, width = codes.shape
    cols = scales.shape[-1] * size if scales.shape else 0
    bits = width * 8 // cols if cols else 0
    if scales.shape[:-1] != tuple(lead) or bits not in (4, 6) or bits * cols != width * 8:
        raise scales.misshapen(f"a scale for each {size} codes of 4 or 6 bits", codes)
    _check_rows(channels, codes)
    if book is not None and (book.shape != (_LEVELS,) or bits != 4):
        raise book.misshapen(f"[{_LEVELS}], of codes of 4 bits,", codes)
    added, grid = found.get("correction"), (cols // size, prod(lead))
    if added is not None:
        if added.shape != grid or bits != 4:
            raise added.misshapen(f"{list(grid)}, of codes of 4 bits,", codes)
        added = transposed(added, ledger.strips)
    if scales.dtype.name == "U8":
        scales = scales._replace(dtype=DTYPES["F8_E4M3"])
    parts = (codes, channels, scales, *(one for one in (book, added) if one is not None))
    more = layer.rotation, size, book is not None, added
    return LevelsWeight(codes.name, (*lead, cols), parts, bits, *more)


_KINDS: Mapping[str, Callable[[StoredTensor, ComfyLayer, Ledger], RotatedWeight]] = {
    **dict.fromkeys(("int8_tensorwise", ""), partial(_integers, layouts.ComfyInt8Rotated)),
    "convrot_w4a4": partial(_integers, layouts.ComfyInt4Rotated),
    "asym_w4a8_int8": _levels,
}


def _parts(
    fields: tuple[Field, ...], codes: StoredTensor, ledger: Ledger
) -> dict[str, StoredTensor]:
    """Return what lies beside codes; raise an error for what is missing, or of another dtype."""
    own = fields[1:-1]  # the last is the marker
    found = stored_parts(own, codes.name, ledger.find)
    for field in missing(own, found):
        name = field.named(codes.name)
        raise codes.unsupported(f"{codes} has no {name}", remedy=_ELSEWHERE)
    for field in own:
        part = found.get(field.role)
        if part is not None and part.dtype.name not in field.dtypes:
            raise part.misshapen(" or ".join(field.dtypes), codes)
    return found


def _check_rows(scales: StoredTensor, codes: StoredTensor) -> None:
    """Raise an error if scales are not one for each row."""
    lead = codes.shape[:-1]
    if scales.shape not in (lead, (*lead, 1), (prod(lead),), (prod(lead), 1)):
        raise scales.misshapen(f"{[*lead, 1]}", codes)
