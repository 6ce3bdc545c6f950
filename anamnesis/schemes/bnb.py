"""bitsandbytes of arrays: NF4, FP4 and INT8."""

from __future__ import annotations

import json
from typing import Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

import anamnesis._core as _core
from anamnesis.schemes.core import in_memory as memory
from anamnesis.schemes.core.arrays import as_scale, stored
from anamnesis.schemes.families.bnb import layouts
from anamnesis.schemes.families.bnb.layouts import ABSMAX, END, STORAGE, State
from anamnesis.schemes.families.bnb.weight import FourBitWeight, Int8Weight, Nested

__all__ = [
    "FP4",
    "NF4",
    "FourBits",
    "Nested",
    "dequantize_4bit",
    "dequantize_int8",
    "quantize_4bit",
    "quantize_int8",
]

# The codebooks, as files have them: the 16 values that a nibble stands for.
NF4, FP4 = (np.frombuffer(_core.BNB_CODEBOOKS[name], np.float32) for name in ("NF4", "FP4"))


@memory.dequantizer
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
    **options: Unpack[memory.DequantizeOptions],
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
    **options
        `dtype`, `out`, `threads` and `level`: see `anamnesis.schemes`.

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
    parts = [stored(weight, "weight", STORAGE)]
    nested = None
    if nested_absmax is None and nested_quant_map is None:
        parts.append(stored(as_scale(absmax), "absmax", ABSMAX))
    elif nested_absmax is None or nested_quant_map is None:
        raise ValueError("nested_absmax and nested_quant_map go together; one of them is missing")
    else:
        parts.append(stored(as_scale(absmax), "absmax", ("U8",)))
        nested = Nested(nested_blocksize, float(nested_offset))
    for what, values in (
        ("quant_map", quant_map),
        ("nested_absmax", nested_absmax),
        ("nested_quant_map", nested_quant_map),
    ):
        if values is not None:
            parts.append(stored(as_scale(values), what, ("F32",)))
    if not 0 < blocksize < END or not 0 < nested_blocksize < END:
        raise ValueError(f"block sizes must be positive, not {blocksize} and {nested_blocksize}")
    if any(n < 0 for n in shape):
        raise ValueError(f"shape must not have negative sizes, got {list(shape)}")
    layouts.check_four_bit(parts, State("", shape, blocksize, nested))
    built = FourBitWeight("weight", shape, tuple(parts), "4-bit", blocksize, nested)
    return memory.dequantize(built, **options)


@memory.dequantizer
def dequantize_int8(
    weight: NDArray[Any],
    scb: ArrayLike,
    **options: Unpack[memory.DequantizeOptions],
) -> NDArray[Any]:
    """Return the values of LLM.int8() codes: code times row maximum times 1/127, in float32.

    Parameters
    ----------
    weight : ndarray of int8
        Codes, [rows, cols].
    scb : array_like of float32
        The largest magnitude of each row, [rows].
    **options
        `dtype`, `out`, `threads` and `level`: see `anamnesis.schemes`.

    Returns
    -------
    ndarray
        [rows, cols]. NaNs are the one quiet NaN.

    Raises
    ------
    ValueError
        If `weight` is not a matrix, or there is not one of `scb` for each row.

    Notes
    -----
    In float32 equal to the bit to bitsandbytes' `functional.int8_vectorwise_dequant(weight, scb)`;
    then rounded to nearest, ties to even.
    """
    codes = stored(weight, "weight", ("I8",))
    maxima = stored(as_scale(scb), "scb", ("F32",))
    layouts.check_int8(codes, maxima)
    built = Int8Weight("weight", codes.shape, (codes, maxima))
    return memory.dequantize(built, **options)


class FourBits(NamedTuple):
    """What `quantize_4bit` gives: `dequantize_4bit(**packed._asdict())` is the way back.

    Attributes
    ----------
    weight : ndarray of uint8
        [ceil(n / 2), 1]: two codes to a byte, the first in the high nibble.
    absmax : ndarray of float32
        [blocks]: the largest magnitude of each; of uint8 if they are quantised themselves.
    quant_map : ndarray of float32
        [16]: what the codes stand for.
    shape : tuple of int
        Of the values.
    blocksize : int
        Values that share an absmax.
    nested_absmax, nested_quant_map : ndarray of float32 or None
        [ceil(blocks / 256)], [256]: the same of the absmax, if they are quantised.
    nested_blocksize : int
        Absmax that share a nested one.
    nested_offset : float
        The mean of the absmax, if they are quantised.
    """

    weight: NDArray[Any]
    absmax: NDArray[Any]
    quant_map: NDArray[Any]
    shape: tuple[int, ...]
    blocksize: int
    nested_absmax: NDArray[Any] | None = None
    nested_quant_map: NDArray[Any] | None = None
    nested_blocksize: int = 256
    nested_offset: float = 0.0


@memory.quantizer
def quantize_4bit(
    array: NDArray[Any],
    kind: str = "nf4",
    *,
    blocksize: int = 64,
    nested: bool = False,
    second_zero: bool = False,
    **options: Unpack[memory.QuantizeOptions],
) -> FourBits:
    """Return NF4 or FP4 codes, and the largest magnitudes of their blocks.

    Parameters
    ----------
    array : ndarray of float32, float16 or ml_dtypes.bfloat16
        Of any shape, finite.
    kind : str
        `nf4` or `fp4`.
    blocksize : int
        Values that share an absmax: a power of two from 32 to 4096. The last block may be shorter.
    nested : bool
        Whether the absmax are quantised themselves (the library's `compress_statistics`).
    second_zero : bool
        Whether -0 becomes FP4's second zero, as which it is decoded again. The library writes the
        first one for it.
    **options
        `threads` and `level`: see `anamnesis.schemes`.

    Returns
    -------
    FourBits

    Raises
    ------
    ValueError
        If it is empty, or there are no such settings.

    Notes
    -----
    Byte for byte what bitsandbytes' `functional.quantize_4bit` gives on a CPU. Its mean of nested
    absmax is torch's sum, whose order depends on threads and vectors; this is that of one thread
    and AVX2.
    """
    encoding = layouts.four_bit(kind, blocksize, nested, second_zero)
    array = memory.values(array)
    made = memory.quantize(encoding, array, **options)
    weight, absmax, quant_map, *more, state = made
    found = FourBits(weight, absmax, quant_map, array.shape, blocksize)
    if not nested:
        return found
    offset = json.loads(state.tobytes())["nested_offset"]
    return found._replace(nested_absmax=more[0], nested_quant_map=more[1], nested_offset=offset)


@memory.quantizer
def quantize_int8(
    array: NDArray[Any], **options: Unpack[memory.QuantizeOptions]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return LLM.int8() codes, and the largest magnitude of each row.

    Parameters
    ----------
    array : ndarray of float32, float16 or ml_dtypes.bfloat16
        [rows, cols], finite once it is rounded to float16.
    **options
        `threads` and `level`: see `anamnesis.schemes`.

    Returns
    -------
    codes : ndarray of int8
        [rows, cols].
    scb : ndarray of float32
        [rows].

    Raises
    ------
    UnsupportedError
        If a value is infinite, a NaN, or too large for float16.

    Notes
    -----
    Byte for byte what bitsandbytes' `functional.int8_vectorwise_quant` gives on a CPU for the array
    as float16, as its `Int8Params` has it.
    """
    codes, scb, _ = memory.quantize(layouts.int8(), memory.matrices(array), **options)
    return codes, scb
