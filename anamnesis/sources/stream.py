"""File objects, and anything else that can read and seek."""

from __future__ import annotations

import io
import os
import threading

from anamnesis.base.source import Readable, Source, file_status


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
