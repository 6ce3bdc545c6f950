"""Integers as compressed-tensors has them: `int-quantized`, and `pack-quantized` of 4 or 8 bits.

    weight I8 [rows, cols]               weight_packed I32 [rows, ceil(cols * bits / 32)]
    weight_scale F32 | F16 | BF16        [rows, groups], [rows, 1], or one
    weight_zero_point                    I8 [rows, 1], or I32 [ceil(rows * bits / 32), groups]
    weight_shape I64 [2]                 beside packed ones

    result = round(float32(code - zero) * float32(scale))

As its `_dequantize` has it with float32 scales: one multiplication and one rounding. (It computes
in the scale's dtype; of BF16 and F16 scales the product is exact in float32, so that one rounding
to that dtype gives its bits.) Packed codes and zero points are stored plus 2^(bits - 1).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from anamnesis import _core
from anamnesis.base.dtypes import DType
from anamnesis.base.errors import AnamnesisError, ParseError, UnsupportedError
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.base import Band, Bands, Scratch, Weight, cut
from anamnesis.schemes.facts import QuantFacts
from anamnesis.schemes.grid import block_candidates
from anamnesis.schemes.ledger import Claim

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["IntegerWeight", "claim", "of_arrays"]

_METHOD = "compressed-tensors"
_SCALES = ("F32", "F16", "BF16")
_CODES, _SCALE = 0, 1  # slots of a worker's scratch, as the parts


@dataclass(slots=True, eq=False)
class IntegerWeight(Weight):
    """Codes of rows, scales, and zero points if `zeros` says at which place of the parts.

    Attributes
    ----------
    kernel : str
        `INT8`, `PACKED4` or `PACKED8`.
    group_size : int
        Columns that share a scale.
    zeros : int or None
    """

    kernel: str
    group_size: int
    zeros: int | None

    @property
    def id(self) -> str:
        """For instance `int8-4096`, `packed4-128`."""
        return f"{self.kernel.lower()}-{self.group_size}"

    @property
    def scheme(self) -> str:
        """For instance `INT4, groups of 128`."""
        per = "per channel" if self.group_size >= self.shape[1] else f"groups of {self.group_size}"
        return f"INT{self.bits}, {per}" + (", zero points" if self.zeros is not None else "")

    @property
    def family(self) -> str:
        """`INT4` or `INT8`."""
        return f"INT{self.bits}"

    @property
    def bits(self) -> int:
        """Of a code."""
        return 4 if self.kernel == "PACKED4" else 8

    @property
    def _row_bytes(self) -> int:
        words = -(-self.shape[1] * self.bits // 32)
        return 4 * words if self.kernel != "INT8" else self.shape[1]

    def bands(self, target: DType, n_bytes: int) -> Bands:
        """Cut between rows, or words of one row."""
        rows, cols = self.shape
        return cut(rows, cols, n_bytes * 8 // target.bits, step=64)

    def decode(
        self, band: Band, target: DType, scratch: Scratch, out: memoryview, level: int
    ) -> int:
        """Read the codes, the scales and the zero points of some rows, or of a piece of one."""
        row, col = divmod(band.start, self.shape[1])
        cols = min(self.shape[1] - col, band.stop - band.start)
        rows = (band.stop - band.start) // cols
        stride = self._row_bytes
        groups = -(-self.shape[1] // self.group_size)
        begin, end = row * stride + col * self.bits // 8, (row + rows) * stride
        if rows == 1:
            end = begin + -(-cols * self.bits // 8)
        scale = self.parts[_SCALE]
        first, phase = divmod(col, self.group_size)
        zeros, is_packed, row_phase = self._zeros(row, rows, first, groups, scratch)
        item = scale.dtype.n_bytes(1)
        is_lone = scale.n_elements == 1 < self.shape[0] * groups
        n_scales = 1 if is_lone else rows * groups - first
        start = 0 if is_lone else row * groups + first
        scales = scratch.read(_SCALE, scale, start * item, n_scales * item)
        return _core.dequantize_integers(
            _core.INTEGERS[self.kernel],
            _core.OUTPUTS[target.name],
            scratch.read(_CODES, self.parts[_CODES], begin, end - begin),
            out,
            rows,
            cols,
            stride,
            bytes(scales) * rows if is_lone else scales,
            _core.SCALES[scale.dtype.name],
            1 if is_lone else groups,
            self.group_size,
            zeros,
            is_packed,
            row_phase,
            phase,
            level,
        )

    def _zeros(
        self, row: int, rows: int, first: int, groups: int, scratch: Scratch
    ) -> tuple[memoryview, bool, int]:
        """Return zero points from a row and group on, whether in words, and the row's place."""
        if self.zeros is None:
            return memoryview(b""), False, 0
        stored = self.parts[self.zeros]
        if stored.dtype.name == "I8":
            return scratch.read(2, stored, row * groups + first, rows * groups - first), False, 0
        per_word = 32 // self.bits
        top, phase = divmod(row, per_word)
        n_words = ((row + rows - 1) // per_word + 1 - top) * groups
        start = top * groups + first
        return scratch.read(2, stored, 4 * start, 4 * (n_words - first)), True, phase


# --- claiming ---------------------------------------------------------------------------------


class _Found(NamedTuple):
    """What lies under one module's name."""

    codes: StoredTensor
    scale: StoredTensor
    zeros: StoredTensor | None
    shape: StoredTensor | None

    @property
    def stored(self) -> tuple[StoredTensor, ...]:
        return tuple(part for part in self if part is not None)


def claim(claim: Claim, facts: QuantFacts) -> None:
    """Take the integers with their scales, if the config says that they are compressed-tensors'."""
    if facts.method != _METHOD:
        return
    for found in _gather(claim):
        try:
            weight = _weight(found, facts)
        except AnamnesisError as error:
            claim.refuse([part.name for part in found.stored], error)
            continue
        if weight is not None:
            claim.take(weight)


def _gather(claim: Claim) -> Iterator[_Found]:
    """Yield what can be read; the rest is left, and so refused as parts of no weight."""
    for codes in claim.free():
        module, dot, last = codes.name.rpartition(".")
        if last not in ("weight", "weight_packed"):
            continue
        if codes.dtype.name != ("I8" if last == "weight" else "I32") or len(codes.shape) != 2:
            continue
        name = f"{module}{dot}weight"
        scale, zeros, shape, listed = (
            claim.find(f"{name}_{part}") for part in ("scale", "zero_point", "shape", "g_idx")
        )
        is_packed = last == "weight_packed"
        others = (f"{name}_global_scale", f"{module}{dot}compressed", f"{name}_bitmask")
        if scale is None or listed is not None or any(other in claim.stored for other in others):
            continue
        if is_packed != (shape is not None) or (is_packed and name in claim.stored):
            continue
        yield _Found(codes, scale, zeros, shape)


def _weight(found: _Found, facts: QuantFacts) -> IntegerWeight | None:
    """Return the weight; None if its layout is not one that is read."""
    codes, scale = found.codes, found.scale
    if scale.dtype.name not in _SCALES:
        raise UnsupportedError(
            f"{scale.source.name}: scale {scale.name} of {codes.name} has dtype {scale.dtype}; "
            f"one of {', '.join(_SCALES)} is expected"
        )
    rows, cols = codes.shape if found.shape is None else _told_shape(found.shape)
    name, kernel, bits = codes.name, "INT8", 8
    if found.shape is not None:
        name = codes.name.removesuffix("_packed")
        fitting = {b for b in facts.num_bits if codes.shape[1] in _words(cols, b)}
        if codes.shape[0] != rows or fitting not in ({4}, {8}):
            return None  # other widths are not read
        (bits,) = fitting
        kernel = f"PACKED{bits}"
    group_size = _group_size(found, rows, cols, facts)
    if 0 in (rows, cols) or group_size is None:
        return None
    groups = -(-cols // group_size)
    _check_zeros(found, rows, groups, bits, is_packed=found.shape is not None)
    parts = (codes, scale, *(part for part in (found.zeros, found.shape) if part is not None))
    return IntegerWeight(
        name, (rows, cols), parts, kernel, group_size, None if found.zeros is None else 2
    )


def _words(cols: int, bits: int) -> tuple[int, int]:
    """Return how many words a row has, packed densely or, as once, without straddling words."""
    return -(-cols * bits // 32), -(-cols // max(32 // max(bits, 1), 1))


def _told_shape(shape: StoredTensor) -> tuple[int, int]:
    if shape.shape != (2,) or shape.dtype.name not in ("I64", "I32"):
        raise UnsupportedError(
            f"{shape.source.name}: {shape.name} ({shape.describe()}) must be I64 [2]"
        )
    code = "<2q" if shape.dtype.name == "I64" else "<2i"
    rows, cols = struct.unpack(code, shape.read())
    if min(rows, cols) < 0:
        raise ParseError(
            f"{shape.name}: {rows} x {cols} is no shape",
            offset=shape.offset,
            source=shape.source.name,
        )
    return rows, cols


def _group_size(found: _Found, rows: int, cols: int, facts: QuantFacts) -> int | None:
    """Return how many columns share a scale; None if the scales are not so laid out."""
    scale = found.scale
    if scale.n_elements == 1 and scale.shape in ((), (1,), (1, 1)):
        return cols
    if len(scale.shape) == 1:
        return cols if scale.shape == (rows,) else None
    if len(scale.shape) != 2 or scale.shape[0] != rows or not 0 < scale.shape[1] <= cols:
        raise ParseError(
            f"scale {scale.name} ({scale.describe()}) does not fit {rows} x {cols} codes",
            offset=scale.offset,
            source=scale.source.name,
        )
    n_groups = scale.shape[1]
    if n_groups == 1:
        return cols
    told = {size for size in facts.group_sizes if size > 0 and -(-cols // size) == n_groups}
    sizes = told or block_candidates(cols, n_groups)
    if len(sizes) != 1:
        raise UnsupportedError(
            f"{scale.source.name}: {found.codes.name}: {n_groups} scales for {cols} columns may be "
            f"in groups of {' or '.join(map(str, sorted(sizes))) or 'any size'}; say which with "
            "group_size in config.json"
        )
    return sizes.pop()


def _check_zeros(found: _Found, rows: int, groups: int, bits: int, *, is_packed: bool) -> None:
    zeros = found.zeros
    if zeros is None:
        return
    allowed = [("I8", (rows, groups))]
    if is_packed:
        allowed = [("I32", (-(-rows * bits // 32), groups))]
    if (zeros.dtype.name, zeros.shape) not in allowed:
        raise UnsupportedError(
            f"{zeros.source.name}: {zeros.name} ({zeros.describe()}) does not fit the "
            f"{rows} x {groups} scales of {found.codes.name}"
        )


# --- in memory --------------------------------------------------------------------------------


def of_arrays(
    codes: NDArray[Any],
    scales: NDArray[Any],
    zeros: NDArray[Any] | None,
    shape: tuple[int, int] | None,
) -> IntegerWeight:
    """Return a weight that lies in arrays; a packed one, of 4 bits, if its shape is told.

    Raises
    ------
    TypeError
        If an array has another dtype.
    ValueError
        If the shapes do not go together.
    """
    from anamnesis.schemes import arrays as memory

    stored = "I8" if shape is None else "I32"
    parts = [memory.stored(codes, "codes", (stored,)), memory.stored(scales, "scales", _SCALES)]
    parts += [] if zeros is None else [memory.stored(zeros, "zeros", (stored,))]
    bits, told = (8, parts[0].shape) if shape is None else (4, tuple(shape))
    if len(told) != 2 or len(parts[0].shape) != 2 or len(parts[1].shape) != 2:
        raise ValueError("codes, scales and the matrix must have two dimensions")
    rows, cols = told
    words = cols if shape is None else -(-cols // 8)
    if parts[0].shape != (rows, words):
        raise ValueError(f"codes of shape {parts[0].shape} do not hold {rows} x {cols} values")
    found = _Found(parts[0], parts[1], parts[2] if zeros is not None else None, None)
    try:
        size = _group_size(found, rows, cols, QuantFacts()) or cols
        groups = -(-cols // max(size, 1))
        _check_zeros(found, rows, groups, bits, is_packed=shape is not None)
    except AnamnesisError as error:
        raise ValueError(str(error)) from None
    kernel = "INT8" if shape is None else "PACKED4"
    return IntegerWeight(
        "codes", (rows, cols), tuple(parts), kernel, max(size, 1), None if zeros is None else 2
    )
