"""One way to open paths, bytes and file objects."""

from __future__ import annotations

import os
from typing import BinaryIO

from anamnesis.base.printable import kind_of
from anamnesis.base.source import Readable, Source
from anamnesis.sources.file import FileSource
from anamnesis.sources.memory import BufferSource
from anamnesis.sources.stream import StreamSource
from anamnesis.sources.urls import kind_of_url


def open_source(
    where: str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO | Readable | Source,
    *,
    mmap: bool = False,
    buffer: int | None = None,
) -> Source:
    """Return a `Source` over a path, an address, bytes or a seekable binary file object.

    What is at an address is read through `buffer` bytes.
    """
    if kind_of_url(where):
        from anamnesis.sources.remote import open_remote  # only here, for the sake of a quick start

        return open_remote(str(where), buffer)
    if isinstance(where, (str, os.PathLike)):
        file = FileSource(where)
        try:
            return _MappedSource(file) if mmap else file
        except BaseException:
            file.close()
            raise
    if isinstance(where, Source):
        return where
    if isinstance(where, Readable):
        return StreamSource(where)
    try:
        return BufferSource(where)
    except TypeError:
        raise TypeError(
            f"cannot read {kind_of(where)}: need a path, bytes or a file object"
        ) from None


class _MappedSource(BufferSource):
    """A file in its own mapping, and open as long as that."""

    def __init__(self, file: FileSource) -> None:
        import mmap

        # An empty file cannot be mapped.
        self._mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if file.size else b""
        super().__init__(self._mapped, file.name)
        self.path = file.path
        self._file = file

    def held(self, offset: int, n_bytes: int) -> memoryview | None:
        return None

    def stamp(self) -> list[int | str]:
        return self._file.stamp()

    def status(self) -> os.stat_result:
        return self._file.status()

    def check_unchanged(self) -> None:
        self._file.check_unchanged()

    def close(self) -> None:
        self._view.release()
        if not isinstance(self._mapped, bytes):
            self._mapped.close()
        self._file.close()
