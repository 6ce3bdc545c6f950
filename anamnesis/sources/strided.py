"""Tensors that are transposed, sliced or broadcast, read as if row-major.

The row-major result is made in strips of a few megabytes, and the last ones are kept, for bands are
asked for one after the other: so a column-major matrix is read once for each strip and not for each
band. Within a strip, pieces that lie near each other are read together, and the file's order is
turned into the tensor's a megabyte at a time, in cache.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from math import prod
from typing import NamedTuple

import anamnesis._io as _io
from anamnesis.base.errors import ParseError
from anamnesis.base.source import GAP_BYTES, DerivedSource, Source
from anamnesis.base.stored import StoredTensor
from anamnesis.sources.memory import mapped_memory

# A strip is kept for its thread and another for a second one; with that which is being made, its
# buffer and a band, that is no more than a thread may take.
_STRIP_BYTES = 7 << 20
_KEPT_BYTES = 2 * _STRIP_BYTES
_SHARED_STRIP_BYTES = 2 << 20  # where views are made of views, each of which takes its share
_READ_BYTES = 1 << 20  # read, and then put in place, at a time


class _Dim(NamedTuple):
    """A dimension: how many there are, and how many bytes from one to the next."""

    n: int
    step: int


class _Move(NamedTuple):
    """A dimension in two orders: how many, and the bytes from one to the next in each."""

    n: int
    step: int
    out_step: int


class Strips:
    """The strips that were made last; the tensors of a file share one such store."""

    def __init__(self, strip_bytes: int | None = None) -> None:
        self.strip_bytes = strip_bytes or _STRIP_BYTES
        self._kept_bytes = 2 * strip_bytes if strip_bytes else _KEPT_BYTES
        self._lock = threading.Lock()
        self._strips: OrderedDict[tuple[StridedSource, int], memoryview] = OrderedDict()
        self._n_bytes = 0

    def find(self, source: StridedSource, index: int) -> memoryview | None:
        """Return a strip, if it is still there."""
        with self._lock:
            return self._strips.get((source, index))

    def make_room(self, n_bytes: int) -> None:
        """Let go of the oldest that are too many with one that is about to be made."""
        with self._lock:
            while self._strips and self._n_bytes + n_bytes > self._kept_bytes:
                self._n_bytes -= len(self._strips.popitem(last=False)[1])

    def keep(self, source: StridedSource, index: int, strip: memoryview) -> None:
        self.make_room(len(strip))
        with self._lock:
            self._strips[source, index] = strip
            self._n_bytes += len(strip)


_shared: weakref.ref[Strips] | None = None


def shared_strips() -> Strips:
    """Return a store for all that is seen otherwise than its format has it, whatever its file.

    It lives as long as a source that has it.
    """
    global _shared
    strips = None if _shared is None else _shared()
    if strips is None:
        strips = Strips(_SHARED_STRIP_BYTES)
        _shared = weakref.ref(strips)
    return strips


def column_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides, in elements, of a tensor whose first dimension is innermost."""
    return tuple(prod(shape[:i]) for i in range(len(shape)))


def strided(
    inner: Source,
    offset: int,
    shape: Sequence[int],
    strides: Sequence[int],
    item_bytes: int,
    strips: Strips | None = None,
) -> tuple[Source, int]:
    """Return a source of a tensor's row-major bytes, and where in it they begin."""
    # Without a store of strips, it has a part of the shared one.
    dims: list[_Dim] = []  # without those of 1, and neighbours that are one run as one
    for n, stride in zip(shape, strides, strict=True):
        step = stride * item_bytes
        if n != 1 and dims and dims[-1].step == n * step:
            dims[-1] = _Dim(dims[-1].n * n, step)
        elif n != 1:
            dims.append(_Dim(n, step))
    is_empty = 0 in shape
    last = offset + (0 if is_empty else _span(dims, item_bytes))
    if min(strides, default=0) < 0 or offset < 0 or last > inner.size:
        raise ParseError(
            f"a tensor of shape {list(shape)} and strides {list(strides)} leaves its storage",
            offset=offset,
            source=inner.name,
        )
    if is_empty or not dims or (len(dims) == 1 and dims[0].step == item_bytes):
        return inner, offset
    own = shared_strips() if strips is None else strips
    return StridedSource(inner, offset, dims, item_bytes, own), 0


def transposed(stored: StoredTensor, strips: Strips | None = None) -> StoredTensor:
    """Return the transpose of a stored matrix of whole bytes, or of each of several."""
    item, (*lead, rows, cols) = stored.dtype.n_bytes(1), stored.shape
    shape = (*lead, cols, rows)
    strides = (*(prod(stored.shape[i + 1 :]) for i in range(len(lead))), 1, cols)
    source, offset = strided(stored.source, stored.offset, shape, strides, item, strips)
    return stored._replace(shape=shape, offset=offset, source=source)


