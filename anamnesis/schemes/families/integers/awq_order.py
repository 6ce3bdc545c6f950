"""AWQ's order of nibbles: words of eight out features, 0 2 4 6 1 3 5 7 from below."""

from __future__ import annotations

from typing import Any

from anamnesis.base.dtypes import DTYPES
from anamnesis.base.lazy import NDArray, np
from anamnesis.base.stored import Part, StoredTensor
from anamnesis.schemes.views.views import made_of
from anamnesis.sources.strided import transposed

_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # of the out features in a word
_PLACES = tuple(_ORDER.index(i) for i in range(8))
_I32 = DTYPES["I32"]
_STEPS = ((4, 16, 0x0000FFFF), (2, 8, 0x00FF00FF), (1, 4, 0x0F0F0F0F))


def across_of_columns(columns: StoredTensor) -> StoredTensor:
    """Return words [in / 8, out] as [in, out / 8], in AWQ's order."""
    n, out = columns.shape

    def turned(units: range, lines: NDArray[Any]) -> NDArray[Any]:
        words = lines.view("<u4").reshape(len(lines), out // 8, 8)
        return np.moveaxis(_turned(words.transpose(2, 0, 1)[list(_ORDER)]), 0, 1)

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


def in_awq_order(words: StoredTensor) -> StoredTensor:
    """Return words whose codes are in AWQ's order."""
    return _permuted(words, _ORDER)


def in_plain_order(words: StoredTensor) -> StoredTensor:
    """Return words in AWQ's order as words whose codes are in plain order."""
    return _permuted(words, _PLACES)


def _permuted(words: StoredTensor, order: tuple[int, ...]) -> StoredTensor:
    def permuted(units: range, lines: NDArray[Any]) -> NDArray[Any]:
        given = lines.view("<u4")
        made = np.zeros_like(given)
        for place, code in enumerate(order):
            made |= ((given >> np.uint32(4 * code)) & np.uint32(15)) << np.uint32(4 * place)
        return made

    return made_of(Part(*words[:3]), [words], words.n_bytes // 4, permuted)
