"""Words that are there already, in the order of another layout.

All have codes of 0 to 15, less a zero point, times a scale: `order.py` says how their words lie.
Zero points are in words of eight out features: [groups, out / 8] of GPTQ (less 1, in its first
version) and AWQ (in its order), [out / 8, groups] of compressed-tensors, where 8 stands for all
that are not stored. Scales are [groups, out], or [out, groups].
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from anamnesis.base.dtypes import DTYPES
from anamnesis.base.stored import Part, StoredTensor
from anamnesis.schemes.integers.order import (
    across_of_columns,
    columns_of_across,
    in_awq_order,
    in_plain_order,
    less_one,
    plus_one,
    rows_of_across,
    transposed,
)
from anamnesis.schemes.parts.codes import Words
from anamnesis.schemes.parts.views import made_of, repeated

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["across", "all_symmetric", "columns", "of_bits", "rows"]

_I32 = DTYPES["I32"]
_HALF = 8  # the zero point of symmetric codes
_PIECE = 1 << 20  # bytes of zero points that are read at once


def of_bits(bits: int, views: Mapping[str, Words]) -> dict[str, Words]:
    """Return the words of so many bits, with a list of groups only where these are no runs.

    Raises
    ------
    ParseError
        If an index is no group.
    """
    return {name: _settled(words) for name, words in views.items() if words.bits == bits}


def _settled(words: Words) -> Words:
    """Check groups that are listed: what is only copied is decoded by nobody."""
    import numpy as np

    listed = words.listed
    if listed is None:
        return words
    told = np.frombuffer(listed.read(), "<i4")
    bad = np.flatnonzero((told < 0) | (told >= words.n_groups))
    if len(bad):
        at = int(bad[0])
        raise listed.malformed(
            f"{listed.name}: column {at:,} is in group {int(told[at]):,}, but there are "
            f"{words.n_groups:,} groups",
            at=listed.dtype.n_bytes(at),
        )
    if words.run is not None and (told == np.arange(len(told)) // words.run).all():
        return words._replace(listed=None)
    return words


def all_symmetric(found: Mapping[str, Words]) -> dict[str, Words]:
    """Return words as symmetric ones, if every zero point is the middle code.

    Of all or of none: one config describes them, and programs merge layers of one kind.
    Zero points are read piece by piece, up to the first that differs.
    """
    if not all(map(_is_symmetric, found.values())):
        return dict(found)
    return {name: words._replace(is_symmetric=True) for name, words in found.items()}


def _is_symmetric(words: Words) -> bool:
    if words.zeros is None:
        return True
    if words.shape[-2] * words.bits % 32:  # the last word of a group is not full
        return False
    middle = (1 << words.bits - 1) - words.less_one
    word = sum(middle << at for at in range(0, 32, words.bits)).to_bytes(4, "little")
    return all(piece == word * (len(piece) // 4) for piece in _pieces(words.zeros))


def _pieces(stored: StoredTensor) -> Iterator[bytes]:
    for at in range(0, stored.n_bytes, _PIECE):
        yield stored.source.read(stored.offset + at, min(_PIECE, stored.n_bytes - at))


# --- in another order -------------------------------------------------------------------------


def rows(words: Words) -> dict[str, StoredTensor]:
    """Return words by their roles as compressed-tensors has them, but for what it need not store.

    Raises
    ------
    Unmovable
        If rows end within a word.
    """
    codes, scales = words.codes, words.scales
    zeros = None if words.is_symmetric else words.zeros
    if words.kind != "rows":
        in_word = 32 // words.bits
        if any(n % in_word for n in words.shape):
            raise words.refused(f"in and out features must be multiples of {in_word}")
        codes = transposed(codes) if words.kind == "columns" else rows_of_across(codes)
        scales = transposed(scales)
        zeros = None if zeros is None else transposed(_plain_zeros(words))
    found = {"codes": codes, "scales": scales, "zeros": zeros, "groups": words.listed}
    return {role: stored for role, stored in found.items() if stored is not None}


def columns(words: Words) -> dict[str, StoredTensor]:
    """Return words by their roles as GPTQ has them; zero points are less 1.

    Raises
    ------
    Unmovable
        If GPTQ cannot hold them.
    """
    _check(words, "GPTQ")
    codes, zeros = words.codes, words.zeros
    if words.kind != "columns":
        codes = transposed(codes) if words.kind == "rows" else columns_of_across(codes)
    if zeros is None or not words.less_one:
        zeros = less_one(_plain_zeros(words))
    groups = words.listed or _runs(words)
    return {"codes": codes, "zeros": zeros, "scales": _scales(words), "groups": groups}


def across(words: Words) -> dict[str, StoredTensor]:
    """Return words by their roles as AWQ's GEMM layout has them.

    Raises
    ------
    Unmovable
        If AWQ cannot hold them.
    """
    _check(words, "AWQ")
    if words.listed is not None:
        raise words.refused("its groups are in act-order, which AWQ has not")
    codes, zeros = words.codes, words.zeros
    if words.kind != "across":
        codes = across_of_columns(transposed(codes) if words.kind == "rows" else codes)
    if zeros is None or words.kind != "across":
        zeros = in_awq_order(_plain_zeros(words))
    return {"codes": codes, "zeros": zeros, "scales": _scales(words)}


def _check(words: Words, whose: str) -> None:
    """Refuse what neither of them has."""
    if not f".{words.name}".endswith(".weight"):
        raise words.refused(f"it is not called a weight, and {whose} names parts after modules")
    if len(words.shape) != 2:
        raise words.refused(f"{whose} has matrices only")
    if words.shape[0] % 8 or words.shape[1] % 8:
        raise words.refused(f"in and out features must be multiples of 8 in {whose}")
    if words.scales.dtype.name != "F16":
        raise words.refused(f"its scales are {words.scales.dtype}, and F16 in {whose}")


def _plain_zeros(words: Words) -> StoredTensor:
    """Return zero points as they are, words [groups, out / 8] of out features in order."""
    zeros, n_out = words.zeros, words.shape[0]
    if zeros is None:
        part = Part(f"{words.name}_zero_point", _I32, (words.n_groups, n_out // 8))
        return repeated(part, bytes([17 * _HALF]) * 4, words.codes)
    if words.kind == "rows":
        return transposed(zeros)
    if words.kind == "across":
        zeros = in_plain_order(zeros)
    return plus_one(zeros) if words.less_one else zeros


def _scales(words: Words) -> StoredTensor:
    return transposed(words.scales) if words.kind == "rows" else words.scales


def _runs(words: Words) -> StoredTensor:
    """Return the group of each in feature, where groups are runs."""
    group, n_in = words.group, words.shape[1]

    def told(units: range) -> NDArray[Any]:
        import numpy as np

        return (np.arange(units.start, units.stop) // group).astype("<i4")

    return made_of(Part("", _I32, (n_in,)), [], n_in, told, words.codes.source)
