"""The one dtype table: names, widths, and what each dtype is called elsewhere.

Names are those of the safetensors format, which every other container's dtypes map to, and ggml's
for its block types, which safetensors does not have, nor complex numbers of two doubles.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any, Literal, Protocol, TypeAlias

import anamnesis._core as _core
from anamnesis.base.lazy import np
from anamnesis.base.printable import shown


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """One element type."""

    name: str
    bits: int
    numpy_name: str | None
    torch_name: str
    kind: str
    block_elements: int
    block_bytes: int

    @property
    def alignment(self) -> int:
        """Bytes that an array of this dtype wants its address to be a multiple of."""
        return max(1, self.bits // 8)

    def n_bytes(self, n_elements: int) -> int:
        """Return the bytes that this many elements take, a whole number of blocks of them."""
        return n_elements * self.block_bytes // self.block_elements

    def numpy(self) -> np.dtype[np.generic]:
        """Return the numpy dtype; sub-byte types come as the bytes they are packed in."""
        import ml_dtypes

        if self.numpy_name is None:
            return np.dtype(np.uint8)
        return np.dtype(getattr(ml_dtypes, self.numpy_name, self.numpy_name))

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the name: each dtype is there once, and compared by what it is."""
        return _named, (self.name,)


def _named(name: str) -> DType:
    return ALL_DTYPES.get(name) or BLOCK_DTYPES[name]


def _plain(name: str, bits: int, numpy_name: str | None, torch_name: str, kind: str) -> DType:
    elements = 8 // gcd(8, bits)
    return DType(name, bits, numpy_name, torch_name, kind, elements, elements * bits // 8)


_TABLE = (
    _plain("BOOL", 8, "bool", "bool", "bool"),
    _plain("F4", 4, None, "float4_e2m1fn_x2", "scaled"),
    _plain("F6_E2M3", 6, None, "float6_e2m3fn", "scaled"),
    _plain("F6_E3M2", 6, None, "float6_e3m2fn", "scaled"),
    _plain("U8", 8, "uint8", "uint8", "int"),
    _plain("I8", 8, "int8", "int8", "int"),
    _plain("F8_E5M2", 8, "float8_e5m2", "float8_e5m2", "scaled"),
    _plain("F8_E4M3", 8, "float8_e4m3fn", "float8_e4m3fn", "scaled"),
    _plain("F8_E8M0", 8, "float8_e8m0fnu", "float8_e8m0fnu", "scale"),
    _plain("F8_E4M3FNUZ", 8, "float8_e4m3fnuz", "float8_e4m3fnuz", "scaled"),
    _plain("F8_E5M2FNUZ", 8, "float8_e5m2fnuz", "float8_e5m2fnuz", "scaled"),
    _plain("I16", 16, "int16", "int16", "int"),
    _plain("U16", 16, "uint16", "uint16", "int"),
    _plain("F16", 16, "float16", "float16", "float"),
    _plain("BF16", 16, "bfloat16", "bfloat16", "float"),
    _plain("I32", 32, "int32", "int32", "int"),
    _plain("U32", 32, "uint32", "uint32", "int"),
    _plain("F32", 32, "float32", "float32", "float"),
    _plain("C64", 64, "complex64", "complex64", "complex"),
    _plain("F64", 64, "float64", "float64", "float"),
    _plain("I64", 64, "int64", "int64", "int"),
    _plain("U64", 64, "uint64", "uint64", "int"),
)

DTYPES: dict[str, DType] = {d.name: d for d in _TABLE}

# Those of one element each, also where safetensors has no such dtype.
ALL_DTYPES: dict[str, DType] = {
    **DTYPES,
    "C128": _plain("C128", 128, "complex128", "complex128", "complex"),
}

BLOCK_DTYPES: dict[str, DType] = {
    row.name: DType(row.name, 0, None, row.name.lower(), "block", row.elements, row.bytes)
    for row in _core.block_types()
}

OUTPUT_DTYPES: dict[str, DType] = {
    "bf16": DTYPES["BF16"],
    "f16": DTYPES["F16"],
    "f32": DTYPES["F32"],
}

# What else the same is called.
DTYPE_WORDS = {
    "bfloat16": "bf16",
    "float16": "f16",
    "fp16": "f16",
    "half": "f16",
    "float32": "f32",
    "fp32": "f32",
}

DTypeName = Literal["bf16", "f16", "f32", "BF16", "F16", "F32", "bfloat16", "float16", "float32"]


class _TorchDType(Protocol):
    """What a `torch.dtype` has, so that torch need not be imported to name it."""

    @property
    def is_floating_point(self) -> bool: ...


# What weights come out as, by whichever library's name.
DTypeLike: TypeAlias = "DTypeName | DType | np.dtype[Any] | type[np.generic] | _TorchDType"


def stored_dtype(name: str | DType) -> DType:
    """Return the dtype of values that a file has as bytes without a meaning."""
    wanted = str(name).lower()
    whole = [dtype for dtype in DTYPES.values() if dtype.numpy_name]
    for dtype in whole:
        if wanted in (dtype.name.lower(), dtype.numpy_name, dtype.torch_name):
            return dtype
    raise ValueError(f"dtype must be one of {', '.join(map(str, whole))}; got {str(name)!r}")


def output_dtype(dtype: DTypeLike | str) -> DType:
    """Return the dtype that weights are remembered to."""
    wanted = _spelt(dtype).lower()
    output = OUTPUT_DTYPES.get(DTYPE_WORDS.get(wanted, wanted))
    if output is not None:
        return output
    raise ValueError(
        f"output dtype must be one of {', '.join(OUTPUT_DTYPES)}, or numpy's, ml_dtypes' or torch's"
        f" bfloat16, float16 or float32; got {shown(dtype_name(dtype) or dtype)}"
    )


def dtype_name(dtype: object) -> str | None:
    """Return the name of a dtype of numpy, ml_dtypes, torch or this package; None for all else."""
    is_type = isinstance(dtype, type) and hasattr(dtype, "__array_interface__")
    of_torch = type(dtype).__module__ == "torch" and type(dtype).__name__ == "dtype"
    if isinstance(dtype, DType) or is_type or of_torch or hasattr(dtype, "isnative"):
        return _spelt(dtype).lower()
    return None


def _spelt(dtype: object) -> str:
    """Return a dtype's name, whichever library's it is."""
    if isinstance(dtype, str):
        return dtype
    if not getattr(dtype, "isnative", True):
        return ""
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None)
    return name if isinstance(name, str) else str(dtype).removeprefix("torch.")
