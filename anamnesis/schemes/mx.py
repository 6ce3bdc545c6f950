"""MXFP4 and MXFP8 of arrays, with a power of two for each 32 of a row."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from anamnesis.schemes.core import in_memory as memory
from anamnesis.schemes.families.fp4.arrays import encoder, of_arrays
from anamnesis.schemes.families.fp8.arrays import mx_encoder, mx_of_arrays
from anamnesis.schemes.views.grid import MX_BLOCK

__all__ = ["dequantize", "quantize"]


@memory.quantizer
def quantize(
    array: NDArray[Any],
    format: str = "mxfp4",
    *,
    producer: str = "compressed-tensors",
    **options: Unpack[memory.QuantizeOptions],
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return MX codes, and the exponents of their scales.

    Parameters
    ----------
    array : ndarray of float32, float16 or ml_dtypes.bfloat16
        [rows, cols], finite; cols a multiple of 32.
    format : str
        `mxfp4` or `mxfp8` (E4M3).
    producer : str
        Whose bytes: `compressed-tensors` or `ModelOpt`.
    **options
        `threads` and `level`: see `anamnesis.schemes`.

    Returns
    -------
    codes : ndarray
        Of uint8 [rows, cols / 2], two to a byte, the first in its low bits; or of
        ml_dtypes.float8_e4m3fn [rows, cols].
    scales : ndarray of uint8
        [rows, cols / 32]: E8M0, that is 2^(scale - 127).

    Raises
    ------
    ValueError
        If it is not a matrix, is empty, or not of whole groups; if there is no such format or
        producer.

    Notes
    -----
    Byte for byte what `calculate_qparams` and `MXFP4PackedCompressor` or
    `MXFP8QuantizationCompressor` of compressed-tensors give: a magnitude of 1.75 * 2^127 or more,
    or in float16 of 57,344 or more, makes its group zeros there, as the library does. Or ModelOpt's
    `MXFP4QTensor.quantize` and `MXFP8QTensor.quantize`.
    """
    if format not in ("mxfp4", "mxfp8"):
        raise ValueError(f"format must be mxfp4 or mxfp8; got {format!r}")
    matrix = memory.matrices(array)
    encoding = mx_encoder(producer) if format == "mxfp8" else encoder("MXFP4", producer)
    memory.check_groups(matrix.shape, MX_BLOCK[1])
    codes, scales = memory.quantize(encoding, matrix, **options)
    return codes, scales


@memory.dequantizer
def dequantize(
    codes: NDArray[Any],
    scales: NDArray[Any],
    *,
    producer: str = "",
    **options: Unpack[memory.DequantizeOptions],
) -> NDArray[Any]:
    """Return the values of MX codes times their scales.

    Parameters
    ----------
    codes : ndarray
        Of uint8 [..., rows, cols / 2] (MXFP4), or of ml_dtypes.float8_e4m3fn [..., rows, cols]
        (MXFP8).
    scales : ndarray of uint8 or ml_dtypes.float8_e8m0fnu
        [..., rows, cols / 32].
    producer : str
        What a scale of 255 is, and a code of 8, in MXFP4: those of compressed-tensors and
        ModelOpt by default, or of `gpt-oss`, `torchao` or `DeepSeek`.
    **options
        `dtype`, `out`, `threads` and `level`: see `anamnesis.schemes`.

    Returns
    -------
    ndarray
        [..., rows, cols]. NaNs are the one quiet NaN.

    Raises
    ------
    ValueError
        If the shapes do not go together, or there is no such producer.

    Notes
    -----
    float32(code) * 2^(scale - 127), with one rounding.
    """
    if np.asarray(codes).dtype == np.uint8:
        weight = of_arrays("MXFP4", producer, codes, scales, None)
        return memory.dequantize(weight, **options)
    return memory.dequantize(mx_of_arrays(codes, scales), **options)
