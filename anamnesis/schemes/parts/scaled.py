"""Codes times scales in a grid, decoded in one multiplication and one rounding."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from anamnesis import _core
from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.weight import Band, Bands, Run, Scratch, TiledWeight, cut
from anamnesis.schemes.parts.grid import ScaleGrid

__all__ = ["Scaled", "scale_dtype"]

_UNSCALED = (memoryview(b"\x00\x00\x80\x3f"), _core.SCALES["F32"], 1)  # one float32 1.0


@dataclass(slots=True, eq=False)
class Scaled(TiledWeight):
    """Codes of a byte, with scales if there are any, laid out as `grid` says.

    Attributes
    ----------
    grid : ScaleGrid
    rounded : DType, optional
        What scales are rounded to first, where that counts.
    """

    grid: ScaleGrid
    rounded: DType | None = field(default=None, kw_only=True)

    has_ranges: ClassVar[bool] = True

    @property
    def codes(self) -> StoredTensor:
        """One byte for each value."""
        return self.parts[0]

    @property
    def scales(self) -> StoredTensor | None:
        """One for each block of the grid; None if codes are values themselves."""
        return self.parts[1] if len(self.parts) > 1 else None

    def bands(self, dtype: DType, n_bytes: int) -> Bands:
        """Cut each matrix of the batch by rows."""
        grid = self.grid
        return cut(grid.rows, grid.cols, n_bytes * 8 // dtype.bits, step=64, batch=grid.batch)

    def decode(
        self, band: Band, dtype: DType, scratch: Scratch, out: memoryview, level: int
    ) -> int:
        """Read the codes and those rows of the grid that belong to them."""
        grid = self.grid
        codes = scratch.read(0, self.codes, band.start, band.stop - band.start)
        matrix, start = divmod(band.start, grid.rows * grid.cols)
        row, col = divmod(start, grid.cols)
        cols = min(grid.cols, band.stop - band.start)
        rows = (band.stop - band.start) // cols
        return self._decode(
            codes, matrix, Run(row, row + rows), Run(col, col + cols), dtype, scratch, out, level
        )

    @property
    def column_step(self) -> int:
        """Any will do."""
        return 1

    def decode_tile(
        self, rows: Run, cols: Run, dtype: DType, scratch: Scratch, out: memoryview, level: int
    ) -> int:
        """Read some codes of each row, and those rows of the grid that belong to them."""
        width = self.shape[1]
        first = rows.start * width + cols.start
        codes = scratch.read_rows(0, self.codes, first, width, cols.n, rows.n)
        if self.grid.kind == "tensor":  # one row of values that share their scale
            rows, cols = Run(0, 1), Run(0, rows.n * cols.n)
        return self._decode(codes, 0, rows, cols, dtype, scratch, out, level)

    def _decode(
        self,
        codes: memoryview,
        matrix: int,
        rows: Run,
        cols: Run,
        dtype: DType,
        scratch: Scratch,
        out: memoryview,
        level: int,
    ) -> int:
        """Decode the codes of rows x cols of a matrix of the batch."""
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
        return _core.dequantize_scaled(
            _core.CODES[self.codes.dtype.name],
            _core.OUTPUTS[dtype.name],
            codes,
            out,
            rows.n,
            cols.n,
            scales,
            scale_id,
            stride,
            grid.block_rows,
            grid.block_cols,
            row_phase,
            col_phase,
            level,
            None if self.rounded is None else _core.OUTPUTS[self.rounded.name],
        )


def scale_dtype(stored: DType) -> DType:
    """Return what a scale's bytes mean: the MX formats keep E8M0 codes in U8."""
    return DTYPES["F8_E8M0"] if stored.name == "U8" else stored
