"""What is laid out for one kernel, of AWQ and Marlin, put in order as it is read.

Codes come out of `_io.order_*` row by row, as in compressed-tensors, and scales out of
columns; the rest is as of any integers in rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import anamnesis._io as _io
from anamnesis.base.dtypes import DType
from anamnesis.base.lazy import NDArray, np
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.bands import Bands, Run, cut
from anamnesis.schemes.core.settings import Shown
from anamnesis.schemes.core.weight import Scratch
from anamnesis.schemes.families.integers.weight import IntegerWeight

_CODES, _SCALES, _ZEROS, _ORDERED, _META = 0, 1, 2, 6, 7  # slots of a worker's scratch
_WIDEST = 1 << 16  # columns of which whole tiles of rows are a band
_LARGEST_ZERO = 15


@dataclass(slots=True, eq=False)
class GemvWeight(IntegerWeight):
    """AWQ's GEMV: rows of codes; zero points and scales of a row fill places of whole words."""

    family: ClassVar[str] = "AWQ"
    is_in_order: ClassVar[bool] = False

    @property
    def scheme(self) -> str:
        return f"{self.producer} {self.bits}-bit, {self._grouping()}"

    @property
    def shown(self) -> Shown:
        rows, cols = self.shape
        return Shown("int", self.bits, (rows, cols), (rows, -(-cols // self.block[1])))

    @property
    def places(self) -> int:
        return self.parts[_SCALES].shape[1]

    def _zeros(
        self, rows: Run, groups: Run, beside: Run, scratch: Scratch
    ) -> tuple[str, memoryview | bytes, int]:
        stored = self.parts[_ZEROS]
        first, last = beside.start // 2, -(-beside.stop // 2)
        raw = np.frombuffer(scratch.read(_ZEROS, stored, first, last - first), np.uint8)
        nibbles = np.stack([raw & 15, raw >> 4], 1).reshape(-1)[beside.start % 2 :][: beside.n]
        return "int8", nibbles.tobytes(), 0


class _OfTiles(GemvWeight):
    """Rows and columns of codes in tiles; scales are [groups, rows]."""

    __slots__ = ()

    _TILE = (1, 1)  # rows and columns

    @property
    def places(self) -> int:
        return -(-self.shape[1] // self.block[1])

    def scale_items(self, start: int, n: int, scratch: Scratch) -> memoryview:
        return memoryview(self._columns(self.parts[_SCALES], start, n, scratch).tobytes())

    def _columns(self, stored: StoredTensor, start: int, n: int, scratch: Scratch) -> NDArray[Any]:
        """Return n items of a [groups, rows] matrix, row by row of all groups, from `start` on."""
        n_groups, item = self.places, stored.dtype.n_bytes(1)
        rows = Run(start // n_groups, -(-(start + n) // n_groups)).around(self._TILE[0])
        slot = _SCALES if stored is self.parts[_SCALES] else _ZEROS
        raw = scratch.read_tile(slot, stored, Run(0, n_groups), rows)
        lines = self._in_order(np.frombuffer(raw, f"u{item}").reshape(n_groups, rows.n))
        first = start - rows.start * n_groups
        return lines.T.reshape(-1)[first : first + n]

    def _in_order(self, lines: NDArray[Any]) -> NDArray[Any]:
        return lines


class FastWeight(_OfTiles):
    """AWQ's GEMV-fast: four rows take turns; zero points are -scale * zero, as half floats."""

    __slots__ = ()

    _TILE = (4, 64)

    def _codes(self, rows: Run, cols: Run, scratch: Scratch) -> tuple[memoryview, int, int]:
        whole, across = rows.around(4), cols.around(64)
        width = 2 * self.shape[1]  # of a line of four rows
        first = whole.start // 4 * width + 2 * across.start
        codes = self.parts[_CODES]
        raw = scratch.read_rows(_CODES, codes, first, width, 2 * across.n, whole.n // 4)
        ordered = scratch.room(_ORDERED, len(raw))
        _io.order_gemv_fast(raw, whole.n, across.n, ordered)
        stride = across.n // 2
        return ordered[(rows.start - whole.start) * stride :], stride, cols.start - across.start

    def _zeros(
        self, rows: Run, groups: Run, beside: Run, scratch: Scratch
    ) -> tuple[str, memoryview | bytes, int]:
        scale_tensor, stored = self.parts[_SCALES], self.parts[_ZEROS]
        scales, products = (
            self._columns(part, beside.start, beside.n, scratch).view(np.float16)
            for part in (scale_tensor, stored)
        )
        with np.errstate(all="ignore"):
            wide = scales.astype(np.float32)
            zeros = np.nan_to_num(np.rint(-products.astype(np.float32) / wide), posinf=0, neginf=0)
            zeros = np.clip(zeros, 0, _LARGEST_ZERO).astype(np.float32)
            fits = (-(wide * zeros)).astype(np.float16) == products
        fits |= np.isnan(scales)  # whatever the zero point, the values are NaNs
        if not fits.all():
            wrong = int(np.argmin(fits))
            row, group = divmod(beside.start + wrong, self.places)
            raise stored.malformed(
                f"{stored.name}: {products[wrong]} of out feature {row:,} in group {group:,} is "
                f"not -{scales[wrong]}, its scale, times an integer from 0 to {_LARGEST_ZERO}",
                at=2 * (group * self.shape[0] + row),
            )
        return "int8", zeros.astype(np.int8).tobytes(), 0


class MarlinWeight(_OfTiles):
    """Marlin: tiles of 64 rows and 16 columns; scales permuted; half of all codes are negative."""

    __slots__ = ()

    _TILE = (64, 16)

    family: ClassVar[str] = "Marlin"

    def bands(self, dtype: DType, n_bytes: int) -> Bands:
        rows, cols = self.shape
        if cols > _WIDEST:
            return cut(rows, cols, n_bytes // dtype.n_bytes(1), step=64)
        tiles = max(1, n_bytes // dtype.n_bytes(cols) // 64)
        return Bands(rows, cols, 64 * tiles, cols)

    def _codes(self, rows: Run, cols: Run, scratch: Scratch) -> tuple[memoryview, int, int]:
        whole, across = rows.around(self._TILE[0]), cols.around(self._TILE[1])
        raw = self._lines_of(0, 2 * self.bits, whole, across, scratch)
        stride = across.n * self.bits // 8
        ordered = scratch.room(_ORDERED, whole.n * stride)
        self._order(raw, whole, across, ordered, scratch)
        return ordered[(rows.start - whole.start) * stride :], stride, cols.start - across.start

    def _lines_of(
        self, part: int, width: int, rows: Run, cols: Run, scratch: Scratch
    ) -> memoryview:
        """Read what lies in lines of a tile's columns, `width` bytes for each row."""
        first, n_lines = cols.start // self._TILE[1], cols.n // self._TILE[1]
        stride = width * self.shape[0]
        start = first * stride + width * rows.start
        slot = part if part == _CODES else _META
        return scratch.read_rows(slot, self.parts[part], start, stride, width * rows.n, n_lines)

    def _order(
        self, raw: memoryview, rows: Run, cols: Run, ordered: memoryview, scratch: Scratch
    ) -> None:
        """Put whole tiles in order."""
        _io.order_marlin(raw, self.bits, rows.n, cols.n, ordered)

    _zeros = IntegerWeight._zeros  # there are none

    def _in_order(self, lines: NDArray[Any]) -> NDArray[Any]:
        n_groups, n_rows = lines.shape
        if n_groups > 1:
            turned = lines.reshape(n_groups, -1, 8, 8).transpose(0, 1, 3, 2)
        else:
            turned = lines.reshape(1, -1, 4, 4, 2).transpose(0, 1, 3, 2, 4)
        return turned.reshape(n_groups, n_rows)


@dataclass(slots=True, eq=False)
class SparseMarlinWeight(MarlinWeight):
    """2:4 sparse Marlin: two of any four columns; the third part says which these are."""

    is_permuted: bool = False

    _TILE = (64, 32)

    @property
    def id(self) -> str:
        name = super(SparseMarlinWeight, self).id  # a class with slots is made anew
        return f"{name}-permuted" if self.is_permuted else name

    def _order(
        self, raw: memoryview, rows: Run, cols: Run, ordered: memoryview, scratch: Scratch
    ) -> None:
        meta = self._lines_of(2, 4, rows, cols, scratch)
        found = _io.order_marlin_24(raw, meta, self.bits, rows.n, cols.n, ordered)
        if found < rows.n * cols.n:
            row, col = divmod(found, cols.n)
            raise self.parts[2].malformed(
                f"{self.parts[2].name}: of out feature {rows.start + row:,}, it does not say in "
                f"order which two of the in features from {cols.start + col:,} on are stored"
            )

    def _in_order(self, lines: NDArray[Any]) -> NDArray[Any]:
        n_groups, n_rows = lines.shape
        if not self.is_permuted:
            return lines
        return lines.reshape(n_groups, -1, 4, 2).transpose(0, 1, 3, 2).reshape(n_groups, n_rows)
