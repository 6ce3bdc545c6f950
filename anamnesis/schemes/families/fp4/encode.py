"""Codes of 4-bit floats with a scale for each group of a row: NVFP4 and MXFP4.

    codes   two E2M1 to a byte, the first in its low bits [rows, cols / 2]
    scales  E4M3 for each 16 (NVFP4), E8M0 in U8 for each 32 (MXFP4) [rows, groups]
    second  F32, of NVFP4 only: what scales are divided by, or multiplied with

compressed-tensors' are those of its compression of what llm-compressor's min-max observer finds,
where scales come from numbers rounded to the weight's own dtype. ModelOpt's are what its
`NVFP4QTensor` and `MXFP4QTensor` make, in float32. MLX's are those of `mx.quantize` on a CPU:
scales come from numbers rounded to the weight's own dtype, and codes are those of the first of the
nearest numbers; its `nvfp4` has no second scale, so that a group whose largest magnitude is below
0.006 becomes zeros. gpt-oss's are rounded to bfloat16 first, whatever they are in; then
`downcast_to_mxfp_torch` of Triton's kernels encodes them. ComfyUI's NVFP4 is comfy-quants'
`quantize_nvfp4_block`, and comfy-kitchen's `quantize_nvfp4` of a weight in float32. Weights only:
no ranges of activations are known here.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from anamnesis.base.dtypes import DTYPES
from anamnesis.base.lazy import np
from anamnesis.schemes.core.bands import Band
from anamnesis.schemes.core.blockwise import Amax, Blockwise
from anamnesis.schemes.core.codes import Extent, NotFinite, Out, Survey
from anamnesis.schemes.families.fp4.formats import GROUPS, LARGEST_NVFP4
from anamnesis.schemes.views.bits import swapped
from anamnesis.schemes.views.tiles import TiledGroups

_F32 = struct.Struct("<f")
_LEAST_SECOND = 2.0**-126  # of ComfyUI's
_Second = Literal["", "divides", "multiplies"]


@dataclass(frozen=True)
class Fp4(Blockwise):
    """Floats of 4 bits with a scale for each 16 or 32 of a row."""

    second: _Second = field(default="", kw_only=True)

    def survey(self, shape: tuple[int, ...]) -> Survey | None:
        return Amax(self.dtype) if self.second else None

    def joint(self, found: Sequence[bytes]) -> bytes:
        magnitudes = [_F32.unpack(one)[0] for one in found]
        is_finite = all(amax == amax for amax in magnitudes)
        return _F32.pack(max(magnitudes) if is_finite else float("nan"))

    def outs(self, shape: tuple[int, ...], found: bytes = b"") -> tuple[Out, ...]:
        second = (Out("second", DTYPES["F32"], ()),) if self.second else ()
        return (*super().outs(shape, found), *second)

    def extents(self, shape: tuple[int, ...], band: Band) -> tuple[Extent, ...]:
        return (*super().extents(shape, band), *((Extent(0, 0),) if self.second else ()))

    def constants(self, shape: tuple[int, ...], found: bytes = b"") -> dict[str, bytes]:
        second = self._known(found)
        if not second:
            return {}
        (number,) = _F32.unpack(second)
        if number != number:
            raise NotFinite
        if number == 0:
            why = "all of it is 0, or next to that"
            raise NotFinite(why, "which ModelOpt has no scale for")
        return {"second": second}

    def _known(self, found: bytes) -> bytes:
        if not self.second:
            return b""
        return _second_scale(self.second, self.dtype.name, found or _F32.pack(1))


@lru_cache(maxsize=4096)
def _second_scale(second: _Second, dtype: str, found: bytes) -> bytes:
    """Return the second scale of a weight by its largest magnitude: a NaN if that is one."""
    # `generate_gparam` of compressed-tensors, where torch divides a number by a tensor: each step
    # rounds to the weight's dtype, and infinity becomes 1; or ModelOpt's
    # `get_weights_scaling_factor_2`.
    amax = np.frombuffer(found, "<f4")
    with np.errstate(all="ignore"):
        if second == "multiplies":
            number = amax / np.float32(LARGEST_NVFP4)
        else:
            own = DTYPES[dtype].numpy()
            least = np.float32(2.0**-14 if dtype == "F16" else 2.0**-126)
            reciprocal = (np.float32(1) / np.maximum(amax, least)).astype(own).astype(np.float32)
            number = (reciprocal * np.float32(LARGEST_NVFP4)).astype(own).astype(np.float32)
            number = np.where(np.isinf(number), np.float32(1), number)
    return number.astype("<f4").tobytes()


@dataclass(frozen=True)
class ComfyNvfp4(TiledGroups, Fp4):
    """NVFP4 of ComfyUI: scales in tiles, the high nibble first."""

    def constants(self, shape: tuple[int, ...], found: bytes = b"") -> dict[str, bytes]:
        second = super()._known(found)
        (number,) = _F32.unpack(second)
        if number != number:
            raise NotFinite
        return {"second": second}

    def _known(self, found: bytes) -> bytes:
        (number,) = _F32.unpack(super()._known(found))
        return _F32.pack(max(number, _LEAST_SECOND))

    def settle(self, codes: memoryview, scales: bytearray) -> None:
        made = np.frombuffer(codes, np.uint8).reshape(len(scales), -1)
        made[np.frombuffer(scales, np.uint8) == 0] = 0
        made[:] = swapped(made)


_NV, _MX = (1, GROUPS["NVFP4"]), (1, GROUPS["MXFP4"])

# By the encoding that has them first.
CODES = {
    "nvfp4": Fp4("E2M1", "nv divided", *_NV, second="divides"),
    "nvfp4-modelopt": Fp4("E2M1", "nv multiplied", *_NV, second="multiplies"),
    "mlx-nvfp4": Fp4("E2M1_FIRST", "nv alone", *_NV),
    "comfy-nvfp4": ComfyNvfp4("E2M1_SIGNED", "nv quotient", *_NV, second="multiplies"),
    "mxfp4": Fp4("E2M1", "mx", *_MX),
    "mxfp4-modelopt": Fp4("E2M1_DOWN", "mx up", *_MX),
    "mlx-mxfp4": Fp4("E2M1_FIRST", "mx own power", *_MX),
    "gptoss-mxfp4": Fp4("E2M1_AWAY", "mx power", *_MX, is_fitted=False),
}
