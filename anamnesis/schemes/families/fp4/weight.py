"""Nibbles with a scale for each group of a row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from struct import pack
from typing import ClassVar, Self

import anamnesis._core as _core
from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.stored import Part, StoredTensor
from anamnesis.schemes.core.bands import Bands, Run, cut, places
from anamnesis.schemes.core.settings import Shown
from anamnesis.schemes.core.weight import DecodedByTiles, Scratch, Stretch
from anamnesis.schemes.families.fp4.formats import Fp4Format
from anamnesis.schemes.views.bits import swapped
from anamnesis.schemes.views.grid import ScaleGrid
from anamnesis.schemes.views.kinds import Floats
from anamnesis.schemes.views.stacks import InRows
from anamnesis.schemes.views.tiles import cropped
from anamnesis.schemes.views.views import Undone, made_from, made_of

_CODES, _SCALES, _SECOND, _RECOVERED, _VALUES = range(5)  # slots of a worker's scratch
_VALUES_AT_ONCE = 1 << 19  # in float32, of groups of which a part is wanted
_ONE, _MINUS_ZERO = memoryview(pack("<f", 1.0)), -0.0
_ALL = 1 << 62
_SCALE_DTYPES = {"MXFP4": "F8_E8M0", "NVFP4": "F8_E4M3"}


@dataclass(slots=True, eq=False)
class Fp4Weight(InRows, DecodedByTiles):
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

    @property
    def n_by_rows(self) -> int:
        stored = 2 * self.parts[0].n_bytes  # rows of padding may follow the weight's own
        return 2 if 0 < stored == prod(self.shape[:-1]) * self.stored_cols else 0

    @property
    def in_rows(self) -> tuple[StoredTensor, StoredTensor]:
        """Codes, the low nibble first, and scales: rows of bytes; of an even number of columns."""
        lead, found = self.shape[:-1], []
        for part, per_byte in zip(self.parts[:2], (2, self.group), strict=True):
            stored, wanted = (-(-n // per_byte) for n in (self.stored_cols, self.shape[-1]))
            shape = (part.n_bytes // max(stored, 1), stored)
            lines = part._replace(dtype=DTYPES["U8"], shape=shape)
            found.append(cropped(lines, prod(lead), wanted))
        codes, scales = found
        codes = nibbles_swapped(codes) if self.format.high_first else codes
        return (
            codes._replace(shape=(*lead, codes.shape[-1])),
            scales._replace(shape=(*lead, scales.shape[-1])),
        )

    def seen_as(self, kind: type) -> Floats | None:
        cols = self.shape[-1]
        if kind is not Floats or not self.format.has_kin or cols % self.group:
            return None
        seconds = self.parts[2].read() if len(self.parts) > 2 else b""
        found = [self.format.factor(seconds[at : at + 4]) for at in range(0, len(seconds) or 1, 4)]
        factors = tuple(one for one in found if one is not None)
        if len(factors) < len(found):  # which do something else than multiply scales
            return None
        codes, scales = self.in_rows
        scales = scales._replace(dtype=DTYPES[_SCALE_DTYPES[self.format.kind]])
        rows, batch = self.shape[-2], prod(self.shape[:-2])
        grid = ScaleGrid("block", batch, rows, cols, 1, self.group)
        is_minus = not self.format.plus_zero
        return Floats(self.name, self.shape, "E2M1", codes, scales, grid, factors, is_minus)

    def by_reference(self, dtype: DType) -> Self:
        rule = self.format.reference
        rounded = None if rule is None else rule.dtype(self.parts[1].dtype, dtype)
        return self if rounded is None else replace(self, rounded=rounded)

    def bands(self, dtype: DType, n_bytes: int) -> Bands:
        rows, cols = self.shape[-2:]
        n_elements = n_bytes // dtype.n_bytes(1)
        return cut(rows, cols, n_elements, step=self.group, batch=prod(self.shape[:-2]))

    def decode_tile(
        self, rows: Run, cols: Run, dtype: DType, scratch: Scratch, out: memoryview
    ) -> int:
        whole = cols.around(self.group, self.stored_cols)
        if whole == cols:
            return self._decode_groups(rows, cols, dtype, scratch, out)
        at_once, overflows = max(_VALUES_AT_ONCE // whole.n, 1), 0
        for some, place in places(rows, at_once, dtype.n_bytes(cols.n), out):
            # Whole groups are decoded, and some of their columns kept.
            values = scratch.room(_VALUES, 4 * some.n * whole.n)
            overflows += self._decode_groups(some, whole, DTYPES["F32"], scratch, values)
            wanted = cols.start - whole.start, whole.n, cols.n
            overflows += scratch.convert_columns(values, *wanted, dtype, place)
        return overflows

    def _decode_groups(
        self, rows: Run, cols: Run, dtype: DType, scratch: Scratch, out: memoryview
    ) -> int:
        """Read codes and scales of some columns of each row; rows count through all matrices."""
        per_row = self.stored_cols // self.group
        start, n = rows.start * per_row + cols.start // self.group, -(-cols.n // self.group)
        stored = scratch.read_rows(_SCALES, self.parts[1], start, per_row, n, rows.n)
        second = b""
        if len(self.parts) > 2:
            matrix = rows.start // self.shape[-2] if self.parts[2].n_elements > 1 else 0
            second = bytes(scratch.read(_SECOND, self.parts[2], 4 * matrix, 4))
        table, lost = self.format.scales(second, self.rounded.name if self.rounded else "F32")
        scales = scratch.room(_RECOVERED, 4 * len(stored))
        _core.recover_absmax(stored, scales, table, _ONE, _ALL, _MINUS_ZERO)
        # Of how many codes the scale became infinite when it was rounded.
        n_lost = self.group * sum(bytes(stored).count(code) for code in lost)
        stride = self.stored_cols // 2
        first = rows.start * stride + cols.start // 2
        codes = scratch.read_rows(_CODES, self.parts[0], first, stride, cols.n // 2, rows.n)
        kind = _core.ABSMAX["CODEBOOK4" if self.format.high_first else "CODEBOOK4_LOW"]
        kernel, n = (kind, _core.OUTPUTS[dtype.name]), rows.n * cols.n
        absmax = scales, _core.FLOATS["F32"], self.group, 0
        return n_lost + _core.dequantize_absmax(
            *(*kernel, codes, out, n, self.format.codebook, *absmax, scratch.level)
        )

    def stretches(self, rows: Run) -> list[Stretch]:
        widths = self.stored_cols // 2, self.stored_cols // self.group
        return [
            Stretch(slot, self.parts[slot], rows.start * width, rows.n * width)
            for slot, width in zip((_CODES, _SCALES), widths, strict=True)
        ]


def nibbles_swapped(codes: StoredTensor) -> StoredTensor:
    """Return bytes with their nibbles in the other order."""
    was = made_from(codes)
    if was and was.way is nibbles_swapped:
        return codes._replace(source=was.stored.source, offset=was.stored.offset)
    undone = Undone(nibbles_swapped, codes)
    n = codes.n_bytes
    return made_of(Part(*codes[:3]), [codes], n, lambda _, lines: swapped(lines), undone=undone)
