"""MLX's codes of arrays, in words: affine integers and small floats."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Unpack, overload

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from anamnesis.schemes.core import in_memory as memory
from anamnesis.schemes.core.arrays import stored
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.encodings import ENCODINGS
from anamnesis.schemes.encodings import made as made_of
from anamnesis.schemes.families.fp4.arrays import of_arrays
from anamnesis.schemes.families.fp8.arrays import mx_of_arrays
from anamnesis.schemes.families.integers.arrays import affine_of_arrays
from anamnesis.schemes.families.integers.layouts.mlx import encoding as affine

__all__ = ["Floats", "Quantized", "dequantize", "quantize"]

# Of each mode of floats: the bits, and the group.
_FLOATS = {"mxfp4": (4, 32), "nvfp4": (4, 16), "mxfp8": (8, 32)}


class Quantized(NamedTuple):
    """What `mx.quantize` returns in its mode `affine`.

    Attributes
    ----------
    weight : ndarray of uint32
        [..., rows, cols * bits / 32], a dense stream of bits.
    scales, biases : ndarray
        [..., rows, groups], of the array's dtype.
    """

    weight: NDArray[Any]
    scales: NDArray[Any]
    biases: NDArray[Any]


class Floats(NamedTuple):
    """What `mx.quantize` returns in its other modes.

    Attributes
    ----------
    weight : ndarray of uint32
        [..., rows, cols * bits / 32], the first code in the lowest bits.
    scales : ndarray of uint8
        [..., rows, groups]: E8M0, or E4M3 in the mode `nvfp4`.
    """

    weight: NDArray[Any]
    scales: NDArray[Any]


@overload
def quantize(
    array: NDArray[Any],
    bits: int | None = ...,
    *,
    group_size: int | None = ...,
    mode: Literal["affine"] = ...,
    **options: Unpack[memory.QuantizeOptions],
) -> Quantized: ...


@overload
def quantize(
    array: NDArray[Any],
    bits: int | None = ...,
    *,
    group_size: int | None = ...,
    mode: str,
    **options: Unpack[memory.QuantizeOptions],
) -> Quantized | Floats: ...


@memory.quantizer
def quantize(
    array: NDArray[Any],
    bits: int | None = None,
    *,
    group_size: int | None = None,
    mode: str = "affine",
    **options: Unpack[memory.QuantizeOptions],
) -> Quantized | Floats:
    """Return codes in words, with their scales, and the biases of integers.

    Parameters
    ----------
    array : ndarray of float32, float16 or ml_dtypes.bfloat16
        [..., rows, cols], finite.
    bits : int, optional
        2, 3, 4, 5, 6 or 8 of integers, 4 by default. Floats have those of their mode.
    group_size : int, optional
        Columns that share a scale, of which a row is a whole number of groups: 32, 64 or 128 of
        integers, 64 by default. Floats have that of their mode, 16 or 32.
    mode : str
        `affine`, of integers; or `mxfp4`, `nvfp4` or `mxfp8`, of floats.
    **options
        `threads` and `level`: see `anamnesis.schemes`.

    Returns
    -------
    Quantized, or Floats of another mode than `affine`

    Raises
    ------
    ValueError
        If it is no matrix or stack of them, is empty, or not of whole groups; if MLX has no such
        mode, bits or groups.
    UnsupportedError
        If a value is infinite or a NaN; in the modes `mxfp4` and `mxfp8` also if the largest
        magnitude of a group, divided by 6 or 448, is below 2^-127, where MLX's scales wrap around.

    Notes
    -----
    Byte for byte what `mx.quantize` of MLX gives on a CPU, without a global scale. In the mode
    `nvfp4`, whose scales have none, a group of magnitudes below 0.006 becomes zeros.
    """
    matrices = memory.matrices(array, stacked=True)
    width, size = _settings(mode, bits, group_size)
    is_affine = mode == "affine"
    encoding = affine(width, size) if is_affine else made_of(ENCODINGS[f"mlx-{mode}"])
    memory.check_groups(matrices.shape, size)
    made = memory.quantize(encoding, matrices, **options)
    return Quantized(*made) if is_affine else Floats(*made)


@memory.dequantizer
def dequantize(
    weight: NDArray[Any],
    scales: NDArray[Any],
    biases: NDArray[Any] | None = None,
    bits: int | None = None,
    *,
    group_size: int | None = None,
    mode: str = "affine",
    **options: Unpack[memory.DequantizeOptions],
) -> NDArray[Any]:
    """Return codes times their scales, plus the biases of integers.

    Parameters
    ----------
    weight : ndarray of uint32
        [..., rows, cols * bits / 32], a dense stream of bits.
    scales, biases : ndarray of float32, float16 or ml_dtypes.bfloat16
        [..., rows, groups], of one dtype; of floats uint8, and no biases.
    bits : int, optional
        1, 2, 3, 4, 5, 6 or 8 of integers, 4 by default. Floats have those of their mode.
    group_size : int, optional
        Columns that share a scale: 32, 64 or 128 of integers, 64 by default. Floats have that of
        their mode.
    mode : str
        `affine`, of integers; or `mxfp4`, `nvfp4` or `mxfp8`, of floats.
    **options
        `dtype`, `out`, `threads` and `level`: see `anamnesis.schemes`.

    Returns
    -------
    ndarray
        [..., rows, cols]. NaNs are the one quiet NaN.

    Raises
    ------
    ValueError
        If the shapes do not go together, or MLX has no such mode, bits or groups.

    Notes
    -----
    `mx.dequantize` of MLX with float32 scales on a CPU: a product and a sum in float32, one
    rounding. Of floats it is the product.
    """
    width, size = _settings(mode, bits, group_size)
    if mode == "affine":
        found: Weight = affine_of_arrays(weight, scales, biases, width, size)
        return memory.dequantize(found, **options)
    stored(weight, "weight", ("U32",))
    if biases is not None:
        raise ValueError(f"{mode} has no biases")
    codes = np.ascontiguousarray(weight)
    if mode == "mxfp8":
        found = mx_of_arrays(codes.view(ml_dtypes.float8_e4m3fn), scales)
    else:
        producer = "MLX" if mode == "nvfp4" else ""
        found = of_arrays(mode.upper(), producer, codes.view(np.uint8), scales, None)
    return memory.dequantize(found, **options)


def _settings(mode: str, bits: int | None, group_size: int | None) -> tuple[int, int]:
    """Return the bits and the group size that are asked for, or usual."""
    if mode == "affine":
        return (4 if bits is None else bits, 64 if group_size is None else group_size)
    if mode not in _FLOATS:
        modes = ", ".join(["affine", *_FLOATS])
        raise ValueError(f"mode must be one of {modes}; got {mode!r}")
    width, size = _FLOATS[mode]
    if group_size not in (None, size) or bits not in (None, width):
        raise ValueError(f"{mode} has {width} bits in groups of {size}")
    return width, size
