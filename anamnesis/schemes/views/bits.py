"""Codes of 1 to 8 bits: a byte each, nibbles, or a dense stream of bits.

Of 4 bits, a byte has two neighbours, or as ggml's blocks one code of each half.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

from anamnesis.base.dtypes import DTYPES
from anamnesis.base.lazy import NDArray, np
from anamnesis.base.stored import Part, StoredTensor
from anamnesis.schemes.views.views import Undone, made_from, made_of

_U8 = DTYPES["U8"]
_TOGETHER = 8  # codes in a number of 64 bits, of which each step joins two
_PAIRS, _FOURS, _HALF = 0x00FF00FF00FF00FF, 0x0000FFFF0000FFFF, 0x00000000FFFFFFFF


class _Spread(NamedTuple):
    """How many bits became a byte, and which of each were flipped."""

    bits: int
    flipped: int


def dense(codes: StoredTensor, bits: int, dtype: str) -> StoredTensor:
    """Return bytes [..., rows, cols] as rows of whole 32-bit words of a dtype."""
    *lead, cols = codes.shape
    words = -(-cols * bits // 32)
    item = DTYPES[dtype].n_bytes(1)
    part = Part(codes.name, DTYPES[dtype], (*lead, 4 * words // item))
    if bits == 8 and cols % 4 == 0:
        return codes._replace(dtype=part.dtype, shape=part.shape)
    was = made_from(codes) if 8 % bits == 0 and cols * bits == 32 * words else None
    way = was.way if was and was.stored.n_bytes == part.n_bytes else None
    if was and isinstance(way, _Spread) and way.bits == bits:  # it is taken as it was, not spread
        if not way.flipped:
            return was.stored._replace(name=part.name, dtype=part.dtype, shape=part.shape)
        mask = sum(way.flipped << at for at in range(0, 8, bits))
        return made_of(part, [was.stored], prod(lead), lambda _, raw: raw ^ raw.dtype.type(mask))
    return made_of(part, [codes], prod(lead), lambda _, lines: _packed(lines, bits, 4 * words))


def spread(packed: StoredTensor, bits: int, cols: int, flipped: int = 0) -> StoredTensor:
    """Return rows of a dense stream of bits as bytes [..., rows, cols], some bits flipped."""
    *lead, _ = packed.shape
    part = Part(packed.name, _U8, (*lead, cols))

    def made(units: range, lines: NDArray[Any]) -> NDArray[Any]:
        codes = _unpacked(lines, bits, cols)
        return codes ^ codes.dtype.type(flipped) if flipped else codes

    if bits == 8 and packed.n_bytes == part.n_bytes and not flipped:
        return packed._replace(dtype=_U8, shape=part.shape)
    return made_of(part, [packed], prod(lead), made, undone=Undone(_Spread(bits, flipped), packed))


def stacked(codes: StoredTensor, bits: int) -> StoredTensor:
    """Return bytes [rows, cols] as words [rows * bits / 32, cols], the first row lowest."""
    # A word is filled by rows of one column.
    rows, cols = codes.shape
    in_word = 32 // bits
    part = Part(codes.name, DTYPES["I32"], (rows // in_word, cols))

    def made(units: range, lines: NDArray[Any]) -> NDArray[Any]:
        found = np.zeros((len(units), cols), "<u4")
        for place, line in enumerate(lines.reshape(len(units), in_word, cols).swapaxes(0, 1)):
            found |= line.astype("<u4") << np.uint32(bits * place)
        return found

    return made_of(part, [codes], rows // in_word, made)


def unstacked(words: StoredTensor, bits: int) -> StoredTensor:
    """Return words [n, cols], filled by rows of one column, as bytes [n * 32 / bits, cols]."""
    n, cols = words.shape
    in_word = 32 // bits
    part = Part(words.name, _U8, (n * in_word, cols))

    def made(units: range, lines: NDArray[Any]) -> NDArray[Any]:
        given = lines.view("<u4")[:, None]
        places = np.arange(0, 32, bits, dtype=np.uint32)[:, None]
        return ((given >> places) & np.uint32((1 << bits) - 1)).astype(np.uint8)

    return made_of(part, [words], n, made)


def _packed(lines: NDArray[Any], bits: int, row_bytes: int) -> NDArray[Any]:
    rows, cols = lines.shape
    if cols % _TOGETHER or cols // _TOGETHER * bits != row_bytes:
        wide = np.zeros((rows, -(-cols // 32) * 32), np.uint8)
        wide[:, :cols] = lines
        return _packed(wide, bits, wide.shape[1] * bits // 8)[:, :row_bytes]
    found = np.ascontiguousarray(lines).view("<u8")
    found = (found & _PAIRS) | ((found & ~np.uint64(_PAIRS)) >> np.uint64(8 - bits))
    found = (found & _FOURS) | ((found & ~np.uint64(_FOURS)) >> np.uint64(16 - 2 * bits))
    found = (found & _HALF) | ((found & ~np.uint64(_HALF)) >> np.uint64(32 - 4 * bits))
    return found.view(np.uint8).reshape(rows, -1, 8)[:, :, :bits].reshape(rows, row_bytes)


def _unpacked(lines: NDArray[Any], bits: int, cols: int) -> NDArray[Any]:
    """Return rows of a dense stream of bits as rows of bytes; the inverse of `_packed`."""
    rows, row_bytes = lines.shape
    n = -(-cols // _TOGETHER)
    wide = np.zeros((rows, n, 8), np.uint8)
    if row_bytes < n * bits:  # the last codes are not as many as are unpacked together
        longer = np.zeros((rows, n * bits), np.uint8)
        longer[:, :row_bytes] = lines
        lines = longer
    wide[:, :, :bits] = lines[:, : n * bits].reshape(rows, n, bits)
    found = wide.reshape(rows, n * 8).view("<u8")
    low = np.uint64((1 << 4 * bits) - 1)
    found = (found & low) | ((found & ~low) << np.uint64(32 - 4 * bits))
    low = np.uint64(((1 << 2 * bits) - 1) * 0x0000000100000001)
    found = (found & low) | ((found & ~low) << np.uint64(16 - 2 * bits))
    low = np.uint64(((1 << bits) - 1) * 0x0001000100010001)
    found = (found & low) | ((found & ~low) << np.uint64(8 - bits))
    return found.view(np.uint8)[:, :cols]


def paired(halves: NDArray[Any]) -> NDArray[Any]:
    """Return rows of bytes whose low nibbles are the first half, with two neighbours in a byte."""
    # Rows are of 2 to 16 bytes, a power of two.
    half = halves.shape[1] // 2
    number, low, high = _masks(half)
    bytes_ = np.ascontiguousarray(halves).reshape(-1, 2)
    even, odd = (np.ascontiguousarray(bytes_[:, i]).view(number) for i in (0, 1))
    pairs = np.empty((len(halves), 2), number)
    pairs[:, 0] = (even & low) | ((odd & low) << 4)
    pairs[:, 1] = ((even & high) >> 4) | (odd & high)
    return pairs.view(np.uint8)


def halved(pairs: NDArray[Any]) -> NDArray[Any]:
    """Return bytes of neighbours as ggml's halves of a block: the inverse of `paired`."""
    half = pairs.shape[1] // 2
    number, low, high = _masks(half)
    both = np.ascontiguousarray(pairs).view(number)
    first, second = both[:, 0], both[:, 1]
    halves = np.empty((len(pairs) * half, 2), np.uint8)
    halves[:, 0] = ((first & low) | ((second & low) << 4)).view(np.uint8)
    halves[:, 1] = (((first & high) >> 4) | (second & high)).view(np.uint8)
    return halves.reshape(pairs.shape)


def _masks(n_bytes: int) -> tuple[str, Any, Any]:
    """Return the dtype of numbers of so many bytes, and what masks all low and high nibbles."""
    number = np.dtype(f"<u{n_bytes}")
    low = np.frombuffer(b"\x0f" * n_bytes, number)[0]
    return number.str, low, low << 4


def swapped(codes: NDArray[Any]) -> NDArray[Any]:
    """Return bytes with their nibbles in the other order."""
    other: NDArray[Any] = (codes << 4) | (codes >> 4)
    return other
