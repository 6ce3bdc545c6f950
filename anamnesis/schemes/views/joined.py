"""Weights that come out as one stack of matrices, band by band.

None is ever held whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import lcm
from typing import NamedTuple, Self

import anamnesis._io as _io
from anamnesis.base.dtypes import DType
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
)
from anamnesis.schemes.views.transposed import tiles

_BANDS_IN_ONE = 8  # of the usual size, where they are turned: columns are read of many rows
_SLOT = 15  # of a worker's scratch, behind those of what is stored


class _Share(NamedTuple):
    """Rows of a piece, and where the first of them lies in what is wanted, and how far apart."""

    piece: Weight
    rows: Run
    first: int
    step: int


@dataclass(slots=True, eq=False)
class Joined(Weight):
    """Matrices [n, cols] of several weights, whose parts are its own."""

    pieces: tuple[Weight, ...]
    per_matrix: int
    alternates: bool
    is_turned: bool

    @property
    def id(self) -> str:
        ways = ["alternating"] * self.alternates + ["turned"] * self.is_turned
        ids = dict.fromkeys(piece.id for piece in self.pieces)
        return "-".join(["joined", str(self.per_matrix), *ways, *ids])

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

    @property
    def made_of(self) -> tuple[Weight, ...]:
        return self.pieces

    def by_reference(self, dtype: DType) -> Self:
        return replace(self, pieces=tuple(piece.by_reference(dtype) for piece in self.pieces))

    def turned(self) -> Self:
        """Return the stack with the transpose of each matrix."""
        *stack, rows, cols = self.shape
        return replace(self, shape=(*stack, cols, rows), is_turned=not self.is_turned)

    @property
    def _matrix(self) -> tuple[int, int]:
        """Rows and columns of a matrix of the result."""
        n, cols = self.pieces[0].shape
        rows = n * self.per_matrix
        return (cols, rows) if self.is_turned else (rows, cols)

    def bands(self, dtype: DType, n_bytes: int) -> Bands:
        rows, cols = self._matrix
        at_once = min(n_bytes, band_bytes()) * _BANDS_IN_ONE if self.is_turned else n_bytes
        n_elements = at_once // dtype.n_bytes(1)
        for step in (lcm(_column_step(self.pieces[0]), TILE_STEP), TILE_STEP):
            if n_elements >= step * cols > 0:
                n_elements = n_elements // (step * cols) * step * cols
                break
        batch = len(self.pieces) // self.per_matrix
        return cut(rows, cols, n_elements, step=TILE_STEP, batch=batch)

    def decode(
        self, band: Band, dtype: DType, scratch: Scratch, out: memoryview, level: int
    ) -> int:
        n_rows, n_cols = self._matrix
        matrix, start = divmod(band.start, n_rows * n_cols)
        first, col = divmod(start, n_cols)
        n = min(n_cols - col, band.stop - band.start)
        rows, cols = Run(first, first + (band.stop - band.start) // n), Run(col, col + n)
        overflows = 0
        if self.is_turned:
            for share in self._shares(matrix, cols):
                overflows += _decode_turned(share, rows, n, dtype, scratch, out, level)
            return overflows
        for share in self._shares(matrix, rows):
            overflows += _decode_rows(share, cols, dtype, scratch, out, level)
        return overflows

    def _shares(self, matrix: int, rows: Run) -> Iterator[_Share]:
        """Yield what pieces have of some rows of a matrix, which is not turned yet."""
        n, per_matrix = self.pieces[0].shape[0], self.per_matrix
        pieces = self.pieces[matrix * per_matrix : (matrix + 1) * per_matrix]
        for i, piece in enumerate(pieces):
            if self.alternates:
                start, stop = (-(-(row - i) // per_matrix) for row in rows)
                own, step, first = Run(start, stop), per_matrix, start * per_matrix + i
            else:
                own = Run(max(rows.start - i * n, 0), min(rows.stop - i * n, n))
                step, first = 1, own.start + i * n
            if own.n > 0:
                yield _Share(piece, own, first - rows.start, step)


def _decode_turned(
    share: _Share,
    cols: Run,
    width: int,
    dtype: DType,
    scratch: Scratch,
    out: memoryview,
    level: int,
) -> int:
    """Decode columns of a piece's rows tile by tile, as columns of `out` of `width` columns."""
    piece, wanted, first, step = share
    item, overflows = dtype.n_bytes(1), 0
    for some, across in tiles(_whole(wanted, piece), cols, _column_step(piece)):
        tile = scratch.room(_SLOT, item * some.n * across.n)
        overflows += piece.decode_tile(some, across, dtype, scratch, tile, level)
        kept = Run(max(some.start, wanted.start), min(some.stop, wanted.stop))
        skipped = item * (kept.start - some.start) * across.n
        column = first + (kept.start - wanted.start) * step
        place = item * ((across.start - cols.start) * width + column)
        turned = [(kept.n, item * across.n, item * step), (across.n, item, item * width)]
        _io.copy_strided(tile, skipped, out, place, item, turned)
    return overflows


def _decode_rows(
    share: _Share, cols: Run, dtype: DType, scratch: Scratch, out: memoryview, level: int
) -> int:
    """Decode columns of a piece's rows, as rows of `out`."""
    piece, wanted, first, step = share
    row_bytes = dtype.n_bytes(cols.n)
    whole = _whole(wanted, piece)
    if whole == wanted and step == 1:
        place = out[first * row_bytes :][: wanted.n * row_bytes]
        return piece.decode_tile(wanted, cols, dtype, scratch, place, level)
    tile = scratch.room(_SLOT, whole.n * row_bytes)
    overflows = piece.decode_tile(whole, cols, dtype, scratch, tile, level)
    skipped, item = (wanted.start - whole.start) * row_bytes, dtype.n_bytes(1)
    apart = [(wanted.n, row_bytes, step * row_bytes), (cols.n, item, item)]
    _io.copy_strided(tile, skipped, out, first * row_bytes, item, apart)
    return overflows


def _whole(rows: Run, piece: Weight) -> Run:
    """Return rows with those beside them with which every encoding can decode tiles."""
    stop = -(-rows.stop // TILE_STEP) * TILE_STEP
    return Run(rows.start // TILE_STEP * TILE_STEP, min(stop, piece.shape[0]))


def _column_step(piece: Weight) -> int:
    return piece.column_step if isinstance(piece, TiledWeight) else TILE_STEP
