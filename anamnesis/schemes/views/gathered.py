"""Weights seen with other rows, columns or dimensions, decoded band by band."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from itertools import accumulate
from math import prod

import anamnesis._io as _io
from anamnesis.base.dtypes import DType
from anamnesis.base.lazy import np
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.bands import Band, Bands, Run, band_bytes, cut
from anamnesis.schemes.core.seen import Seen, decode_rows
from anamnesis.schemes.core.weight import TILE_STEP, Scratch, TiledWeight, Weight, decode_run
from anamnesis.schemes.views.transposed import tiled
from anamnesis.sources.gathered import RowOrder, together

_SLOT = 16  # of a worker's scratch: what is decoded, before it is put in order
_GAP_ROWS = 1  # that are decoded with those around them
_MOST_BANDS = 2  # of the usual size, where rows of a group lie apart


def n_rows(shape: tuple[int, ...]) -> int:
    """Return the rows of all matrices; of a vector each value is one."""
    return prod(shape[:-1]) if len(shape) > 1 else prod(shape)


def parts_of(pieces: tuple[Weight, ...]) -> tuple[StoredTensor, ...]:
    """Return all that some weights are made of."""
    return tuple(part for piece in pieces for part in piece.parts)


@dataclass(eq=False)
class Gathered(Seen[Weight]):
    """Rows of some weights, which follow each other, in an order."""

    order: RowOrder

    @property
    def way(self) -> str:
        given = "+".join(map(str, self._ends)) if len(self.pieces) > 1 else ""
        given = given if len(given) < 80 else sha256(given.encode()).hexdigest()
        return "-".join(filter(None, ["rows", given, self.order.token]))

    @property
    def _cols(self) -> int:
        return self.shape[-1] if len(self.shape) > 1 else 1

    @cached_property
    def _ends(self) -> list[int]:
        """Where the rows of each piece end."""
        return list(accumulate(n_rows(piece.shape) for piece in self.pieces))

    def bands(self, dtype: DType, n_bytes: int) -> Bands:
        rows, cols = self.order.n_rows, self._cols
        n_elements = min(n_bytes, band_bytes()) // dtype.n_bytes(1)
        for step in (self.order.per_group * cols, 2 * TILE_STEP * cols):
            if 0 < step <= _MOST_BANDS * n_elements:
                n_elements = max(n_elements // step, 1) * step
                break
        return cut(rows, cols, n_elements, step=TILE_STEP)

    def decode(self, band: Band, dtype: DType, scratch: Scratch, out: memoryview) -> int:
        cols, n = self._cols, band.stop - band.start
        row, col = divmod(band.start, cols)
        first, n_left = self.order.at(row)
        if col + n > max(n_left, 1) * cols:
            rows = Run(row, row + n // cols)
            return self._decode_rows(rows, Run(0, cols), dtype, scratch, out)
        overflows, start = 0, first * cols + col
        for piece, own, at in self._shares(Run(start, start + n), cols):
            place = out[dtype.n_bytes(at) :][: dtype.n_bytes(own.n)]
            overflows += decode_run(piece, Band(*own), dtype, scratch.beneath, place)
        return overflows

    def _decode_rows(
        self, rows: Run, cols: Run, dtype: DType, scratch: Scratch, out: memoryview
    ) -> int:
        """Decode columns of rows, each run of them that lies together at once."""
        spans, places = together(self.order.rows(rows.start, rows.n), _GAP_ROWS)
        height = spans[-1].at + spans[-1].stop - spans[-1].start
        row_bytes, overflows = dtype.n_bytes(cols.n), 0
        room = scratch.room(_SLOT, height * row_bytes)
        for start, stop, first in spans:
            for piece, own, at in self._shares(Run(start, stop), 1):
                place = room[(first + at) * row_bytes :][: own.n * row_bytes]
                overflows += decode_rows(piece, own, cols, dtype, scratch.beneath, place)
        lines = np.frombuffer(room, np.uint8).reshape(height, row_bytes)
        wanted = np.frombuffer(out, np.uint8).reshape(rows.n, row_bytes)
        np.take(lines, places, axis=0, out=wanted, mode="clip")
        return overflows

    def _shares(self, run: Run, in_row: int) -> Iterator[tuple[Weight, Run, int]]:
        """Yield which of a run of rows, or of `in_row` values of each, pieces have, and where."""
        at, i = run.start, bisect_right(self._ends, run.start // in_row)
        while at < run.stop:
            begin = self._ends[i - 1] * in_row if i else 0
            stop = min(run.stop, self._ends[i] * in_row)
            if stop > at:
                yield self.pieces[i], Run(at - begin, stop - begin), at - run.start
            at, i = max(at, stop), i + 1


class Joined(TiledWeight, Gathered):
    """Matrices of several weights of the model, put together as they are."""

    @property
    def made_of(self) -> tuple[Weight, ...]:
        return self.pieces

    @property
    def column_step(self) -> int:
        return self.stored.column_step

    def decode_tile(
        self, rows: Run, cols: Run, dtype: DType, scratch: Scratch, out: memoryview
    ) -> int:
        return self._decode_rows(rows, cols, dtype, scratch, out)


def joined(name: str, pieces: Sequence[Weight], per_matrix: int, *, alternates: bool) -> Joined:
    """Return matrices as a stack, each of `per_matrix` of them: of their rows in turn, or not."""
    rows, cols = pieces[0].shape
    n, given = len(pieces) // per_matrix, tuple(map(tiled, pieces))
    height = per_matrix * rows
    in_turn = [i * rows + row for row in range(rows) for i in range(per_matrix)]
    order = RowOrder.of(in_turn if alternates else range(height), height, n)
    return Joined(name, (n, height, cols), parts_of(given), given, order)


@dataclass(eq=False)
class GatheredColumns(Seen[Weight]):
    """The columns of a weight in another order."""

    order: tuple[int, ...]

    @property
    def way(self) -> str:
        return f"columns-{RowOrder.of(self.order, len(self.order), 1).token}"

    def bands(self, dtype: DType, n_bytes: int) -> Bands:
        cols = self.shape[-1]
        at_once = min(n_bytes, band_bytes()) // max(dtype.n_bytes(cols), 1)
        return Bands(n_rows(self.shape), cols, max(at_once, 1), max(cols, 1))

    def decode(self, band: Band, dtype: DType, scratch: Scratch, out: memoryview) -> int:
        (piece,), width = self.pieces, self.shape[-1]
        row, col = divmod(band.start, width)
        n_cols = min(width - col, band.stop - band.start)
        stored_width = piece.shape[-1]
        start = row * stored_width
        stop = start + (band.stop - band.start) // n_cols * stored_width
        room = scratch.room(_SLOT, dtype.n_bytes(stop - start))
        overflows = decode_run(piece, Band(start, stop), dtype, scratch.beneath, room)
        order = np.array(self.order[col : col + n_cols], np.uint32)
        _io.take_columns(room, stored_width, dtype.n_bytes(1), order.data, out)
        return overflows


@dataclass(eq=False)
class Reshaped(Seen[Weight]):
    """A weight of another shape, whose values follow each other as before."""

    def decode(self, band: Band, dtype: DType, scratch: Scratch, out: memoryview) -> int:
        return decode_run(self.pieces[0], band, dtype, scratch.beneath, out)
