"""Words read with some bits flipped, or with their nibbles in another order."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from anamnesis.base.source import DerivedSource, Source
from anamnesis.base.stored import StoredTensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WORD = 4
_AT_ONCE = 1 << 14  # words, which stay in cache with what is made of them
_Recode = Callable[["NDArray[Any]"], None]


def recoded(stored: StoredTensor, flipped: int, *orders: _Recode) -> StoredTensor:
    """Return a tensor whose words of 32 bits are put in `orders`, and then have `flipped` flipped.

    It lies where it lay. Only of orders it must be whole words.
    """
    if not flipped and not orders:
        return stored
    return stored._replace(source=RecodedSource(stored.source, stored.offset, flipped, orders))


class RecodedSource(DerivedSource):
    """A source whose words from `start` on are recoded; closing it closes the source below."""

    def __init__(
        self, inner: Source, start: int, flipped: int, orders: tuple[_Recode, ...]
    ) -> None:
        super().__init__(inner)
        self._inner = inner
        self._start = start
        self._flipped = flipped
        self._orders = orders
        self.size, self.path = inner.size, inner.path

    def _read_some(self, offset: int, view: memoryview) -> int:
        before, behind = (offset - self._start) % _WORD, -(offset + len(view) - self._start) % _WORD
        if before or behind:
            words = memoryview(bytearray(before + len(view) + behind))
            whole = len(words) if self._orders else before + len(view)  # flips need no whole words
            self._inner.read_into(offset - before, words[:whole])
            self._recode(words)
            view[:] = words[before : before + len(view)]
        else:
            self._inner.read_into(offset, view)
            self._recode(view)
        return len(view)

    def read_rows_into(self, offset: int, stride: int, row_bytes: int, view: memoryview) -> None:
        if (offset - self._start) % _WORD or stride % _WORD or row_bytes % _WORD:
            self._read_rows(offset, stride, row_bytes, view)
        else:
            self._inner.read_rows_into(offset, stride, row_bytes, view)
            self._recode(view)

    def _recode(self, view: memoryview) -> None:
        import numpy as np  # only here, for the sake of a quick start

        words = np.frombuffer(view, "<u4")
        for order in self._orders:
            for at in range(0, len(words), _AT_ONCE):
                order(words[at : at + _AT_ONCE])
        if self._flipped:
            words ^= np.uint32(self._flipped)

    def close(self) -> None:
        self._inner.close()


# AWQ's order has the even nibbles of a word in its lower half, the odd ones in the upper half.


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
