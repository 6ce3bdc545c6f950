"""Where decoded bands go: files in a staging folder, or a stream."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

from anamnesis.convert.plan import Job
from anamnesis.convert.staging import Staging

__all__ = ["Sink", "StagingSink", "StreamSink", "Writable", "write_all"]


class Sink(Protocol):
    """Where decoded bands go; called from several threads.

    Attributes
    ----------
    in_order : bool
        Whether a band waits for those before it.
    """

    in_order: bool

    def write(self, job: Job, data: Sequence[memoryview], n_overflows: int) -> None:
        """Take the bytes of one band, a buffer for each slice; they are reused afterwards."""

    def abandon(self) -> None:
        """Let no band wait for another: there was a failure."""


class Writable(Protocol):
    """The least that is asked of an output stream."""

    def write(self, data: bytes, /) -> object:
        """Write `data`; return how much of it was written, if that may be less than all."""


def write_all(stream: Writable, data: bytes) -> None:
    """Write to a stream until it has taken all: one without a buffer may take less at a time."""
    while data:
        n = stream.write(data)
        if type(n) is not int or n >= len(data):
            return
        data = data[n:]


class StagingSink:
    """Writes at offsets of files in a staging folder, and journals."""

    in_order = False

    def __init__(self, staging: Staging) -> None:
        self._staging = staging

    def write(self, job: Job, data: Sequence[memoryview], n_overflows: int) -> None:
        """Write, then note that it is written."""
        for piece, raw in zip(job.slices, data, strict=True):
            for i in range(piece.pieces):
                one = raw[i * piece.n_bytes : (i + 1) * piece.n_bytes]
                self._staging.write(job.file.name, piece.offset + i * piece.stride, one)
        self._staging.finished(job.ordinal, n_overflows)

    def abandon(self) -> None:
        """Nothing waits here."""


class StreamSink:
    """Writes to a stream that cannot seek: bands wait for their turn."""

    in_order = True

    def __init__(self, stream: Writable) -> None:
        self._stream = stream
        self._turn = threading.Condition()
        self._next = 0
        self._broken = False

    def write(self, job: Job, data: Sequence[memoryview], n_overflows: int) -> None:
        """Write once all bands before are written."""
        with self._turn:
            self._turn.wait_for(lambda: self._next == job.ordinal or self._broken)
            if self._broken:
                return
            for raw in data:
                write_all(self._stream, bytes(raw))
            self._next += 1
            self._turn.notify_all()

    def abandon(self) -> None:
        """Wake up what waits for a band that will not come."""
        with self._turn:
            self._broken = True
            self._turn.notify_all()
