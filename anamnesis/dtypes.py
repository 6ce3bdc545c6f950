"""The one dtype table: names, widths, and what each dtype is called elsewhere.

Names are those of the safetensors format, which every other container's dtypes map to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

__all__ = ["DTYPES", "OUTPUT_DTYPES", "DType", "output_dtype"]


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """One element type.

    Attributes
    ----------
    name : str
        Its name in safetensors headers.
    bits : int
        Width of one element; below 8 for packed sub-byte types.
    numpy_name : str or None
        Its name in numpy or ml_dtypes; `None` where neither stores it at this width.
    torch_name : str
        Its name in torch, and in a model's config.json (`dtype`).
    kind : str
        `float` (a value on its own), `scaled` (a float too narrow to stand without a scale),
        `scale` (a power of two), `int`, `bool` or `complex`.
    """

    name: str
    bits: int
    numpy_name: str | None
    torch_name: str
    kind: str

    @property
    def alignment(self) -> int:
        """Bytes that an array of this dtype wants its address to be a multiple of."""
        return max(1, self.bits // 8)

    def numpy(self) -> np.dtype[np.generic]:
        """Return the numpy dtype; sub-byte types come as the bytes they are packed in."""
        import ml_dtypes
        import numpy as np

        if self.numpy_name is None:
            return np.dtype(np.uint8)
        return np.dtype(getattr(ml_dtypes, self.numpy_name, self.numpy_name))

    def __str__(self) -> str:
        return self.name


_TABLE = (
    DType("BOOL", 8, "bool", "bool", "bool"),
    DType("F4", 4, None, "float4_e2m1fn_x2", "scaled"),
    DType("F6_E2M3", 6, None, "float6_e2m3fn", "scaled"),
    DType("F6_E3M2", 6, None, "float6_e3m2fn", "scaled"),
    DType("U8", 8, "uint8", "uint8", "int"),
    DType("I8", 8, "int8", "int8", "int"),
    DType("F8_E5M2", 8, "float8_e5m2", "float8_e5m2", "scaled"),
    DType("F8_E4M3", 8, "float8_e4m3fn", "float8_e4m3fn", "scaled"),
    DType("F8_E8M0", 8, "float8_e8m0fnu", "float8_e8m0fnu", "scale"),
    DType("F8_E4M3FNUZ", 8, "float8_e4m3fnuz", "float8_e4m3fnuz", "scaled"),
    DType("F8_E5M2FNUZ", 8, "float8_e5m2fnuz", "float8_e5m2fnuz", "scaled"),
    DType("I16", 16, "int16", "int16", "int"),
    DType("U16", 16, "uint16", "uint16", "int"),
    DType("F16", 16, "float16", "float16", "float"),
    DType("BF16", 16, "bfloat16", "bfloat16", "float"),
    DType("I32", 32, "int32", "int32", "int"),
    DType("U32", 32, "uint32", "uint32", "int"),
    DType("F32", 32, "float32", "float32", "float"),
    DType("C64", 64, "complex64", "complex64", "complex"),
    DType("F64", 64, "float64", "float64", "float"),
    DType("I64", 64, "int64", "int64", "int"),
    DType("U64", 64, "uint64", "uint64", "int"),
)

DTYPES: dict[str, DType] = {d.name: d for d in _TABLE}

OUTPUT_DTYPES: dict[str, DType] = {
    "bf16": DTYPES["BF16"],
    "f16": DTYPES["F16"],
    "f32": DTYPES["F32"],
}


def output_dtype(name: str | DType) -> DType:
    """Return the dtype that weights are remembered to.

    Parameters
    ----------
    name : str or DType
        `bf16`, `f16` or `f32`, in either case, or as numpy and torch spell them (`bfloat16`).

    Raises
    ------
    ValueError
        For any other name.
    """
    if isinstance(name, DType):
        name = name.name
    wanted = name.lower()
    for short, dtype in OUTPUT_DTYPES.items():
        if wanted in (short, dtype.torch_name):
            return dtype
    raise ValueError(f"output dtype must be one of {', '.join(OUTPUT_DTYPES)}; got {name!r}")
