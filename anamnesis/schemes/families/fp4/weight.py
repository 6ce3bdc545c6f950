"""Nibbles with a scale for each group of a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from struct import pack
from typing import ClassVar, Self, TypeVar

import anamnesis._core as _core
from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.bands import Band, Bands, Cut, Run, cut
from anamnesis.schemes.core.settings import Shown
from anamnesis.schemes.core.weight import Scratch, Stretch, TiledWeight, Weight, convert_part
from anamnesis.schemes.families.fp4.formats import Fp4Format
from anamnesis.schemes.families.fp4.stored import in_rows
from anamnesis.schemes.views.grid import ScaleGrid
from anamnesis.schemes.views.kinds import Floats
from anamnesis.schemes.views.stacks import are_alike, rows_of, stack_of
from anamnesis.sources.gathered import RowOrder

V = TypeVar("V")

_CODES, _SCALES, _SECOND, _RECOVERED, _VALUES, _KEPT = range(6)  # slots of a worker's scratch
_VALUES_AT_ONCE = 1 << 19  # in float32, of groups of which a part is wanted
_ONE, _MINUS_ZERO = memoryview(pack("<f", 1.0)), -0.0
_ALL = 1 << 62
_SCALE_DTYPES = {"MXFP4": "F8_E8M0", "NVFP4": "F8_E4M3"}


@dataclass(slots=True, eq=False)
class Fp4Weight(TiledWeight):
    """Codes, scales, and the second scale if there is one: one for all, or one for each matrix."""

    format: Fp4Format
    group: int
    stored_cols: int
    rounded: DType | None = None

    has_ranges: ClassVar[bool] = True

    @property
    def id(self) -> str:
        rounded = f"-in-{self.rounded.name.lower()}" if self.rounded else ""
        return f"{self.format.id}-{self.group}{rounded}"

    @property
    def scheme(self) -> str:
        return self.format.words

    @property
    def family(self) -> str:
        return self.format.family

    @property
    def shown(self) -> Shown:
        rows, cols = self.shape[-2], self.stored_cols
        kind = "int" if self.family == "MXINT4" else "float"
        return Shown(kind, 4, (rows, cols), (rows, -(-cols // self.group)))

    @property
    def column_step(self) -> int:
        return self.group

    def cut_out(self, name: str, rows: Cut) -> Self | None:
        if len(self.shape) != 3 or 0 in self.shape:
            return None
        n, height, width = self.shape
        codes, scales, *more = self.parts
        parts = [rows_of(part, n, height, rows) for part in (codes, scales)]
        parts[0] = parts[0]._replace(shape=(rows.n, codes.n_bytes // (n * height)))
        parts[1] = parts[1]._replace(shape=(rows.n, scales.n_bytes // (n * height)))
        for second in more:
            lone = Cut(rows.matrix, 0, 1)
            own = rows_of(second, n, 1, lone) if second.n_elements > 1 else second
            parts.append(own._replace(shape=()))
        return replace(self, name=name, shape=(rows.n, width), parts=tuple(parts))

    def stacked(
        self, name: str, pieces: Sequence[Weight], per_matrix: int, *, alternates: bool
    ) -> Self | None:
        if not are_alike(pieces) or len(self.shape) != 2:
            return None
        n = len(pieces) // per_matrix
        shape = (n, per_matrix * self.shape[0], self.shape[1])
        seconds = [part._replace(shape=(1,)) for piece in pieces for part in piece.parts[2:]]
        if seconds and not _are_of_matrices(seconds, per_matrix):
            return None
        rows = [[piece.parts[i] for piece in pieces] for i in range(2)]
        parts = [stack_of(some, per_matrix, alternates=alternates) for some in rows]
        if seconds:
            parts.append(stack_of(seconds[::per_matrix], 1)._replace(shape=(n,)))
        return replace(self, name=name, shape=shape, parts=tuple(parts))

    def with_rows(
        self, name: str, shape: tuple[int, ...], pieces: Sequence[Weight], rows: RowOrder
    ) -> Self | None:
        own = [p.parts for p in pieces if isinstance(p, Fp4Weight) and self._is_like(p)]
        if len(own) < len(pieces) or min(len(self.shape), len(shape)) < 2 or 0 in self.shape:
            return None
        seconds = own[0][2:]
        if seconds and (len(own) > 1 or not _stay(seconds[0], self.shape, shape, rows)):
            return None
        n_rows = prod(self.shape[:-1])
        parts = []
        for i in range(2):
            row_bytes = own[0][i].n_bytes // n_rows
            taken = rows.taken([part[i] for part in own], row_bytes)
            parts.append(taken._replace(shape=(*shape[:-1], row_bytes)))
        return replace(self, name=name, shape=shape, parts=(*parts, *seconds))

    def _is_like(self, other: Fp4Weight) -> bool:
        """Return whether a row of another weight is stored as those of this one are."""
        are_alike = [part.dtype for part in self.parts] == [part.dtype for part in other.parts]
        widths = [(w.shape[-1], w.stored_cols) for w in (self, other)]
        return self.id == other.id and are_alike and widths[0] == widths[1]

    @property
    def in_rows(self) -> tuple[StoredTensor, StoredTensor]:
        """Codes, the low nibble first, and scales: rows of bytes; of an even number of columns."""
        return in_rows(
            self.parts,
            self.shape,
            self.stored_cols,
            self.group,
            high_first=self.format.high_first,
        )

    def view(self, kind: type[V]) -> V | None:
        factors = self._factors() if kind is Floats and self.format.has_kin else None
        cols = self.shape[-1]
        if factors is None or cols % self.group:
            return None
        codes, scales = self.in_rows
        scales = scales._replace(dtype=DTYPES[_SCALE_DTYPES[self.format.kind]])
        rows, batch = self.shape[-2], prod(self.shape[:-2])
        grid = ScaleGrid("block", batch, rows, cols, 1, self.group)
        is_minus = not self.format.plus_zero
        seen = Floats(self.name, self.shape, "E2M1", codes, scales, grid, factors, is_minus)
        return seen if isinstance(seen, kind) else None

    def _factors(self) -> tuple[float, ...] | None:
        """Return what scales are multiplied by; None if something else is done with them."""
        seconds = self.parts[2].read() if len(self.parts) > 2 else b""
        found = [self.format.factor(seconds[at : at + 4]) for at in range(0, len(seconds) or 1, 4)]
        return None if None in found else tuple(one for one in found if one is not None)

    def by_reference(self, dtype: DType) -> Self:
        rule = self.format.reference
        rounded = None if rule is None else rule.dtype(self.parts[1].dtype, dtype)
        return self if rounded is None else replace(self, rounded=rounded)

    def bands(self, dtype: DType, n_bytes: int) -> Bands:
        rows, cols = self.shape[-2:]
        n_elements = n_bytes // dtype.n_bytes(1)
        return cut(rows, cols, n_elements, step=self.group, batch=prod(self.shape[:-2]))

    def decode(
        self, band: Band, dtype: DType, scratch: Scratch, out: memoryview, level: int
    ) -> int:
        row, col = divmod(band.start, self.shape[-1])
        n_cols = min(self.shape[-1], band.stop - band.start)
        rows = Run(row, row + (band.stop - band.start) // n_cols)
        return self.decode_tile(rows, Run(col, col + n_cols), dtype, scratch, out, level)

    def decode_tile(
        self, rows: Run, cols: Run, dtype: DType, scratch: Scratch, out: memoryview, level: int
    ) -> int:
        stop = -(-cols.stop // self.group) * self.group
        whole = Run(cols.start // self.group * self.group, min(stop, self.stored_cols))
        if whole == cols:
            return self._decode_groups(rows, cols, dtype, scratch, out, level)
        at_once, overflows = max(_VALUES_AT_ONCE // whole.n, 1), 0
        for row in range(rows.start, rows.stop, at_once):
            some = Run(row, min(row + at_once, rows.stop))
            begin, end = (dtype.n_bytes((n - rows.start) * cols.n) for n in some)
            overflows += self._decode_part(some, whole, cols, dtype, scratch, out[begin:end], level)
        return overflows

    def _decode_part(
        self,
        rows: Run,
        whole: Run,
        cols: Run,
        dtype: DType,
        scratch: Scratch,
        out: memoryview,
        level: int,
    ) -> int:
        """Decode whole groups, and keep some of their columns."""
        values = scratch.room(_VALUES, 4 * rows.n * whole.n)
        lost = self._decode_groups(rows, whole, DTYPES["F32"], scratch, values, level)
        kept = scratch.room(_KEPT, 4 * rows.n * cols.n)
        skipped = cols.start - whole.start
        return lost + convert_part(values, skipped, whole.n, cols.n, dtype, kept, out, level)

    def _decode_groups(
        self, rows: Run, cols: Run, dtype: DType, scratch: Scratch, out: memoryview, level: int
    ) -> int:
        """Read codes and scales of some columns of each row; rows count through all matrices."""
        scales, lost = self._scales(rows, cols, scratch)
        stride = self.stored_cols // 2
        first = rows.start * stride + cols.start // 2
        codes = scratch.read_rows(_CODES, self.parts[0], first, stride, cols.n // 2, rows.n)
        return lost + _core.dequantize_absmax(
            _core.ABSMAX["CODEBOOK4" if self.format.high_first else "CODEBOOK4_LOW"],
            _core.OUTPUTS[dtype.name],
            codes,
            out,
            rows.n * cols.n,
            self.format.codebook,
            scales,
            _core.FLOATS["F32"],
            self.group,
            0,
            level,
        )

    def stretches(self, rows: Run) -> list[Stretch]:
        widths = self.stored_cols // 2, self.stored_cols // self.group
        return [
            Stretch(slot, self.parts[slot], rows.start * width, rows.n * width)
            for slot, width in zip((_CODES, _SCALES), widths, strict=True)
        ]

    def _scales(self, rows: Run, cols: Run, scratch: Scratch) -> tuple[memoryview, int]:
        """Return the float32 scales of a tile, whose columns begin with a group."""
        # Also how many codes have one that became infinite when it was rounded.
        per_row = self.stored_cols // self.group
        first, n = cols.start // self.group, -(-cols.n // self.group)
        start = rows.start * per_row + first
        stored = scratch.read_rows(_SCALES, self.parts[1], start, per_row, n, rows.n)
        recovered = scratch.room(_RECOVERED, 4 * len(stored))
        rounded = self.rounded.name if self.rounded else "F32"
        scales = self.format.scales(self._second(rows, scratch), rounded)
        _core.recover_absmax(stored, recovered, scales.table, _ONE, _ALL, _MINUS_ZERO)
        n_lost = sum(bytes(stored).count(code) for code in scales.lost)
        return recovered, self.group * n_lost

    def _second(self, rows: Run, scratch: Scratch) -> bytes:
        if len(self.parts) < 3:
            return b""
        second = self.parts[2]
        matrix = rows.start // self.shape[-2] if second.n_elements > 1 else 0
        return bytes(scratch.read(_SECOND, second, 4 * matrix, 4))


def _stay(
    second: StoredTensor, was: tuple[int, ...], shape: tuple[int, ...], rows: RowOrder
) -> bool:
    """Return whether a second scale belongs to rows of the result as it does to those it had."""
    n = second.n_elements
    return n == 1 or (n == prod(shape[:-2]) == prod(was[:-2]) and rows.keeps_matrices(n))


def _are_of_matrices(seconds: Sequence[StoredTensor], per_matrix: int) -> bool:
    """Return whether the pieces of each matrix have the same second scale."""
    if any(second.dtype.name != "F32" or second.n_bytes != 4 for second in seconds):
        return False
    found = [second.read() for second in seconds] if per_matrix > 1 else []
    return all(len(set(found[i : i + per_matrix])) == 1 for i in range(0, len(found), per_matrix))
