"""Bands of a weight: runs of consecutive elements of its row-major result.

Some whole rows, or a piece of one row that is too long; and how much is made at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import lcm
from typing import NamedTuple


class Run(NamedTuple):
    """Indices `start` to `stop`."""

    start: int
    stop: int

    @property
    def n(self) -> int:
        return self.stop - self.start

    def around(self, step: int, end: int | None = None) -> Run:
        """Return the whole steps that it is in, the last of which may be cut at `end`."""
        stop = -(-self.stop // step) * step
        return Run(self.start // step * step, stop if end is None else min(stop, end))


def places(
    rows: Run, at_once: int, row_bytes: int, out: memoryview
) -> Iterator[tuple[Run, memoryview]]:
    """Yield some rows at a time, and where in `out`, which has all of them, these lie."""
    for start in range(rows.start, rows.stop, at_once):
        some = Run(start, min(start + at_once, rows.stop))
        yield some, out[(start - rows.start) * row_bytes :][: some.n * row_bytes]


class Band(NamedTuple):
    """Elements `start` to `stop` of a weight's row-major result."""

    start: int
    stop: int

    def tile(self, width: int) -> tuple[Run, Run]:
        """Return its rows, which count through all matrices of this width, and its columns."""
        row, col = divmod(self.start, width)
        cols = Run(col, min(width, col + self.stop - self.start))
        return Run(row, row + (self.stop - self.start) // cols.n), cols


class Cut(NamedTuple):
    """Every `step`-th row of a matrix of a stack, `n` of them from `first` on."""

    matrix: int
    first: int
    n: int
    step: int = 1


@dataclass(frozen=True, slots=True)
class Bands:
    """The bands of a weight: known, and counted, without one of them being made."""

    # A weight of 10 GB has ten thousand, and a model a hundred thousand such weights.

    rows: int
    cols: int
    band_rows: int
    band_cols: int
    batch: int = 1
    stripe: int = 0

    def __len__(self) -> int:
        if self.rows * self.cols == 0:
            return 0
        per_row = -(-self.cols // self.band_cols)
        n_full, rest = divmod(self.rows, self.stripe or self.rows)
        down = n_full * -(-(self.stripe or self.rows) // self.band_rows)
        return self.batch * per_row * (down + -(-rest // self.band_rows))

    def __iter__(self) -> Iterator[Band]:
        return (band for run in self.runs() for band in run)

    def runs(self) -> Iterator[list[Band]]:
        """Yield the bands in runs that one thread should decode in sequence."""
        if self.rows * self.cols == 0:
            return
        for top in range(0, self.batch * self.rows, self.rows):
            for first in range(top, top + self.rows, self.stripe or self.rows):
                end = min(first + (self.stripe or self.rows), top + self.rows)
                bands = self.touching(first * self.cols, end * self.cols)
                if self.stripe:
                    yield list(bands)
                else:
                    yield from ([band] for band in bands)

    def touching(self, start: int, stop: int) -> Iterator[Band]:
        """Yield the bands that hold any of the elements `start` to `stop`."""
        cols = self.cols
        row = start // cols
        while row * cols < stop:
            top, bottom = self._around(row)
            if self.band_cols >= cols:
                yield Band(top * cols, bottom * cols)
            else:
                first = max(0, start - row * cols) // self.band_cols * self.band_cols
                for col in range(first, min(cols, stop - row * cols), self.band_cols):
                    yield Band(row * cols + col, row * cols + min(col + self.band_cols, cols))
            row = bottom

    def _around(self, row: int) -> Run:
        top = row // self.rows * self.rows
        end = top + self.rows
        if self.stripe:
            top += (row - top) // self.stripe * self.stripe
            end = min(end, top + self.stripe)
        top += (row - top) // self.band_rows * self.band_rows
        return Run(top, min(top + self.band_rows, end))

    def holding(self, wanted: Band) -> Band:
        """Return the bands that hold elements of one matrix, or of one row, as a single one."""
        cols, width = self.cols, self.band_cols
        (row, col), last = divmod(wanted.start, cols), (wanted.stop - 1) // cols
        if width < cols and row == last:
            end = -(-(wanted.stop - row * cols) // width) * width
            return Band(row * cols + col // width * width, row * cols + min(end, cols))
        top = row // self.rows * self.rows
        row -= (row - top) % self.band_rows
        below = last + self.band_rows - (last - top) % self.band_rows
        return Band(row * cols, min(below, top + self.rows) * cols)

    def are_multiples_of(self, grain: int) -> bool:
        """Return whether every band begins at a multiple of `grain` elements."""
        row = self.cols
        if self.band_cols < row and self.band_cols % grain:
            return False
        if self.rows * self.batch == 1:
            return True
        if self.band_cols < row:
            return row % grain == 0
        steps = [self.band_rows if self.band_rows < (self.stripe or self.rows) else 0, self.stripe]
        steps.append(self.rows if self.batch > 1 else 0)
        return all(step * row % grain == 0 for step in steps)

    def multiples_of(self, grain: int, n_elements: int) -> Bands:
        """Return bands of about as many elements that begin at multiples of `grain`."""
        # They are whole rows, of one matrix or several, if at most `n_elements` must be together.
        if self.rows * self.cols * self.batch == 0 or self.are_multiples_of(grain):
            return self
        step = lcm(grain, self.cols) // self.cols
        if step * self.cols > max(grain, n_elements):
            n = self.rows * self.cols * self.batch
            about = self.band_rows * min(self.band_cols, self.cols)
            return Bands(1, n, 1, max(1, about // grain) * grain)
        stripe = self.stripe // step * step if self.batch == 1 else 0
        rows = max(1, self.band_rows // step) * step
        return Bands(self.rows * self.batch, self.cols, rows, self.cols, stripe=stripe)


def cut(rows: int, cols: int, n_elements: int, *, step: int = 1, batch: int = 1) -> Bands:
    """Cut matrices of `rows` x `cols` into bands of at most `n_elements` (but at least `step`)."""
    # Bands are whole rows where a row fits, else pieces of one row whose length is a multiple of
    # `step`. Each is of one matrix of the `batch`.
    if cols <= n_elements:
        return Bands(rows, cols, max(1, n_elements // max(cols, 1)), cols, batch)
    return Bands(rows, cols, 1, max(step, n_elements // step * step), batch)


# --- how much is made at a time -----------------------------------------------------------------


_BANDS_IN_A_STRIPE = 8

THREAD_BYTES = 16 << 20  # the most memory that a thread of a conversion takes

# Output of one band: small enough to be in cache still when it is written, large enough that the
# interpreter's part in it does not show. And bytes of a stripe.
_now = [(1 << 20, _BANDS_IN_A_STRIPE << 20)]


def band_bytes() -> int:
    """Return about how many bytes of output one band has."""
    return _now[-1][0]


def encoded_band_bytes() -> int:
    """Return about how many bytes of values a band has that is encoded for a file."""
    # Twice the usual: codes are fewer bytes, and the interpreter's part is the same for any band.
    return 2 * band_bytes()


def stripe_bytes() -> int:
    """Return the most bytes of all parts that are read at once, where many bands share them."""
    return _now[-1][1]


@contextmanager
def cut_into(band: int, stripe: int | None = None) -> Iterator[None]:
    """Cut otherwise in this process, while the block runs; a partial run is of one size."""
    _now.append((band, band * _BANDS_IN_A_STRIPE if stripe is None else stripe))
    try:
        yield
    finally:
        _now.pop()
