"""Matrices in tiles, for encodings whose rows are too long for a band."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from anamnesis.base.dtypes import DType
from anamnesis.schemes.core.bands import Band, Bands, Run
from anamnesis.schemes.core.weight import TILE_STEP, Scratch, TiledWeight, Weight, decode_run


class Place(NamedTuple):
    """Where a tile is in a matrix, and its size."""

    top: int
    left: int
    rows: int
    cols: int


class Tile(Band):
    """A tile as a band: elements are counted through all tiles, in each by rows."""

    __slots__ = ()

    def place(self, shape: tuple[int, ...], n_rows: int) -> Place:
        """Return where it is, all tiles being of `n_rows` rows but the last."""
        top = self.start // (n_rows * shape[1]) * n_rows
        rows = min(n_rows, shape[0] - top)
        return Place(
            top, (self.start - top * shape[1]) // rows, rows, (self.stop - self.start) // rows
        )


class Tiles(Bands):
    """`rows` x `cols` in tiles of at most `band_rows` x `band_cols`, all whole but at the edges."""

    __slots__ = ()

    def runs(self) -> Iterator[list[Band]]:
        for top in range(0, self.rows, self.band_rows):
            rows, first = min(self.band_rows, self.rows - top), top * self.cols
            for left in range(0, self.cols, self.band_cols):
                right = min(left + self.band_cols, self.cols)
                yield [Tile(first + rows * left, first + rows * right)]


def decode_tile(
    weight: Weight, tile: Place, dtype: DType, scratch: Scratch, out: memoryview, level: int
) -> int:
    """Decode a tile, row-major; return how many values became infinite."""
    # Runs of rows such as a weight's own `decode_tile` takes, else one row after the other.
    overflows = done = 0
    top, stop, n_rows = tile.top, tile.top + tile.rows, prod(weight.shape[:-1])
    while top < stop:
        last = min(top + TILE_STEP, stop)
        is_step = top % TILE_STEP == 0 and (last - top == TILE_STEP or last == n_rows)
        if not (is_step and isinstance(weight, TiledWeight)):
            last = top + 1
        n_bytes = dtype.n_bytes((last - top) * tile.cols)
        place = out[done : done + n_bytes]
        if isinstance(weight, TiledWeight) and last - top > 1:
            rows, cols = Run(top, last), Run(tile.left, tile.left + tile.cols)
            overflows += weight.decode_tile(rows, cols, dtype, scratch, place, level)
        else:
            start = top * weight.shape[-1] + tile.left
            run = Band(start, start + tile.cols)
            overflows += decode_run(weight, run, dtype, scratch, place, level)
        done, top = done + n_bytes, last
    return overflows
