"""8-bit integers of arrays, with a scale for each row: compressed-tensors' `int-quantized`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anamnesis.base.dtypes import output_dtype
from anamnesis.base.levels import resolve_level

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["dequantize", "quantize"]


def quantize(
    array: NDArray[Any], *, threads: int = 1, level: str | None = None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return 8-bit integers, and the scale of each row that they are to be multiplied by.

    Parameters
    ----------
    array : ndarray of float32, float16 or ml_dtypes.bfloat16
        [rows, cols], finite.
    threads, level
        What all such functions take: see `anamnesis.schemes`.

    Returns
    -------
    codes : ndarray of int8
        [rows, cols].
    scales : ndarray of the array's dtype
        [rows, 1].

    Raises
    ------
    TypeError
        If the array has another dtype.
    ValueError
        If it is not a matrix, or is empty.
    UnsupportedError
        If a value is infinite or a NaN.

    Notes
    -----
    Byte for byte what `calculate_qparams` and `quantize` of compressed-tensors give for 8-bit
    integers by channel. Every operation rounds to the array's dtype.
    """
    from anamnesis.schemes.core import arrays as memory
    from anamnesis.schemes.integers.encode import Int8

    matrix = memory.matrix(array)
    encoding = Int8(dtype=memory.float_dtype(matrix))
    codes, scales = memory.encode(encoding, matrix, threads, resolve_level(level))
    return codes, scales


def dequantize(
    codes: NDArray[Any],
    scales: NDArray[Any],
    zeros: NDArray[Any] | None = None,
    *,
    dtype: str = "bf16",
    out: NDArray[Any] | None = None,
    threads: int = 1,
    level: str | None = None,
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
    dtype, out, threads, level
        What all such functions take: see `anamnesis.schemes`.

    Returns
    -------
    ndarray
        [rows, cols]. NaNs are the one quiet NaN.

    Raises
    ------
    TypeError
        If an array has another dtype.
    ValueError
        If the shapes do not go together.

    Notes
    -----
    `_dequantize` of compressed-tensors with float32 scales: one multiplication, one rounding.
    """
    from anamnesis.schemes.core import arrays as memory
    from anamnesis.schemes.integers.arrays import of_arrays

    weight = of_arrays(codes, scales, zeros, None)
    return memory.decode(weight, output_dtype(dtype), out, threads, resolve_level(level))
