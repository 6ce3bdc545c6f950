"""Bytes by offset: one way to read files, buffers and file objects, safe from several threads.

Files are read with `pread`-like calls and not mapped by default: a file that is cut short under a
mapping is a SIGBUS, which no `try` catches, and Windows cannot replace a mapped file.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import threading
from abc import ABC, abstractmethod
from typing import Any, BinaryIO, NoReturn, Protocol, Self, runtime_checkable

from anamnesis import _parse
from anamnesis.errors import ParseError

__all__ = ["BufferSource", "FileSource", "Readable", "Source", "StreamSource", "open_source"]


# Opening a named pipe would wait for a writer.
_READ_ONLY = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)

_AT_ONCE = 1 << 24  # bytes that one read of a regular file is sure to give


@runtime_checkable
class Readable(Protocol):
    """The least that is asked of a file object."""

    def read(self, size: int = ..., /) -> bytes:
        """Return up to `size` bytes."""

    def seek(self, offset: int, whence: int = ..., /) -> int:
        """Move to a position and return it."""


class Source(ABC):
    """Random access to the bytes of one input.

    Attributes
    ----------
    name : str
        What error messages call it.
    size : int
        Its length in bytes.
    path : str or None
        Where it lies, if it is a file that was opened by its path.
    """

    name: str
    size: int
    path: str | None = None

    @abstractmethod
    def _read_some(self, offset: int, view: memoryview) -> int:
        """Read up to `len(view)` bytes at `offset` into `view`; return how many, 0 at the end."""

    def read_into(self, offset: int, view: memoryview) -> None:
        """Fill `view` from `offset` on; raise `ParseError` if the source ends before."""
        done = 0
        while done < len(view):
            n = self._read_some(offset + done, view[done:])
            if n <= 0:
                raise self._ends(offset + done, len(view) - done)
            done += n

    def read_summed(self, offset: int, view: memoryview) -> int:
        """Fill `view` as `read_into` does; return the CRC-32 of what was read.

        Summed up slice by slice, while it is in cache.
        """
        from anamnesis.crc import crc32  # only here, for the sake of a quick start

        crc = 0
        for at in range(0, len(view), _parse.CRC32_SLICE):
            part = view[at : at + _parse.CRC32_SLICE]
            self.read_into(offset + at, part)
            crc = crc32(part, crc)
        return crc

    def held(self, offset: int, n_bytes: int) -> memoryview | None:
        """Return bytes as they lie if they lie in memory, not to be written to; else None."""
        return None

    def read_rows_into(self, offset: int, stride: int, row_bytes: int, view: memoryview) -> None:
        """Fill `view` with rows of `row_bytes` that lie `stride` apart, from `offset` on.

        Some columns of a row-major matrix, that is. `ParseError` as in `read_into`.
        """
        if row_bytes == stride:
            self.read_into(offset, view)
        elif len(view):
            self._read_rows(offset, stride, row_bytes, view)

    def _read_rows(self, offset: int, stride: int, row_bytes: int, view: memoryview) -> None:
        for i in range(len(view) // row_bytes):
            self.read_into(offset + i * stride, view[i * row_bytes : (i + 1) * row_bytes])

    def _ends(self, at: int, missing: int) -> ParseError:
        return ParseError(
            f"ends after {at:,} bytes, {missing:,} more are needed", offset=at, source=self.name
        )

    def read(self, offset: int, n_bytes: int) -> bytes:
        """Return exactly `n_bytes` bytes; check the length against `size` before allocating."""
        if n_bytes > self.size - offset:
            raise ParseError(
                f"ends after {self.size:,} bytes, {offset + n_bytes:,} are needed",
                offset=min(offset, self.size),
                source=self.name,
            )
        buffer = bytearray(n_bytes)
        self.read_into(offset, memoryview(buffer))
        return bytes(buffer)

    @property
    def base(self) -> Source:
        """The source of the whole file that these bytes are from."""
        return self

    @property
    def shows_base(self) -> bool:
        """Whether its offsets and bytes are those of `base`."""
        return self.base is self

    def check(self) -> None:  # noqa: B027 -- most have no checksum
        """Read what was not read yet of bytes that have a checksum; `ParseError` if it is wrong."""

    def stamp(self) -> list[int]:
        """Return numbers that change when the content is replaced: size and, for files, mtime."""
        return [self.size]

    def close(self) -> None:  # noqa: B027 -- most have nothing to close
        """Let go of what was opened here; what the caller opened stays open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class FileSource(Source):
    """A regular file, opened by its path.

    Raises
    ------
    OSError
        If it cannot be opened; IsADirectoryError if it is a directory.
    ParseError
        If it is not a regular file.
    """

    _fd = -1

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = self.name = os.fspath(path)
        try:
            self._fd = os.open(self.path, _READ_ONLY)
        except PermissionError:
            if os.path.isdir(self.path):  # what Windows says of them
                self._refuse(stat.S_IFDIR)
            raise
        status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode):
            self.close()
            self._refuse(status.st_mode)
        self.size = status.st_size
        self._mtime_ns = status.st_mtime_ns
        self._lock = threading.Lock()

    def _refuse(self, mode: int) -> NoReturn:
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), self.path)
        raise ParseError("not a regular file", source=self.name)

    if hasattr(os, "preadv"):

        def read(self, offset: int, n_bytes: int) -> bytes:
            """Return exactly `n_bytes` bytes, without copying them once more."""
            if n_bytes > _AT_ONCE or offset + n_bytes > self.size:
                return super().read(offset, n_bytes)
            data = os.pread(self._fd, n_bytes, offset)
            if len(data) < n_bytes:
                raise self._ends(offset + len(data), n_bytes - len(data))
            return data

        def _read_some(self, offset: int, view: memoryview) -> int:
            return os.preadv(self._fd, [view], offset)

        def _read_rows(self, offset: int, stride: int, row_bytes: int, view: memoryview) -> None:
            done = _parse.pread_rows(self._fd, offset, stride, row_bytes, view)
            if done < len(view):
                row, start = divmod(done, row_bytes)
                raise self._ends(offset + row * stride + start, len(view) - done)

        if _parse.CRC32_BITS:

            def read_summed(self, offset: int, view: memoryview) -> int:
                """Read and sum up in one call."""
                done, crc = _parse.pread_crc32(self._fd, offset, view)
                if done < len(view):
                    raise self._ends(offset + done, len(view) - done)
                return crc

    else:  # Windows: no positioned read, so the descriptor's position is shared

        def _read_some(self, offset: int, view: memoryview) -> int:
            with self._lock:
                os.lseek(self._fd, offset, os.SEEK_SET)
                data = os.read(self._fd, len(view))
            view[: len(data)] = data
            return len(data)

    def fileno(self) -> int:
        """Return the descriptor, as `mmap` wants it."""
        return self._fd

    def stamp(self) -> list[int]:
        """Return size and modification time."""
        return [self.size, self._mtime_ns]

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        if self._fd >= 0:
            self.close()


