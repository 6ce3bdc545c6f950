"""Rows of integers: how long they are, and what holds codes of several."""

from __future__ import annotations

from typing import NamedTuple

import anamnesis._core as _core

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
