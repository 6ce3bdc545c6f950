"""How values become rotated integers: comfy-kitchen's functions, of a weight in float32.

These are `quantize_int8_convrot_weight` and `quantize_convrot_w4a4_weight`. Rows are rotated in
float32, whatever the weight is in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import anamnesis._core as _core
from anamnesis.base.dtypes import DTYPES
from anamnesis.base.lazy import np
from anamnesis.schemes.core.bands import Band
from anamnesis.schemes.core.codes import Codes, Extent, Loss, Out, Task

_LONGEST = 1 << 21  # columns: a thread holds a row
_OF_INT4 = 64  # columns, of which comfy-kitchen wants whole ones


@dataclass(frozen=True)
class RotatedCodes(Codes):
    """Codes of 8 or 4 bits with a scale for each row."""

    bits: int
    group: int

    def refuses(self, shape: tuple[int, ...]) -> str | None:
        whole = self.group if self.bits == 8 else max(self.group, _OF_INT4)
        if len(shape) < 2:
            return "not a matrix"
        if shape[-1] % whole:
            return f"rows are not in whole groups of {whole}"
        is_long = shape[-1] > _LONGEST
        return f"{shape[-1]:,} values of a row depend on each other" if is_long else None

    def outs(self, shape: tuple[int, ...], found: bytes = b"") -> tuple[Out, ...]:
        *rows, cols = shape
        grid = (*rows, 1) if self.bits == 8 else tuple(rows)
        codes = Out("codes", DTYPES["I8"], (*rows, cols * self.bits // 8))
        return codes, Out("scales", DTYPES["F32"], grid)

    def grain(self, shape: tuple[int, ...]) -> int:
        return shape[-1]

    def extents(self, shape: tuple[int, ...], band: Band) -> tuple[Extent, ...]:
        first, last = band.start // shape[-1], band.stop // shape[-1]
        lengths = (shape[-1] * self.bits // 8, 4)
        return tuple([Extent(first * n, (last - first) * n) for n in lengths])

    def encode(self, values: memoryview, task: Task, outs: Sequence[memoryview]) -> Loss:
        codes = outs[0] if self.bits == 8 else memoryview(bytearray(prod(task.matrix)))
        errors = _core.quantize_rotated(
            _core.SOURCES["F32"],
            self.bits,
            values,
            *task.matrix,
            self.group,
            codes,
            outs[1],
            task.measures,
            task.level,
        )
        if self.bits == 4 and errors is not None:
            pairs = np.frombuffer(codes, np.uint8).reshape(-1, 2)
            outs[0][:] = (pairs[:, 0] & 15 | pairs[:, 1] << 4).data
        return task.measured(errors)
