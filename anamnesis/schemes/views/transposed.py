"""Matrices that come out transposed, as [in, out], tile by tile.

None is ever held whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import lcm, prod
from typing import ClassVar

import anamnesis._io as _io
from anamnesis.base.dtypes import DType
from anamnesis.schemes.core.bands import Band, Bands, Run, band_bytes, cut
from anamnesis.schemes.core.plain import Plain, PlainMatrix
from anamnesis.schemes.core.seen import Seen
from anamnesis.schemes.core.weight import TILE_STEP, Scratch, Weight
from anamnesis.schemes.views.kinds import Floats

_BANDS_IN_ONE = 8  # of the usual size: a band's columns are read of every row of what is stored
_BANDS_AHEAD = 4  # the same, where a matrix is read at once
_MOST_AHEAD = 9 << 20  # bytes of a matrix that is
_TILE_VALUES = 1 << 19
_WIDEST_TILE = _TILE_VALUES // TILE_STEP
_USUAL_TILE = 768  # columns: high tiles are turned faster, for their columns become long rows
_SLOT = 15  # of a worker's scratch, behind those of what is stored


@dataclass(slots=True, eq=False)
class Transposed(Seen[Weight]):
    """The transpose of what is stored, whose parts these are; of each matrix, if of several."""

    way: ClassVar[str] = "transposed"

    @property
    def scheme(self) -> str:
        return f"{self.stored.scheme}, transposed"

    def seen_as(self, kind: type) -> Floats | None:
        seen = self.stored.view(Floats) if kind is Floats and len(self.shape) == 3 else None
        if seen is None or seen.element != "E2M1":
            return None
        return seen._replace(name=f"{self.name}.weight")

    def bands(self, dtype: DType, n_bytes: int) -> Bands:
        rows, cols = self.shape[-2:]
        is_ahead = self._is_read_ahead()
        at_once = min(n_bytes, band_bytes()) * (_BANDS_AHEAD if is_ahead else _BANDS_IN_ONE)
        n_elements = at_once // dtype.n_bytes(1)
        for wanted in (lcm(self.stored.column_step, TILE_STEP), self.stored.column_step):
            step = wanted * cols
            if step and n_elements >= step:
                n_elements = n_elements // step * step
                break
        bands = cut(rows, cols, n_elements, step=TILE_STEP, batch=prod(self.shape[:-2]))
        return replace(bands, stripe=rows) if is_ahead else bands

    def _is_read_ahead(self) -> bool:
        """Return whether the stored matrix is read at once, for all bands of its transpose."""
        n_bytes = sum(stretch.n_bytes for stretch in self.stored.stretches(Run(0, self.shape[-1])))
        return 0 < n_bytes <= _MOST_AHEAD

    def decode(self, band: Band, dtype: DType, scratch: Scratch, out: memoryview) -> int:
        n_rows, n_cols = self.shape[-2:]
        matrix, start = divmod(band.start, n_rows * n_cols)
        first, col = divmod(start, n_cols)
        n = min(n_cols - col, band.stop - band.start)
        col += matrix * n_cols  # rows of what is stored count through all matrices
        rows, cols = Run(col, col + n), Run(first, first + (band.stop - band.start) // n)
        item = dtype.n_bytes(1)
        if scratch.reads_ahead and self._is_read_ahead():
            for stretch in self.stored.stretches(Run(matrix * n_cols, (matrix + 1) * n_cols)):
                scratch.read_ahead(*stretch)
        overflows = 0
        for some, across in _tiles(rows, cols, self.stored.column_step):
            tile = scratch.room(_SLOT, item * some.n * across.n)
            overflows += self.stored.decode_tile(some, across, dtype, scratch, tile)
            place = item * ((across.start - first) * n + some.start - col)
            turned = [(some.n, item * across.n, item), (across.n, item, item * n)]
            _io.copy_strided(tile, 0, out, place, item, turned)
        return overflows


def transposed(weight: Weight, name: str | None = None) -> Transposed:
    """Return the transpose of a matrix, or of each of a stack."""
    *stack, rows, cols = weight.shape
    return Transposed(name or weight.name, (*stack, cols, rows), weight.parts, (weight,))


def tiled(weight: Weight) -> Weight:
    """Return a weight whose columns are read alone, if it is stored as its values."""
    is_plain = type(weight) is Plain and weight.parts[0].dtype.bits >= 8
    return PlainMatrix(weight.name, weight.shape, weight.parts) if is_plain else weight


def _tiles(rows: Run, cols: Run, step: int) -> Iterator[tuple[Run, Run]]:
    """Cut rows x cols of what is stored into tiles of whole words and, where they fit, blocks."""
    usual = max(_USUAL_TILE // step, 1) * step
    widest = min(usual, _WIDEST_TILE // step * step or _WIDEST_TILE)
    for left in range(cols.start, cols.stop, widest):
        across = Run(left, min(left + widest, cols.stop))
        n_rows = _TILE_VALUES // across.n // TILE_STEP * TILE_STEP
        for top in range(rows.start, rows.stop, n_rows):
            yield Run(top, min(top + n_rows, rows.stop)), across
