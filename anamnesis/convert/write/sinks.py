"""Where encoded bands go: the protocol, a file without a name, and a stream."""

from __future__ import annotations

import io
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import BinaryIO, Protocol

from anamnesis.base.errors import OutputError
from anamnesis.convert.plan.files import Job, OutputFile, Slice
from anamnesis.schemes.core.codes import Loss

_PIECE = 1 << 20


class Sink(ABC):
    """Where encoded bands go, each by its place in a part; called from several threads."""

    in_order = False

    def write(self, job: Job, data: Sequence[memoryview], loss: Loss, sums: Sequence[int]) -> None:
        """Take the bytes of one band, a buffer for each slice; they are reused afterwards."""
        for piece, raw in zip(job.slices, data, strict=True):
            for place, some in piece.places(raw):
                self.take(job.file, piece, place, some)

    @abstractmethod
    def take(self, file: OutputFile, piece: Slice, place: int, data: memoryview) -> None:
        """Take bytes of a part, which begin at a place in it."""

    def abandon(self) -> None:  # noqa: B027 -- most wait for nothing
        """Let no band wait for another: there was a failure."""


class Writable(Protocol):
    """The least that is asked of an output stream."""

    def write(self, data: bytes, /) -> object:
        """Write `data`; return how much of it was written, or None for all."""


def write_all(stream: Writable, data: bytes) -> None:
    """Write to a stream until it has taken all: one without a buffer may take less at a time."""
    while data:
        n = stream.write(data)
        if n is None and not isinstance(stream, io.RawIOBase):
            return  # many wrappers write all, and do not count
        if type(n) is not int or n < 1:
            raise OutputError(
                f"the output's write() returned {n!r}: it must return how many bytes it has taken,"
                " at least one"
            )
        data = data[n:]


def write_at(fd: int, offset: int, data: bytes | memoryview, position: threading.Lock) -> None:
    """Write all bytes at an offset of an open file, under a lock where its position is moved."""
    view = memoryview(data)
    while view:
        if hasattr(os, "pwrite"):
            n = os.pwrite(fd, view, offset)
        else:  # Windows
            with position:
                os.lseek(fd, offset, os.SEEK_SET)
                n = os.write(fd, view)
        offset += n
        view = view[n:]


class FileSink(Sink):
    """Writes at offsets of one open file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._position = threading.Lock()

    def take(self, file: OutputFile, piece: Slice, place: int, data: memoryview) -> None:
        self.put(piece.begin + place, data)

    def put(self, offset: int, data: bytes | memoryview) -> None:
        write_at(self._file.fileno(), offset, data, self._position)


class StreamSink(Sink):
    """Writes a file to a stream that cannot seek: bands wait for their turn."""

    in_order = True

    def __init__(self, stream: Writable, file: OutputFile) -> None:
        self._stream = stream
        self._fixed = list(reversed(file.fixed))
        self._n_bytes = file.n_bytes
        self._at = 0
        self._turn = threading.Condition()
        self._next = 0
        self._broken = False

    def write(self, job: Job, data: Sequence[memoryview], loss: Loss, sums: Sequence[int]) -> None:
        """Write once all bands before are written."""
        with self._turn:
            self._turn.wait_for(lambda: self._next == job.ordinal or self._broken)
            if self._broken:
                return
            super().write(job, data, loss, sums)
            self._next += 1
            self._turn.notify_all()

    def take(self, file: OutputFile, piece: Slice, place: int, data: memoryview) -> None:
        self._fill(piece.begin + place)
        self._put(bytes(data))

    def begin(self) -> None:
        """Write what comes before all data."""
        if self._fixed and self._fixed[-1][0] == 0:
            self._put(self._fixed.pop()[1])

    def end(self) -> None:
        """Write what comes behind all data."""
        self._fill(self._n_bytes)

    def _fill(self, offset: int) -> None:
        """Write what lies between here and an offset: what is fixed, and zeros."""
        while self._fixed and self._fixed[-1][0] < offset:
            place, raw = self._fixed.pop()
            self._zeros(place)
            self._put(raw)
        self._zeros(offset)

    def _zeros(self, offset: int) -> None:
        while self._at < offset:
            self._put(bytes(min(_PIECE, offset - self._at)))

    def _put(self, data: bytes) -> None:
        write_all(self._stream, data)
        self._at += len(data)

    def abandon(self) -> None:
        """Wake up what waits for a band that will not come."""
        with self._turn:
            self._broken = True
            self._turn.notify_all()


def copy_to(file: BinaryIO, stream: Writable, check: Callable[[], None]) -> None:
    """Write all of a file to a stream, unless `check` raises before a piece of it."""
    file.seek(0, os.SEEK_SET)
    while raw := file.read(_PIECE):
        check()
        write_all(stream, raw)
