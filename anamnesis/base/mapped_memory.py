"""Memory for large buffers."""

from __future__ import annotations

import mmap
import sys


def mapped_memory(n_bytes: int) -> mmap.mmap:
    """Return zeros that go back to the system with their last view, as an allocator's need not."""
    private = {} if sys.platform == "win32" else {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS}
    return mmap.mmap(-1, n_bytes, **private)
