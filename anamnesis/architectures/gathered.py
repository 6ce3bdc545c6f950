"""Weights seen with other rows, columns or dimensions, decoded band by band."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from itertools import accumulate
from math import prod
from typing import Self

import anamnesis._io as _io
from anamnesis.base.dtypes import DType
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.budget import band_bytes
from anamnesis.schemes.core.weight import (
    TILE_STEP,
    Band,
    Bands,
    Run,
    Scratch,
    TiledWeight,
    Weight,
    cut,
    decode_run,
)
from anamnesis.sources.row_order import RowOrder, together

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
class Seen(Weight):
    """Weights seen as another one, whose parts are theirs."""

    pieces: tuple[Weight, ...]

    @property
    def way(self) -> str:
        """What is done with them."""
        return ""

    @property
    def id(self) -> str:
        ids = dict.fromkeys(piece.id for piece in self.pieces)
        return "-".join([*ids, *filter(None, [self.way])])

    @property
    def scheme(self) -> str:
        return self.pieces[0].scheme

    @property
    def family(self) -> str:
        return self.pieces[0].family

    @property
    def own_dtype(self) -> DType | None:
        own = self.pieces[0].own_dtype
        return own if all(piece.own_dtype is own for piece in self.pieces) else None

    def by_reference(self, dtype: DType) -> Self:
        return replace(self, pieces=tuple(piece.by_reference(dtype) for piece in self.pieces))


@dataclass(eq=False)
class Gathered(Seen):
    """Rows of some weights, which follow each other, in an order."""

    order: RowOrder

    @property
    def way(self) -> str:
        told = "+".join(map(str, self._ends)) if len(self.pieces) > 1 else ""
        told = told if len(told) < 80 else sha256(told.encode()).hexdigest()
        return "-".join(filter(None, ["rows", told, self.order.token]))

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

    def decode(
        self, band: Band, dtype: DType, scratch: Scratch, out: memoryview, level: int
    ) -> int:
        import numpy as np  # only here, for the sake of a quick start

        cols = self._cols
        row, col = divmod(band.start, cols)
        first, n_left = self.order.at(row)
        n = band.stop - band.start
        if col + n <= max(n_left, 1) * cols:
            start = first * cols + col
            return self._run(Band(start, start + n), dtype, scratch, out, level)
        n //= cols
        spans, places = together(self.order.rows(row, n), _GAP_ROWS)
        height = spans[-1].at + spans[-1].stop - spans[-1].start
        row_bytes, overflows = dtype.n_bytes(cols), 0
        room = scratch.room(_SLOT, height * row_bytes)
        for start, stop, at in spans:
            part = room[at * row_bytes : (at + stop - start) * row_bytes]
            around = Band(start * cols, stop * cols)
            overflows += self._run(around, dtype, scratch, part, level)
        lines = np.frombuffer(room, np.uint8).reshape(height, row_bytes)
        wanted = np.frombuffer(out, np.uint8).reshape(n, row_bytes)
        np.take(lines, places, axis=0, out=wanted, mode="clip")
        return overflows

    def _run(self, band: Band, dtype: DType, scratch: Scratch, out: memoryview, level: int) -> int:
        """Decode consecutive elements of the pieces, which follow each other."""
        cols, at, overflows = self._cols, band.start, 0
        i = bisect_right(self._ends, at // cols)
        while at < band.stop:
            begin = self._ends[i - 1] * cols if i else 0
            stop = min(band.stop, self._ends[i] * cols)
            if stop > at:
                place = out[dtype.n_bytes(at - band.start) : dtype.n_bytes(stop - band.start)]
                own = Band(at - begin, stop - begin)
                overflows += decode_run(self.pieces[i], own, dtype, scratch.beneath, place, level)
            at, i = max(at, stop), i + 1
        return overflows


@dataclass(eq=False)
class GatheredColumns(Seen):
    """The columns of a weight in another order."""

    order: tuple[int, ...]

    @property
    def way(self) -> str:
        return f"columns-{RowOrder.of(self.order, len(self.order), 1).token}"

    def bands(self, dtype: DType, n_bytes: int) -> Bands:
        cols = self.shape[-1]
        at_once = min(n_bytes, band_bytes()) // max(dtype.n_bytes(cols), 1)
        return Bands(n_rows(self.shape), cols, max(at_once, 1), max(cols, 1))

    def decode(
        self, band: Band, dtype: DType, scratch: Scratch, out: memoryview, level: int
    ) -> int:
        import numpy as np

        (piece,), width = self.pieces, self.shape[-1]
        row, col = divmod(band.start, width)
        n_cols = min(width - col, band.stop - band.start)
        stored_width = piece.shape[-1]
        start = row * stored_width
        stop = start + (band.stop - band.start) // n_cols * stored_width
        room = scratch.room(_SLOT, dtype.n_bytes(stop - start))
        overflows = decode_run(piece, Band(start, stop), dtype, scratch.beneath, room, level)
        order = np.array(self.order[col : col + n_cols], np.uint32)
        _io.take_columns(room, stored_width, dtype.n_bytes(1), order.data, out)
        return overflows


@dataclass(eq=False)
class Reshaped(Seen):
    """A weight of another shape, whose values follow each other as before."""

    def bands(self, dtype: DType, n_bytes: int) -> Bands:
        return self.pieces[0].bands(dtype, n_bytes)

    def decode(
        self, band: Band, dtype: DType, scratch: Scratch, out: memoryview, level: int
    ) -> int:
        return decode_run(self.pieces[0], band, dtype, scratch.beneath, out, level)


@dataclass(eq=False)
class AnyTiles(TiledWeight, Seen):
    """Matrices of any kind, as such that can be decoded in tiles: rows with all columns."""

    @property
    def column_step(self) -> int:
        return TILE_STEP

    def bands(self, dtype: DType, n_bytes: int) -> Bands:
        return self.pieces[0].bands(dtype, n_bytes)

    def decode(
        self, band: Band, dtype: DType, scratch: Scratch, out: memoryview, level: int
    ) -> int:
        return self.pieces[0].decode(band, dtype, scratch, out, level)

    def decode_tile(
        self, rows: Run, cols: Run, dtype: DType, scratch: Scratch, out: memoryview, level: int
    ) -> int:
        (piece,), width = self.pieces, self.shape[-1]
        at_once = max(band_bytes() // dtype.n_bytes(width), TILE_STEP)
        overflows, item = 0, dtype.n_bytes(1)
        for top in range(rows.start, rows.stop, at_once):
            some = Run(top, min(top + at_once, rows.stop))
            place = out[(top - rows.start) * cols.n * item :][: some.n * cols.n * item]
            whole = Band(some.start * width, some.stop * width)
            if cols.n == width:
                overflows += decode_run(piece, whole, dtype, scratch.beneath, place, level)
                continue
            room = scratch.room(_SLOT, some.n * width * item)
            overflows += decode_run(piece, whole, dtype, scratch.beneath, room, level)
            _io.copy_rows(room, cols.start * item, width * item, cols.n * item, place)
        return overflows
