"""What parts of a weight of integers must be: shapes, dtypes, middle zero points."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import lcm

from anamnesis.base.lazy import np
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.views.grid import block_candidates

SCALES = ("F32", "F16", "BF16")
PACKED_MAX_GROUPS = 32_768  # that act-order may choose from; a band holds all scales of its rows


def check_scale_dtype(scale: StoredTensor, codes: StoredTensor) -> None:
    """Raise UnsupportedError if a scale is of no usual dtype."""
    if scale.dtype.name not in SCALES:
        raise scale.unsupported(
            f"scale {scale.name} of {codes.name} has dtype {scale.dtype}; one of "
            f"{', '.join(SCALES)} is expected"
        )


def group_size(codes: StoredTensor, cols: int, n_groups: int, given: frozenset[int]) -> int:
    """Return how many columns share a scale."""
    if n_groups == 1:
        return max(cols, 1)
    if not 0 < n_groups <= cols:
        raise codes.malformed(
            f"{codes.name}: {n_groups:,} scales do not fit rows of {cols:,} columns",
        )
    fitting = {size for size in given if size > 0 and -(-cols // size) == n_groups}
    sizes = fitting or block_candidates(cols, n_groups)
    if len(sizes) != 1:
        raise codes.unsupported(
            f"{codes.name}: {n_groups} scales for {cols} columns may be in groups of "
            f"{' or '.join(map(str, sorted(sizes))) or 'any size'}; say which with group_size in "
            "config.json"
        )
    return sizes.pop()


def check_listed(
    listed: StoredTensor, raw: bytes | memoryview, first: int, n: int, what: str = "column"
) -> None:
    """Raise what names the first index in a list of groups, from a column on, that is no group."""
    groups = np.frombuffer(raw, "<i4")
    bad = np.flatnonzero((groups < 0) | (groups >= n))
    if len(bad):
        column, group = first + int(bad[0]), int(groups[bad[0]])
        raise listed.malformed(
            f"{listed.name}: {what} {column:,} is in group {group:,}, but there are {n:,} groups",
            at=listed.dtype.n_bytes(column),
        )


def check_one_of(setting: str, value: int, known: Sequence[int]) -> None:
    """Raise ValueError if programs that read an encoding do not know a setting of it."""
    if value not in known:
        names = ", ".join(map(str, known))
        raise ValueError(f"{setting} must be one of {names}; got {value}")


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
    middle, data = middle_words(bits, bool(less_one)), bytes(words)
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
def middle_words(bits: int, less_one: bool) -> bytes:
    """Return the fewest words whose codes are all the middle one, as it is stored."""
    width = lcm(bits, _WORD_BITS)
    stored = (1 << bits - 1) - less_one
    return sum(stored << at for at in range(0, width, bits)).to_bytes(width // 8, "little")
