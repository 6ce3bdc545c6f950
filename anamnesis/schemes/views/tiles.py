"""Scales in tiles, as NVIDIA's tensor cores want them, with padding.

Tiles are 128 rows x 4 columns of bytes, one after the other, those of a row of tiles first. Byte
(r, c) of a tile is at r % 32 * 16 + r // 32 * 4 + c. (cuBLAS' 1D block scaling factors layout.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from anamnesis.base.lazy import np
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.blockwise import Blockwise, Item
from anamnesis.schemes.core.codes import Loss, Out, Task
from anamnesis.schemes.views.views import Undone, made_from, padded, reordered
from anamnesis.sources.strided import Strips, strided

ROWS, COLS = 128, 4


def is_tiled(scale: StoredTensor, rows: int, cols: int) -> bool:
    """Return whether a tensor of bytes has the size of rows x cols in whole tiles."""
    return scale.n_bytes == -(-rows // ROWS) * -(-cols // COLS) * ROWS * COLS


def untiled(
    scale: StoredTensor, rows: int, cols: int, strips: Strips | None = None
) -> StoredTensor:
    """Return rows x cols of a tensor of bytes in tiles, row-major."""
    tall, wide = -(-rows // ROWS), -(-cols // COLS)
    if not is_tiled(scale, rows, cols):
        raise scale.malformed(
            f"{scale} is not {rows:,} x {cols:,} scales in tiles of {ROWS} x {COLS}, which take"
            f" {tall * wide * ROWS * COLS:,} bytes"
        )
    tile = ROWS * COLS
    shape, strides = (tall, 4, 32, wide, COLS), (wide * tile, COLS, 4 * COLS, tile, 1)
    source, offset = strided(scale.source, scale.offset, shape, strides, 1, strips)
    if source is not scale.source:
        source.undone = Undone(untiled, scale)
    whole = scale._replace(shape=(tall * ROWS, wide * COLS), offset=offset, source=source)
    return cropped(whole, rows, cols, strips)


def tiled(scale: StoredTensor) -> StoredTensor:
    """Return a matrix of bytes in tiles, padded with zeros to whole ones: cuBLAS' layout."""
    rows, cols = scale.shape
    tall, wide = -(-rows // ROWS), -(-cols // COLS)
    whole = padded(scale, tall * ROWS, wide * COLS)
    was = made_from(whole)
    if was and was.way is untiled:
        return whole._replace(source=was.stored.source, offset=was.stored.offset)
    shape, row = (tall, wide, 32, 4, COLS), wide * COLS
    tiles = reordered(whole, shape, (ROWS * row, COLS, row, 32 * row, 1), 1)
    return tiles._replace(shape=whole.shape)


def cropped(
    stored: StoredTensor, rows: int, cols: int, strips: Strips | None = None
) -> StoredTensor:
    """Return the first rows and columns of a matrix of bytes."""
    if stored.shape == (rows, cols):
        return stored
    strides = (stored.shape[1], 1)
    source, offset = strided(stored.source, stored.offset, (rows, cols), strides, 1, strips)
    n_bytes = prod((rows, cols))
    return StoredTensor(stored.name, stored.dtype, (rows, cols), n_bytes, offset, source)


@dataclass(frozen=True)
class TiledGroups(Blockwise):
    """Floats of 4 or 8 bits whose scales are in tiles; rows and columns are of whole groups."""

    def items(self, shape: tuple[int, ...]) -> tuple[Item, ...]:
        return self.item, Item("scales", self.scale_dtype, ROWS, COLS * self.wide, ROWS * COLS)

    def outs(self, shape: tuple[int, ...], found: bytes = b"") -> tuple[Out, ...]:
        codes, scales, *more = super().outs(shape, found)
        tall, wide = -(-shape[-2] // ROWS), -(-shape[-1] // (COLS * self.wide))
        return codes, scales._replace(shape=(tall * ROWS, wide * COLS)), *more

    def refuses(self, shape: tuple[int, ...]) -> str | None:
        if len(shape) != 2:
            return "not a matrix"
        if shape[0] % self.wide:
            return f"columns are not in whole groups of {self.wide}"
        return super().refuses(shape)

    def encode(self, values: memoryview, task: Task, outs: Sequence[memoryview]) -> Loss:
        rows, n_groups = task.n // task.shape[-1], task.shape[-1] // self.wide
        scales = bytearray(rows * n_groups)
        loss = super().encode(values, task, (outs[0], memoryview(scales), *outs[2:]))
        self.settle(outs[0], scales)
        tall, across = -(-rows // ROWS), -(-n_groups // COLS)
        whole = np.zeros((tall * ROWS, across * COLS), np.uint8)
        whole[:rows, :n_groups] = np.frombuffer(scales, np.uint8).reshape(rows, n_groups)
        tiles = whole.reshape(tall, 4, 32, across, COLS).transpose(0, 3, 2, 1, 4)  # as in `tiled`
        outs[1][:] = tiles.tobytes()
        return loss

    def settle(self, codes: memoryview, scales: bytearray) -> None:
        """Make of a kernel's codes what is stored; scales are row by row."""
