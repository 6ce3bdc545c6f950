"""Words that are there already, in the order of another layout.

All have codes of 0 to 15, less a zero point, times a scale. Words of eight codes lie in three ways:

    rows     [out, in / 8]   a word holds eight in features, lowest first: compressed-tensors
    columns  [in / 8, out]   the very same words, transposed: GPTQ
    across   [in, out / 8]   a word holds eight out features, in an order of its own: AWQ

From columns to across, eight words are 8 x 8 codes that are transposed. Zero points are in words of
eight out features: [groups, out / 8] of GPTQ (less 1, in its first version) and AWQ (in its order),
[out / 8, groups] of compressed-tensors, where 8 stands for all that are not stored. Scales are
[groups, out], or [out, groups].
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from anamnesis.base.dtypes import DTYPES
from anamnesis.base.errors import UnsupportedError
from anamnesis.base.lazy import NDArray, np
from anamnesis.base.stored import Part, StoredTensor
from anamnesis.schemes.core.layout import Unmovable
from anamnesis.schemes.families.integers.awq_order import AWQ_ORDER, from_awq_order, to_awq_order
from anamnesis.schemes.families.integers.checks import check_listed, middle_words
from anamnesis.schemes.views.bits import dense, stacked
from anamnesis.schemes.views.integer_casts import centred, in_dtype, with_zeros
from anamnesis.schemes.views.kinds import Integers, Words
from anamnesis.schemes.views.views import made_of, pieces, repeated
from anamnesis.sources.altered import recoded
from anamnesis.sources.strided import transposed

_U8, _I32 = DTYPES["U8"], DTYPES["I32"]
_PIECE = 1 << 20  # bytes of zero points that are read at once
NO_ZERO = "a zero point is 0, which has no place where they are stored less 1, as by GPTQ"


def _ones(bits: int) -> int:
    return sum(1 << at for at in range(0, 32, bits))


def plus_one(words: StoredTensor, bits: int = 4) -> StoredTensor:
    """Return words of zero points that are stored less 1, as they are."""
    # In one addition a word, as GPTQModel's loader does it: a zero point of 0 has borrowed from its
    # neighbour when it was stored, and gives that back.
    ones = _ones(bits)
    return made_of(
        Part(*words[:3]),
        [words],
        words.n_bytes // 4,
        lambda _, lines: lines.view("<u4") + ones,
    )


def has_zero(lines: NDArray[Any], bits: int) -> bool:
    """Return whether one of the zero points in some bytes, of 4 or 8 bits each, is 0."""
    if (lines == 0).any():
        return True
    return bits == 4 and bool((lines & 15 == 0).any() or (lines < 16).any())


def less_one(words: StoredTensor, bits: int = 4) -> StoredTensor:
    """Return words of zero points of 4 or 8 bits less 1."""
    stored = f"{words.source.name}: {words.name}"

    def lessened(units: range, lines: NDArray[Any]) -> NDArray[Any]:
        if has_zero(lines, bits):
            raise UnsupportedError(f"{stored}: {NO_ZERO}; exclude this weight")
        made: NDArray[Any] = lines.view("<u4") - _ones(bits)
        return made

    return made_of(Part(*words[:3]), [words], words.n_bytes // 4, lessened)


# --- AWQ's words, of eight out features ---------------------------------------------------------

_PLACES = tuple(AWQ_ORDER.index(i) for i in range(8))
_STEPS = ((4, 16, 0x0000FFFF), (2, 8, 0x00FF00FF), (1, 4, 0x0F0F0F0F))


def across_of_columns(columns: StoredTensor) -> StoredTensor:
    """Return words [in / 8, out] as [in, out / 8], in AWQ's order."""
    n, out = columns.shape

    def turned(units: range, lines: NDArray[Any]) -> NDArray[Any]:
        words = lines.view("<u4").reshape(len(lines), out // 8, 8)
        return np.moveaxis(_turned(words.transpose(2, 0, 1)[list(AWQ_ORDER)]), 0, 1)

    return made_of(Part(columns.name, _I32, (8 * n, out // 8)), [columns], n, turned)


def columns_of_across(across: StoredTensor) -> StoredTensor:
    """Return words [in, out / 8] in AWQ's order as columns of GPTQ's, [in / 8, out]."""
    n, out = across.shape[0] // 8, 8 * across.shape[1]

    def turned(units: range, lines: NDArray[Any]) -> NDArray[Any]:
        words = lines.view("<u4").reshape(len(lines), 8, out // 8)
        return np.moveaxis(_turned(words.transpose(1, 0, 2))[list(_PLACES)], 0, 2)

    return made_of(Part(across.name, _I32, (n, out)), [across], n, turned)


def rows_of_across(across: StoredTensor) -> StoredTensor:
    """Return words [in, out / 8] in AWQ's order as [out, in / 8]."""
    turned_words = transposed(across)  # [out / 8, in]
    n, n_in = turned_words.shape

    def turned(units: range, lines: NDArray[Any]) -> NDArray[Any]:
        words = lines.view("<u4").reshape(len(lines), n_in // 8, 8)
        return np.moveaxis(_turned(words.transpose(2, 0, 1))[list(_PLACES)], 0, 1)

    return made_of(Part(across.name, _I32, (8 * n, n_in // 8)), [turned_words], n, turned)


def _turned(words: NDArray[Any]) -> NDArray[Any]:
    """Return words [8, ...] whose codes are transposed: code i of word j is code j of word i."""
    made = np.array(words, "<u4", order="C")
    for apart, bits, mask in _STEPS:
        pairs = made.reshape(-1, 2, apart, *made.shape[1:])
        low, high = pairs[:, 0], pairs[:, 1]
        swapped = ((low >> np.uint32(bits)) ^ high) & np.uint32(mask)
        high ^= swapped
        low ^= swapped << np.uint32(bits)
    return made


# --- words of a weight --------------------------------------------------------------------------


def as_words(view: Integers, bits: int) -> Words:
    """Return integers in words of so many bits, in rows; without zero points where they can be."""
    view = with_zeros(view)
    is_kept = view.bits == bits and view.zeros is not None
    has_other = view.bits == bits and view.zero != 1 << bits - 1
    if not is_kept and not has_other:
        view = centred(view, bits)
    zeros = None
    n_rows, in_word = prod(view.shape[:-1]), 32 // bits
    if view.unit != 1:
        raise view.refused("its products are divided by 127")
    if is_kept or has_other:
        if len(view.shape) != 2 or n_rows % in_word:
            raise view.refused(f"out features must be a multiple of {in_word}")
        grid = view.zeros
        if grid is None:
            part = Part("", _U8, view.scales.shape)
            grid = repeated(part, bytes([view.zero]), view.codes)
        zeros = stacked(grid, bits)
    codes, is_symmetric = dense(view.codes, bits, "I32"), zeros is None
    return Words(
        *(view.name, view.shape, "rows", codes, view.scales, zeros, False),
        *(view.listed, view.group, is_symmetric),
        bits=bits,
        is_cast=view.is_cast,
    )


def of_bits(
    bits: int, views: Mapping[str, Words | Integers]
) -> tuple[dict[str, Words], dict[str, Unmovable]]:
    """Return the words of so many bits, and why others are none, with fewer bits or as many."""
    # They have a list of groups only where these are no runs.
    found, refused = {}, {}
    for name, view in views.items():
        if view.bits > bits or (view.bits < bits and isinstance(view, Words)):
            continue
        try:
            found[name] = _settled(as_words(view, bits) if isinstance(view, Integers) else view)
        except Unmovable as error:
            refused[name] = error
    return found, refused


def _settled(words: Words) -> Words:
    """Check groups that are listed: what is only copied is decoded by nobody."""
    listed = words.listed
    if listed is None:
        return words
    raw = listed.read()
    check_listed(listed, raw, 0, words.n_groups)
    given = np.frombuffer(raw, "<i4")
    if words.run is not None and (given == np.arange(len(given)) // words.run).all():
        return words._replace(listed=None)
    return words


def settled(words: Words) -> Words:
    """Return words with a list of groups, and zero points, only where these say anything."""
    words = _settled(words)
    return words._replace(is_symmetric=True) if _is_symmetric(words) else words


def all_symmetric(found: Mapping[str, Words]) -> dict[str, Words]:
    """Return words as symmetric ones, if every zero point is the middle code."""
    # Of all or of none: one config describes them, and programs merge layers of one kind. Zero
    # points are read piece by piece, up to the first that differs.
    if not all(map(_is_symmetric, found.values())):
        return dict(found)
    return {name: words._replace(is_symmetric=True) for name, words in found.items()}


def _is_symmetric(words: Words) -> bool:
    if words.zeros is None:
        return True
    if words.shape[-2] * words.bits % 32:  # the last word of a group is not full
        return False
    middle = np.frombuffer(middle_words(words.bits, words.less_one), "<u4")
    return all((piece.view("<u4") == middle).all() for piece in pieces(words.zeros, _PIECE))


def rows(words: Words) -> dict[str, StoredTensor]:
    """Return words by their roles as in compressed-tensors, but for what it need not store."""
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
    """Return words by their roles as in GPTQ; zero points are less 1."""
    _check(words, "GPTQ")
    codes, zeros = words.codes, words.zeros
    if words.kind != "columns":
        codes = transposed(codes) if words.kind == "rows" else columns_of_across(codes)
    if zeros is None or not words.less_one:
        plain = _plain_zeros(words)
        read = () if zeros is None else pieces(plain, _PIECE)
        if any(has_zero(piece, words.bits) for piece in read):
            raise words.refused(NO_ZERO)
        zeros = less_one(plain, words.bits)
    groups, scales = words.listed or _runs(words), _scales(words, "GPTQ")
    return {"codes": codes, "zeros": zeros, "scales": scales, "groups": groups}


def across(words: Words) -> dict[str, StoredTensor]:
    """Return words by their roles as in AWQ's GEMM layout."""
    _check(words, "AWQ")
    if words.listed is not None:
        raise words.refused("its groups are in act-order, which AWQ has not")
    codes, zeros = words.codes, words.zeros
    if words.kind != "across":
        codes = across_of_columns(transposed(codes) if words.kind == "rows" else codes)
    if zeros is None or words.kind != "across":
        zeros = recoded(_plain_zeros(words), 0, to_awq_order)
    return {"codes": codes, "zeros": zeros, "scales": _scales(words, "AWQ")}


def _check(words: Words, whose: str) -> None:
    """Refuse what neither of them has."""
    if not f".{words.name}".endswith(".weight"):
        raise words.refused(f"it is not called a weight, and {whose} names parts after modules")
    if len(words.shape) != 2:
        raise words.refused(f"{whose} has matrices only")
    if words.shape[0] % 8 or words.shape[1] % 8:
        raise words.refused(f"in and out features must be multiples of 8 in {whose}")


def _plain_zeros(words: Words) -> StoredTensor:
    """Return zero points as they are, words [groups, out / 8] of out features in order."""
    zeros, n_out, bits = words.zeros, words.shape[0], words.bits
    if zeros is None:
        part = Part(f"{words.name}_zero_point", _I32, (words.n_groups, n_out * bits // 32))
        return repeated(part, middle_words(bits, False), words.codes)
    if words.kind == "rows":
        return transposed(zeros)
    if words.kind == "across":
        zeros = recoded(zeros, 0, from_awq_order)
    return plus_one(zeros, words.bits) if words.less_one else zeros


def _scales(words: Words, whose: str) -> StoredTensor:
    """Return scales [groups, out] in F16."""
    scales = in_dtype(words.scales, "F16")
    if scales is None:
        raise words.refused(f"its scales are {words.scales.dtype}, and F16 in {whose}")
    return transposed(scales) if words.kind == "rows" else scales


def _runs(words: Words) -> StoredTensor:
    """Return the group of each in feature, where groups are runs."""
    group, n_in = words.group, words.shape[1]

    def given(units: range) -> NDArray[Any]:
        return (np.arange(units.start, units.stop) // group).astype("<i4")

    return made_of(Part("", _I32, (n_in,)), [], n_in, given, words.codes.source)
