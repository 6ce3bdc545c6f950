"""EXL3: blocks of 128 x 128, of which a band has whole ones where they fit.

Both sides of a block are transformed, so that an out feature takes all 128 of its block. Where
those are too much for a band, a band has some of them, and decodes all for that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import anamnesis._core as _core
from anamnesis.base.dtypes import DType
from anamnesis.base.lazy import np
from anamnesis.schemes.core.bands import Bands, Run, cut, stripe_bytes
from anamnesis.schemes.core.weight import DecodedByTiles, Scratch

BLOCK = _core.TRELLIS_BLOCK
TILE = 16  # rows and columns
MULTIPLIERS = {"mcg": 0xCBAC1FED, "mul1": 0x83DCD12D}

_TRELLIS, _IN, _OUT, _MARKER = range(4)  # parts, and slots of a worker's scratch
_SIGNS = 8  # of scales, in a byte
_MOST = 13  # bands of the usual size that a band may have, with the codes that it is made of


@dataclass(slots=True, eq=False)
class Exl3Weight(DecodedByTiles):
    """A trellis, what its in and its out features are multiplied by, and the marker if any."""

    codebook: str

    family: ClassVar[str] = "EXL3"
    column_step: ClassVar[int] = BLOCK

    @property
    def id(self) -> str:
        return f"exl3-{self.codebook}-{self.bits}"

    @property
    def scheme(self) -> str:
        padding = self.parts[_TRELLIS].shape[1] * TILE - self.shape[0]
        kind = f"EXL3, {self.bits} bit{'s' * (self.bits > 1)}, codebook {self.codebook}"
        return f"{kind}, without {padding} of padding" if padding else kind

    @property
    def bits(self) -> int:
        return self.parts[_TRELLIS].shape[2] // TILE

    def bands(self, dtype: DType, n_bytes: int) -> Bands:
        rows, cols = self.shape
        if rows * cols == 0:
            return Bands(rows, cols, 1, 1)
        row_bytes = dtype.n_bytes(cols)
        if n_bytes >= BLOCK * row_bytes:
            return Bands(rows, cols, n_bytes // row_bytes // BLOCK * BLOCK, cols)
        strip = BLOCK * cols * self.bits // 8
        room = (_MOST * n_bytes - strip) // row_bytes
        if strip <= stripe_bytes() and room >= 1:
            at_once = 1 << min(room, BLOCK).bit_length() - 1
            return Bands(rows, cols, at_once, cols, stripe=BLOCK)
        piece = min(n_bytes // dtype.n_bytes(1), stripe_bytes() * 8 // BLOCK // self.bits)
        return cut(rows, cols, min(piece, cols - 1), step=BLOCK)

    def decode_tile(
        self, rows: Run, cols: Run, dtype: DType, scratch: Scratch, out: memoryview
    ) -> int:
        self._check_multiplier(scratch)
        around = cols.around(BLOCK)
        in_scales = self._scales(_IN, around, scratch)
        trellis = _core.TRELLISES[f"EXL3_{self.codebook.upper()}"]
        kernel, overflows = (trellis, _core.OUTPUTS[dtype.name]), 0
        tiles = self.parts[_TRELLIS]  # of in features by out features
        tile_bytes = tiles.dtype.n_bytes(tiles.shape[2])
        stride, n_bytes = tiles.shape[1] * tile_bytes, BLOCK // TILE * tile_bytes
        top, n_tiles = around.start // TILE * stride, around.n // TILE
        for first in range(rows.start // BLOCK * BLOCK, rows.stop, BLOCK):
            some = Run(max(first, rows.start), min(first + BLOCK, rows.stop))
            begin, end = (dtype.n_bytes((row - rows.start) * cols.n) for row in some)
            start = top + first // TILE * tile_bytes
            codes = scratch.read_rows(_TRELLIS, tiles, start, stride, n_bytes, n_tiles)
            scales = in_scales, self._scales(_OUT, Run(first, first + BLOCK), scratch)
            wanted = some.start - first, some.n, cols.start - around.start, cols.n
            overflows += _core.dequantize_trellis(
                *kernel, codes, out[begin:end], self.bits, around.n, *scales, *wanted, scratch.level
            )
        return overflows

    def _scales(self, slot: int, some: Run, scratch: Scratch) -> memoryview:
        """Read what some features are multiplied by, as half floats."""
        part = self.parts[slot]
        if part.dtype.name == "F16":
            return scratch.read(slot, part, *map(part.dtype.n_bytes, (some.start, some.n)))
        raw = scratch.read(slot, part, some.start // _SIGNS, some.n // _SIGNS)
        signs = np.unpackbits(np.frombuffer(raw, np.uint8), bitorder="little").astype("<u2")
        ones = signs << np.uint16(15) | np.uint16(0x3C00)
        return ones.view(np.uint8).data

    def _check_multiplier(self, scratch: Scratch) -> None:
        """Raise UnsupportedError if the marker has another multiplier than is usual."""
        if self.codebook not in MULTIPLIERS:
            return
        marker = self.parts[_MARKER]
        found = int.from_bytes(scratch.read_rows(_MARKER, marker, 0, 4, 4, 1), "little")
        if found != MULTIPLIERS[self.codebook]:
            raise marker.unsupported(
                f"{marker}: the multiplier is {found:#010x}, not {MULTIPLIERS[self.codebook]:#010x}"
                ", the one that exllamav3 has had since 0.0.9"
            )
