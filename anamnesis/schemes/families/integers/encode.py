"""How values become integers: by rows, by groups, in words.

INT8 and INT4 are compressed-tensors' min-max calibration and compression, as blockwise.py has it.
ComfyUI's INT8 is comfy-kitchen's `quantize_int8_rowwise` or `quantize_int8_tensorwise` of a weight
in float32, which comfy-quants computes in, too.

MLX's are what `mx.quantize` gives on a CPU. Of a group, the edge is what is farthest from 0 of its
least and its largest value. Its distance from 0 becomes a whole number of steps of about range /
largest code: so 0 has a code, and the edge has one. All is computed in float32; codes come from
scales and biases before these are rounded to the weight's dtype. What is decoded need not be
encoded to the same codes: the far end of a group may have no code of its own, and its distance is
what the next scale comes from.

GPTQ's and AWQ's are those of plain rounding, as GPTQModel's `RTN` and AutoAWQ's
`pseudo_quantize_tensor` give them: neither looks at activations here, which the names of these
methods promise. GPTQModel takes the values of a group for symmetric, and a group without negative
ones for one that begins with 0: then all above 7 / 15 of the largest value (of 8 bits, 127 / 255)
have the last code. A group whose scale is 0 in float32, which takes values of a few units of
2^-149, gets codes of 0. AutoAWQ computes in half floats: a weight with a group whose range is 65504
or more is refused, as are larger values.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import anamnesis._core as _core
from anamnesis.base.dtypes import DTYPES
from anamnesis.schemes.core.bands import Band
from anamnesis.schemes.core.blockwise import Blockwise
from anamnesis.schemes.core.codes import Extent, FloatCodes, Loss, Out, Task

_I32 = DTYPES["I32"]


INT8 = Blockwise("INT8", "divided")


def comfy_int8(has_one_scale: bool) -> Blockwise:
    """Return 8-bit integers of ComfyUI, in float32 whatever the weight is in."""
    tall = 0 if has_one_scale else 1
    return Blockwise("INT8", "whole", tall, is_fitted=False, dtype=DTYPES["F32"])


def int4(group_size: int | None, is_symmetric: bool, is_lattice: bool) -> Blockwise:
    """Return 4-bit integers in words, in groups of a row."""
    rule = "divided" if is_symmetric else "asymmetric"
    return Blockwise("INT4", "lattice" if is_lattice else rule, 1, group_size or 0)


_LARGEST_GRAIN = 1 << 24  # values: what a thread holds at once is bounded


@dataclass(frozen=True)
class PackedCodes(FloatCodes):
    """Dense integers in words, with a scale and a bias or a zero point for each group of a row."""

    bits: int
    group_size: int

    @property
    @abstractmethod
    def rule(self) -> str:
        """How scales come from values, as `_core.PACKING_RULES` names it."""

    def refuses(self, shape: tuple[int, ...]) -> str | None:
        if shape[-1] % self.group_size:
            return f"rows are not in whole groups of {self.group_size}"
        if self.grain(shape) > _LARGEST_GRAIN:
            return f"{self.grain(shape):,} values depend on each other"
        return None

    def encode(self, values: memoryview, task: Task, outs: Sequence[memoryview]) -> Loss:
        codes, scales, shifts = (outs[place] for place in self._places)
        source, packer = _core.SOURCES[self.dtype.name], _core.PACKERS[f"PACKED{self.bits}"]
        kernel, sizes = (source, packer, _core.PACKING_RULES[self.rule]), task.matrix
        made = codes, scales, shifts, task.measures, task.level
        return task.measured(_core.pack(*(*kernel, values, *sizes, self.group_size, *made)))

    _places: ClassVar[tuple[int, int, int]]  # of codes, scales and shifts among the outs


@dataclass(frozen=True)
class Affine(PackedCodes):
    """MLX's: a scale and a bias for each group, in rows."""

    rule: ClassVar[str] = "edge"
    _places: ClassVar[tuple[int, int, int]] = (0, 1, 2)

    def outs(self, shape: tuple[int, ...], found: bytes = b"") -> tuple[Out, ...]:
        *rows, cols = shape
        grid = (*rows, cols // self.group_size)
        return (
            Out("codes", DTYPES["U32"], (*rows, cols * self.bits // 32)),
            Out("scales", self.dtype, grid),
            Out("biases", self.dtype, grid),
        )


_UNIT = 32  # both libraries want whole ones of features
_LINES = 64  # outputs that the kernel turns at once
_BAND_BYTES = 8 << 20  # of values: pieces of a column are short, and few make long ones


@dataclass(frozen=True)
class Columns(PackedCodes):
    """GPTQ's and AWQ's: a zero point and a scale for each group, all [in, out]."""

    rule: Literal["mirrored", "half"] = "mirrored"
    _places: ClassVar[tuple[int, int, int]] = (0, 2, 1)

    def refuses(self, shape: tuple[int, ...]) -> str | None:
        if shape[0] % _UNIT or shape[1] % _UNIT:
            return f"features are no multiple of {_UNIT}"
        return super().refuses(shape)

    def outs(self, shape: tuple[int, ...], found: bytes = b"") -> tuple[Out, ...]:
        (n_out, n_in), in_word = shape, 32 // self.bits
        n_groups = n_in // self.group_size
        is_across = self.rule == "half"
        codes = (n_in, n_out // in_word) if is_across else (n_in // in_word, n_out)
        return (
            Out("codes", _I32, codes),
            Out("zeros", _I32, (n_groups, n_out // in_word)),
            Out("scales", DTYPES["F16"], (n_groups, n_out)),
        )

    def grain(self, shape: tuple[int, ...]) -> int:
        rows = _BAND_BYTES // (shape[1] * self.dtype.n_bytes(1)) // _LINES * _LINES
        return max(rows, _LINES) * shape[1]

    def extents(self, shape: tuple[int, ...], band: Band) -> tuple[Extent, ...]:
        first, last = band.start // shape[1], band.stop // shape[1]
        found = []
        for out in self.outs(shape):
            n_lines, line = out.shape[0], out.dtype.n_bytes(out.shape[1])
            begin, end = first * line // shape[0], last * line // shape[0]
            if (begin, end) == (0, line):
                found.append(Extent(0, n_lines * line))
            else:
                found.append(Extent(begin, end - begin, line, n_lines))
        return tuple(found)
