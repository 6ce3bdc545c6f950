"""FP8 of arrays: 8-bit floats with scales of rows, blocks or the whole."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

import anamnesis._core as _core
from anamnesis.schemes.core import in_memory as memory
from anamnesis.schemes.core.arrays import as_scale, stored
from anamnesis.schemes.families.fp8 import layouts
from anamnesis.schemes.families.fp8.read import plausible_blocks
from anamnesis.schemes.families.fp8.weight import Fp8Weight
from anamnesis.schemes.views.grid import resolve

__all__ = ["dequantize", "quantize"]


@memory.dequantizer
def dequantize(
    weight: NDArray[Any],
    scale: ArrayLike | None = None,
    *,
    block_size: tuple[int, int] | None = None,
    **options: Unpack[memory.DequantizeOptions],
) -> NDArray[Any]:
    """Return `weight` times `scale`: one multiplication in float32, one rounding.

    Parameters
    ----------
    weight : ndarray of ml_dtypes.float8_e4m3fn, float8_e5m2 or their FNUZ variants
        Codes, [..., rows, cols].
    scale : array_like, optional
        float32, float16, bfloat16 or float8_e8m0fnu; one value, one per row ([rows] or [rows, 1]),
        or a grid [..., grid rows, grid cols]. Without it the codes are only cast.
    block_size : (int, int), optional
        Rows and columns that share a scale of a grid; by default the one that the shapes imply.
    **options
        `dtype`, `out`, `threads` and `level`: see `anamnesis.schemes`.

    Returns
    -------
    ndarray
        Of `weight`'s shape. NaNs are the one quiet NaN.

    Raises
    ------
    ValueError
        If the shapes do not go together, or more than one block size would fit.

    Notes
    -----
    Equal to the bit to torch's `(weight.to(float32) * scale.to(float32)).to(dtype)`, which is what
    DeepSeek's `fp8_cast_bf16.py` computes.
    """
    codes = stored(weight, "weight", _core.CODES)
    scales = None if scale is None else stored(as_scale(scale), "scale", _core.SCALES)
    if scales is None:
        built = Fp8Weight("weight", codes.shape, (codes,), resolve(codes.shape, (1,)))
    else:
        blocks = plausible_blocks(codes, scales, frozenset())
        given = blocks if block_size is None else frozenset({block_size})
        grid = resolve(codes.shape, scales.shape, given)
        built = Fp8Weight("weight", codes.shape, (codes, scales), grid)
    return memory.dequantize(built, **options)


@memory.quantizer
def quantize(
    array: NDArray[Any],
    kind: str = "block",
    *,
    format: str = "e4m3",
    block: tuple[int, int] = (128, 128),
    flavour: str = "transformers",
    powers_of_two: bool = False,
    **options: Unpack[memory.QuantizeOptions],
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return 8-bit floats and the scales that they are to be multiplied by.

    Parameters
    ----------
    array : ndarray of float32, float16 or ml_dtypes.bfloat16
        [..., rows, cols], finite.
    kind : str
        What has a scale of its own: a `block` of each matrix, the last of which may be shorter; a
        `channel`, which is a row; or the whole `tensor`.
    format : str
        `e4m3` or `e5m2`.
    block : (int, int)
        Rows and columns of a block.
    flavour : str
        `transformers`; or `compressed-tensors` or `ModelOpt`, which have E4M3 only, the latter in
        blocks of 128x128.
    powers_of_two : bool
        Whether scales are rounded up to powers of two: transformers' `scale_fmt` "ue8m0".
    **options
        `threads` and `level`: see `anamnesis.schemes`.

    Returns
    -------
    codes : ndarray of ml_dtypes.float8_e4m3fn or float8_e5m2
        Of the array's shape.
    scales : ndarray
        [..., grid rows, grid cols], [..., rows, 1], or of no dimension; float32 or, of powers of
        two, ml_dtypes.float8_e8m0fnu; of compressed-tensors the array's dtype.

    Raises
    ------
    ValueError
        If the settings do not go together, the array is empty, or blocks are asked for of less
        than two dimensions.
    UnsupportedError
        If a value is infinite or a NaN, or has the code of one: transformers makes NaNs of zeros
        whose block has values below 1.3e-36 alone (E5M2: 1.7e-34).

    Notes
    -----
    Byte for byte what `Fp8Quantize` of transformers' integrations/finegrained_fp8.py gives, or
    `calculate_qparams` and `quantize` of compressed-tensors, or `get_weight_scaling_factor` and
    `to_quantized_weight` of ModelOpt; for E5M2 what the former gives with
    that dtype and its largest value.
    """
    array = memory.values(array)
    encoding = layouts.encoding(kind, flavour, format.upper(), block, powers_of_two)
    if kind == "block" and array.ndim < 2:
        raise ValueError(f"blocks are of matrices, but the array has {array.ndim} dimensions")
    cols = array.shape[-1] if array.ndim else 1
    rows = array.shape[-2] if kind == "block" else array.size // cols
    matrices = array.reshape(-1, rows, cols)
    each = [memory.quantize(encoding, matrix, **options) for matrix in matrices]
    codes, scales = each[0] if len(each) == 1 else map(np.stack, zip(*each, strict=True))
    if kind == "block":
        grid = (-(-size // of) for size, of in zip((rows, cols), block, strict=True))
        scale_shape: tuple[int, ...] = (*array.shape[:-2], *grid)
    else:
        scale_shape = () if kind == "tensor" else (*array.shape[:-1], 1)
    return codes.reshape(array.shape), scales.reshape(scale_shape)
