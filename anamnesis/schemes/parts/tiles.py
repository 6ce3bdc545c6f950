"""Scales in tiles, as NVIDIA's tensor cores want them, with padding.

Tiles are 128 rows x 4 columns of bytes, one after the other, those of a row of tiles first. Byte
(r, c) of a tile is at r % 32 * 16 + r // 32 * 4 + c. (cuBLAS' 1D block scaling factors layout.)
"""

from __future__ import annotations

from math import prod

from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.parts.views import padded, reordered
from anamnesis.sources.strided import Strips, strided

__all__ = ["cropped", "is_tiled", "tiled", "untiled"]

_ROWS, _COLS = 128, 4


def is_tiled(scale: StoredTensor, rows: int, cols: int) -> bool:
    """Tell whether a tensor of bytes has the size of rows x cols in whole tiles."""
    return scale.n_bytes == -(-rows // _ROWS) * -(-cols // _COLS) * _ROWS * _COLS


def untiled(scale: StoredTensor, rows: int, cols: int, strips: Strips) -> StoredTensor:
    """Return rows x cols of a tensor of bytes in tiles, row-major.

    Raises
    ------
    ParseError
        If its size is another.
    """
    tall, wide = -(-rows // _ROWS), -(-cols // _COLS)
    if not is_tiled(scale, rows, cols):
        raise scale.malformed(
            f"{scale} is not {rows:,} x {cols:,} scales in tiles of {_ROWS} x {_COLS}, which take"
            f" {tall * wide * _ROWS * _COLS:,} bytes"
        )
    tile = _ROWS * _COLS
    source, offset = strided(
        scale.source,
        scale.offset,
        (tall, 4, 32, wide, _COLS),
        (wide * tile, _COLS, 4 * _COLS, tile, 1),
        1,
        strips,
    )
    whole = scale._replace(shape=(tall * _ROWS, wide * _COLS), offset=offset, source=source)
    return cropped(whole, rows, cols, strips)


def tiled(scale: StoredTensor) -> StoredTensor:
    """Return a matrix of bytes in tiles, padded with zeros to whole ones: cuBLAS' layout."""
    rows, cols = scale.shape
    tall, wide = -(-rows // _ROWS), -(-cols // _COLS)
    whole = padded(scale, tall * _ROWS, wide * _COLS)
    shape, row = (tall, wide, 32, 4, _COLS), wide * _COLS
    tiles = reordered(whole, shape, (_ROWS * row, _COLS, row, 32 * row, 1), 1)
    return tiles._replace(shape=whole.shape)


def cropped(stored: StoredTensor, rows: int, cols: int, strips: Strips) -> StoredTensor:
    """Return the first rows and columns of a matrix of bytes."""
    if stored.shape == (rows, cols):
        return stored
    strides = (stored.shape[1], 1)
    source, offset = strided(stored.source, stored.offset, (rows, cols), strides, 1, strips)
    n_bytes = prod((rows, cols))
    return StoredTensor(stored.name, stored.dtype, (rows, cols), n_bytes, offset, source)
