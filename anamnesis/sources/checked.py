"""A stored member of an archive, whose CRC is checked once all was read.

Bands are read in any order, by several threads, and never twice: so each is summed up while it is
in cache, and what comes last brings the verdict.
"""

from __future__ import annotations

import threading

import anamnesis._io as _io
from anamnesis.base.crc import Run, RunsRead
from anamnesis.base.errors import ParseError
from anamnesis.base.source import Source


class CheckedSource(Source):
    """An archive from which one member is read: its offsets and bytes are the archive's."""

    def __init__(self, archive: Source, member: str, start: int, stop: int, crc: int) -> None:
        self._archive = archive
        self._member = member
        self._start = start
        self._crc = crc
        self._lock = threading.Lock()
        self._read = RunsRead()
        self._is_right = False
        self.name = archive.name
        self.size = stop

    @property
    def base(self) -> Source:
        return self._archive.base

    @property
    def shows_base(self) -> bool:
        return self._archive.shows_base

    def _read_some(self, offset: int, view: memoryview) -> int:
        view = view[: max(self.size - offset, 0)]
        if self._is_right:
            self._archive.read_into(offset, view)
            return len(view)
        crc = self._archive.read_summed(offset, view)
        with self._lock:
            self._read.add(Run(offset, offset + len(view), crc), view)
            run = self._read.runs[0]
            if (run.start, run.stop) == (self._start, self.size):  # all was read
                if run.crc != self._crc:
                    raise ParseError(
                        f"member {self._member!r} is damaged: its CRC is wrong",
                        offset=self._start,
                        source=self.name,
                    )
                self._is_right = True
        return len(view)

    def check(self) -> None:
        buffer = memoryview(bytearray(_io.CRC32_SLICE))
        while not self._is_right:  # the first bytes that were not read yet
            read = [(run.start, run.stop) for run in self._read.runs[:2]]
            if not read or read[0][0] > self._start:
                read.insert(0, (self._start, self._start))
            start = read[0][1]
            stop = read[1][0] if len(read) > 1 else self.size
            self._read_some(start, buffer[: stop - start])
