"""How rows are rotated and become integers: comfy-kitchen's, in float32.

These are its `quantize_int8_convrot_weight` and `quantize_convrot_w4a4_weight` of a weight in
float32, whatever the weight is in. What that takes is measured of rotated rows, whose squares have
the same sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import anamnesis._core as _core
from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.lazy import NDArray, np
from anamnesis.schemes.core.bands import Band
from anamnesis.schemes.core.blockwise import Blockwise, Item
from anamnesis.schemes.core.codes import Codes, Extent, Loss, Out, Task
from anamnesis.schemes.families.rotated.weight import group_in

_F32, _I8 = DTYPES["F32"], DTYPES["I8"]
_LONGEST = 1 << 21  # columns: a thread holds a row
_LEAST, _LARGEST = 1e-10, 7.0
_OF_INT4 = 64  # columns, of which comfy-kitchen wants whole groups


@dataclass(frozen=True)
class RotatedInt8(Blockwise):
    """8-bit integers with a scale for each row."""

    group: int
    dtype: DType = field(default=_F32, kw_only=True)

    code: ClassVar[str] = "INT8"
    rule: ClassVar[str] = "whole"
    item: ClassVar[Item] = Item("codes", _I8)

    def fitted(self, dtype: DType) -> Self:
        return self

    def block(self, shape: tuple[int, ...]) -> tuple[int, int]:
        return 1, shape[-1]

    def refuses(self, shape: tuple[int, ...]) -> str | None:
        return super().refuses(shape) or _refuses(shape, group_in(shape[-1], self.group))

    def encode(self, values: memoryview, task: Task, outs: Sequence[memoryview]) -> Loss:
        return super().encode(_rotated(values, self.group, task), task, outs)


@dataclass(frozen=True)
class RotatedInt4(Codes):
    """4-bit integers with a scale for each row, two to a byte."""

    group: int

    def refuses(self, shape: tuple[int, ...]) -> str | None:
        if len(shape) < 2:
            return "not a matrix"
        return _refuses(shape, max(group_in(shape[-1], self.group), _OF_INT4))

    def outs(self, shape: tuple[int, ...], found: bytes = b"") -> tuple[Out, ...]:
        *rows, cols = shape
        return Out("codes", _I8, (*rows, cols // 2)), Out("scales", _F32, tuple(rows))

    def grain(self, shape: tuple[int, ...]) -> int:
        return shape[-1]

    def extents(self, shape: tuple[int, ...], band: Band) -> tuple[Extent, ...]:
        first, last = band.start // shape[-1], band.stop // shape[-1]
        return tuple([Extent(first * n, (last - first) * n) for n in (shape[-1] // 2, 4)])

    def encode(self, values: memoryview, task: Task, outs: Sequence[memoryview]) -> Loss:
        rows = np.frombuffer(_rotated(values, self.group, task), np.float32).reshape(task.matrix)
        largest = np.abs(rows).max(axis=1, keepdims=True)
        if not np.isfinite(largest).all():
            return task.measured(None)
        scales = np.maximum(largest, _LEAST) / _LARGEST
        codes = rows / scales
        np.clip(np.rint(codes, codes), -_LARGEST, _LARGEST, codes)
        pairs = codes.astype(np.int8).view(np.uint8).reshape(-1, 2)
        outs[0][:] = (pairs[:, 0] & 15 | pairs[:, 1] << 4).data
        outs[1][:] = scales.reshape(-1).view(np.uint8).data
        with np.errstate(all="ignore"):
            return task.measured(_errors(rows, codes, scales) if task.measures else (0, 0, 0, 0))


def _refuses(shape: tuple[int, ...], whole: int) -> str | None:
    if shape[-1] % whole:
        return f"rows are not in whole groups of {whole}"
    return f"{shape[-1]:,} values of a row are too many" if shape[-1] > _LONGEST else None


def _rotated(values: memoryview, group: int, task: Task) -> memoryview:
    rotated = memoryview(bytearray(len(values)))
    _core.rotate(values, rotated, group_in(task.matrix[1], group), task.level)
    return rotated


def _errors(
    rows: NDArray[Any], codes: NDArray[Any], scales: NDArray[Any]
) -> tuple[float, float, float, float]:
    """Return the sum of errors, the largest, and the sums of their squares and of the values'."""
    codes *= scales
    codes -= rows
    errors = np.abs(codes, codes)
    absolute, largest = _sum(errors), float(errors.max(initial=0))
    return absolute, largest, _sum(np.square(errors, errors)), _sum(np.square(rows, rows))


def _sum(values: NDArray[Any]) -> float:
    """Return the sum of all, of which those of rows are float32: it is the same by any bands."""
    return float(values.sum(axis=1).sum(dtype=np.float64))