class BufferSource(Source):
    """Any object with the buffer protocol: bytes, bytearray, memoryview, mmap, ndarray."""

    def __init__(self, data: Any, name: str = "<bytes>") -> None:
        self._view = memoryview(data).cast("B")
        self.name = name
        self.size = len(self._view)

    def _read_some(self, offset: int, view: memoryview) -> int:
        part = self._view[offset : offset + len(view)]
        view[: len(part)] = part
        return len(part)

    def held(self, offset: int, n_bytes: int) -> memoryview | None:
        """Return a part of the buffer, or None for what it does not have."""
        part = self._view[offset : offset + n_bytes]
        return part if len(part) == n_bytes else None

    def _read_rows(self, offset: int, stride: int, row_bytes: int, view: memoryview) -> None:
        if offset + (len(view) // row_bytes - 1) * stride + row_bytes > self.size:
            super()._read_rows(offset, stride, row_bytes, view)  # says where it ends
        _parse.copy_rows(self._view, offset, stride, row_bytes, view)


class StreamSource(Source):
    """A binary file object, or anything with `read` and `seek`. It is not closed here."""

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        name = getattr(stream, "name", None)
        self.name = name if isinstance(name, str) else f"<{type(stream).__name__}>"
        end = stream.seek(0, io.SEEK_END)
        # Some file-likes return None from seek.
        self.size = end if isinstance(end, int) else stream.tell()

    def _read_some(self, offset: int, view: memoryview) -> int:
        with self._lock:
            self._stream.seek(offset)
            data = self._stream.read(len(view))
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"{self.name}: read() must return bytes; open the file in binary mode")
        view[: len(data)] = data
        return len(data)


def open_source(
    where: str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO | Readable | Source,
    *,
    mmap: bool = False,
) -> Source:
    """Return a `Source` over a path, a bytes-like object or a seekable binary file object.

    Parameters
    ----------
    where : path, bytes-like, file object or Source
        A `str` is always a path.
    mmap : bool
        Map a file instead of reading it; the caller answers for its not being cut short meanwhile.

    Raises
    ------
    OSError
        If a path cannot be opened.
    ParseError
        If a path is not a regular file.
    TypeError
        If `where` is nothing that can be read.
    """
    if isinstance(where, (str, os.PathLike)):
        return _map_file(where) if mmap else FileSource(where)
    if isinstance(where, Source):
        return where
    if isinstance(where, Readable):
        return StreamSource(where)
    try:
        return BufferSource(where)
    except TypeError:
        kind = type(where).__name__
        raise TypeError(f"cannot read a {kind}: need a path, bytes or a file object") from None


class _MappedSource(BufferSource):
    """A file in a mapping of its own."""

    def __init__(self, file: FileSource) -> None:
        import mmap

        # An empty file cannot be mapped.
        self._mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if file.size else b""
        super().__init__(self._mapped, file.name)
        self.path = file.path
        self._stamp = file.stamp()

    def held(self, offset: int, n_bytes: int) -> memoryview | None:
        """Return None: a mapping cannot be closed while a part of it is held."""
        return None

    def stamp(self) -> list[int]:
        """Return size and modification time."""
        return self._stamp

    def close(self) -> None:
        """Unmap; closing twice is harmless."""
        self._view.release()
        if not isinstance(self._mapped, bytes):
            self._mapped.close()


def _map_file(path: str | os.PathLike[str]) -> Source:
    with FileSource(path) as file:
        return _MappedSource(file)
