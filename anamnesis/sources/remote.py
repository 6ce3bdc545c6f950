"""Bytes of an object elsewhere: the pages of its header, and ranges of its data."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from operator import itemgetter

import anamnesis._io as _io
from anamnesis.base.crc import crc32
from anamnesis.base.source import Source
from anamnesis.sources.file import FileSource
from anamnesis.sources.retries import Ranges, at_once
from anamnesis.sources.urls import HubPlace, file_name, kind_of_url, url_beside

PAGE = 128 << 10  # bytes of the first request: most headers are shorter
REMOTE_BUFFER = 64 << 20
_LONGEST_PAGE = 4 << 20
_MOST_PREFETCHED = 16 << 20
_GAP = 4096  # bytes between ranges that are asked for together
_IN_FLIGHT = 32
_SHORT, _MOST_SHORT = 16 << 10, 32


class RemoteSource(Source):
    """An object that is read in ranges.

    While its header is parsed, what was read is kept, and reading on asks for twice as much each
    time. Later each range is asked for as it is, and a short one kept a while: each band reads some
    of the scales.
    """

    def __init__(self, ranges: Ranges, url: str, buffer: int | None, first: int) -> None:
        self._ranges = ranges
        self._buffer = REMOTE_BUFFER if buffer is None else buffer
        self.url, self.name = url, ranges.name
        self._pages = [self._page(0, first)]  # where each starts, and its bytes; by place
        self.size = ranges.size
        self._parses = True
        self._n_settled = 0  # pages of the header; others behind are few and short

    def _read_some(self, offset: int, view: memoryview) -> int:
        view = view[: max(0, self.size - offset)]
        start, page = self._page_at(offset)
        kept = memoryview(page)[offset - start :][: len(view)]
        if kept or not view:
            view[: len(kept)] = kept
            return len(kept)
        n_bytes = len(view)
        if n_bytes >= (_LONGEST_PAGE if self._parses else _SHORT):
            return self._ranges.fill(offset, view)
        if self._parses:
            before = len(page) if start + len(page) == offset else 0
            n_bytes = max(n_bytes, min(2 * before, _LONGEST_PAGE))
        elif len(self._pages) >= self._n_settled + _MOST_SHORT:
            self._pages = self._pages[: self._n_settled]
        read = self._page(offset, min(offset + n_bytes, self.size))
        self._keep([read])
        view[:] = read[1][: len(view)]
        return len(view)

    def read_summed(self, offset: int, view: memoryview) -> int:
        self.read_into(offset, view)
        return crc32(view)

    def _read_rows(self, offset: int, stride: int, row_bytes: int, view: memoryview) -> None:
        """Read rows with what lies between them, some MiB together."""
        n = max(1, _LONGEST_PAGE // stride) * row_bytes
        for at in range(0, len(view), n):
            rows = view[at : at + n]
            span = memoryview(bytearray((len(rows) // row_bytes - 1) * stride + row_bytes))
            self.read_into(offset + at // row_bytes * stride, span)
            _io.copy_rows(span, 0, stride, row_bytes, rows)

    def _page_at(self, offset: int) -> tuple[int, bytearray]:
        """Return the last page that starts at an offset or before."""
        pages = self._pages  # which another thread may replace
        at = bisect_right(pages, offset, key=itemgetter(0))
        return pages[at - 1] if at else (offset, bytearray())

    def _page(self, start: int, stop: int) -> tuple[int, bytearray]:
        page = bytearray(stop - start)
        n = self._ranges.fill(start, memoryview(page))
        return start, page[:n]

    def _keep(self, pages: Iterable[tuple[int, bytearray]]) -> None:
        self._pages = sorted([*self._pages, *pages], key=itemgetter(0))

    def prefetch(self, ranges: Iterable[tuple[int, int]]) -> None:
        joined: list[list[int]] = []
        for start, stop in sorted(ranges):
            stop = min(stop, self.size)
            at, page = self._page_at(start)
            if joined and start - joined[-1][1] <= _GAP:
                joined[-1][1] = max(stop, joined[-1][1])
            elif max(start, at + len(page)) < stop:
                joined.append([start, stop])
        if sum(stop - start for start, stop in joined) <= _MOST_PREFETCHED:
            self._keep(at_once(lambda span: self._page(*span), joined, _IN_FLIGHT))

    def settle(self, header_bytes: int) -> None:
        self._parses = False
        if self.size > len(self._page_at(0)[1]):  # else all of it is at hand
            kept = [(at, page[: header_bytes - at]) for at, page in self._pages]
            self._pages = [page for page in kept if page[0] < header_bytes]
        self._n_settled = len(self._pages)

    def in_flight(self, n_bytes: int) -> int:
        return min(_IN_FLIGHT, max(1, self._buffer // n_bytes))

    @property
    def file_name(self) -> str:
        return file_name(self.url)

    def beside(self, name: str) -> str:
        return url_beside(self.url, name)

    def stamp(self) -> list[int | str]:
        return [self.size, self._ranges.modified_ns, self._ranges.tag or ""]


def open_remote(url: str, buffer: int | None = None, first: int = PAGE) -> Source:
    """Return the object at an address, which is asked for its first bytes."""
    kind = kind_of_url(url)
    if kind == "hub":
        from anamnesis.sources.hub import HubRanges, cached, snapshot

        place = HubPlace.parse(url)
        path = snapshot(url) or cached(place)
        if path is None:
            ranges = HubRanges(place)
            source = RemoteSource(ranges, url, buffer, first)
            path = cached(place._replace(revision=ranges.commit))
            if path is None:
                return source
        return FileSource(path)
    if kind == "bucket":
        from anamnesis.sources.bucket import BucketRanges

        return RemoteSource(BucketRanges(url), url, buffer, first)
    from anamnesis.sources.http import HttpRanges

    return RemoteSource(HttpRanges(url), url, buffer, first)
