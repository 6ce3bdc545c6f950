"""Memory that ends where it must not be read on."""

from __future__ import annotations

import ctypes
import mmap
import sys
from dataclasses import dataclass, field

import numpy as np

from helpers.kernel_calls import Bytes


def at_offset(data: Bytes, offset: int) -> Bytes:
    """A copy that starts `offset` bytes after a multiple of 64."""
    room = np.empty(data.size + 128, np.uint8)
    start = -room.ctypes.data % 64 + offset
    view = room[start : start + data.size]
    view[:] = data
    return view


@dataclass
class GuardedPages:
    """Memory between two pages that no access survives."""

    size: int
    _map: mmap.mmap = field(init=False)

    def __post_init__(self) -> None:
        page = mmap.PAGESIZE
        self._inside = -(-max(self.size, 1) // page) * page
        self._map = mmap.mmap(-1, self._inside + 2 * page)
        whole = np.frombuffer(self._map, np.uint8)
        address = whole.ctypes.data
        libc = ctypes.CDLL(None, use_errno=True)
        for at in (address, address + page + self._inside):
            if libc.mprotect(ctypes.c_void_p(at), ctypes.c_size_t(page), 0) != 0:
                raise OSError(ctypes.get_errno(), "mprotect")
        self._usable = whole[page : page + self._inside]

    def view(self, at_end: bool) -> Bytes:
        """`size` bytes that touch the guard page after them, or the one before."""
        return self._usable[self._inside - self.size :] if at_end else self._usable[: self.size]


HAVE_GUARD_PAGES = sys.platform != "win32"
