"""Arrays of codes in, arrays of values out."""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Any

from anamnesis.schemes.bnb.four_bit import FourBitWeight
from anamnesis.schemes.bnb.int8 import Int8Weight
from anamnesis.schemes.bnb.layouts import (
    ABSMAX,
    END,
    STORAGE,
    Nested,
    State,
    check_four_bit,
    check_int8,
)

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from anamnesis.base.dtypes import DTypeLike
    from anamnesis.base.levels import LevelName

__all__ = ["dequantize_4bit", "dequantize_int8"]


def dequantize_4bit(
    weight: NDArray[Any],
    absmax: ArrayLike,
    quant_map: ArrayLike,
    *,
    shape: tuple[int, ...],
    blocksize: int = 64,
    nested_absmax: ArrayLike | None = None,
    nested_quant_map: ArrayLike | None = None,
    nested_blocksize: int = 256,
    nested_offset: float = 0.0,
    dtype: DTypeLike = "bf16",
    out: NDArray[Any] | None = None,
    threads: int | None = None,
    level: LevelName | None = None,
) -> NDArray[Any]:
    """Return the values of NF4 or FP4 codes: codebook entry times absmax, then one rounding.

    Parameters
    ----------
    weight : ndarray of uint8, int8, bfloat16, float16, float32 or float64
        Two codes to a byte, the first in the high nibble; of any shape.
    absmax : array_like of float32, float16 or bfloat16
        The largest magnitude of every `blocksize` values; uint8 codes if there are `nested_absmax`.
    quant_map : array_like of float32
        [16], what the codes stand for.
    shape : tuple of int
        Of the result.
    blocksize : int
        Values that share an absmax; any, though bitsandbytes has powers of two from 32 to 4096.
    nested_absmax : array_like of float32, optional
        The largest magnitude of every `nested_blocksize` of the absmax themselves.
    nested_quant_map : array_like of float32, optional
        [256], what the codes of the absmax stand for; goes with `nested_absmax`.
    nested_blocksize : int
        Absmax that share a nested one.
    nested_offset : float
        Added to each absmax that was recovered so.
    dtype, out, threads, level
        What all such functions take: see `anamnesis.schemes`.

    Returns
    -------
    ndarray
        Of `shape`. NaNs are the one quiet NaN.

    Raises
    ------
    TypeError
        If a dtype is none of those above, or a size no whole number.
    ValueError
        If sizes do not go together, or one of the nested arrays is missing.

    Notes
    -----
    Equal to the bit to bitsandbytes' `functional.dequantize_4bit` on a CPU, whose codebooks are
    those that its files have as quant_map. With another one, an entry that is +0 and whose code has
    its high bit set comes out as -0 all the same.
    """
    from anamnesis.schemes.core import arrays as memory

    shape = tuple(map(index, shape))
    blocksize, nested_blocksize = index(blocksize), index(nested_blocksize)
    parts = [memory.stored(weight, "weight", STORAGE)]
    nested = None
    if nested_absmax is None and nested_quant_map is None:
        parts.append(memory.stored(memory.as_scale(absmax), "absmax", ABSMAX))
    elif nested_absmax is None or nested_quant_map is None:
        raise ValueError("nested_absmax and nested_quant_map go together; one of them is missing")
    else:
        parts.append(memory.stored(memory.as_scale(absmax), "absmax", ("U8",)))
        nested = Nested(nested_blocksize, float(nested_offset))
    for what, values in (
        ("quant_map", quant_map),
        ("nested_absmax", nested_absmax),
        ("nested_quant_map", nested_quant_map),
    ):
        if values is not None:
            parts.append(memory.stored(memory.as_scale(values), what, ("F32",)))
    if not 0 < blocksize < END or not 0 < nested_blocksize < END:
        raise ValueError(f"block sizes must be positive, not {blocksize} and {nested_blocksize}")
    if any(n < 0 for n in shape):
        raise ValueError(f"shape must not have negative sizes, got {list(shape)}")
    check_four_bit(parts, State("", shape, blocksize, nested))
    built = FourBitWeight("weight", shape, tuple(parts), "4-bit", blocksize, nested)
    return memory.values_of(built, dtype, out, threads, level)


def dequantize_int8(
    weight: NDArray[Any],
    scb: ArrayLike,
    *,
    dtype: DTypeLike = "bf16",
    out: NDArray[Any] | None = None,
    threads: int | None = None,
    level: LevelName | None = None,
) -> NDArray[Any]:
    """Return the values of LLM.int8() codes: code times row maximum times 1/127, in float32.

    Parameters
    ----------
    weight : ndarray of int8
        Codes, [rows, cols].
    scb : array_like of float32
        The largest magnitude of each row, [rows].
    dtype, out, threads, level
        What all such functions take: see `anamnesis.schemes`.

    Returns
    -------
    ndarray
        [rows, cols]. NaNs are the one quiet NaN.

    Raises
    ------
    TypeError
        If a dtype is none of those above.
    ValueError
        If `weight` is not a matrix, or there is not one of `scb` for each row.

    Notes
    -----
    In float32 equal to the bit to bitsandbytes' `functional.int8_vectorwise_dequant(weight, scb)`;
    then rounded to nearest, ties to even.
    """
    from anamnesis.schemes.core import arrays as memory

    codes = memory.stored(weight, "weight", ("I8",))
    maxima = memory.stored(memory.as_scale(scb), "scb", ("F32",))
    check_int8(codes, maxima)
    built = Int8Weight("weight", codes.shape, (codes, maxima))
    return memory.values_of(built, dtype, out, threads, level)
