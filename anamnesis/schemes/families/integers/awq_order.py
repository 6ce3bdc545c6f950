"""AWQ's order of the nibbles in a word: codes of eight columns, or out features."""

from __future__ import annotations

from typing import Any

from anamnesis.base.lazy import NDArray

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # even ones in the lower half, odd ones in the upper half


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
