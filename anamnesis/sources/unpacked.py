"""Units of a few bytes, read as the more bytes that each of them stands for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from anamnesis.base.dtypes import DType
from anamnesis.base.source import Source
from anamnesis.base.stored import StoredTensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Unpacking", "unpacked"]

_AT_ONCE = 1 << 14  # units, which stay in cache with what is made of them


class Unpacking(NamedTuple):
    """How units become others.

    Attributes
    ----------
    n_in, n_out : int
        Bytes of a unit before and after.
    unpack : function
        Takes an array of uint8 of whole units, and returns what they stand for, as uint8.
    """

    n_in: int
    n_out: int
    unpack: Callable[[NDArray[Any]], NDArray[Any]]


def unpacked(
    stored: StoredTensor, how: Unpacking, dtype: DType, shape: tuple[int, ...]
) -> StoredTensor:
    """Return a tensor of whole units as one of this dtype and shape."""
    n_units = stored.n_bytes // how.n_in
    source = _UnpackedSource(stored.source, stored.offset, n_units, how)
    return StoredTensor(stored.name, dtype, shape, n_units * how.n_out, 0, source)


class _UnpackedSource(Source):
    """Units of a source from `start` on, unpacked; closing it closes nothing."""

    def __init__(self, inner: Source, start: int, n_units: int, how: Unpacking) -> None:
        self._inner = inner
        self._start = start
        self._how = how
        self.name, self.path = inner.name, inner.path
        self.size = n_units * how.n_out

    def _read_some(self, offset: int, view: memoryview) -> int:
        import numpy as np  # only here, for the sake of a quick start

        how = self._how
        first, skipped = divmod(offset, how.n_out)
        last = -(-min(offset + len(view), self.size) // how.n_out)
        n_units = min(last - first, _AT_ONCE)
        if n_units <= 0:
            return 0
        raw = bytearray(n_units * how.n_in)
        self._inner.read_into(self._start + first * how.n_in, memoryview(raw))
        found = how.unpack(np.frombuffer(raw, np.uint8)).data[skipped : skipped + len(view)]
        view[: len(found)] = found
        return len(found)

    @property
    def base(self) -> Source:
        """The source of the whole file."""
        return self._inner.base

    @property
    def shows_base(self) -> bool:
        """Never: its bytes are others."""
        return False

    def check(self) -> None:
        """Check the source beneath."""
        self._inner.check()

    def stamp(self) -> list[int]:
        """Return what the source beneath says."""
        return self._inner.stamp()
