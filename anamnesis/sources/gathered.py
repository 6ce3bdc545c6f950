"""Rows of sources that lie one behind the other, in an order, read where they lie."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from anamnesis.base.lazy import NDArray, np
from anamnesis.base.source import GAP_BYTES, DerivedSource
from anamnesis.base.stored import StoredTensor

if TYPE_CHECKING:
    Indices = NDArray[np.int64]

_DIRECT_BYTES = 32 << 10
_AT_ONCE = 512 << 10  # bytes that are read, and then put in order, at a time: in cache
_ROWS_AT_ONCE = 1 << 14
_SCATTERED_BYTES = 1 << 10  # rows that are longer are put in order by the read itself
_KEPT_PATTERNS = 8

_rooms: list[bytearray] = []  # that no thread uses now


class RowRun(NamedTuple):
    """`n` consecutive rows from `first` on, each `step` rows further in every next group."""

    first: int
    n: int
    step: int


@dataclass(frozen=True)
class RowOrder:
    """Which row of what is given each row of a result is: runs, group after group.

    It is as long as a group, however many rows there are.
    """

    runs: tuple[RowRun, ...]
    n_groups: int

    @classmethod
    def of(cls, order: Iterable[int], period: int, n_groups: int) -> RowOrder:
        """Return the rows `order` of each `period`."""
        if isinstance(order, range) and order.step == 1:
            return cls((RowRun(order.start, len(order), period),), n_groups)
        runs: list[RowRun] = []
        for row in order:
            if runs and runs[-1].first + runs[-1].n == row:
                runs[-1] = runs[-1]._replace(n=runs[-1].n + 1)
            else:
                runs.append(RowRun(row, 1, period))
        return cls(tuple(runs), n_groups)

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(run.n for run in self.runs))

    @property
    def per_group(self) -> int:
        return self._ends[-1] if self.runs else 0

    @property
    def n_rows(self) -> int:
        return self.n_groups * self.per_group

    @property
    def step(self) -> int:
        """How many rows further each group is taken; 0 if not all of its runs are."""
        steps = {run.step for run in self.runs}
        return steps.pop() if len(steps) == 1 else 0

    @property
    def start(self) -> int | None:
        """The row from which on all are taken as they lie; None if they are not."""
        is_one = len(self.runs) == 1 and (self.n_groups == 1 or self.runs[0].n == self.runs[0].step)
        return self.runs[0].first if is_one else None

    @property
    def token(self) -> str:
        """Tell this order from others."""
        told = f"{self.n_groups}x{'+'.join(':'.join(map(str, run)) for run in self.runs)}"
        if len(told) < 80:
            return told
        from hashlib import sha256  # only here, for the sake of a quick start

        return sha256(told.encode()).hexdigest()

    def at(self, row: int) -> tuple[int, int]:
        """Return which row a row of the result is, and how many follow it there as here."""
        if self.start is not None:
            return self.start + row, self.n_rows - row
        group, within = divmod(row, self._ends[-1])
        i = bisect_right(self._ends, within)
        run, left = self.runs[i], self._ends[i] - within
        return run.first + run.n - left + group * run.step, left

    def rows(self, first: int, n: int) -> Indices:
        """Return which rows `n` of the result from `first` on are."""
        firsts, ends, steps = self._arrays
        group, within = np.divmod(np.arange(first, first + n), self._ends[-1])
        run = np.searchsorted(ends, within, "right")
        found: Indices = firsts[run] + within - ends[run] + group * steps[run]
        return found

    def taken(self, parts: Sequence[StoredTensor], row_bytes: int) -> StoredTensor:
        """Return these rows of parts that lie one behind the other, in name and shape the first."""
        stored, n_bytes = parts[0], self.n_rows * row_bytes
        if len(parts) > 1:
            joined = JoinedSource(parts)
            stored = stored._replace(offset=0, n_bytes=joined.size, source=joined)
        if self.start is not None:
            return stored._replace(offset=stored.offset + self.start * row_bytes, n_bytes=n_bytes)
        source = GatheredSource(stored, row_bytes, self)
        return stored._replace(offset=0, n_bytes=n_bytes, source=source)

    def taken_alone(
        self, tensors: Sequence[StoredTensor], name: str, shape: tuple[int, ...]
    ) -> StoredTensor | None:
        """Return these rows of weights that are a stored tensor each, as one of that shape.

        None if they are not of one dtype, or blocks are of two rows.
        """
        dtype, cols = tensors[0].dtype, shape[-1] if len(shape) > 1 else 1
        if cols % dtype.block_elements or any(tensor.dtype is not dtype for tensor in tensors):
            return None
        return self.taken(tensors, dtype.n_bytes(cols))._replace(name=name, shape=shape)

    def keeps_matrices(self, n: int) -> bool:
        """Tell whether the rows of each of n matrices are of that matrix, in their order."""
        step = self.runs[0].step if self.runs else 0
        are_within = all(run.step == step and run.first + run.n <= step for run in self.runs)
        return are_within and n > 0 and self.n_groups % n == 0

    @cached_property
    def _arrays(self) -> tuple[Any, Any, Any]:
        runs = np.array(self.runs, np.int64).reshape(-1, 3)
        return runs[:, 0] + runs[:, 1], np.array(self._ends), runs[:, 2]


class Placed(NamedTuple):
    """Rows `start` to `stop` of what is given, and where the first of them is put."""

    start: int
    stop: int
    at: int


def together(rows: Indices, gap: int) -> tuple[list[Placed], Indices]:
    """Return what is to be read for some rows, and where each of them lies in that."""
    wanted = np.sort(rows)
    cuts = np.flatnonzero(np.diff(wanted) > gap + 1)
    starts = wanted[np.concatenate([[0], cuts + 1])]
    stops = wanted[np.concatenate([cuts, [len(wanted) - 1]])] + 1
    places = np.concatenate([[0], np.cumsum(stops - starts)])
    span = np.searchsorted(starts, rows, "right") - 1
    spans = [Placed(*map(int, each)) for each in zip(starts, stops, places, strict=False)]
    return spans, rows - starts[span] + places[span]


class JoinedSource(DerivedSource):
    """The bytes of some stored tensors, in their order."""

    def __init__(self, tensors: Sequence[StoredTensor]) -> None:
        self._tensors = tuple(tensor for tensor in tensors if tensor.n_bytes) or tuple(tensors[:1])
        super().__init__(*(tensor.source for tensor in self._tensors))
        self._starts = [0, *accumulate(tensor.n_bytes for tensor in self._tensors)]
        self.size = self._starts.pop()

    def _read_some(self, offset: int, view: memoryview) -> int:
        if offset >= self.size:
            return 0
        tensor, begin = self._at(offset)
        n = min(len(view), tensor.n_bytes - begin)
        tensor.source.read_into(tensor.offset + begin, view[:n])
        return n

    def _at(self, offset: int) -> tuple[StoredTensor, int]:
        """Return the tensor that a byte is of, and which byte of it that is."""
        at = bisect_right(self._starts, offset) - 1
        return self._tensors[at], offset - self._starts[at]

    def read_into_each(self, offset: int, views: Sequence[memoryview]) -> None:
        tensor, begin = self._at(offset)
        if begin + sum(map(len, views)) <= tensor.n_bytes:
            tensor.source.read_into_each(tensor.offset + begin, views)
        else:
            super().read_into_each(offset, views)

    def held(self, offset: int, n_bytes: int) -> memoryview | None:
        if not 0 <= offset < self.size:
            return None
        tensor, begin = self._at(offset)
        if begin + n_bytes > tensor.n_bytes:
            return None
        return tensor.source.held(tensor.offset + begin, n_bytes)

    @property
    def way(self) -> str:
        from hashlib import sha256  # only here, for the sake of a quick start

        told = sha256()
        for tensor in self._tensors:
            told.update(repr((tensor.name, tensor.offset, tensor.source.way)).encode())
        return f"joined {told.hexdigest()}"


@contextmanager
def _room(n_bytes: int) -> Iterator[memoryview]:
    """Lend a buffer: as many are kept as threads have read at once, and views of views."""
    try:
        room = _rooms.pop()
    except IndexError:
        room = bytearray()
    if len(room) < n_bytes:
        room = bytearray(n_bytes)
    yield memoryview(room)[:n_bytes]
    if len(room) <= 2 * _AT_ONCE:
        _rooms.append(room)


class _Pattern(NamedTuple):
    """How some rows lie."""

    spans: list[Placed]
    places: Indices
    height: int
    slots: list[int]

    @classmethod
    def of(cls, rows: Indices, gap: int) -> _Pattern:
        """Return the pattern of some rows, of which `gap` may be read with those around them."""
        spans, places = together(rows, gap)
        last = spans[-1]
        height = last.at + last.stop - last.start
        slots = np.full(height, -1)
        slots[places] = np.arange(len(rows))
        is_once = np.count_nonzero(slots >= 0) == len(rows)
        return cls(spans, places, height, slots.tolist() if is_once else [])


class GatheredSource(DerivedSource):
    """Rows of a stored tensor, in an order."""

    def __init__(self, stored: StoredTensor, row_bytes: int, order: RowOrder) -> None:
        super().__init__(stored.source)
        self._inner = stored.source
        self._offset = stored.offset
        self._row_bytes = row_bytes
        self._order = order
        self._of = stored.name
        self._patterns: dict[tuple[int, int], _Pattern] = {}
        self.size = order.n_rows * row_bytes

    def _read_some(self, offset: int, view: memoryview) -> int:
        if offset >= self.size:
            return 0
        row, begin = divmod(offset, self._row_bytes)
        source, n_left = self._order.at(row)
        n_bytes = n_left * self._row_bytes - begin
        n_rows = len(view) // self._row_bytes
        if begin or n_rows < 2 or n_bytes >= min(_DIRECT_BYTES, len(view)):
            part = view[:n_bytes]
            self._inner.read_into(self._offset + source * self._row_bytes + begin, part)
            return len(part)
        at_once = min(_ROWS_AT_ONCE, _AT_ONCE // self._row_bytes, self._order.n_rows - row)
        return self._gather(row, min(n_rows, max(at_once, 1)), view)

    def _gather(self, first: int, n: int, view: memoryview) -> int:
        """Read some rows, with what lies between, and put them in order; return their bytes."""
        length = self._row_bytes
        while True:
            step = self._order.step
            group, within = divmod(first, self._order.per_group) if step else (0, first)
            found = self._patterns.get((within, n))
            if found is None:
                found = _Pattern.of(self._order.rows(within, n), GAP_BYTES // self._row_bytes)
                if len(self._patterns) >= _KEPT_PATTERNS:
                    self._patterns.clear()
                self._patterns[within, n] = found
            start, pattern = group * step, found
            if n == 1 or pattern.height * length <= 2 * _AT_ONCE:
                break
            n //= 2
        begin = self._offset + start * length
        if length >= _SCATTERED_BYTES and pattern.slots:  # read into the places of the rows
            with _room(length) as unwanted:
                for first_row, stop, at in pattern.spans:
                    lines = [
                        unwanted if slot < 0 else view[slot * length : (slot + 1) * length]
                        for slot in pattern.slots[at : at + stop - first_row]
                    ]
                    self._inner.read_into_each(begin + first_row * length, lines)
            return n * length
        with _room(pattern.height * length) as room:
            for first_row, stop, at in pattern.spans:
                part = room[at * length : (at + stop - first_row) * length]
                self._inner.read_into(begin + first_row * length, part)
            rows = np.frombuffer(room, np.uint8).reshape(-1, length)
            out = np.frombuffer(view[: n * length], np.uint8).reshape(-1, length)
            np.take(rows, pattern.places, axis=0, out=out, mode="clip")
        return n * length

    @property
    def way(self) -> str:
        return f"rows {self._order.token} of {self._of!r}+{self._offset} {self._inner.way}".rstrip()
