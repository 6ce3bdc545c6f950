"""What a producer's 4-bit floats and their scales mean."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Literal, NamedTuple

from anamnesis.base.dtypes import DTYPES
from anamnesis.base.lazy import np
from anamnesis.schemes.core.rounding import IN_OUTPUT, Rounding

GROUPS = {"NVFP4": 16, "MXFP4": 32, "MXINT4": 32}  # codes that share a scale

_Second = Literal["", "multiply", "divide", "mlx"]

_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
LARGEST_NVFP4 = 2688.0  # 448, the largest E4M3, times 6


@dataclass(frozen=True, slots=True)
class Fp4Format:
    """One producer's way."""

    id: str
    producer: str
    kind: Literal["NVFP4", "MXFP4", "MXINT4"]
    second: _Second = ""
    high_first: bool = False
    plus_zero: bool = False
    needs_second: bool = True
    last: Literal["inf", "nan", "power"] = "inf"
    reference: Rounding | None = None
    scale: Literal["E4M3", "E5M3"] = "E4M3"  # of NVFP4

    @property
    def words(self) -> str:
        return f"{self.family} ({self.producer})" if self.producer else self.family

    @property
    def family(self) -> str:
        return self.kind if self.scale == "E4M3" else f"{self.kind} {self.scale}"

    @property
    def has_kin(self) -> bool:
        """Whether other producers have the same numbers, as which codes can be moved."""
        return self.producer != "AutoRound"

    @property
    def codebook(self) -> bytes:
        """The values of the 16 codes, as float32; twice as large where E8M0 goes up to 2^128."""
        values = tuple(n / 4 for n in range(8)) if self.kind == "MXINT4" else _VALUES
        return _codebook(values, 2.0 if self.last == "power" else 1.0, self.plus_zero)

    def factor(self, second: bytes) -> float | None:
        """Return the power of two that a second scale multiplies by; None if it is none."""
        if not second:
            return 1.0
        number = _F32.unpack(second)[0]
        if self.second == "mlx":
            number = number / LARGEST_NVFP4
        if not 0 < number < math.inf or math.frexp(number)[0] != 0.5:
            return None
        return float(1 / number if self.second == "divide" else number)

    def scales(self, second: bytes, rounded: str = "F32") -> Scales:
        """Return what the 256 bytes stand for, given the second scale, by way of a dtype."""
        kind = self.scale if self.kind == "NVFP4" else "E8M0"
        return _scales(kind, self.second, self.last, second, rounded)


@cache
def _codebook(values: tuple[float, ...], factor: float, plus_zero: bool) -> bytes:
    signed = (*values, 0.0 if plus_zero else -0.0, *(-value for value in values[1:]))
    return struct.pack("<16f", *(factor * value for value in signed))


class Scales(NamedTuple):
    """What each byte of a scale stands for."""

    table: bytes
    lost: bytes


@lru_cache(maxsize=4096)
def _scales(kind: str, second: str, last: str, factor: bytes, rounded: str) -> Scales:
    if kind == "E8M0":
        powers = [math.ldexp(1.0, code - (128 if last == "power" else 127)) for code in range(256)]
        if last != "power":
            powers[255] = float(last)
        return Scales(struct.pack("<256f", *powers), b"")
    number = _F32.unpack(factor)[0] if factor else 1.0
    if second == "mlx" and factor:
        number = _as_f32(number / LARGEST_NVFP4)
    exact = [_scaled(value, number, second) for value in _FLOATS[kind]]
    if rounded == "F32":
        return Scales(struct.pack("<256f", *exact), b"")
    dtype = DTYPES[rounded].numpy()  # to which the second one, and the result, are rounded
    with np.errstate(all="ignore"):
        number = float(np.float32(number).astype(dtype))
        values = np.array([_scaled(value, number, second) for value in _FLOATS["E4M3"]], np.float32)
        scales = values.astype(dtype).astype("<f4")
    lost = np.flatnonzero(np.isfinite(exact) & ~np.isfinite(scales))
    return Scales(scales.tobytes(), lost.astype(np.uint8).tobytes())


def _e5m3(code: int) -> float:
    exponent, mantissa = code >> 3, code & 7
    if code == 255:
        return math.nan
    return math.ldexp(mantissa + (8 if exponent else 0), max(exponent, 1) - 18)


def _e4m3(code: int) -> float:
    exponent, mantissa = code >> 3 & 15, code & 7
    if code & 0x7F == 0x7F:
        return math.nan
    magnitude = math.ldexp(mantissa + (8 if exponent else 0), max(exponent, 1) - 10)
    return -magnitude if code & 0x80 else magnitude


_FLOATS = {"E4M3": tuple(map(_e4m3, range(256))), "E5M3": tuple(map(_e5m3, range(256)))}
_F32 = struct.Struct("<f")


def _as_f32(value: float) -> float:
    """Round to float32. Of a product or quotient of two such numbers it is the only rounding."""
    try:
        return float(_F32.unpack(_F32.pack(value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _scaled(value: float, number: float, second: str) -> float:
    """Return a scale times the second one, or by it, in float32."""
    if second != "divide":
        return _as_f32(value * number)
    if number:
        return _as_f32(value / number)
    return value * math.copysign(math.inf, number)  # NaN for 0 / 0


FORMATS = {
    row.id: row
    for row in (
        Fp4Format("ct-nvfp4", "compressed-tensors", "NVFP4", "divide"),
        Fp4Format("modelopt-nvfp4", "ModelOpt", "NVFP4", "multiply", plus_zero=True),
        Fp4Format(
            "comfy-nvfp4", "ComfyUI", "NVFP4", "multiply", high_first=True, reference=IN_OUTPUT
        ),
        Fp4Format("mlx-nvfp4", "MLX", "NVFP4", "mlx", needs_second=False),
        Fp4Format("torchao-nvfp4", "torchao", "NVFP4", "multiply", needs_second=False),
        Fp4Format("gguf-nvfp4", "GGUF", "NVFP4", "multiply", plus_zero=True, needs_second=False),
        Fp4Format("mxfp4", "", "MXFP4"),
        Fp4Format("gpt-oss-mxfp4", "gpt-oss", "MXFP4", last="power"),
        Fp4Format("gguf-mxfp4", "GGUF", "MXFP4", plus_zero=True, last="power"),
        Fp4Format("torchao-mxfp4", "torchao", "MXFP4", last="nan"),
        Fp4Format("deepseek-fp4", "DeepSeek", "MXFP4", plus_zero=True, last="nan"),
        Fp4Format("autoround-mxint4", "AutoRound", "MXINT4"),
        Fp4Format("autoround-e5m3", "AutoRound", "NVFP4", needs_second=False, scale="E5M3"),
    )
}
