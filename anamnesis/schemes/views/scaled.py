"""Codes times scales in a grid, decoded in one multiplication and one rounding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import anamnesis._core as _core
from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.bands import Band, Bands, Cut, Run, cut
from anamnesis.schemes.core.weight import Scratch, TiledWeight, Weight
from anamnesis.schemes.views.grid import ScaleGrid
from anamnesis.schemes.views.stacks import are_alike, rows_of, stack_of

_UNSCALED = (memoryview(b"\x00\x00\x80\x3f"), _core.SCALES["F32"], 1)  # one float32 1.0


@dataclass(slots=True, eq=False)
class Scaled(TiledWeight):
    """Codes of a byte, with scales if there are any, laid out as `grid` says."""

    grid: ScaleGrid
    rounded: DType | None = field(default=None, kw_only=True)

    has_ranges: ClassVar[bool] = True
    column_step: ClassVar[int] = 1

    @property
    def codes(self) -> StoredTensor:
        return self.parts[0]

    @property
    def scales(self) -> StoredTensor | None:
        """One for each block of the grid; None if codes are values themselves."""
        return self.parts[1] if len(self.parts) > 1 else None

    def cut_out(self, name: str, rows: Cut) -> Self | None:
        if len(self.shape) != 3 or not self._has_bytes:
            return None
        n, height, width = self.shape
        codes = rows_of(self.codes, n, height, rows)._replace(shape=(rows.n, width))
        found = _cut(self.grid, self.scales, self.shape, rows)
        if found is None:
            return None
        grid, scales = found
        parts = (codes,) if scales is None else (codes, scales)
        return replace(self, name=name, shape=(rows.n, width), parts=parts, grid=grid)

    def stacked(
        self, name: str, pieces: Sequence[Weight], per_matrix: int, *, alternates: bool
    ) -> Self | None:
        if not are_alike(pieces) or len(self.shape) != 2 or not self._has_bytes:
            return None
        grids = {piece.grid for piece in pieces if isinstance(piece, Scaled)}
        (rows, cols), grid = self.shape, self.grid
        n, height = len(pieces) // per_matrix, per_matrix * rows
        is_each = grid.kind == "tensor" and self.scales is not None
        is_whole = grid.block_rows == 1 if alternates else rows % grid.block_rows == 0
        if len(grids) > 1 or (per_matrix > 1 and (is_each or not is_whole)):
            return None
        codes = stack_of([piece.parts[0] for piece in pieces], per_matrix, alternates=alternates)
        parts: tuple[StoredTensor, ...] = (codes._replace(shape=(n, height, cols)),)
        if is_each:
            lone = [piece.parts[1]._replace(shape=(1, 1)) for piece in pieces]
            grid = ScaleGrid("channel", 1, n, height * cols, 1, height * cols)
            parts = (*parts, stack_of(lone, 1))
        elif grid.kind == "tensor":
            grid = ScaleGrid("tensor", 1, 1, n * height * cols, 1, n * height * cols)
        else:
            if self.scales is not None:
                own = (grid.grid_rows, grid.grid_cols)
                scales = [piece.parts[1]._replace(shape=own) for piece in pieces]
                parts = (*parts, stack_of(scales, per_matrix, alternates=alternates))
            batch, high = (1, n * height) if grid.kind == "channel" else (n, height)
            grid = grid._replace(batch=batch, rows=high)
        return replace(self, name=name, shape=(n, height, cols), parts=parts, grid=grid)

    @property
    def _has_bytes(self) -> bool:
        return 0 < self.n_elements == self.parts[0].n_bytes

    def bands(self, dtype: DType, n_bytes: int) -> Bands:
        grid = self.grid
        return cut(grid.rows, grid.cols, n_bytes * 8 // dtype.bits, step=64, batch=grid.batch)

    def decode(self, band: Band, dtype: DType, scratch: Scratch, out: memoryview) -> int:
        grid = self.grid
        codes = scratch.read(0, self.codes, band.start, band.stop - band.start)
        matrix, start = divmod(band.start, grid.rows * grid.cols)
        row, col = divmod(start, grid.cols)
        cols = min(grid.cols, band.stop - band.start)
        rows = (band.stop - band.start) // cols
        return self._decode(
            codes, matrix, Run(row, row + rows), Run(col, col + cols), dtype, scratch, out
        )

    def decode_tile(
        self, rows: Run, cols: Run, dtype: DType, scratch: Scratch, out: memoryview
    ) -> int:
        width = self.shape[1]
        first = rows.start * width + cols.start
        codes = scratch.read_rows(0, self.codes, first, width, cols.n, rows.n)
        if self.grid.kind == "tensor":  # one row of values that share their scale
            rows, cols = Run(0, 1), Run(0, rows.n * cols.n)
        return self._decode(codes, 0, rows, cols, dtype, scratch, out)

    def _decode(
        self,
        codes: memoryview,
        matrix: int,
        rows: Run,
        cols: Run,
        dtype: DType,
        scratch: Scratch,
        out: memoryview,
    ) -> int:
        grid = self.grid
        first_row, row_phase = divmod(rows.start, grid.block_rows)
        first_col, col_phase = divmod(cols.start, grid.block_cols)
        scales, scale_id, stride = _UNSCALED
        stored = self.scales
        if stored is not None:
            n_rows = (rows.stop - 1) // grid.block_rows + 1 - first_row
            stride = (cols.stop - 1) // grid.block_cols + 1 - first_col
            item = stored.dtype.bits // 8
            first = ((matrix * grid.grid_rows + first_row) * grid.grid_cols + first_col) * item
            if n_rows == 1 or stride == grid.grid_cols:
                scales = scratch.read(1, stored, first, n_rows * stride * item)
            else:
                between = grid.grid_cols * item
                scales = scratch.read_rows(1, stored, first, between, stride * item, n_rows)
            scale_id = _core.SCALES[scale_dtype(stored.dtype).name]
        kernel = _core.CODES[self.codes.dtype.name], _core.OUTPUTS[dtype.name]
        scaling = scales, scale_id, stride, grid.block_rows, grid.block_cols, row_phase, col_phase
        rounded = None if self.rounded is None else _core.OUTPUTS[self.rounded.name]
        return _core.dequantize_scaled(
            *(*kernel, codes, out, rows.n, cols.n, *scaling, scratch.level, rounded)
        )


def _cut(
    grid: ScaleGrid, scales: StoredTensor | None, shape: tuple[int, ...], rows: Cut
) -> tuple[ScaleGrid, StoredTensor | None] | None:
    """Return the scales of some rows of a matrix of a stack, and where; None if blocks are cut."""
    n, height, width = shape
    lone = ScaleGrid("tensor", 1, 1, rows.n * width, 1, rows.n * width)
    if grid.kind == "tensor" or scales is None:
        return lone, scales
    if grid.kind == "channel" and grid.rows == n:
        return lone, rows_of(scales, n, 1, Cut(rows.matrix, 0, 1))._replace(shape=(1, 1))
    if grid.kind == "channel":
        if (grid.rows, grid.cols) != (n * height, width):
            return None
        own = rows_of(scales, n, height, rows)._replace(shape=(rows.n, 1))
        return grid._replace(rows=rows.n), own
    tall, stop = grid.block_rows, rows.first + rows.n
    is_whole = rows.first % tall == 0 and (stop % tall == 0 or stop == height)
    is_whole = is_whole if rows.step == 1 else tall == 1
    if (grid.batch, grid.rows, grid.cols) != shape or not is_whole:
        return None
    count = -(-rows.n // tall)
    some = Cut(rows.matrix, rows.first // tall, count, rows.step)
    own = rows_of(scales, n, grid.grid_rows, some)._replace(shape=(count, grid.grid_cols))
    return grid._replace(batch=1, rows=rows.n), own


def scale_dtype(stored: DType) -> DType:
    """Return what a scale's bytes mean: the MX formats keep E8M0 codes in U8."""
    return DTYPES["F8_E8M0"] if stored.name == "U8" else stored
