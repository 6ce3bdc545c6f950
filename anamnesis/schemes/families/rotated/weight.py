"""Rotated integers as a weight: 8-bit codes are made of all, and rotated back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from math import lcm, prod
from typing import Any, ClassVar, Self

import anamnesis._core as _core
import anamnesis._io as _io
from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.lazy import NDArray, np
from anamnesis.base.stored import Part, StoredTensor
from anamnesis.schemes.core.bands import Band, Bands, Run, cut
from anamnesis.schemes.core.settings import Shown
from anamnesis.schemes.core.weight import Scratch, Weight
from anamnesis.schemes.views.kinds import Rotated
from anamnesis.schemes.views.views import made_of

# Parts, and slots of a worker's scratch.
_CODES, _SCALES, _GROUPS, _BOOK, _HIGH, _AROUND, _ADDED, _NARROW, _ROTATED = range(9)
_LARGEST = 127
ROTATIONS = tuple(4**n for n in range(1, 7))  # columns of a group that the kernels rotate


def group_in(cols: int, group: int) -> int:
    """Return how many of some columns are rotated at once: 64 where 256 do not divide them.

    So convert-to-quant has it.
    """
    return 64 if group == 256 and cols % 256 and cols % 64 == 0 else group


@dataclass(slots=True, eq=False)
class RotatedWeight(Weight):
    """Codes of 8 or 4 bits with a scale for each row, or one for all."""

    bits: int
    group: int

    has_ranges: ClassVar[bool] = True

    @property
    def id(self) -> str:
        return f"convrot-int{self.bits}-{self.group}" + "-tensor" * self._has_one_scale

    @property
    def scheme(self) -> str:
        scales = "one scale" if self._has_one_scale else "per channel"
        return f"INT{self.bits}, {scales}, rotated in groups of {self.group} (ComfyUI)"

    @property
    def family(self) -> str:
        return f"INT{self.bits}"

    @property
    def shown(self) -> Shown:
        rows, cols = self.shape[-2:]
        return Shown("int", self.bits, (rows, cols), (1 if self._has_one_scale else rows, 1))

    @property
    def _has_one_scale(self) -> bool:
        return self.parts[_SCALES].n_elements == 1 != prod(self.shape[:-1])

    @property
    def _step(self) -> int:
        """Columns of which pieces of a row are whole ones."""
        return self.group

    def seen_as(self, kind: type) -> object:
        if kind is not Rotated:
            return None
        codes, scales = self.parts[:2]

        def made(units: range, *_: NDArray[Any]) -> NDArray[Any]:
            rows, cols = Run(units.start, units.stop), Run(0, self.shape[-1])
            return np.frombuffer(self._codes(rows, cols, Scratch()), np.uint8)

        is_stored, spread = type(self) is RotatedWeight, codes
        if not is_stored or self.bits != 8:  # 8-bit codes as they would be stored
            part = Part(codes.name, DTYPES["I8"], self.shape)
            spread = made_of(part, [], prod(self.shape[:-1]), made, codes.source)
        packed = (self.bits, codes) if is_stored else (8, spread)
        return Rotated(self.name, self.shape, self.group, *packed, spread, scales)

    def bands(self, dtype: DType, n_bytes: int) -> Bands:
        *lead, rows, cols = self.shape
        return cut(rows, cols, n_bytes * 8 // dtype.bits, step=self._step, batch=prod(lead))

    def decode(self, band: Band, dtype: DType, scratch: Scratch, out: memoryview) -> int:
        rows, cols = band.tile(self.shape[-1])
        around = cols.around(self._step)
        if around == cols:
            return self._decode(rows, cols, dtype, scratch, out)
        item = dtype.n_bytes(1)
        room = scratch.room(_AROUND, rows.n * around.n * item)
        overflows = self._decode(rows, around, dtype, scratch, room)
        first = (cols.start - around.start) * item
        _io.copy_rows(room, first, around.n * item, cols.n * item, out)
        return overflows

    def _decode(self, rows: Run, cols: Run, dtype: DType, scratch: Scratch, out: memoryview) -> int:
        return _core.dequantize_rotated(
            _core.OUTPUTS[dtype.name],
            self._codes(rows, cols, scratch),
            out,
            rows.n,
            cols.n,
            self._row_scales(rows, scratch),
            self.group,
            scratch.level,
        )

    def _row_scales(self, rows: Run, scratch: Scratch) -> memoryview:
        """Return the scales of some rows, in float32."""
        scales = self.parts[_SCALES]
        item = scales.dtype.n_bytes(1)
        if scales.n_elements == 1:
            one = _floats(scratch.read(_SCALES, scales, 0, item), scales)
            return np.repeat(one, rows.n).view(np.uint8).data
        raw = scratch.read(_SCALES, scales, rows.start * item, rows.n * item)
        return _floats(raw, scales).view(np.uint8).data

    def _codes(self, rows: Run, cols: Run, scratch: Scratch) -> memoryview:
        """Return the 8-bit codes of some rows and columns."""
        per_byte = 8 // self.bits
        place = Run(cols.start // per_byte, cols.stop // per_byte)
        read = self._read(_CODES, self.parts[_CODES], rows, place, scratch)
        return read if per_byte == 1 else _of_bytes(_signed(), read).data

    def _read(
        self, slot: int, part: StoredTensor, rows: Run, place: Run, scratch: Scratch
    ) -> memoryview:
        """Return some bytes of each of some rows of a part."""
        stride = part.n_bytes // prod(self.shape[:-1])
        first = rows.start * stride + place.start
        return scratch.read_rows(slot, part, first, stride, place.n, rows.n)


@dataclass(slots=True, eq=False)
class LevelsWeight(RotatedWeight):
    """Levels of 4 or 6 bits that become 8-bit codes by a scale for each few of a row."""

    size: int
    has_book: bool
    correction: StoredTensor | None = None
    rounded: DType | None = None

    @property
    def id(self) -> str:
        more = "-codebook" * self.has_book + "-corrected" * (self.correction is not None)
        more += f"-in-{self.rounded.name.lower()}" if self.rounded else ""
        return f"convrot-levels{self.bits}-{self.size}-{self.group}{more}"

    @property
    def scheme(self) -> str:
        more = "codebook, " if self.has_book else ""
        more += "corrected, " if self.correction is not None else ""
        how = f"groups of {self.size}, {more}to INT8 per channel, rotated in groups of {self.group}"
        return f"INT{self.bits}, {how} (ComfyUI)"

    @property
    def shown(self) -> Shown:
        rows, cols = self.shape[-2:]
        return Shown("int", self.bits, (rows, cols), (rows, cols // self.size))

    @property
    def _step(self) -> int:
        return lcm(self.group, self.size)

    def by_reference(self, dtype: DType) -> Self:
        return self if dtype.name == "F32" else replace(self, rounded=dtype)

    def seen_as(self, kind: type) -> object:
        if kind is LevelsWeight:
            return self
        return None if self.correction is not None else RotatedWeight.seen_as(self, kind)

    def _decode(self, rows: Run, cols: Run, dtype: DType, scratch: Scratch, out: memoryview) -> int:
        if self.rounded is None and self.correction is None:
            return RotatedWeight._decode(self, rows, cols, dtype, scratch, out)
        codes = np.frombuffer(self._codes(rows, cols, scratch), np.int8).reshape(rows.n, cols.n)
        scales = np.frombuffer(self._row_scales(rows, scratch), np.float32)
        with np.errstate(all="ignore"):
            values: NDArray[Any] = codes.astype(np.float32) * scales[:, None]
            if self.correction is not None:
                added = self._of_groups(_ADDED, self.correction, rows, cols, scratch)
                values.reshape(rows.n, -1, self.size)[:] += added
        raw, overflows = values.reshape(-1).view(np.uint8).data, 0
        if self.rounded is not None:
            narrow = scratch.room(_NARROW, self.rounded.n_bytes(values.size))
            overflows = scratch.convert(raw, self.rounded, narrow)
            scratch.convert(narrow, DTYPES["F32"], raw, of=self.rounded.name)
        rotated = scratch.room(_ROTATED, len(raw))
        _core.rotate(raw, rotated, self.group, scratch.level)
        return overflows + scratch.convert(rotated, dtype, out)

    def _of_groups(
        self, slot: int, part: StoredTensor, rows: Run, cols: Run, scratch: Scratch
    ) -> NDArray[Any]:
        """Return the numbers of some groups, in float32 [rows, groups, 1]."""
        item = part.dtype.n_bytes(1)
        place = Run(cols.start // self.size * item, cols.stop // self.size * item)
        raw = self._read(slot, part, rows, place, scratch)
        return _floats(raw, part).reshape(rows.n, -1, 1)

    def _codes(self, rows: Run, cols: Run, scratch: Scratch) -> memoryview:
        levels = self._levels(rows, cols, scratch)
        if self.has_book:
            book = self.parts[_BOOK]
            values = _floats(scratch.read(_BOOK, book, 0, book.n_bytes), book)[levels]
        else:
            values = levels.astype(np.float32) - np.float32(1 << self.bits - 1)
        of_groups = self._of_groups(_GROUPS, self.parts[_GROUPS], rows, cols, scratch)
        with np.errstate(all="ignore"):
            codes = values.reshape(rows.n, -1, self.size) * of_groups
            np.rint(codes, codes)
            np.clip(codes, -_LARGEST, _LARGEST, codes)
            codes[codes != codes] = 0
        found: memoryview = codes.astype(np.int8).view(np.uint8).reshape(-1).data
        return found

    def _levels(self, rows: Run, cols: Run, scratch: Scratch) -> NDArray[np.uint8]:
        low = Run(cols.start // 2, cols.stop // 2)
        read = self._read(_CODES, self.parts[_CODES], rows, low, scratch)
        levels = _of_bytes(_nibbles(), read)
        if self.bits == 4:
            return levels
        whole = self.shape[-1] // 2
        high = Run(whole + cols.start // 4, whole + cols.stop // 4)
        read = self._read(_HIGH, self.parts[_CODES], rows, high, scratch)
        return levels | _of_bytes(_highest(), read)


def _of_bytes(table: NDArray[Any], read: memoryview) -> NDArray[np.uint8]:
    """Return the codes of each byte, of a table that has those of all bytes."""
    return table[np.frombuffer(read, np.uint8)].view(np.uint8).reshape(-1)


@cache
def _nibbles() -> NDArray[Any]:
    """Return the two codes of each byte, the low nibble first."""
    pairs = np.arange(256)
    return (pairs & 15 | pairs >> 4 << 8).astype("<u2")


@cache
def _signed() -> NDArray[Any]:
    """Return them in two's complement."""
    nibbles = _nibbles().view(np.int8)
    return np.where(nibbles > 7, nibbles - 16, nibbles).astype(np.int8).view("<u2")


@cache
def _highest() -> NDArray[Any]:
    """Return the high bits of the four codes of each byte, the lowest first."""
    four = np.arange(256)[:, None] >> np.arange(0, 8, 2)
    return ((four & 3) << 4).astype(np.uint8).view("<u4").reshape(-1)


def _floats(raw: memoryview, part: StoredTensor) -> NDArray[Any]:
    return np.frombuffer(raw, part.dtype.numpy()).astype(np.float32)
