"""Powers of two of scales, and codes at the end of their range, counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from anamnesis.base.lazy import np
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.roles import roles
from anamnesis.schemes.core.weight import Weight

_PIECE = 1 << 20
_FLOATS = {"F32", "F16", "BF16", "F8_E4M3", "F8_E5M2"}
_E8M0 = {"F8_E8M0", "U8"}  # U8 where MX formats have no dtype of their own
_BIAS = 127
# Codes at the end of the range of a dtype, as bytes.
_LAST = {"F8_E4M3": (0x7E, 0xFE), "F8_E5M2": (0x7B, 0xFB), "I8": (0x7F, 0x80)}


@dataclass(slots=True)
class Numbers:
    """What the scales and codes of one encoding come to."""

    scales: Counter[int] = field(default_factory=Counter)  # by their power of two
    n_codes: int = 0  # in dtypes of which the end of the range is known
    n_last: int = 0


def numbers_of(weights: Iterable[Weight]) -> dict[str, Numbers]:
    """Return what is counted of quantised weights, by encoding in a word."""
    found: dict[str, Numbers] = {}
    counted: set[str] = set()
    for weight in weights:
        if weight.own_dtype is not None:
            continue
        of = found.setdefault(weight.family, Numbers())
        for role, part in zip(roles(weight), weight.parts, strict=True):
            if part.name in counted:
                continue
            counted.add(part.name)
            if role == "scales":
                of.scales.update(_powers(part, weight.family))
            elif part.dtype.name in _LAST and role == "codes":
                _count_last(part, of)
    return found


def _pieces(part: StoredTensor) -> Iterator[bytes]:
    for at in range(0, part.n_bytes, _PIECE):
        yield part.source.read(part.offset + at, min(_PIECE, part.n_bytes - at))


def _powers(part: StoredTensor, family: str) -> Counter[int]:
    """Return how many scales there are of each power of two; those that are 0 have none."""
    found: Counter[int] = Counter()
    is_e8m0 = part.dtype.name == "F8_E8M0" or (part.dtype.name == "U8" and family.startswith("MX"))
    if not is_e8m0 and part.dtype.name not in _FLOATS:
        return found
    for piece in _pieces(part):
        if is_e8m0:
            powers = np.frombuffer(piece, np.uint8).astype(np.int64) - _BIAS
        else:
            values = np.frombuffer(piece, part.dtype.numpy()).astype(np.float32)
            values = values[np.isfinite(values) & (values != 0)]
            powers = np.frexp(values)[1].astype(np.int64) - 1
        for power, n in zip(*np.unique(powers, return_counts=True), strict=True):
            found[int(power)] += int(n)
    return found


def _count_last(part: StoredTensor, of: Numbers) -> None:
    for piece in _pieces(part):
        of.n_codes += len(piece)
        of.n_last += sum(piece.count(code) for code in _LAST[part.dtype.name])
