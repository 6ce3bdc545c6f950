"""What GPTQ and AWQ share: integers in 32-bit words, stored [in, out].

    qweight I32  the codes; a word holds several of them, along in or along out features
    qzeros  I32  [groups, out features * bits / 32], a word holds the zero points of several outputs
    scales  F16 | BF16 | F32  [groups, out features]
    g_idx   I32  [in features], the group of each; without it groups are runs of one length

    result[o, i] = round((float32)(code[i, o] - zero[g, o]) * float32(scale[g, o]))

A band is some whole rows of the result, which are some columns of each stored matrix: their bytes
lie in pieces all over the file. So that a piece is longer than what asking for it costs, the parts
are read a stripe at a time, which is the rows of several bands; one thread decodes all of them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import gcd
from typing import NamedTuple

import anamnesis._core as _core
from anamnesis.base.dtypes import DType
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.bands import Band, Bands, Run, band_bytes, cut, stripe_bytes
from anamnesis.schemes.core.settings import Shown
from anamnesis.schemes.core.weight import TILE_STEP, Scratch, TiledWeight, convert_part
from anamnesis.schemes.families.integers.checks import check_symmetric

_WORD_BITS = 32
_WORD_BYTES = 4

_BANDS_IN_ONE = 2  # of the usual size: words along rows have 128 of them in a cache line
_TILE_ROWS = _core.TILE_ROWS  # bands of whole rows are a multiple, where they fit

# Slots of a worker's scratch: the parts, in their order, then a tile of the result.
_CODES, _ZEROS, _SCALES, _GROUPS, _TILE, _KEPT = range(6)


class Packing(NamedTuple):
    """How integers lie in words."""

    kernel: str
    bits: int
    along_rows: bool
    planar: bool = False

    @property
    def step(self) -> int:
        """The fewest values that fill whole words."""
        return _WORD_BITS if self.planar else _WORD_BITS // gcd(_WORD_BITS, self.bits)

    def words(self, n_values: int) -> int:
        """Words that this many values take, the last one partly filled."""
        return -(-n_values * self.bits // _WORD_BITS)


@dataclass(slots=True, eq=False)
class PackedWords(TiledWeight):
    """`qweight`, `qzeros`, `scales`, and `g_idx` if there is a fourth part."""

    packing: Packing
    zeros_less_one: bool
    group_size: int | None
    producer: str = ""
    coding: str = ""
    symmetric_by: str = ""

    @property
    def shown(self) -> Shown:
        rows, cols = self.shape
        bits = self.packing.bits if len(self.parts) <= _GROUPS else 0
        return Shown("int", bits, (rows, cols), (rows, self.n_groups))

    def expect_symmetric(self, by: str, *, reads: bool) -> None:
        packing = self.packing
        if packing.planar or self.out_features % packing.step:
            return  # the last word of a group is not full
        self.symmetric_by = by
        zeros, n_bytes = self.parts[_ZEROS], packing.step * packing.bits // 8
        if reads and zeros.n_bytes:
            self._check_symmetric(zeros.source.read(zeros.offset, n_bytes))

    def _check_symmetric(self, words: bytes | memoryview) -> None:
        zeros, less_one = self.parts[_ZEROS], self.zeros_less_one
        check_symmetric(words, zeros, self.packing.bits, self.symmetric_by, less_one=less_one)

    @property
    def n_groups(self) -> int:
        """Rows of `scales`."""
        return self.parts[_SCALES].shape[0]

    @property
    def out_features(self) -> int:
        """Columns of `scales`."""
        return self.parts[_SCALES].shape[1]

    def bands(self, dtype: DType, n_bytes: int) -> Bands:
        rows, cols = self.shape
        if rows * cols == 0:
            return Bands(rows, cols, 1, 1)
        row_bytes = dtype.n_bytes(cols)
        if self.is_held:
            tiles = max(1, n_bytes // row_bytes // _TILE_ROWS)
            return cut(rows, cols, tiles * _TILE_ROWS * cols)
        per_band = min(n_bytes, band_bytes()) * _BANDS_IN_ONE // row_bytes
        stripe = self._rows_in_stripe()
        if min(per_band, stripe) >= _TILE_ROWS:
            return Bands(rows, cols, per_band // _TILE_ROWS * _TILE_ROWS, cols, stripe=stripe)
        step = self.packing.step
        if (n := min(per_band, stripe)) >= step:
            return cut(rows, cols, n // step * step * cols)
        # Of all rows of a tile one is kept. It passes through float32, and groups may be short.
        per_column = dtype.n_bytes(1) + self.packing.bits / 8 + self._bytes_of_group() + 4
        piece = int(stripe_bytes() / step / per_column)
        return cut(rows, cols, min(piece, cols - 1), step=_WORD_BITS)

    def _rows_in_stripe(self) -> int:
        """How many rows are read at once: whole tiles, unless there are fewer."""
        rows, cols = self.shape
        per_row = cols * self.packing.bits / 8 + self.n_groups * self._bytes_of_group()
        most = int(stripe_bytes() / per_row)
        if most < _TILE_ROWS:
            return most
        tiles = -(-rows // _TILE_ROWS)
        n_stripes = -(-tiles // (most // _TILE_ROWS))  # of about the same size
        return -(-tiles // n_stripes) * _TILE_ROWS

    def _bytes_of_group(self) -> float:
        return self.parts[_SCALES].dtype.n_bytes(1) + self.packing.bits / 8

    def decode(
        self, band: Band, dtype: DType, scratch: Scratch, out: memoryview, level: int
    ) -> int:
        row, col = divmod(band.start, self.shape[1])
        cols = Run(col, min(self.shape[1], col + band.stop - band.start))
        rows = Run(row, row + (band.stop - band.start) // cols.n)
        step = self.packing.step
        start, stop = rows.start // step * step, -(-rows.stop // step) * step
        whole = Run(start, min(stop, self.out_features))
        if whole == rows:
            return self._decode_rows(rows, cols, dtype.name, scratch, out, level)
        row_bytes = 4 * cols.n
        tile = scratch.room(_TILE, whole.n * row_bytes)
        self._decode_rows(whole, cols, "F32", scratch, tile, level)
        kept = tile[(row - whole.start) * row_bytes :][: rows.n * row_bytes]
        return _core.convert(_core.FLOATS["F32"], _core.OUTPUTS[dtype.name], kept, out, level)

    def decode_tile(
        self, rows: Run, cols: Run, dtype: DType, scratch: Scratch, out: memoryview, level: int
    ) -> int:
        at_once = max(self._rows_in_stripe() // TILE_STEP, 1) * TILE_STEP
        overflows = 0
        for start in range(rows.start, rows.stop, at_once):
            some = Run(start, min(start + at_once, rows.stop))
            begin, end = (dtype.n_bytes((row - rows.start) * cols.n) for row in some)
            overflows += self._decode_tile(some, cols, dtype, scratch, out[begin:end], level)
        return overflows

    def _decode_tile(
        self, rows: Run, cols: Run, dtype: DType, scratch: Scratch, out: memoryview, level: int
    ) -> int:
        """Decode columns that fill whole words; of others, keep those that are wanted."""
        start, stop = cols.start // TILE_STEP * TILE_STEP, -(-cols.stop // TILE_STEP) * TILE_STEP
        whole = Run(start, min(stop, self.shape[1]))
        if whole == cols:
            return self._decode_rows(rows, cols, dtype.name, scratch, out, level)
        values = scratch.room(_TILE, 4 * rows.n * whole.n)
        self._decode_rows(rows, whole, "F32", scratch, values, level)
        kept = scratch.room(_KEPT, 4 * rows.n * cols.n)
        first = cols.start - whole.start
        return convert_part(values, first, whole.n, cols.n, dtype, kept, out, level)

    def _read_with(self, rows: Run, cols: Run, reads_ahead: bool) -> Run:
        """Return the rows that are read with these: a stripe's, or all if that reads nothing."""
        n = self.out_features
        is_tiled = rows.start % _TILE_ROWS == 0 and (rows.n % _TILE_ROWS == 0 or rows.stop == n)
        if cols.n < self.shape[1] or not is_tiled:
            return rows
        if self.is_held:
            return Run(0, n)
        stripe = self._rows_in_stripe()
        if stripe < _TILE_ROWS or not reads_ahead:
            return rows
        start = rows.start // stripe * stripe
        within = Run(start, min(start + stripe, n))
        return within if rows.stop <= within.stop else rows

    def _decode_rows(
        self, rows: Run, cols: Run, out_dtype: str, scratch: Scratch, out: memoryview, level: int
    ) -> int:
        """Decode out features `rows` by in features `cols`, both from a word's start on."""
        groups, listed = self._groups(cols, scratch)
        within = self._read_with(rows, cols, scratch.reads_ahead)
        try:
            return _core.dequantize_packed(
                _core.PACKINGS[self.packing.kernel],
                _core.OUTPUTS[out_dtype],
                self._read_codes(within, cols, scratch),
                out,
                within.n,
                cols.n,
                self._read_zeros(within, groups, scratch),
                _read_block(scratch, _SCALES, self.parts[_SCALES], groups, within),
                _core.SCALES[self.parts[_SCALES].dtype.name],
                self.zeros_less_one,
                self.group_size or 1,
                cols.start,
                listed,
                level,
                rows.start - within.start,
                rows.n,
            )
        except ValueError:
            self._check_listed(cols, listed)
            raise

    def _groups(self, cols: Run, scratch: Scratch) -> tuple[Run, memoryview]:
        """Return the groups of some columns, and the group of each if they are not simply runs."""
        size = self.group_size
        if len(self.parts) > _GROUPS:
            g_idx = self.parts[_GROUPS]
            listed = scratch.copy(_GROUPS, g_idx, cols.start * _WORD_BYTES, cols.n * _WORD_BYTES)
            if size is None or bytes(listed) != _runs(cols, size):
                return Run(0, self.n_groups), listed
        assert size is not None
        return Run(cols.start // size, (cols.stop - 1) // size + 1), memoryview(b"")

    def _check_listed(self, cols: Run, listed: memoryview) -> None:
        """Raise what names the first index that is no group."""
        for i, (group,) in enumerate(struct.iter_unpack("<i", listed)):
            if not 0 <= group < self.n_groups:
                g_idx = self.parts[_GROUPS]
                raise g_idx.malformed(
                    f"{g_idx.name}: in feature {cols.start + i:,} is in group {group:,}, but there "
                    f"are {self.n_groups:,} groups",
                    at=(cols.start + i) * _WORD_BYTES,
                )

    def _read_codes(self, rows: Run, cols: Run, scratch: Scratch) -> memoryview:
        packing, qweight = self.packing, self.parts[_CODES]
        lines, across = cols, rows
        if packing.along_rows:
            across = Run(packing.words(rows.start), packing.words(rows.stop))
        else:
            lines = Run(packing.words(cols.start), packing.words(cols.stop))
        return _read_block(scratch, _CODES, qweight, lines, across)

    def _read_zeros(self, rows: Run, groups: Run, scratch: Scratch) -> memoryview:
        across = Run(self.packing.words(rows.start), self.packing.words(rows.stop))
        words = _read_block(scratch, _ZEROS, self.parts[_ZEROS], groups, across)
        if self.symmetric_by:
            self._check_symmetric(words)
        return words


def _read_block(
    scratch: Scratch, slot: int, tensor: StoredTensor, lines: Run, across: Run
) -> memoryview:
    """Read items `across` of `lines` of a stored matrix."""
    item = tensor.dtype.n_bytes(1)
    stride = tensor.shape[1] * item
    first = lines.start * stride + across.start * item
    return scratch.read_rows(slot, tensor, first, stride, across.n * item, lines.n)


def _runs(cols: Run, size: int) -> bytes:
    """Return the g_idx of these columns if groups are runs of `size`."""
    pieces = []
    for group in range(cols.start // size, (cols.stop - 1) // size + 1):
        n = min(cols.stop, (group + 1) * size) - max(cols.start, group * size)
        pieces.append(group.to_bytes(_WORD_BYTES, "little", signed=True) * n)
    return b"".join(pieces)
