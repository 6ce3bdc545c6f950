"""Bytes in memory: anything with the buffer protocol."""

from __future__ import annotations

from typing import Any

import anamnesis._io as _io
from anamnesis.base.source import Source


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
        part = self._view[offset : offset + n_bytes]
        return part if len(part) == n_bytes else None

    def _read_rows(self, offset: int, stride: int, row_bytes: int, view: memoryview) -> None:
        if offset + (len(view) // row_bytes - 1) * stride + row_bytes > self.size:
            super()._read_rows(offset, stride, row_bytes, view)  # says where it ends
        _io.copy_rows(self._view, offset, stride, row_bytes, view)
