"""Files by offset, safe from several threads.

Files are read with `pread`-like calls and not mapped by default: a file that is cut short under a
mapping is a SIGBUS, which no `try` catches, and Windows cannot replace a mapped file.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

import anamnesis._io as _io
from anamnesis.base.arguments import check_path
from anamnesis.base.errors import ParseError
from anamnesis.base.source import Source

# Opening a named pipe would wait for a writer.
_READ_ONLY = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)

_VIEWS = 1024  # that a read may fill, of Linux and macOS
_AT_ONCE = 1 << 24  # bytes that one read of a regular file is sure to give


class FileSource(Source):
    """A regular file, opened by its path."""

    _fd = -1

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = self.name = os.fspath(check_path("where", path))
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
            if n_bytes > _AT_ONCE or offset + n_bytes > self.size:
                return super().read(offset, n_bytes)
            data = os.pread(self._fd, n_bytes, offset)
            if len(data) < n_bytes:  # some file systems give less than is asked for
                return super().read(offset, n_bytes)
            return data

        def _read_some(self, offset: int, view: memoryview) -> int:
            try:
                return os.preadv(self._fd, [view], offset)
            except OSError:
                if self._fd < 0:
                    raise ValueError(f"{self.name}: the file is closed") from None
                raise

        def read_into_each(self, offset: int, views: Sequence[memoryview]) -> None:
            for i in range(0, len(views), _VIEWS):
                some = views[i : i + _VIEWS]
                n_bytes = sum(map(len, some))
                with suppress(OSError):  # which reading one by one tells of
                    if os.preadv(self._fd, some, offset) == n_bytes:
                        offset += n_bytes
                        continue
                super().read_into_each(offset, some)
                offset += n_bytes

        def _read_rows(self, offset: int, stride: int, row_bytes: int, view: memoryview) -> None:
            done = _io.pread_rows(self._fd, offset, stride, row_bytes, view)
            if done < len(view):
                row, start = divmod(done, row_bytes)
                raise self._ends(offset + row * stride + start, len(view) - done)

        if _io.CRC32_BITS:

            def read_summed(self, offset: int, view: memoryview) -> int:
                done, crc = _io.pread_crc32(self._fd, offset, view)
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

    def stamp(self) -> list[int | str]:
        return [self.size, self._mtime_ns]

    def status(self) -> os.stat_result:
        return os.fstat(self._fd)

    def check_unchanged(self) -> None:
        now = self.status()
        if (now.st_size, now.st_mtime_ns) != (self.size, self._mtime_ns):
            raise ParseError(
                "was written to while it was read; run again when it is whole", source=self.name
            )

    def _ends(self, at: int, missing: int) -> ParseError:
        left = self.status().st_size
        if left >= self.size:
            return super()._ends(at, missing)
        return ParseError(
            f"was cut while it was read: {left:,} of its {self.size:,} bytes are left",
            offset=at,
            source=self.name,
        )

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        if self._fd >= 0:
            self.close()
