"""How rows are rotated and become integers: comfy-kitchen's, in float32.

These are its `quantize_int8_convrot_weight`, `quantize_convrot_w4a4_weight` and
`quantize_w4a8_int8_weight` of a weight in float32, whatever the weight is in. What that takes is
measured of rotated rows, whose squares have the same sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import anamnesis._core as _core
from anamnesis.base.dtypes import DTYPES
from anamnesis.base.lazy import NDArray, np
from anamnesis.schemes.core.bands import Band
from anamnesis.schemes.core.blockwise import Blockwise
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
_AT_ONCE = 1 << 17  # values, which stay in cache with all that is made of them


@dataclass(frozen=True)
class RotatedInt8(Blockwise):
    """8-bit integers with a scale for each row."""

    group: int = field(kw_only=True)

    def refuses(self, shape: tuple[int, ...]) -> str | None:
        return super().refuses(shape) or _refuses(shape, self.group)

    def encode(self, values: memoryview, task: Task, outs: Sequence[memoryview]) -> Loss:
        return super().encode(_rotated(values, task.shape[-1], self.group, task.level), task, outs)


@dataclass(frozen=True)
class RotatedInt4(Codes):
    """4-bit integers with a scale for each row, two to a byte."""

    group: int

    def refuses(self, shape: tuple[int, ...]) -> str | None:
        return _refuses(shape, self.group, _OF_INT4)

    def outs(self, shape: tuple[int, ...], found: bytes = b"") -> tuple[Out, ...]:
        *rows, cols = shape
        return Out("codes", _I8, (*rows, cols // 2)), Out("scales", _F32, tuple(rows))

    def encode(self, values: memoryview, task: Task, outs: Sequence[memoryview]) -> Loss:
        rotated = _rotated(values, task.shape[-1], self.group, task.level)
        rows = np.frombuffer(rotated, np.float32).reshape(task.matrix)
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
        return _refuses(shape, self.group, codebook.GROUP if self.bits == 4 else _OF_SIX_BITS)

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

    def extents(self, shape: tuple[int, ...], band: Band) -> tuple[Extent, ...]:
        own = super().extents(shape, band)
        return (*own[:3], Extent(0, 0)) if self.bits == 4 else own

    def encode(self, values: memoryview, task: Task, outs: Sequence[memoryview]) -> Loss:
        rows, cols = task.matrix
        # The bytes of a row's codes, of its scale and of those of its groups.
        sizes = cols * self.bits // 8, 4, cols // codebook.GROUP
        step = max(1, _AT_ONCE // cols)
        lost = [(0.0, 0.0, 0.0, 0.0)]
        for first in range(0, rows, step):
            last = min(rows, first + step)
            own = [out[first * n : last * n] for out, n in zip(outs, sizes, strict=False)]
            place = slice(first * cols * _F32.n_bytes(1), last * cols * _F32.n_bytes(1))
            rotated = _rotated(values[place], cols, self.group, task.level)
            errors = self._encode(np.frombuffer(rotated, np.float32).reshape(-1, cols), task, own)
            if errors is None:
                return task.measured(None)
            lost.append(errors)
        absolute, largest, squared, power = zip(*lost, strict=True)
        return task.measured((sum(absolute), max(largest), sum(squared), sum(power)))

    def _encode(
        self, rotated: NDArray[np.float32], task: Task, outs: Sequence[memoryview]
    ) -> tuple[float, float, float, float] | None:
        """Encode some rows; return what it took, if that is measured, and None if it cannot be."""
        (rows, cols), flat = rotated.shape, rotated.reshape(-1)
        if self.bits == 6:
            levels = np.arange(-_MOST, _MOST + 1, dtype=np.float32)
        else:
            levels = np.frombuffer(task.found, np.float32) if task.found else codebook.usual()
        scales = np.empty((rows, cols // codebook.GROUP), np.float32)
        channels = np.empty((rows, 1), np.float32)
        places = scales.reshape(-1), channels.reshape(-1)
        _core.w4a8_fit(flat, cols, levels, *places, task.level)
        if not (np.isfinite(scales).all() and np.isfinite(channels).all()):
            return None
        choices = self._choices(scales / channels)
        tried = choices.astype(np.float32)
        codes, chosen = np.empty(rotated.shape, np.uint8), np.empty(scales.shape, np.uint8)
        found = codes.reshape(-1), chosen.reshape(-1)
        _core.w4a8_code(flat, cols, levels, tried.reshape(-1), places[1], *found, task.level)
        best = chosen[None]
        outs[0][:] = self._packed(codes).data
        outs[1][:] = channels.reshape(-1).view(np.uint8).data
        outs[2][:] = np.take_along_axis(choices, best, 0).reshape(-1).view(np.uint8).data
        if not task.measures:
            return 0, 0, 0, 0
        grid = levels[codes].reshape(rows, -1, codebook.GROUP)
        grid *= np.take_along_axis(tried, best, 0)[0, :, :, None]
        np.clip(np.rint(grid, grid), -_LARGEST_INT8, _LARGEST_INT8, grid)
        return _errors(rotated, grid.reshape(rotated.shape), channels)

    def _choices(self, scales: NDArray[Any]) -> NDArray[Any]:
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


def _refuses(shape: tuple[int, ...], group: int, least: int = 1) -> str | None:
    if len(shape) < 2:
        return "not a matrix"
    whole = max(group_in(shape[-1], group), least)
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
