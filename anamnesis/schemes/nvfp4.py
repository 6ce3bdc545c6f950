"""NVFP4 of arrays: a scale in E4M3 for each 16 of a row, a float32 for all."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple, Unpack

from numpy.typing import ArrayLike, NDArray

from anamnesis.schemes.core import in_memory as memory
from anamnesis.schemes.families.fp4.arrays import encoder, of_arrays
from anamnesis.schemes.families.fp4.formats import GROUPS

__all__ = ["Quantized", "dequantize", "quantize"]


class Quantized(NamedTuple):
    """What a matrix is encoded as.

    Attributes
    ----------
    codes : ndarray of uint8
        [rows, cols / 2]: two to a byte, the first in its low bits.
    scales : ndarray of ml_dtypes.float8_e4m3fn
        [rows, cols / 16].
    global_scale : ndarray of float32
        What scales are divided by ([1], of compressed-tensors), or multiplied with ([], of
        ModelOpt).
    """

    codes: NDArray[Any]
    scales: NDArray[Any]
    global_scale: NDArray[Any]


@memory.quantizer
def quantize(
    array: NDArray[Any],
    *,
    producer: str = "compressed-tensors",
    amax: float | None = None,
    **options: Unpack[memory.QuantizeOptions],
) -> Quantized:
    """Return NVFP4 codes and scales.

    Parameters
    ----------
    array : ndarray of float32, float16 or ml_dtypes.bfloat16
        [rows, cols], finite; cols a multiple of 16.
    producer : str
        Whose bytes: `compressed-tensors` or `ModelOpt`.
    amax : float, optional
        The largest magnitude that the global scale is for; by default the array's own. Both
        libraries give q, k and v projections one, and gate and up projections, so that inference
        can run each as one matrix.
    **options
        `threads` and `level`: see `anamnesis.schemes`.

    Returns
    -------
    Quantized

    Raises
    ------
    ValueError
        If it is not a matrix, is empty, or not of whole groups; if there is no such producer, or
        `amax` is no positive finite number.
    UnsupportedError
        If a value is infinite or a NaN; of ModelOpt, if all are zeros.

    Notes
    -----
    Byte for byte what `generate_gparam`, `calculate_qparams` and `NVFP4PackedCompressor` of
    compressed-tensors give, where the scales' numbers round to the array's dtype; or ModelOpt's
    `NVFP4QTensor.quantize`, in float32.
    """
    matrix = memory.matrices(array)
    encoding = encoder("NVFP4", producer)
    memory.check_groups(matrix.shape, GROUPS["NVFP4"])
    found = b""
    if amax is not None:
        if not 0 < amax < float("inf"):
            raise ValueError(f"amax must be positive and finite; got {amax}")
        found = struct.pack("<f", amax)
    return Quantized(*memory.quantize(encoding, matrix, found, **options))


@memory.dequantizer
def dequantize(
    codes: NDArray[Any],
    scales: NDArray[Any],
    global_scale: ArrayLike | None = None,
    *,
    producer: str = "compressed-tensors",
    **options: Unpack[memory.DequantizeOptions],
) -> NDArray[Any]:
    """Return the values of NVFP4 codes times their scales.

    Parameters
    ----------
    codes : ndarray of uint8
        [..., rows, cols / 2].
    scales : ndarray of ml_dtypes.float8_e4m3fn, or of uint8 with such codes
        [..., rows, cols / 16].
    global_scale : float or ndarray of float32, optional
        One number, or one for each matrix.
    producer : str
        Whose they are: `compressed-tensors` (scales are divided by the global scale), `ModelOpt`,
        `torchao`, `ComfyUI` (the high nibble of a byte first) or `MLX`.
    **options
        `dtype`, `out`, `threads` and `level`: see `anamnesis.schemes`.

    Returns
    -------
    ndarray
        [..., rows, cols]. NaNs are the one quiet NaN.

    Raises
    ------
    ValueError
        If the shapes do not go together, the global scale is missing, or there is no such producer.

    Notes
    -----
    float32(code) * (float32(scale) / global scale), or times it, with one rounding at the end.
    """
    weight = of_arrays("NVFP4", producer, codes, scales, global_scale)
    return memory.dequantize(weight, **options)
