"""How rows are rotated and become integers: comfy-kitchen's, in float32.

These are its `quantize_int8_convrot_weight`, `quantize_convrot_w4a4_weight` and
`quantize_w4a8_int8_weight` of a weight in float32, whatever the weight is in. What that takes is
measured of rotated rows, whose squares have the same sums.
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
from anamnesis.schemes.core.codes import Codes, Extent, Loss, Out, Survey, Task, as_matrix
from anamnesis.schemes.families.rotated import codebook
from anamnesis.schemes.families.rotated.weight import group_in

_F32, _I8, _E4M3 = DTYPES["F32"], DTYPES["I8"], DTYPES["F8_E4M3"]
_LONGEST = 1 << 21  # columns: a thread holds a row
_LEAST, _LARGEST = 1e-10, 7.0
_LARGEST_INT8, _LARGEST_E4M3 = 127, 0x7E  # the latter's bits
_OF_INT4 = 64  # columns, of which comfy-kitchen wants whole groups
_OF_SIX_BITS = 32  # likewise
_MOST = 31  # of levels of 6 bits


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
        return super().encode(_rotated(values, task.shape[-1], self.group, task.level), task, outs)


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
        rows = np.frombuffer(
            _rotated(values, task.shape[-1], self.group, task.level), np.float32
        ).reshape(task.matrix)
        largest = np.abs(rows).max(axis=1, keepdims=True)
        if not np.isfinite(largest).all():
            return task.measured(None)
        scales = np.maximum(largest, _LEAST) / _LARGEST
        codes = rows / scales
        np.clip(np.rint(codes, codes), -_LARGEST, _LARGEST, codes)
        pairs = codes.astype(np.int8).view(np.uint8).reshape(-1, 2)
        outs[0][:] = (pairs[:, 0] & 15 | pairs[:, 1] << 4).data
        outs[1][:] = scales.reshape(-1).view(np.uint8).data
        return task.measured(_errors(rows, codes, scales) if task.measures else (0, 0, 0, 0))


@dataclass(frozen=True)
class RotatedLevels(Codes):
    """Levels of 4 or 6 bits on a grid of INT8, with a scale for each 16 of a row: W4A8, W6A8."""

    group: int
    bits: int

    def refuses(self, shape: tuple[int, ...]) -> str | None:
        if len(shape) < 2:
            return "not a matrix"
        whole = codebook.GROUP if self.bits == 4 else _OF_SIX_BITS
        return _refuses(shape, max(group_in(shape[-1], self.group), whole))

    def survey(self, shape: tuple[int, ...]) -> Survey | None:
        if self.bits == 6 or len(shape) < 2:  # a sample of bands: it has the usual levels
            return None
        rows, cols = as_matrix(shape)
        return codebook.TailSurvey(
            rows, cols, lambda some, level: _rotated(some, cols, self.group, level)
        )

    def outs(self, shape: tuple[int, ...], found: bytes = b"") -> tuple[Out, ...]:
        *rows, cols = shape
        levels = (Out("codebook", _F32, (len(codebook.USUAL),)),) if self.bits == 4 else ()
        return (
            Out("codes", _I8, (*rows, cols * self.bits // 8)),
            Out("row scales", _F32, tuple(rows)),
            Out("scales", _E4M3, (*rows, cols // codebook.GROUP)),
            *levels,
        )

    def constants(self, shape: tuple[int, ...], found: bytes = b"") -> dict[str, bytes]:
        return {"codebook": found or codebook.usual().tobytes()} if self.bits == 4 else {}

    def grain(self, shape: tuple[int, ...]) -> int:
        return shape[-1]

    def extents(self, shape: tuple[int, ...], band: Band) -> tuple[Extent, ...]:
        cols = shape[-1]
        first, last = band.start // cols, band.stop // cols
        sizes = (cols * self.bits // 8, 4, cols // codebook.GROUP)
        own = [Extent(first * n, (last - first) * n) for n in sizes]
        return (*own, Extent(0, 0)) if self.bits == 4 else tuple(own)

    def encode(self, values: memoryview, task: Task, outs: Sequence[memoryview]) -> Loss:
        rows, cols = task.matrix
        rotated = np.frombuffer(_rotated(values, cols, self.group, task.level), np.float32)
        levels = self._levels(task.found)
        scales = np.empty(rows * cols // codebook.GROUP, np.float32)
        channels = np.empty(rows, np.float32)
        _core.w4a8_fit(rotated, cols, levels, scales, channels, task.level)
        if not (np.isfinite(scales).all() and np.isfinite(channels).all()):
            return task.measured(None)
        choices = self._choices(scales.reshape(rows, -1) / channels[:, None])
        tried = choices.astype(np.float32)
        codes, chosen = np.empty(task.n, np.uint8), np.empty(scales.size, np.uint8)
        where = codes, chosen, task.level
        _core.w4a8_code(rotated, cols, levels, tried.reshape(-1), channels, *where)
        best = chosen.reshape(1, rows, -1)
        outs[0][:] = self._packed(codes.reshape(rows, cols)).data
        outs[1][:] = channels.view(np.uint8).data
        outs[2][:] = np.take_along_axis(choices, best, 0).reshape(-1).view(np.uint8).data
        if not task.measures:
            return task.measured((0, 0, 0, 0))
        grid = levels[codes].reshape(-1, codebook.GROUP)
        grid *= np.take_along_axis(tried, best, 0).reshape(-1, 1)
        np.clip(np.rint(grid, grid), -_LARGEST_INT8, _LARGEST_INT8, grid)
        errors = _errors(rotated.reshape(rows, cols), grid.reshape(rows, cols), channels[:, None])
        return task.measured(errors)

    def _levels(self, found: bytes) -> NDArray[np.float32]:
        if self.bits == 6:
            return np.arange(-_MOST, _MOST + 1, dtype=np.float32)
        return np.frombuffer(found, np.float32) if found else codebook.usual()

    def _choices(self, scales: NDArray[np.float32]) -> NDArray[Any]:
        """Return the scales that are tried: of 6 bits, what is stored and its neighbours, too."""
        stored = scales.astype(_E4M3.numpy())
        if self.bits == 4:
            return stored[None]
        raw = stored.view(np.uint8)
        around = (raw, np.maximum(raw - 1, 1), np.minimum(raw + 1, _LARGEST_E4M3))
        return np.stack(around).view(stored.dtype)

    def _packed(self, codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return nibbles, the low one first; behind those of a row its high bits, four a byte."""
        stored = codes if self.bits == 4 else codes + np.uint8(1)  # of 6 bits, 32 stands for 0
        low, high = stored & np.uint8(15), stored >> 4
        planes = [low[:, ::2] | low[:, 1::2] << 4]
        if self.bits == 6:
            fours = [high[:, n::4] << 2 * n for n in range(4)]
            planes.append(np.bitwise_or.reduce(fours))
        packed: NDArray[np.uint8] = np.concatenate(planes, axis=1)
        return packed.reshape(-1)


def _refuses(shape: tuple[int, ...], whole: int) -> str | None:
    if shape[-1] % whole:
        return f"rows are not in whole groups of {whole}"
    return f"{shape[-1]:,} values of a row are too many" if shape[-1] > _LONGEST else None


def _rotated(values: memoryview, cols: int, group: int, level: int) -> memoryview:
    rotated = memoryview(bytearray(len(values)))
    _core.rotate(values, rotated, group_in(cols, group), level)
    return rotated


def _errors(
    rows: NDArray[Any], codes: NDArray[Any], scales: NDArray[Any]
) -> tuple[float, float, float, float]:
    """Return the sum of errors, the largest, and the sums of their squares and of the values'."""
    with np.errstate(all="ignore"):
        codes *= scales
        codes -= rows
        errors = np.abs(codes, codes)
        absolute, largest = _sum(errors), float(errors.max(initial=0))
        return absolute, largest, _sum(np.square(errors, errors)), _sum(np.square(rows, rows))


def _sum(values: NDArray[Any]) -> float:
    """Return the sum of all, of which those of rows are float32: it is the same by any bands."""
    return float(values.sum(axis=1).sum(dtype=np.float64))
