"""Weights of GPTQ and AWQ: integers in 32-bit words, stored [in, out].

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

from dataclasses import dataclass
from math import gcd
from typing import NamedTuple

import anamnesis._core as _core
from anamnesis.base.dtypes import DType
from anamnesis.schemes.core.bands import Band, Bands, Run, band_bytes, cut, places, stripe_bytes
from anamnesis.schemes.core.settings import Shown
from anamnesis.schemes.core.weight import TILE_STEP, Scratch, TiledWeight
from anamnesis.schemes.families.integers.checks import check_listed, check_symmetric
from anamnesis.schemes.views.kinds import Integers, Words

_WORD_BITS = 32
_WORD_BYTES = 4

_BANDS_IN_ONE = 2  # of the usual size: words along rows have 128 of them in a cache line
_TILE_ROWS = _core.TILE_ROWS  # bands of whole rows are a multiple, where they fit

# Slots of a worker's scratch: the parts, in their order, then a tile of the result.
_CODES, _ZEROS, _SCALES, _GROUPS, _TILE = range(5)


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
class PackedWeight(TiledWeight):
    """`qweight`, `qzeros`, `scales`, and `g_idx` if there is a fourth part."""

    packing: Packing
    zeros_less_one: bool
    group_size: int | None
    producer: str = ""
    coding: str = ""
    symmetric_by: str = ""

    @property
    def family(self) -> str:
        if self.producer:
            return f"INT{self.packing.bits}"
        return "AWQ" if self.packing.along_rows else "GPTQ"

    @property
    def id(self) -> str:
        if self.producer:
            return f"{self.producer.lower()}-{self.coding}-{self.group_size}"
        version = "" if self.zeros_less_one else "v2"
        return f"{self.packing.kernel.lower()}{version}-{self.group_size or 'listed'}"

    @property
    def scheme(self) -> str:
        if self.producer:
            return f"{self.family}, {self._grouping()} ({self.producer})"
        version = " v2" if not (self.packing.along_rows or self.zeros_less_one) else ""
        version = " planar" if self.packing.planar else version
        return f"{self.family}{version} {self.packing.bits}-bit, {self._grouping()}"

    def _grouping(self) -> str:
        if self.n_groups == 1:
            return "one group"
        if self.group_size is None:
            return f"{self.n_groups:,} groups"
        return f"groups of {self.group_size}"

    def seen_as(self, kind: type) -> Integers | Words | None:
        words = self._words() if kind in (Integers, Words) else None
        if kind is not Integers:
            return words
        from anamnesis.schemes.families.integers.seen import of_packed, of_words

        return of_words(words) if words and 32 % words.bits == 0 else of_packed(self)

    def _words(self) -> Words | None:
        bits = self.packing.bits
        if bits != 4 and (self.producer or self.packing.kernel != f"GPTQ{bits}"):
            return None
        codes, zeros, scales = self.parts[:_GROUPS]
        listed = self.parts[_GROUPS] if len(self.parts) > _GROUPS else None
        kind = "across" if self.packing.along_rows else "columns"
        size = self.group_size
        group = size or -(-self.shape[1] // max(self.n_groups, 1))
        return Words(
            *(self.name, self.shape, kind, codes, scales, zeros, self.zeros_less_one),
            *(listed, group, False, bits, size),
        )

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

    def decode(self, band: Band, dtype: DType, scratch: Scratch, out: memoryview) -> int:
        rows, cols = band.tile(self.shape[1])
        whole = rows.around(self.packing.step, self.out_features)
        if whole == rows:
            return self._decode_rows(rows, cols, dtype.name, scratch, out)
        row_bytes = 4 * cols.n
        tile = scratch.room(_TILE, whole.n * row_bytes)
        self._decode_rows(whole, cols, "F32", scratch, tile)
        kept = tile[(rows.start - whole.start) * row_bytes :][: rows.n * row_bytes]
        return scratch.convert(kept, dtype, out)

    def decode_tile(
        self, rows: Run, cols: Run, dtype: DType, scratch: Scratch, out: memoryview
    ) -> int:
        # Columns that fill whole words are decoded; of others, those are kept that are wanted.
        whole = cols.around(TILE_STEP, self.shape[1])
        at_once = max(self._rows_in_stripe() // TILE_STEP, 1) * TILE_STEP
        overflows = 0
        for some, piece in places(rows, at_once, dtype.n_bytes(cols.n), out):
            if whole == cols:
                overflows += self._decode_rows(some, cols, dtype.name, scratch, piece)
                continue
            values = scratch.room(_TILE, 4 * some.n * whole.n)
            self._decode_rows(some, whole, "F32", scratch, values)
            wanted = cols.start - whole.start, whole.n, cols.n
            overflows += scratch.convert_columns(values, *wanted, dtype, piece)
        return overflows

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
        self, rows: Run, cols: Run, out_dtype: str, scratch: Scratch, out: memoryview
    ) -> int:
        """Decode out features `rows` by in features `cols`, both from a word's start on."""
        groups, listed = self._groups(cols, scratch)
        within = self._read_with(rows, cols, scratch.reads_ahead)
        packing, qweight, qzeros = self.packing, self.parts[_CODES], self.parts[_ZEROS]
        in_words = Run(packing.words(within.start), packing.words(within.stop))
        if packing.along_rows:
            codes = scratch.read_tile(_CODES, qweight, cols, in_words)
        else:
            lines = Run(packing.words(cols.start), packing.words(cols.stop))
            codes = scratch.read_tile(_CODES, qweight, lines, within)
        zeros = scratch.read_tile(_ZEROS, qzeros, groups, in_words)
        if self.symmetric_by:
            self._check_symmetric(zeros)
        stored = self.parts[_SCALES]
        scales = scratch.read_tile(_SCALES, stored, groups, within)
        kernel = _core.PACKINGS[packing.kernel], _core.OUTPUTS[out_dtype]
        scaling = zeros, scales, _core.SCALES[stored.dtype.name], self.zeros_less_one
        of_groups = self.group_size or 1, cols.start, listed
        wanted = rows.start - within.start, rows.n
        tile = codes, out, within.n, cols.n
        given = (*kernel, *tile, *scaling, *of_groups, scratch.level, *wanted)
        try:
            return _core.dequantize_packed(*given)
        except ValueError:
            if listed:
                g_idx = self.parts[_GROUPS]
                check_listed(g_idx, listed, cols.start, self.n_groups, "in feature")
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


def _runs(cols: Run, size: int) -> bytes:
    """Return the g_idx of these columns if groups are runs of `size`."""
    pieces = []
    for group in range(cols.start // size, (cols.stop - 1) // size + 1):
        n = min(cols.stop, (group + 1) * size) - max(cols.start, group * size)
        pieces.append(group.to_bytes(_WORD_BYTES, "little", signed=True) * n)
    return b"".join(pieces)
