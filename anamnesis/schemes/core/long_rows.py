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
    overflows = done = 0
    for rows in _decoded_together(weight, tile):
        n_bytes = dtype.n_bytes(rows.n * tile.cols)
        place = out[done : done + n_bytes]
        done += n_bytes
        if isinstance(weight, TiledWeight) and rows.n > 1:
            cols = Run(tile.left, tile.left + tile.cols)
            overflows += weight.decode_tile(rows, cols, dtype, scratch, place, level)
            continue
        start = rows.start * weight.shape[-1] + tile.left
        run = Band(start, start + tile.cols)
        overflows += decode_run(weight, run, dtype, scratch, place, level)
    return overflows


def _decoded_together(weight: Weight, tile: Place) -> Iterator[Run]:
    """Yield runs of rows: such as `decode_tile` takes, else one after the other."""
    stop, n_rows = tile.top + tile.rows, prod(weight.shape[:-1])
    top = tile.top
    while top < stop:
        last = min(top + TILE_STEP, stop)
        is_step = top % TILE_STEP == 0 and (last - top == TILE_STEP or last == n_rows)
        if not (is_step and isinstance(weight, TiledWeight)):
            last = top + 1
        yield Run(top, last)
        top = last
