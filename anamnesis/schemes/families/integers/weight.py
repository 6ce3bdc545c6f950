"""Integers of rows: which bytes a band of them needs, and how they are seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, ClassVar, Self

import anamnesis._core as _core
from anamnesis.base.dtypes import DType
from anamnesis.base.lazy import NDArray, np
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.bands import Band, Bands, Run, cut
from anamnesis.schemes.core.rounding import Rounding
from anamnesis.schemes.core.settings import Shown
from anamnesis.schemes.core.weight import Scratch, Weight
from anamnesis.schemes.families.integers.checks import (
    SYMMETRIC_REMEDY,
    check_listed,
    check_symmetric,
)
from anamnesis.schemes.families.integers.rows import Planes, bits_of, row_bytes, zero_words
from anamnesis.schemes.views.kinds import Integers, Rows, Words
from anamnesis.schemes.views.stacks import InRows

_CODES, _SCALES, _ZEROS, _BIASES, _GROUPS = range(5)  # slots of a worker's scratch
_WORD, _WORD_BITS = 4, 32
_ONE, _LESS = b"\0\0\x80\x3f", b"\0\0\x80\xbf"  # 1 and -1 in float32
_HALF = 8  # the code that stands for 0, of symmetric ones of 4 bits


@dataclass(slots=True, eq=False)
class IntegerWeight(InRows):
    """Integers of rows: codes, scales, and what else there is."""

    kernel: str
    block: tuple[int, int]
    zeros: StoredTensor | None = None
    constant: int = 0
    biases: StoredTensor | None = None
    groups: StoredTensor | None = None
    planes: Planes | None = None
    matrix: tuple[int, ...] | None = None
    producer: str = ""
    reference: Rounding | None = None
    rounded: DType | None = None
    coding: str = ""
    symmetric_by: str = ""

    has_ranges: ClassVar[bool] = True
    # Whether codes, scales and zero points are stored as they are decoded.
    is_in_order: ClassVar[bool] = True

    @property
    def id(self) -> str:
        beside = ("zeros", self.zeros), ("biases", self.biases), ("listed", self.groups)
        extras = [name for name, part in beside if part is not None]
        extras += [] if self.planes is None else ["planes", *map(str, map(int, self.planes))]
        if self.rounded is not None and self.reference is not None:
            extras += ["in", self.rounded.name.lower(), *self.reference.steps]
        whose = filter(None, [self.producer.lower().replace(" ", "-"), self.coding])
        return "-".join([*whose, self.kernel.lower(), f"{self.block[0]}x{self.block[1]}", *extras])

    @property
    def scheme(self) -> str:
        words = [self.family, self._grouping()]
        words += ["zero points"] if self.zeros is not None else []
        words += ["biases"] if self.biases is not None else []
        words += ["act-order"] if self.groups is not None else []
        return ", ".join(words) + (f" ({self.producer})" if self.producer else "")

    def _grouping(self) -> str:
        rows, cols = self.block
        if rows > 1:
            return "one scale" if self.block == self._stored[-2:] else f"blocks of {rows}x{cols}"
        return "per channel" if cols >= self.shape[-1] else f"groups of {cols}"

    @property
    def family(self) -> str:
        return f"INT{self.bits}"

    @property
    def shown(self) -> Shown:
        rows, cols = self._stored[-2:]
        grid = (-(-rows // self.block[0]), self.places)
        return Shown("int", self.bits, (rows, cols), grid)

    @property
    def n_by_rows(self) -> int:
        # Each row has codes, scales and biases of its own, and nothing else.
        known = [self.parts[0], self.parts[1], *([] if self.biases is None else [self.biases])]
        others = (self.zeros, self.groups, self.planes, self.matrix)
        is_by_rows = (
            self.block[0] == 1
            and 0 not in self.shape
            and others == (None,) * 4
            and list(self.parts) == known
            and all(part.shape[:-1] == self.shape[:-1] for part in self.parts)
        )
        return len(known) if is_by_rows else 0

    def remade(self, name: str, shape: tuple[int, ...], parts: Sequence[StoredTensor]) -> Self:
        made = super(IntegerWeight, self).remade(name, shape, parts)  # a class with slots is new
        return made if self.biases is None else replace(made, biases=parts[2])

    def by_reference(self, dtype: DType) -> Self:
        rule = self.reference
        rounded = None if rule is None else rule.dtype(self.parts[_SCALES].dtype, dtype)
        return self if rounded is None else replace(self, rounded=rounded)

    def seen_as(self, kind: type) -> Integers | Words | Rows | None:
        if kind is Integers:
            from anamnesis.schemes.families.integers.seen import of_rows

            return of_rows(self)
        return self._words() if kind is Words else self._rows() if kind is Rows else None

    def _words(self) -> Words | None:
        is_ours = self.kernel in ("PACKED4", "PADDED4") and not self.producer
        if not is_ours or self.biases is not None or self.constant != _HALF:
            return None
        group, is_symmetric = self.block[1], self.zeros is None
        if self.groups is not None:
            group = -(-self.shape[-1] // max(self.places, 1))
        codes, scales = self.parts[:2]
        return Words(
            *(self.name, self.shape, "rows", codes, scales, self.zeros, False),
            *(self.groups, group, is_symmetric),
        )

    def _rows(self) -> Rows | None:
        if not self.is_in_order:  # one whose codes are put in order as they are read
            return None
        beside = (self.zeros, self.groups, self.planes, self.matrix)
        is_dense = not self.kernel.startswith("PADDED") or 8 % bits_of(self.kernel) == 0
        if any(part is not None for part in beside) or self.block[0] != 1 or not is_dense:
            return None
        codes, scales = self.parts[:2]
        bits, is_signed = bits_of(self.kernel), self.kernel.startswith("INT")
        return Rows(
            *(self.name, self.shape, bits, is_signed, self.constant, self.block[1]),
            *(codes, scales, self.biases),
        )

    @property
    def _stored(self) -> tuple[int, ...]:
        return self.matrix or self.shape

    @property
    def places(self) -> int:
        """How many scales of a row are stored; some may be of no group."""
        if self.groups is not None:
            return self.parts[_SCALES].shape[-1]
        return -(-self._stored[-1] // self.block[1])

    @property
    def bits(self) -> int:
        return self.planes.bits if self.planes else bits_of(self.kernel)

    @property
    def has_codes_in_rows(self) -> bool:
        return type(self)._codes is IntegerWeight._codes

    def decode_codes(self, rows: Run, scratch: Scratch) -> NDArray[Any]:
        """Return the codes of some rows of one part, as float32 [rows, columns]."""
        cols = self._stored[-1]
        codes, stride, phase = self._codes(rows, Run(0, cols), scratch)
        out = np.empty((rows.n, cols), np.float32)
        kernel = _core.INTEGERS[self.kernel], _core.OUTPUTS["F32"]
        made, planes = out.reshape(-1).view(np.uint8).data, self._planes_of(rows.start)
        scaling = _ONE, _core.SCALES["F32"], 1, rows.n, cols, _core.ZEROS["constant"], b""
        _core.dequantize_integers(
            *(*kernel, codes, made, rows.n, cols, stride, *scaling),
            phase=phase,
            planes=planes,
            level=scratch.level,
        )
        return out

    def decode_zeros(self, rows: Run, scratch: Scratch) -> NDArray[Any]:
        """Return the zero points of some rows of one matrix, as float32 [rows, places]."""
        # Of words, they are what code 0 is less than 0.
        n = rows.n * self.places
        beside = Run(rows.start * self.places, rows.stop * self.places)
        kind, zeros, phase = self._zeros(rows, Run(0, self.places), beside, scratch)
        if kind == "int8":
            return np.frombuffer(zeros, np.int8).reshape(rows.n, -1).astype(np.float32)
        out = np.empty((rows.n, self.places), np.float32)
        stride = row_bytes(self.kernel, self.places)
        kernel, codes = (_core.INTEGERS[self.kernel], _core.OUTPUTS["F32"]), bytes(rows.n * stride)
        made, n_cols = out.reshape(-1).view(np.uint8).data, self.places
        scaling = _LESS * n, _core.SCALES["F32"], n_cols, 1, 1, _core.ZEROS[kind], zeros
        _core.dequantize_integers(
            *(*kernel, codes, made, rows.n, n_cols, stride, *scaling),
            zeros_phase=phase,
            level=scratch.level,
        )
        return out

    def bands(self, dtype: DType, n_bytes: int) -> Bands:
        rows, cols = self._stored[-2:]
        n_elements = n_bytes * 8 // dtype.bits
        return cut(rows, cols, n_elements, step=64, batch=prod(self._stored[:-2]))

    def decode(self, band: Band, dtype: DType, scratch: Scratch, out: memoryview) -> int:
        rows, cols = band.tile(self._stored[-1])
        row, lines = rows.start, self.lines
        if row // lines == (rows.stop - 1) // lines:
            return self._decode(rows, cols, dtype, scratch, out)
        overflows = 0
        while row < rows.stop:  # in one part after the other
            stop = min(rows.stop, (row // lines + 1) * lines)
            n_bytes = dtype.n_bytes((stop - row) * cols.n)
            piece, out = out[:n_bytes], out[n_bytes:]
            overflows += self._decode(Run(row, stop), cols, dtype, scratch, piece)
            row = stop
        return overflows

    def decode_tile(
        self, rows: Run, cols: Run, dtype: DType, scratch: Scratch, out: memoryview
    ) -> int:
        if self.planes is None and self.matrix is None and self.has_codes_in_rows:
            return self._decode(rows, cols, dtype, scratch, out)
        return Weight.decode_tile(self, rows, cols, dtype, scratch, out)

    @property
    def lines(self) -> int:
        """Rows of one part, of planes in parts; else all of them."""
        if self.planes is None or not self.planes.in_parts:
            return max(prod(self._stored[:-1]), 1)
        return self.parts[_CODES].n_bytes // (self._stored[-1] * self.planes.width)

    def _decode(self, rows: Run, cols: Run, dtype: DType, scratch: Scratch, out: memoryview) -> int:
        row, col = rows.start, cols.start
        listed: memoryview | bytes = b""
        if self.groups is not None:
            listed = scratch.copy(_GROUPS, self.groups, cols.start * _WORD, cols.n * _WORD)
        first, col_phase = (0, 0) if self.groups is not None else divmod(col, self.block[1])
        matrix, within = divmod(row, self._stored[-2])
        grid_row, row_phase = divmod(within, self.block[0])
        grid_rows = Run(grid_row, (within + rows.n - 1) // self.block[0] + 1)
        grid_row += matrix * -(-self._stored[-2] // self.block[0])
        start = grid_row * self.places + first
        touched = self.places  # groups; a list may name any
        if self.groups is None:
            touched = (cols.stop - 1) // self.block[1] - cols.start // self.block[1] + 1
        n = (grid_rows.n - 1) * self.places + touched
        scale = self.parts[_SCALES]
        codes, stride, phase = self._codes(rows, cols, scratch)
        kind, zeros, zeros_phase = self._zeros(
            rows, Run(first, first + touched), Run(start, start + n), scratch
        )
        biases = _items(scratch, _BIASES, self.biases, start, n) if self.biases else b""
        roundings: tuple[int | None, int] = (None, 0)  # in between
        if self.rounded is not None and self.reference is not None:
            roundings = _core.OUTPUTS[self.rounded.name], self.reference.mask
        kernel = _core.INTEGERS[self.kernel], _core.OUTPUTS[dtype.name]
        scales = self.scale_items(start, n, scratch), _core.SCALES[scale.dtype.name], self.places
        zero_points = _core.ZEROS[kind], zeros, self.constant, zeros_phase
        phases, planes = (row_phase, col_phase, phase), self._planes_of(row)
        given = (*kernel, codes, out, rows.n, cols.n, stride, *scales, *self.block, *zero_points)
        try:
            return _core.dequantize_integers(
                *(*given, biases, listed, *phases, planes, scratch.level, *roundings)
            )
        except ValueError:
            if self.groups is not None:
                check_listed(self.groups, listed, cols.start, self.places)
            raise

    def _codes(self, rows: Run, cols: Run, scratch: Scratch) -> tuple[memoryview, int, int]:
        """Return the codes, how far rows lie apart, and the place of the first code."""
        codes = self.parts[_CODES]
        if (planes := self.planes) is not None:
            stride, width = self._stored[-1] * planes.width, planes.width
            first, last = rows.start, rows.stop - 1  # rows; then the lines that hold them
            if planes.in_parts:
                first, last = first % self.lines, last % self.lines
            else:
                first, last = first // planes.stacked, last // planes.stacked
            begin, n_bytes = first * stride + cols.start * width, cols.n * width
            read = scratch.read(_CODES, codes, begin, (last - first) * stride + n_bytes)
            return read, stride, 0
        stride = codes.n_bytes // prod(self._stored[:-1])
        per_unit, n_bytes = _core.INTEGER_UNITS[self.kernel]
        unit, phase = divmod(cols.start, per_unit)
        begin, end = rows.start * stride + unit * n_bytes, rows.stop * stride
        width = min(stride - unit * n_bytes, -(-(phase + cols.n) // per_unit) * n_bytes)
        if rows.n == 1:
            end = min(end, begin + width)
        elif width < stride:
            lines = scratch.read_rows(_CODES, codes, begin, stride, width, rows.n)
            return lines, width, phase
        return scratch.read(_CODES, codes, begin, end - begin), stride, phase

    def scale_items(self, start: int, n: int, scratch: Scratch) -> memoryview:
        return _items(scratch, _SCALES, self.parts[_SCALES], start, n)

    def _planes_of(self, row: int) -> tuple[int, int, int, int, int]:
        """Return the kernel's arguments for planes, from a row on."""
        planes = self.planes
        if planes is None:
            return 0, 0, 1, 0, 1
        if not planes.in_parts:
            return planes.bits, 0, planes.stacked, row % planes.stacked, planes.width
        part = row // self.lines
        part = planes.stacked - 1 - part if planes.high_first else part
        return planes.bits, planes.bits * part, 1, 0, planes.width

    def _zeros(
        self, rows: Run, groups: Run, beside: Run, scratch: Scratch
    ) -> tuple[str, memoryview | bytes, int]:
        """Return the zero points of some rows and groups, with how they are stored."""
        # Also the place of the first row in its word; `beside` are the scales.
        if self.zeros is None:
            return "constant", b"", 0
        if self.zeros.dtype.name not in ("I32", "U32"):
            kind = "int8" if self.zeros.dtype.name == "I8" else "float"
            read = _items(scratch, _ZEROS, self.zeros, beside.start, beside.n)
            if self.symmetric_by:
                self._check_symmetric(read)
            return kind, read, 0
        per_unit, n_words = _core.INTEGER_UNITS[self.kernel][0], 1
        if not self.kernel.startswith("PADDED"):
            per_unit, n_words = 32, bits_of(self.kernel)
        matrix, within = divmod(rows.start, self._stored[-2])
        stacked = zero_words(self.kernel, self._stored[-2])
        top, phase = divmod(within, per_unit)
        stop = min(stacked, (top + -(-(phase + rows.n) // per_unit)) * n_words)
        start = (matrix * stacked + top * n_words) * self.places + groups.start
        n = (stop - top * n_words - 1) * self.places + groups.n
        read = _items(scratch, _ZEROS, self.zeros, start, n)
        if self.symmetric_by:
            self._check_symmetric(read)
        return "words", read, phase

    def expect_symmetric(self, by: str, *, reads: bool) -> None:
        """Compare the first zero point at once, and all of them as they are decoded."""
        zeros, bits = self.zeros, self.bits
        is_in_words = zeros is not None and zeros.dtype.bits == _WORD_BITS
        if zeros is None or zeros.dtype.name not in ("I8", "I32", "U32"):
            return
        if is_in_words and (_WORD_BITS % bits or self._stored[-2] * bits % _WORD_BITS):
            return  # words whose bits are not all of codes
        self.symmetric_by = by
        if reads and zeros.n_bytes:
            self._check_symmetric(zeros.source.read(zeros.offset, zeros.dtype.n_bytes(1)))

    def _check_symmetric(self, read: bytes | memoryview) -> None:
        assert self.zeros is not None
        if self.zeros.dtype.bits == _WORD_BITS:
            check_symmetric(read, self.zeros, self.bits, self.symmetric_by)
        elif any(read):
            raise self.zeros.malformed(
                f"{self.zeros} has other zero points than 0, but {self.symmetric_by} says"
                " symmetric: true",
                remedy=SYMMETRIC_REMEDY,
            )


def _items(scratch: Scratch, slot: int, stored: StoredTensor, first: int, n: int) -> memoryview:
    size = stored.dtype.n_bytes(1)
    return scratch.read(slot, stored, first * size, n * size)
