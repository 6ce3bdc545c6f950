"""Rows of one source in another order, some left out, read where they lie."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from anamnesis.base.source import DerivedSource
from anamnesis.base.stored import StoredTensor
from anamnesis.sources.row_order import Placed, RowOrder, together

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Indices = NDArray[np.int64]

_DIRECT_BYTES = 32 << 10
_GAP_BYTES = 8 << 10  # a separate read costs as much as reading this much more
_AT_ONCE = 512 << 10  # bytes that are read, and then put in order, at a time: in cache
_ROWS_AT_ONCE = 1 << 14
_SCATTERED_BYTES = 1 << 10  # rows that are longer are put in order by the read itself
_KEPT_PATTERNS = 8

_rooms: list[bytearray] = []  # that no thread uses now


@contextmanager
def _room(n_bytes: int) -> Iterator[memoryview]:
    """Lend a buffer: as many are kept as threads have read at once, and views of views."""
    try:
        room = _rooms.pop()
    except IndexError:
        room = bytearray()
    if len(room) < n_bytes:
        room = bytearray(n_bytes)
    yield memoryview(room)[:n_bytes]
    if len(room) <= 2 * _AT_ONCE:
        _rooms.append(room)


class _Pattern(NamedTuple):
    """How some rows lie."""

    spans: list[Placed]
    places: Indices
    height: int
    slots: list[int]

    @classmethod
    def of(cls, rows: Indices, gap: int) -> _Pattern:
        """Return the pattern of some rows, of which `gap` may be read with those around them."""
        import numpy as np

        spans, places = together(rows, gap)
        last = spans[-1]
        height = last.at + last.stop - last.start
        slots = np.full(height, -1)
        slots[places] = np.arange(len(rows))
        is_once = np.count_nonzero(slots >= 0) == len(rows)
        return cls(spans, places, height, slots.tolist() if is_once else [])


class GatheredSource(DerivedSource):
    """Rows of a stored tensor, in an order."""

    def __init__(self, stored: StoredTensor, row_bytes: int, order: RowOrder) -> None:
        super().__init__(stored.source)
        self._inner = stored.source
        self._offset = stored.offset
        self._row_bytes = row_bytes
        self._order = order
        self._of = stored.name
        self._patterns: dict[tuple[int, int], _Pattern] = {}
        self.size = order.n_rows * row_bytes

    def _read_some(self, offset: int, view: memoryview) -> int:
        if offset >= self.size:
            return 0
        row, begin = divmod(offset, self._row_bytes)
        source, n_left = self._order.at(row)
        n_bytes = n_left * self._row_bytes - begin
        n_rows = len(view) // self._row_bytes
        if begin or n_rows < 2 or n_bytes >= min(_DIRECT_BYTES, len(view)):
            part = view[:n_bytes]
            self._inner.read_into(self._offset + source * self._row_bytes + begin, part)
            return len(part)
        at_once = min(_ROWS_AT_ONCE, _AT_ONCE // self._row_bytes, self._order.n_rows - row)
        return self._gather(row, min(n_rows, max(at_once, 1)), view)

    def _gather(self, first: int, n: int, view: memoryview) -> int:
        """Read some rows, with what lies between, and put them in order; return their bytes."""
        length = self._row_bytes
        while True:
            start, pattern = self._pattern(first, n)
            if n == 1 or pattern.height * length <= 2 * _AT_ONCE:
                break
            n //= 2
        begin = self._offset + start * length
        if length >= _SCATTERED_BYTES and pattern.slots:
            self._scatter(begin, pattern, view)
        else:
            self._take(begin, pattern, view[: n * length])
        return n * length

    def _scatter(self, begin: int, pattern: _Pattern, view: memoryview) -> None:
        """Read each span into the places of its rows."""
        length = self._row_bytes
        with _room(length) as unwanted:
            for start, stop, at in pattern.spans:
                lines = [
                    unwanted if slot < 0 else view[slot * length : (slot + 1) * length]
                    for slot in pattern.slots[at : at + stop - start]
                ]
                self._inner.read_into_each(begin + start * length, lines)

    def _take(self, begin: int, pattern: _Pattern, view: memoryview) -> None:
        """Read all spans, then take the rows from there."""
        import numpy as np

        length = self._row_bytes
        with _room(pattern.height * length) as room:
            for start, stop, at in pattern.spans:
                part = room[at * length : (at + stop - start) * length]
                self._inner.read_into(begin + start * length, part)
            lines = np.frombuffer(room, np.uint8).reshape(-1, length)
            out = np.frombuffer(view, np.uint8).reshape(-1, length)
            np.take(lines, pattern.places, axis=0, out=out, mode="clip")

    def _pattern(self, first: int, n: int) -> tuple[int, _Pattern]:
        """Return from which row on some lie as a pattern says; most groups are alike."""
        step = self._order.step
        group, within = divmod(first, self._order.per_group) if step else (0, first)
        found = self._patterns.get((within, n))
        if found is None:
            found = _Pattern.of(self._order.rows(within, n), _GAP_BYTES // self._row_bytes)
            if len(self._patterns) >= _KEPT_PATTERNS:
                self._patterns.clear()
            self._patterns[within, n] = found
        return group * step, found

    @property
    def way(self) -> str:
        return f"rows {self._order.token} of {self._of!r}+{self._offset} {self._inner.way}".rstrip()
