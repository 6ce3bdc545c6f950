"""Bytes and arrays in memory, read as row-major and little-endian; large buffers."""

from __future__ import annotations

import mmap
import sys
from typing import Any

import anamnesis._io as _io
from anamnesis.base.lazy import NDArray, np
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


class ArraySource(Source):
    """An array of any strides and byte order; what is asked for is copied, and no more."""

    def __init__(self, array: NDArray[Any], name: str) -> None:
        self._array = array
        self._item = array.dtype.itemsize
        self.name = name
        self.size = array.nbytes

    def _read_some(self, offset: int, view: memoryview) -> int:
        first, last = offset // self._item, -(-(offset + len(view)) // self._item)
        items = self._array.flat[first:last]
        raw = items.astype(items.dtype.newbyteorder("<"), copy=False).view(np.uint8).data
        part = raw[offset - first * self._item :][: len(view)]
        view[: len(part)] = part
        return len(part)


def array_source(array: NDArray[Any], name: str) -> Source:
    """Return the row-major, little-endian bytes of an array; it is not copied."""
    if not array.nbytes:
        return BufferSource(b"", name)
    # Little-endian is also what has one byte an item, and no order.
    is_little = array.dtype.newbyteorder("<") == array.dtype
    if is_little and array.flags.c_contiguous:
        return BufferSource(array.reshape(-1).view(np.uint8), name)
    return ArraySource(array, name)


def mapped_memory(n_bytes: int) -> mmap.mmap:
    """Return zeros that go back to the system with their last view, as an allocator's need not."""
    private = {} if sys.platform == "win32" else {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS}
    return mmap.mmap(-1, n_bytes, **private)
