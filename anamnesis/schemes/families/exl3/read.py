"""Which stored tensors are trellises, and what belongs to them."""

from __future__ import annotations

from collections.abc import Callable

from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.layout import Field
from anamnesis.schemes.detect.config_facts import QuantFacts
from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.schemes.detect.not_weights import without_padding
from anamnesis.schemes.families.exl3.weight import BLOCK, MULTIPLIERS, TILE, Exl3Weight

Find = Callable[[str], "StoredTensor | None"]

_AS_SIGNS, _AS_SCALES = "signs are there instead", "scales are there instead"


class Exl3:
    """EXL3's: tiles of codes, scales or signs of both sides, and what marks another codebook."""

    fields = (
        Field("codes", "{module}trellis", ("I16",)),
        Field("in scales", "{module}suh", ("F16",), unless=_AS_SIGNS),
        Field("out scales", "{module}svh", ("F16",), unless=_AS_SIGNS),
        Field("in signs", "{module}su", ("I16",), unless=_AS_SCALES),
        Field("out signs", "{module}sv", ("I16",), unless=_AS_SCALES),
        Field("multiplier", "{module}mcg", ("I32",), (), unless="the codebook is another"),
        Field("multiplier", "{module}mul1", ("I32",), (), unless="the codebook is another"),
    )


_CODES, _SUH, _SVH, _SU, _SV, *_MARKERS = Exl3.fields
_FACTORS = ((_SUH, _SU), (_SVH, _SV))
_FORMER_SCALE = Field("scale", "{module}scale")
_SIGNS_IN_ITEM = 16


def find_all(ledger: Ledger, facts: QuantFacts) -> None:
    """Take all weights of EXL3; what lacks a part is refused by its name."""
    for codes in ledger.free():
        name = _CODES.weight_of(codes.name)
        if name is None or codes.dtype.kind == "float":
            continue
        with ledger.refusing(field.named(name) for field in (_FORMER_SCALE, *Exl3.fields)):
            weight = _weight(codes, name, ledger.find, facts.trellis_codebook)
            rows, cols = weight.shape
            weight.shape = (without_padding(name, (rows, cols), BLOCK, ledger.stored), cols)
            ledger.take(weight)


def _weight(codes: StoredTensor, name: str, find: Find, given: str | None) -> Exl3Weight:
    factors = [_one_of(codes, name, find, ways) for ways in _FACTORS]
    markers = {
        field.named("weight"): marker for field in _MARKERS if (marker := find(field.named(name)))
    }
    if len(markers) > 1:
        raise codes.unsupported(f"{codes} has both {' and '.join(map(str, markers.values()))}")
    if not markers and given in MULTIPLIERS:
        missing = next(field for field in _MARKERS if field.named("weight") == given).named(name)
        raise codes.unsupported(
            f"{codes} has no {missing}, though the config says that the codebook is {given}",
            remedy="give the whole directory if it lies in another shard; if the tensors are right,"
            " remove `codebook` from the config",
        )
    if (scale := find(_FORMER_SCALE.named(name))) is not None:
        raise codes.unsupported(f"{codes} has {scale}, which exllamav3 no longer reads")
    check_sizes(codes, *factors)
    for marker in markers.values():
        if marker.dtype.name != "I32" or marker.n_elements != 1:
            raise marker.misshapen("one I32")
    shape = (codes.shape[1] * TILE, codes.shape[0] * TILE)
    codebook = next(iter(markers), "3inst")
    return Exl3Weight(name, shape, (codes, *factors, *markers.values()), codebook)


def _one_of(codes: StoredTensor, name: str, find: Find, ways: tuple[Field, Field]) -> StoredTensor:
    """Return the part that is there of two which say the same."""
    found = [part for field in ways if (part := find(field.named(name))) is not None]
    if len(found) > 1:
        raise codes.unsupported(f"{codes} has both {found[0]} and {found[1]}")
    if not found:
        wanted = " or ".join(field.named(name) for field in ways)
        raise codes.unsupported(
            f"{codes} has no {wanted}: it may be in another shard; pass the directory"
        )
    return found[0]


def check_sizes(codes: StoredTensor, in_scales: StoredTensor, out_scales: StoredTensor) -> None:
    """Raise an error if a trellis is none, or what both sides are multiplied by does not fit."""
    if codes.dtype.name == "I16" and len(codes.shape) == 3 and codes.shape[2] % TILE == TILE // 2:
        raise codes.unsupported(
            f"{codes} has {codes.shape[2] / TILE:g} bits a code; halves of bits are not read, "
            "codes of 1 to 8 bits are"
        )
    bits = codes.shape[2] // TILE if len(codes.shape) == 3 else 0
    if codes.dtype.name != "I16" or not 1 <= bits <= 8 or codes.shape[2] % TILE:
        raise codes.misshapen(f"I16 [in / {TILE}, out / {TILE}, {TILE} * bits], of 1 to 8 bits,")
    if any(n * TILE % BLOCK for n in codes.shape[:2]):
        raise codes.misshapen(f"a matrix of whole blocks of {BLOCK} x {BLOCK}")
    for part, tiles in ((in_scales, codes.shape[0]), (out_scales, codes.shape[1])):
        is_signs = part.dtype.name == "I16"
        n = tiles * TILE // (_SIGNS_IN_ITEM if is_signs else 1)
        if part.dtype.name not in ("F16", "I16") or part.shape != (n,):
            raise part.misshapen(f"F16 [{tiles * TILE}] or, of signs, I16 [{tiles}]", codes)
