"""Codes of 8-bit floats with scales in a grid, and of MXFP8.

transformers' are those of `Fp8Quantize` of its integrations/finegrained_fp8.py, in float32;
compressed-tensors' those of its min-max calibration and compression, as blockwise.py has it.
ComfyUI's are those of comfy-quants' `_quantize_float8` and `quantize_mxfp8_block`, in float32: of
MXFP8 also comfy-kitchen's `quantize_mxfp8`, but for the sign of zeros in a group of zeros.
ModelOpt's are those of its `get_weight_scaling_factor` and `to_quantized_weight`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from struct import Struct
from typing import ClassVar, Self

from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.lazy import np
from anamnesis.schemes.core.blockwise import Blockwise
from anamnesis.schemes.core.codes import Loss, NotFinite, Task
from anamnesis.schemes.views.grid import MX_BLOCK
from anamnesis.schemes.views.tiles import TiledGroups

_AMAX = Struct("<f")
_LEAST_SCALE = 1e-12  # of ComfyUI's
_ZERO = bytes(4)  # a scale, which is small enough to be none
_NANS = (b"\x7f", b"\xff")  # as torch makes them
_LARGEST = {"F8_E4M3": 448.0, "F8_E5M2": 57344.0}
_LARGEST_F32 = 2.0**128
_LEAST = {"F32": 2.0**-126, "BF16": 2.0**-126, "F16": 2.0**-14}  # that is normal
_OF_ZEROS = 2.0**-23  # by which zeros are divided


@dataclass(frozen=True)
class Fp8(Blockwise):
    """8-bit floats with a scale for each block, each row or in all."""

    may_end_within: ClassVar[bool] = True

    def encode(self, values: memoryview, task: Task, outs: Sequence[memoryview]) -> Loss:
        loss = super().encode(values, task, outs)
        if self.rule != "reciprocal":
            return loss
        one = self.constants((), task.found).get("scales")
        if _ZERO not in bytes(outs[1] if one is None else one):
            return loss
        # Where a scale is zero, values that are finite may have become NaNs.
        codes = bytes(outs[0])
        first = min((at for code in _NANS if (at := codes.find(code)) >= 0), default=None)
        if first is None:
            return loss
        row, col = divmod(task.band.start + first, task.shape[-1])
        row, col = row + task.origin[0], col + task.origin[1]
        where = "it" if self.has_one_scale else f"row {row}"
        if self.wide:
            where = f"block [{row // self.tall}, {col // self.wide}]"
        least = _LARGEST[self.code] / _LARGEST_F32
        raise NotFinite(f"{where} has zeros, and beside them only values below {least:.2g}")


@dataclass(frozen=True)
class ComfyFp8(Fp8):
    """ComfyUI's, with one scale for all: it is no less than 1e-12, and that of zeros is 1."""

    def _known(self, found: bytes) -> bytes:
        (amax,) = _AMAX.unpack(found or _AMAX.pack(0))
        if amax == 0:
            return _AMAX.pack(_LARGEST[self.code])
        least = _LEAST_SCALE * _LARGEST[self.code]
        return _AMAX.pack(least) if amax < least else found


@dataclass(frozen=True)
class ModelOptFp8(Fp8):
    """ModelOpt's, of blocks and channels, in float32."""

    # The scale of zeros is 1, and no magnitude counts for less than the least normal number of the
    # weight's own dtype.

    own: DType = field(default=DTYPES["BF16"], kw_only=True)

    def fitted(self, dtype: DType) -> Self:
        return replace(self, own=dtype) if dtype.name in _LEAST else self

    def encode(self, values: memoryview, task: Task, outs: Sequence[memoryview]) -> Loss:
        """Encode those few blocks anew whose magnitude counts for another."""
        import ml_dtypes

        loss = super().encode(values, task, outs)
        (rows, cols), (tall, wide) = task.matrix, self.block(task.shape)
        scales = np.frombuffer(outs[1], np.float32).reshape(-(-rows // tall), -(-cols // wide))
        largest = np.float32(_LARGEST[self.code])
        few = np.argwhere((scales == _OF_ZEROS) | (scales < _LEAST[self.own.name] / largest))
        given = np.frombuffer(values, np.float32).reshape(rows, cols)
        codes = np.frombuffer(outs[0], np.uint8).reshape(rows, cols)
        for row, col in few:
            place = np.s_[row * tall : (row + 1) * tall, col * wide : (col + 1) * wide]
            amax = np.abs(given[place]).max()
            counted = np.float32(max(amax, _LEAST[self.own.name]) if amax else largest)
            if counted != amax:
                scales[row, col] = counted / largest
                made = (given[place] / scales[row, col]).astype(ml_dtypes.float8_e4m3fn)
                codes[place] = made.view(np.uint8)
        return loss


# By whose bytes they are; ComfyUI's are `COMFY_MXFP8`.
MXFP8 = {
    "compressed-tensors": Blockwise("F8_E4M3", "mx", *MX_BLOCK),
    "ModelOpt": Blockwise("F8_E4M3", "mx up", *MX_BLOCK),
    "MLX": Blockwise("F8_E4M3", "mx own power", *MX_BLOCK),
}


class ComfyMxfp8(TiledGroups):
    """MXFP8 of ComfyUI, whose scale 0 is of a group of zeros."""

    def settle(self, codes: memoryview, scales: bytearray) -> None:
        at = scales.find(0)
        while at >= 0:
            group = bytes(codes[at * self.wide : (at + 1) * self.wide])
            if group.strip(b"\0\x80"):
                raise NotFinite("a group has values below 2.7e-36 alone, which are not all zeros")
            at = scales.find(0, at + 1)


COMFY_MXFP8 = ComfyMxfp8("F8_E4M3", "mx up", *MX_BLOCK)
