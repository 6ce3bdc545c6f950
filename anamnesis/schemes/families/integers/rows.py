"""How integers lie: in rows, in planes of several, in AWQ's order of nibbles."""

from __future__ import annotations

from typing import Any, NamedTuple

import anamnesis._core as _core
from anamnesis.base.lazy import NDArray

_WORD = 4  # bytes


def bits_of(kernel: str) -> int:
    """Return the bits of a code; the name of a kernel ends with them."""
    return int(kernel[-1])


def row_bytes(kernel: str, cols: int) -> int:
    """Return how long a row is of whole 32-bit words, or bytes where codes are signed."""
    codes, n_bytes = _core.INTEGER_UNITS[kernel]
    if kernel.startswith("INT"):
        return -(-cols // codes) * n_bytes
    if kernel.startswith("PADDED"):
        return -(-cols // codes) * _WORD
    return -(-cols * bits_of(kernel) // 32) * _WORD


def zero_words(kernel: str, rows: int) -> int:
    """Return how many words hold the zero points of so many rows of a group."""
    return row_bytes(kernel, rows) // _WORD


class Planes(NamedTuple):
    """How a byte, or a word, holds codes of several rows, which the kernel then reads as bytes."""

    bits: int
    in_parts: bool = False
    high_first: bool = False
    width: int = 1

    @property
    def stacked(self) -> int:
        """Rows in a byte, or in what else they share."""
        return 8 * self.width // self.bits


# Of eight columns, or out features: even ones in the lower half, odd ones in the upper half.
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def to_awq_order(words: NDArray[Any]) -> None:
    """Put the nibbles 0 1 2 3 4 5 6 7 of each word at 0 4 1 5 2 6 3 7 of it."""
    halves = words & 0x0F0F0F0F, words >> 4 & 0x0F0F0F0F
    for half in halves:
        half |= half >> 4
        half &= 0x00FF00FF
        half |= half >> 8
        half &= 0x0000FFFF
    words[:] = halves[0]
    words |= halves[1] << 16


def from_awq_order(words: NDArray[Any]) -> None:
    """Put the nibbles 0 4 1 5 2 6 3 7 of each word at 0 1 2 3 4 5 6 7 of it."""
    halves = words & 0xFFFF, words >> 16
    for half in halves:
        half |= half << 8
        half &= 0x00FF00FF
        half |= half << 4
        half &= 0x0F0F0F0F
    words[:] = halves[0]
    words |= halves[1] << 4
