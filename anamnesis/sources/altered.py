"""Tensor data read otherwise: records changed, others combined, values replaced."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import anamnesis._core as _core
import anamnesis._io as _io
from anamnesis.base.dtypes import OUTPUT_DTYPES, DType
from anamnesis.base.lazy import NDArray, np
from anamnesis.base.levels import resolve_level
from anamnesis.base.source import DerivedSource, Source
from anamnesis.base.stored import StoredTensor

if TYPE_CHECKING:
    Units = NDArray[np.uint8]
    Mapping = Callable[..., NDArray[Any]]

Change = Callable[[bytearray | memoryview], None]

_WORD = 4
_AT_ONCE = 1 << 14  # words, which stay in cache with what is made of them


class Region(NamedTuple):
    """A run of records, each of the same length, and what changes whole ones."""

    start: int
    stop: int
    record_bytes: int
    change: Change


class AlteredSource(DerivedSource):
    """A source in whose regions records are changed; all else is as it is.

    Closing it closes the source below.
    """

    def __init__(self, inner: Source, regions: Iterable[Region]) -> None:
        super().__init__(inner)
        self._inner = inner
        self._regions = sorted(regions, key=lambda region: region.start)
        self._starts = [region.start for region in self._regions]
        self.size, self.path = inner.size, inner.path

    def _read_some(self, offset: int, view: memoryview) -> int:
        index = bisect_right(self._starts, offset) - 1
        if index < 0 or offset >= self._regions[index].stop:
            following = self._starts[index + 1] if index + 1 < len(self._starts) else self.size
            view = view[: max(following - offset, 0)]
            self._inner.read_into(offset, view)
            return len(view)
        region = self._regions[index]  # of which whole records are read and changed
        view = view[: region.stop - offset]
        before = (offset - region.start) % region.record_bytes
        behind = -(offset + len(view) - region.start) % region.record_bytes
        is_whole = before == behind == 0
        records = view if is_whole else memoryview(bytearray(before + len(view) + behind))
        stored = records[: region.stop - offset + before]  # a last word may be cut
        self._inner.read_into(offset - before, stored)
        region.change(records)
        if not is_whole:
            view[:] = records[before : before + len(view)]
        return len(view)

    def _read_rows(self, offset: int, stride: int, row_bytes: int, view: memoryview) -> None:
        index = bisect_right(self._starts, offset) - 1
        region = self._regions[index] if index >= 0 else None
        last = offset + (len(view) // row_bytes - 1) * stride + row_bytes
        if (
            region is None
            or last > region.stop
            or any(n % region.record_bytes for n in (offset - region.start, stride, row_bytes))
        ):
            super()._read_rows(offset, stride, row_bytes, view)
            return
        self._inner.read_rows_into(offset, stride, row_bytes, view)
        region.change(view)

    def close(self) -> None:
        self._inner.close()


def swapping(record_bytes: int, numbers: Sequence[tuple[int, int]]) -> Change:
    """Return what turns numbers round, given where in a record they are, and how wide."""

    def swap(records: bytearray | memoryview) -> None:
        for at, width in numbers:
            _io.swap(records, at, record_bytes, width)

    return swap


def swapped(source: Source, start: int, stop: int, width: int) -> Source:
    """Return a source whose numbers of `width` bytes, in a region of such, are turned round."""
    change = swapping(width, ((0, width),))
    return AlteredSource(source, [Region(start, stop, width, change)])


def recoded(
    stored: StoredTensor, flipped: int, *orders: Callable[[NDArray[Any]], None]
) -> StoredTensor:
    """Return a tensor whose words of 32 bits are put in `orders`, and then have `flipped` flipped.

    It lies where it lay. Only of orders it must be whole words.
    """
    if not flipped and not orders:
        return stored

    def recode(view: bytearray | memoryview) -> None:
        words = np.frombuffer(view, "<u4")
        for order in orders:
            for at in range(0, len(words), _AT_ONCE):
                order(words[at : at + _AT_ONCE])
        if flipped:
            words ^= np.uint32(flipped)

    region = Region(stored.offset, stored.offset + stored.n_bytes, _WORD, recode)
    return stored._replace(source=AlteredSource(stored.source, [region]))


class ReplacedSource(DerivedSource):
    """The bytes of a tensor whose values come from elsewhere, in a dtype of its own.

    Floats are rounded to it as they are read: to nearest, ties to even, float64 by way of float32.
    Others are of that dtype.
    """

    def __init__(
        self,
        values: Callable[[int, int], StoredTensor],
        dtype: DType,
        n_elements: int,
        instead_of: Source,
    ) -> None:
        super().__init__(like=instead_of)
        self._values = values
        self._dtype = dtype
        self.path = instead_of.path
        self.size = dtype.n_bytes(n_elements)

    def _read_some(self, offset: int, view: memoryview) -> int:
        item = self._dtype.n_bytes(1) or 1  # of packed ones bytes are counted
        first, last = offset // item, -(-(offset + len(view)) // item)
        if self._dtype.kind != "float":
            values = self._values(first, last)
            values.source.read_into(values.offset + offset, view)
        elif (last - first) * item == len(view):
            self.fill(first, last, self._dtype, view)
        else:
            items = memoryview(bytearray((last - first) * item))
            self.fill(first, last, self._dtype, items)
            view[:] = items[offset - first * item :][: len(view)]
        return len(view)

    def fill(
        self,
        first: int,
        last: int,
        dtype: DType,
        out: memoryview,
        room: Callable[[int], Any] = bytearray,
    ) -> int:
        """Fill `out` with the floats `first` to `last`, rounded from what they are in some `room`.

        Returns how many became infinite.
        """
        values = self._values(first, last)
        begin, end = (values.offset + values.dtype.n_bytes(n) for n in (first, last))
        if values.dtype is dtype:
            values.source.read_into(begin, out)
            return 0
        raw = values.source.held(begin, end - begin)
        if raw is None:
            raw = memoryview(room(end - begin))
            values.source.read_into(begin, raw)
        if dtype in OUTPUT_DTYPES.values():
            source, target = _core.FLOATS[values.dtype.name], _core.OUTPUTS[dtype.name]
            return _core.convert(source, target, raw, out, resolve_level())
        np.frombuffer(out, np.float64)[:] = np.frombuffer(raw, values.dtype.numpy())
        return 0


_MADE_AT_ONCE = 1 << 18  # bytes that are made, and about as many that are read, at a time: in cache


class Input(NamedTuple):
    """What units are made of: a run of units of another source."""

    source: Source
    offset: int
    unit_bytes: int
    n_units: int


class MappedSource(DerivedSource):
    """Units of n bytes, each made of a unit of every input.

    Nothing is kept: what is asked for is made anew, some of it at a time, by any number of threads.
    """

    def __init__(
        self,
        like: Source,
        inputs: Sequence[Input],
        n_units: int,
        unit_bytes: int,
        make: Mapping,
    ) -> None:
        super().__init__(*(given.source for given in inputs), like=like)
        self._inputs = tuple(inputs)
        self._n_units = n_units
        self._unit_bytes = unit_bytes
        self._function = make
        largest = max([unit_bytes, *(i.unit_bytes for i in inputs)])
        self._units_at_once = max(1, _MADE_AT_ONCE // max(largest, 1))
        self.size = n_units * unit_bytes

    def _read_some(self, offset: int, view: memoryview) -> int:
        if offset >= self.size:
            return 0
        first, begin = divmod(offset, self._unit_bytes)
        wanted = -(-(begin + len(view)) // self._unit_bytes)
        stop = min(first + min(wanted, self._units_at_once), self._n_units)
        units = range(first, stop)
        made = self._function(units, *(_read_units(given, units) for given in self._inputs))
        some = np.ascontiguousarray(made).reshape(-1).view(np.uint8).data[begin : begin + len(view)]
        view[: len(some)] = some
        return len(some)


def _read_units(given: Input, units: range) -> Units:
    """Return units of an input, those behind its last as zeros."""
    n = given.unit_bytes
    stop = min(units.stop, given.n_units)
    offset, n_bytes = given.offset + units.start * n, max(stop - units.start, 0) * n
    held = given.source.held(offset, n_bytes) if stop == units.stop else None
    if held is not None:
        return np.frombuffer(held, np.uint8).reshape(len(units), n)
    made = np.zeros((len(units), n), np.uint8)
    given.source.read_into(offset, made.reshape(-1).data[:n_bytes])
    return made
