"""8-bit integers of arrays, with a scale for each row: `int-quantized`."""

from __future__ import annotations

from typing import Any, Unpack

from numpy.typing import NDArray

from anamnesis.schemes.core import in_memory as memory
from anamnesis.schemes.families.integers.arrays import of_arrays
from anamnesis.schemes.families.integers.layouts.compressed_tensors import int_quantized

__all__ = ["dequantize", "quantize"]


@memory.quantizer
def quantize(
    array: NDArray[Any], **options: Unpack[memory.QuantizeOptions]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return 8-bit integers, and the scale of each row that they are to be multiplied by.

    Parameters
    ----------
    array : ndarray of float32, float16 or ml_dtypes.bfloat16
        [rows, cols], finite.
    **options
        `threads` and `level`: see `anamnesis.schemes`.

    Returns
    -------
    codes : ndarray of int8
        [rows, cols].
    scales : ndarray of the array's dtype
        [rows, 1].

    Notes
    -----
    Byte for byte what `calculate_qparams` and `quantize` of compressed-tensors give for 8-bit
    integers by channel. Every operation rounds to the array's dtype.
    """
    codes, scales = memory.quantize(int_quantized(), memory.matrices(array), **options)
    return codes, scales


@memory.dequantizer
def dequantize(
    codes: NDArray[Any],
    scales: NDArray[Any],
    zeros: NDArray[Any] | None = None,
    **options: Unpack[memory.DequantizeOptions],
) -> NDArray[Any]:
    """Return 8-bit integers, less their zero points, times their scales.

    Parameters
    ----------
    codes : ndarray of int8
        [rows, cols].
    scales : ndarray of float32, float16 or ml_dtypes.bfloat16
        [rows, 1], or [rows, groups] of one length.
    zeros : ndarray of int8, optional
        Of the scales' shape.
    **options
        `dtype`, `out`, `threads` and `level`: see `anamnesis.schemes`.

    Returns
    -------
    ndarray
        [rows, cols]. NaNs are the one quiet NaN.

    Notes
    -----
    `_dequantize` of compressed-tensors with float32 scales: one multiplication, one rounding.
    """
    return memory.dequantize(of_arrays(codes, scales, zeros, None), **options)
