"""File objects that read and seek; those that cannot seek are copied first."""

from __future__ import annotations

import errno
import io
import os
import threading
from typing import TYPE_CHECKING, Any, Protocol

from anamnesis.base.source import Readable, Source, file_status
from anamnesis.base.stored import StoredTensor

if TYPE_CHECKING:
    from tempfile import SpooledTemporaryFile

    from anamnesis.base.source import Readable


class StreamSource(Source):
    """A binary file object, or anything with `read` and `seek`. It is not closed here."""

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        name = getattr(stream, "name", None)
        self.name = name if isinstance(name, str) else f"<{type(stream).__name__}>"
        if isinstance(stream, io.TextIOBase):
            raise self._gives_text()
        end = stream.seek(0, io.SEEK_END)
        # Some file-likes return None from seek.
        self.size = end if isinstance(end, int) else stream.tell()

    def _read_some(self, offset: int, view: memoryview) -> int:
        with self._lock:
            self._stream.seek(offset)
            data = self._stream.read(len(view))
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise self._gives_text()
        view[: len(data)] = data
        return len(data)

    def status(self) -> os.stat_result | None:
        return file_status(self._stream)

    def _gives_text(self) -> TypeError:
        return TypeError(f"{self.name}: read() must return bytes; open the file in binary mode")


_IN_MEMORY = 16 << 20  # bytes; what is longer goes to a temporary file
_PIECE = 1 << 20


class _Reads(Protocol):
    def read(self, size: int, /) -> bytes | None: ...


class _Named:
    """A file that can seek, with a name for errors."""

    def __init__(self, name: str, file: SpooledTemporaryFile[bytes]) -> None:
        self.name = name
        self.read = file.read
        self.seek = file.seek
        self._file = file

    def __del__(self) -> None:
        self._file.close()


def seekable(where: Any) -> Any:
    """Return a copy of a binary file object that cannot seek; anything else as it is."""
    is_own = isinstance(where, (Source, StoredTensor))
    is_text = isinstance(
        where, (str, bytes, os.PathLike, io.TextIOBase)
    )  # refused, if at all, later
    if is_own or is_text or not callable(getattr(where, "read", None)):
        return where
    if callable(getattr(where, "seek", None)):
        ask = getattr(where, "seekable", None)
        if not callable(ask) or ask():
            return where
    name = getattr(where, "name", None)
    return spooled(where, name if isinstance(name, str) else f"<{type(where).__name__}>")


def spooled(stream: _Reads, name: str) -> Readable:
    """Return the rest of a stream as a file that can seek. The copy goes with what is returned."""
    from tempfile import SpooledTemporaryFile

    spool = SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115 -- as long as the result
    try:
        while piece := stream.read(_PIECE):
            if not isinstance(piece, (bytes, bytearray, memoryview)):
                raise TypeError(f"{name}: read() must return bytes; open the file in binary mode")
            spool.write(piece)
        if piece is None:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), name)
    except BaseException:
        spool.close()
        raise
    return _Named(name, spool)
