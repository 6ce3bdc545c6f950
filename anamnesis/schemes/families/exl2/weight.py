"""EXL2: integers of 2 to 8 bits, mixed within a weight, with scales of 4 bits.

    q_weight     I32 [words, out features]: the codes of each out feature, low bits first, one group
                 of in features after the other
    q_groups     I16 [2 * groups]: the bits of a group, and its first row of words; bits never grow
    q_scale      I32 [groups, out features / 8]: eight scales of 4 bits in a word, less 1
    q_scale_max  F16 [groups]
    q_invperm    I32 [in features]: where in the groups each in feature is

    scale  = (q_scale + 1)^2 * q_scale_max / 256
    result[o, i] = round(float32(code[q_invperm[i], o] - 2^(bits - 1)) * scale)

The scale is exact in float32. Groups have multiples of 32 in features, those of 2 bits of 16.
Canonical: `reconstruct_kernel` of exllamav2's cuda/q_matrix.cu, which computes in half floats: it
rounds q_scale_max / 256, the scale and the product to F16, as `math="reference"` does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, Self

import anamnesis._core as _core
import anamnesis._io as _io
from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.errors import ParseError
from anamnesis.base.lazy import NDArray, np
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.bands import Bands, Run, band_bytes, places, stripe_bytes
from anamnesis.schemes.core.weight import TILE_STEP, DecodedByTiles, Scratch

MAX_IN_FEATURES = 1 << 16  # which exllamav2 counts in 16 bits
IN_WORD = 8  # scales

_KERNELS = {2: "GPTQ2", 3: "GPTQ3", 4: "GPTQ4", 5: "EXL5", 6: "EXL6", 8: "GPTQ8"}
_WORD_BITS, _WORD_BYTES = 32, 4
_SQUARES = tuple((code + 1) ** 2 for code in range(16))

# Slots of a worker's scratch: the parts, in their order, then what is made of them.
_CODES, _SCALES, _MAXIMA, _GROUPS, _ORDER, _WORDS, _RUN, _TILE, _ORDERED = range(9)

_LEAST_ROWS = 8  # that kernels do at once
_PARTS = 2  # of a band that are decoded one after the other


class _Groups(NamedTuple):
    """Consecutive groups of one number of bits and one size."""

    bits: int
    size: int
    groups: Run
    cols: Run
    lines: Run


class _Piece(NamedTuple):
    """Rows that are decoded at once, those that are read with them, and where columns are."""

    rows: Run
    within: Run
    places: memoryview


@dataclass(slots=True, eq=False)
class Exl2Weight(DecodedByTiles):
    """`q_weight`, `q_scale`, `q_scale_max`, `q_groups`, `q_invperm`, and what else is stored."""

    is_rounded: bool = False
    runs: tuple[_Groups, ...] = ()

    family: ClassVar[str] = "EXL2"

    @property
    def id(self) -> str:
        return "exl2-rounded" if self.is_rounded else "exl2"

    @property
    def scheme(self) -> str:
        padding = self.parts[_CODES].shape[1] - self.shape[0]
        return f"EXL2, without {padding} of padding" if padding else "EXL2"

    def by_reference(self, dtype: DType) -> Self:
        return replace(self, is_rounded=True)

    def bands(self, dtype: DType, n_bytes: int) -> Bands:
        rows, cols = self.shape
        if rows * cols == 0:
            return Bands(rows, cols, 1, 1)
        per_band = _whole_units(n_bytes // dtype.n_bytes(cols))
        return Bands(rows, cols, per_band, cols, stripe=0 if self.is_held else self._stripe())

    def _stripe(self) -> int:
        """Return how many rows are read at once."""
        n_lines, n_groups = self.parts[_CODES].shape[0], self.parts[_SCALES].shape[0]
        per_row = n_lines * _WORD_BYTES + n_groups * _WORD_BYTES / IN_WORD
        return _whole_units(int(stripe_bytes() / per_row))

    @property
    def column_step(self) -> int:
        return self.shape[1]

    def decode_tile(
        self, rows: Run, cols: Run, dtype: DType, scratch: Scratch, out: memoryview
    ) -> int:
        if not self.runs:
            self.runs = self._read_groups()
        first, n_bytes = cols.start * _WORD_BYTES, cols.n * _WORD_BYTES
        order = scratch.copy(_ORDER, self.parts[_ORDER], first, n_bytes)
        row_bytes, overflows = dtype.n_bytes(cols.n), 0
        at_once = _whole_units(band_bytes() // _PARTS // dtype.n_bytes(self.shape[1]))
        stripe = self._stripe()
        for read, of_read in places(rows, stripe, row_bytes, out):
            # A stripe is read at once, or all if that reads nothing.
            start = read.start // stripe * stripe
            within = Run(start, min(start + stripe, self.shape[0]))
            if self.is_held:
                within = Run(0, self.parts[_CODES].shape[1])
            elif not scratch.reads_ahead or read.stop > within.stop:
                within = read
            for some, place in places(read, at_once, row_bytes, of_read):
                piece = _Piece(some, within, order)
                overflows += self._decode_piece(piece, dtype, scratch, place)
        return overflows

    def _decode_piece(self, piece: _Piece, dtype: DType, scratch: Scratch, out: memoryview) -> int:
        """Decode rows as they are stored, and take the columns."""
        made = DTYPES["F16"] if self.is_rounded else dtype
        n_rows, n_cols, item = piece.rows.n, self.shape[1], made.n_bytes(1)
        scales = self._scales(piece, scratch)
        tile = scratch.room(_TILE, n_rows * n_cols * item)
        stored = np.frombuffer(tile, f"u{item}").reshape(n_rows, n_cols)
        overflows = 0
        rows, within = piece.rows, piece.within
        packed = self.parts[_CODES]
        words = scratch.read_tile(_CODES, packed, Run(0, packed.shape[0]), within)
        stride, n_bytes = within.n * _WORD_BYTES, n_rows * _WORD_BYTES
        for run in self.runs:
            first = run.lines.start * stride + (rows.start - within.start) * _WORD_BYTES
            codes = scratch.room(_WORDS, run.lines.n * n_bytes)
            _io.copy_rows(words, first, stride, n_bytes, codes)
            is_all = run.cols.n == n_cols
            into = tile if is_all else scratch.room(_RUN, n_rows * run.cols.n * item)
            kernel = _core.PACKINGS[_KERNELS[run.bits]], _core.OUTPUTS[made.name]
            zeros = _halves(run.bits, n_rows) * run.groups.n
            of_run = scales[run.groups.start : run.groups.stop].reshape(-1).view(np.uint8).data
            scaling = zeros, of_run, _core.SCALES["F32"], False, run.size, 0, b"", scratch.level
            overflows += _core.dequantize_packed(
                *(*kernel, codes, into, n_rows, run.cols.n, *scaling)
            )
            if not is_all:
                values = np.frombuffer(into, f"u{item}").reshape(n_rows, -1)
                stored[:, run.cols.start : run.cols.stop] = values
        n_places = len(piece.places) // _WORD_BYTES
        ordered = out if made is dtype else scratch.room(_ORDERED, n_rows * n_places * item)
        try:
            _io.take_columns(tile, n_cols, item, piece.places, ordered)
        except ValueError:  # it has been another one before
            raise _no_order(self.parts[_ORDER]) from None
        if made is not dtype:
            overflows += scratch.convert(ordered, dtype, out, of=made.name)
        return overflows

    def _scales(self, piece: _Piece, scratch: Scratch) -> NDArray[Any]:
        """Return the scales of rows, [groups, rows], in float32."""
        rows, within = piece.rows, piece.within
        packed = self.parts[_SCALES]
        around = Run(within.start // IN_WORD, -(-within.stop // IN_WORD))
        read = scratch.read_tile(_SCALES, packed, Run(0, packed.shape[0]), around)
        raw = np.frombuffer(read, "<u4")
        own = Run(rows.start // IN_WORD, -(-rows.stop // IN_WORD))
        stored = raw.reshape(packed.shape[0], -1)[
            :, own.start - around.start : own.stop - around.start
        ]
        nibbles = stored[:, :, None] >> np.arange(0, _WORD_BITS, 4, dtype=np.uint32) & 15
        first = rows.start - own.start * IN_WORD
        codes = nibbles.reshape(len(stored), -1)[:, first : first + rows.n]
        squares = np.array(_SQUARES, np.float32)[codes]
        maxima = np.frombuffer(scratch.read_whole(_MAXIMA, self.parts[_MAXIMA]), "<f2")
        with np.errstate(all="ignore"):
            parts = self._rounded(maxima.astype(np.float32) * np.float32(1 / 256))
            return self._rounded(squares * parts[:, None])

    def _rounded(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return float32 values, rounded where exllamav2 rounds them."""
        return values.astype(np.float16).astype(np.float32) if self.is_rounded else values

    # --- groups and order --------------------------------------------------------------------

    def _read_groups(self) -> tuple[_Groups, ...]:
        """Read and check what says which codes are whose."""
        stored, order = self.parts[_GROUPS], self.parts[_ORDER]
        pairs = np.frombuffer(stored.read(), "<u2").reshape(-1, 2).tolist()
        n_lines, n_cols = self.parts[_CODES].shape[0], self.shape[1]
        ends = [*(first for _, first in pairs[1:]), n_lines]
        runs: list[_Groups] = []
        line = col = 0
        for i, ((bits, first), end) in enumerate(zip(pairs, ends, strict=True)):
            size, rest = divmod((end - first) * _WORD_BITS, bits) if bits in _KERNELS else (0, 1)
            if rest or first != line or size < 1 or size % (16 if bits == 2 else 32):
                raise stored.malformed(
                    f"{stored.name}: group {i} has {bits} bits and lines {first:,} to {end:,} of "
                    f"{self.parts[_CODES].name}, which are no whole groups of in features",
                    at=4 * i,
                )
            if runs and bits > runs[-1].bits:
                raise stored.malformed(
                    f"{stored.name}: group {i} has {bits} bits, more than the one before it",
                    at=4 * i,
                )
            run = _Groups(bits, size, Run(i, i + 1), Run(col, col + size), Run(line, end))
            if runs and (runs[-1].bits, runs[-1].size) == (bits, size):
                before = runs.pop()
                joined = (Run(a.start, b.stop) for a, b in zip(before[2:], run[2:], strict=True))
                run = _Groups(bits, size, *joined)
            runs.append(run)
            line, col = end, col + size
        if col != n_cols:
            raise stored.malformed(
                f"{stored.name}: groups have {col:,} in features, and {order.name} {n_cols:,}"
            )
        if not np.array_equal(np.sort(np.frombuffer(order.read(), "<i4")), np.arange(n_cols)):
            raise _no_order(order)
        return tuple(runs)


def _no_order(order: StoredTensor) -> ParseError:
    return order.malformed(f"{order.name} is no order of {order.shape[0]:,} in features")


def _whole_units(rows: int) -> int:
    """Return about as many rows, which the kernels can do at once."""
    unit = TILE_STEP if rows >= TILE_STEP else _LEAST_ROWS
    return max(rows - rows % unit, unit)


@lru_cache(maxsize=64)
def _halves(bits: int, n: int) -> bytes:
    """Return words that hold half the number of codes, n times."""
    half, step = 1 << (bits - 1), _WORD_BITS  # so many fill whole words
    words = sum(half << (bits * i) for i in range(step)).to_bytes(bits * _WORD_BYTES, "little")
    return (words * -(-n // step))[: -(-n * bits // _WORD_BITS) * _WORD_BYTES]
