"""Tensor data of the other byte order, read as if it were little-endian."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

import anamnesis._io as _io
from anamnesis.base.source import DerivedSource, Source


class Region(NamedTuple):
    """A run of records, each of the same length, with numbers to swap in it."""

    start: int
    stop: int
    record_bytes: int
    numbers: tuple[tuple[int, int], ...]


class SwappedSource(DerivedSource):
    """A source in whose regions numbers are turned round; all else is as it is.

    Closing it closes the source below.
    """

    def __init__(self, inner: Source, regions: Iterable[Region]) -> None:
        super().__init__(inner)
        self._inner = inner
        self._regions = sorted(regions)
        self._starts = [region.start for region in self._regions]
        self.size, self.path = inner.size, inner.path

    def _read_some(self, offset: int, view: memoryview) -> int:
        index = bisect_right(self._starts, offset) - 1
        if index < 0 or offset >= self._regions[index].stop:
            following = self._starts[index + 1] if index + 1 < len(self._starts) else self.size
            view = view[: max(following - offset, 0)]
            self._inner.read_into(offset, view)
            return len(view)
        return self._read_records(self._regions[index], offset, view)

    def _read_records(self, region: Region, offset: int, view: memoryview) -> int:
        """Read whole records, swap their numbers, and give what is asked for."""
        stop = min(offset + len(view), region.stop)
        before = (offset - region.start) % region.record_bytes
        behind = -(stop - region.start) % region.record_bytes
        records = bytearray(before + (stop - offset) + behind)
        self._inner.read_into(offset - before, memoryview(records))
        _swap(records, region)
        view[: stop - offset] = memoryview(records)[before : before + stop - offset]
        return stop - offset

    def _read_rows(self, offset: int, stride: int, row_bytes: int, view: memoryview) -> None:
        index = bisect_right(self._starts, offset) - 1
        region = self._regions[index] if index >= 0 else None
        last = offset + (len(view) // row_bytes - 1) * stride + row_bytes
        if (
            region is None
            or last > region.stop
            or any(n % region.record_bytes for n in (offset - region.start, stride, row_bytes))
        ):
            super()._read_rows(offset, stride, row_bytes, view)
            return
        self._inner.read_rows_into(offset, stride, row_bytes, view)
        _swap(view, region)

    def close(self) -> None:
        self._inner.close()


def _swap(records: bytearray | memoryview, region: Region) -> None:
    for at, width in region.numbers:
        _io.swap(records, at, region.record_bytes, width)
