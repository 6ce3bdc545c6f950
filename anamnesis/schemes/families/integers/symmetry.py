"""Zero points that are said to be the middle code, against those stored."""

from __future__ import annotations

from functools import cache
from math import lcm

from anamnesis.base.stored import StoredTensor

_WORD_BITS = 32
SYMMETRIC_REMEDY = "correct the config; allow_unknown=True copies what is stored"
_REMEDY = (
    "if values are wrong, correct checkpoint_format in the config (zero points are stored less 1 in"
    " gptq, as they are in gptq_v2); else correct sym; allow_unknown=True copies what is stored"
)


def check_symmetric(
    words: bytes | memoryview,
    zeros: StoredTensor,
    bits: int,
    by: str,
    *,
    less_one: bool | None = None,
) -> None:
    """Raise what names the first zero point that is not the middle code."""
    # `less_one` is None where the config says `symmetric`, not `sym`, of what is stored as it is.
    middle, data = _middle_words(bits, bool(less_one)), bytes(words)
    n = len(middle)
    if data == middle * (len(data) // n):
        return
    pieces = (data[at : at + n] for at in range(0, len(data), n))
    packed = int.from_bytes(next(piece for piece in pieces if piece != middle), "little")
    codes = (packed >> at & (1 << bits) - 1 for at in range(0, 8 * n, bits))
    half = 1 << bits - 1
    stored = next(code for code in codes if code + bool(less_one) != half)
    key, remedy = ("symmetric", SYMMETRIC_REMEDY) if less_one is None else ("sym", _REMEDY)
    raise zeros.malformed(
        f"{zeros} has a zero point of {stored + bool(less_one)}, stored as {stored}, but {by} says"
        f" {key}: true, of which all are {half}",
        remedy=remedy,
    )


@cache
def _middle_words(bits: int, less_one: bool) -> bytes:
    """Return the fewest words whose codes are all the middle one, as it is stored."""
    width = lcm(bits, _WORD_BITS)
    stored = (1 << bits - 1) - less_one
    return sum(stored << at for at in range(0, width, bits)).to_bytes(width // 8, "little")
