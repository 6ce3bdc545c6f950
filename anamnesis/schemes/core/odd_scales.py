"""Scales that make NaNs, infinities or zeros of all their codes, counted."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Set
from functools import cache, cached_property
from typing import Any, NamedTuple

from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.roles import role_beside
from anamnesis.schemes.core.weight import Weight

_PIECE = 1 << 20
# What bytes of scales mean, by how the words for an encoding begin; others have codes there.
_AS_BYTES = {"NVFP4 E5M3": "U8", "NVFP4": "F8_E4M3", "MX": "F8_E8M0", "FP8": "F8_E8M0"}
_LETTERS = {16: "H", 32: "I", 64: "Q"}


class _Form(NamedTuple):
    """A dtype's numbers as unsigned integers: all bits but the sign, the largest, infinity."""

    mask: int
    largest: int
    infinity: int = -1
    has_zero: bool = True


def _usual(bits: int, infinity: int) -> _Form:
    return _Form((1 << bits - 1) - 1, infinity - 1, infinity)


_FORMS = {
    "F8_E8M0": _Form(0xFF, 0xFE, has_zero=False),
    "F8_E4M3": _Form(0x7F, 0x7E),
    "F8_E5M2": _usual(8, 0x7C),
    "F16": _usual(16, 0x7C00),
    "BF16": _usual(16, 0x7F80),
    "F32": _usual(32, 0x7F800000),
    "F64": _usual(64, 0x7FF << 52),
}


class OddScales:
    """Counts the scales of weights that are `nan`, `infinite` or `zero`, of each part once."""

    # That is when the first weight that has the part is made, for its bytes are then read anyway.

    def __init__(self, weights: Iterable[Weight] = ()) -> None:
        self._weights = weights
        self._found: dict[str, dict[str, int]] = {}
        self._lock = threading.Lock()

    @cached_property
    def _left(self) -> dict[str, tuple[StoredTensor, DType]]:
        found = {}
        for weight in self._weights:
            for part in weight.parts[1:] if weight.own_dtype is None else ():
                dtype = scale_dtype(weight, part)
                if role_beside(part).endswith("scales") and dtype.name in _FORMS:
                    found[part.name] = part, dtype
        return found

    def look_at(self, weight: Weight) -> None:
        """Count those of a weight, but of parts that are counted."""
        with self._lock:
            found = [self._left.pop(part.name, None) for part in weight.parts if self._left]
        self._count(one for one in found if one is not None)

    def only(self, names: Set[str]) -> OddScales:
        """Return what counts those of some parts alone."""
        made = OddScales()
        made._left = {name: one for name, one in self._left.items() if name in names}
        return made

    def take(self, names: Set[str], found: Mapping[str, dict[str, int]]) -> None:
        """Take what was found elsewhere, of parts that need not be read here any more."""
        with self._lock:
            for name in names:
                self._left.pop(name, None)
            self._found.update(found)

    def counts(self) -> dict[str, dict[str, int]]:
        """Return how many there are in each part that has some; count what is left."""
        with self._lock:
            left = [self._left.popitem()[1] for _ in range(len(self._left))]
        self._count(left)
        return dict(sorted(self._found.items()))

    def _count(self, parts: Iterable[tuple[StoredTensor, DType]]) -> None:
        for part, dtype in parts:
            counts: Counter[str] = Counter()
            for at in range(0, part.n_bytes, _PIECE):
                piece = part.source.read(part.offset + at, min(_PIECE, part.n_bytes - at))
                for value, n in _odd(piece, dtype).items():
                    counts[_kind(value, dtype.name)] += n
            if counts:
                self._found[part.name] = dict(counts)


def scale_dtype(weight: Weight, part: StoredTensor) -> DType:
    """Return what scales of a weight are stored in, also where that is called bytes."""
    if part.dtype.name != "U8":
        return part.dtype
    names = (name for key, name in _AS_BYTES.items() if weight.family.startswith(key))
    return DTYPES[next(names, "U8")]


def _odd(piece: bytes, dtype: DType) -> dict[int, int]:
    """Return how often each odd number is there, as an unsigned integer."""
    if dtype.bits == 8:
        return {code: piece.count(code) for code in _odd_codes(dtype.name) if code in piece}
    if not _may_have_odd(piece, dtype):
        return {}
    words: Any = memoryview(piece).cast(_LETTERS[dtype.bits])  # type: ignore[call-overload]
    odd = {word for word in set(words) if _kind(word, dtype.name)}
    return Counter(word for word in words if word in odd) if odd else {}


def _may_have_odd(piece: bytes, dtype: DType) -> bool:
    """Whether a number ends as an infinity, a NaN or 0 does; in most pieces none does."""
    n_bytes = dtype.bits // 8
    ends, infinity = piece[n_bytes - 1 :: n_bytes], _FORMS[dtype.name].infinity >> dtype.bits - 8
    if any(end in ends for end in (*range(infinity, 0x80), *range(infinity | 0x80, 0x100))):
        return True
    for zero in (bytes(n_bytes), bytes(n_bytes - 1) + b"\x80"):
        at = piece.find(zero)
        while at % n_bytes and at > 0:
            at = piece.find(zero, at + 1)
        if at >= 0:
            return True
    return False


@cache
def _odd_codes(dtype: str) -> list[int]:
    return [code for code in range(256) if _kind(code, dtype)]


def _kind(value: int, dtype: str) -> str:
    """Return in which way a number is odd; nothing if it is not."""
    form = _FORMS[dtype]
    size = value & form.mask
    if size == 0 and form.has_zero:
        return "zero"
    if size <= form.largest:
        return ""
    return "infinite" if size == form.infinity else "nan"