def _span(dims: Iterable[_Dim | _Move], item_bytes: int) -> int:
    """Return the bytes from the first element's first to the last one's last."""
    return item_bytes + sum((dim.n - 1) * dim.step for dim in dims)


class StridedSource(DerivedSource):
    """The row-major bytes of a tensor that lies otherwise; made by `strided`."""

    def __init__(
        self, inner: Source, offset: int, dims: list[_Dim], item_bytes: int, strips: Strips
    ) -> None:
        super().__init__(inner)
        self._inner = inner
        self._offset = offset
        self._dims = dims
        self._item_bytes = item_bytes
        self._strips = strips
        self._lock = threading.Lock()
        self.size = item_bytes * prod(dim.n for dim in dims)
        # A strip is some indices of one dimension and all of those behind it.
        row_bytes = [item_bytes * prod(dim.n for dim in dims[i:]) for i in range(1, len(dims) + 1)]
        self._cut_at = next(i for i, n in enumerate(row_bytes) if n <= strips.strip_bytes)
        self._row_bytes = row_bytes[self._cut_at]
        n_rows = dims[self._cut_at].n
        self._strip_rows = min(strips.strip_bytes // self._row_bytes, n_rows)
        self._strips_per_run = -(-n_rows // self._strip_rows)

    def n_reads(self) -> int:
        """Return how many reads of 8 KiB it takes to read all of it once, about."""
        n_reads, span, apart = 1, self._item_bytes, False
        for n, step in sorted(self._dims, key=lambda dim: dim.step):
            apart = apart or step - span > GAP_BYTES
            span += (n - 1) * step
            n_reads = n_reads * n if apart else 1 + span // GAP_BYTES
        return n_reads

    def _read_some(self, offset: int, view: memoryview) -> int:
        if offset >= self.size:
            return 0
        run, rest = divmod(offset, self._dims[self._cut_at].n * self._row_bytes)
        in_run, begin = divmod(rest, self._strip_rows * self._row_bytes)
        index = run * self._strips_per_run + in_run
        with self._lock:
            strip = self._strips.find(self, index)
            if strip is None:
                self._strips.make_room(self._strip_rows * self._row_bytes)
                strip = self._make(index)
                self._strips.keep(self, index, strip)
        part = strip[begin : begin + len(view)]
        view[: len(part)] = part
        return len(part)

    def _make(self, index: int) -> memoryview:
        """Read a strip and put it in order."""
        run, in_run = divmod(index, self._strips_per_run)
        offset = self._offset
        for dim in reversed(self._dims[: self._cut_at]):
            run, i = divmod(run, dim.n)
            offset += i * dim.step
        cut = self._dims[self._cut_at]
        first = in_run * self._strip_rows
        offset += first * cut.step
        n_rows = min(self._strip_rows, cut.n - first)
        out_step = self._row_bytes
        moves = [_Move(n_rows, cut.step, out_step)]
        for n, step in self._dims[self._cut_at + 1 :]:
            out_step //= n
            moves.append(_Move(n, step, out_step))
        moves.sort(key=lambda move: -move.step)  # as they lie in the file
        strip = memoryview(mapped_memory(n_rows * self._row_bytes))
        self._gather(moves, offset, strip, 0)
        return strip

    def _gather(self, moves: Sequence[_Move], offset: int, strip: memoryview, at: int) -> None:
        """Fill a strip from byte `at` on; the widest steps in the file come first."""
        (n, step, out_step), inner = moves[0], moves[1:]
        span = _span(inner, self._item_bytes)
        gaps = (m.step - _span(inner[i + 1 :], self._item_bytes) for i, m in enumerate(inner))
        if span > _READ_BYTES or any(gap > GAP_BYTES for gap in gaps):  # each is read by itself
            for i in range(n):
                self._gather(inner, offset + i * step, strip, at + i * out_step)
            return
        together = step - span <= GAP_BYTES
        packed = step if together else span  # from one to the next in the buffer
        at_once = 1 + (_READ_BYTES - span) // packed if packed else n
        buffer = memoryview(bytearray(span + (min(at_once, n) - 1) * packed))
        for i in range(0, n, at_once):
            m = min(at_once, n - i)
            view = buffer[: span + (m - 1) * packed]
            if together:
                self._inner.read_into(offset + i * step, view)
            else:
                self._inner.read_rows_into(offset + i * step, step, span, view)
            # The innermost two are a transposition, if any two are.
            *outer, last = _Move(m, packed, out_step), *inner
            placed = [*sorted(outer, key=lambda move: -move.out_step), last]
            _io.copy_strided(view, 0, strip, at + i * out_step, self._item_bytes, placed)
