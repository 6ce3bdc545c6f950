"""4-bit integers of arrays, in words, as compressed-tensors' `pack-quantized`."""

from __future__ import annotations

from typing import Any, NamedTuple, Unpack

from numpy.typing import NDArray

from anamnesis.base.printable import shown
from anamnesis.schemes.core import in_memory as memory
from anamnesis.schemes.families.integers.arrays import of_arrays
from anamnesis.schemes.families.integers.layouts.compressed_tensors import pack_quantized

__all__ = ["Packed", "dequantize", "quantize"]


class Packed(NamedTuple):
    """What a matrix is packed into.

    Attributes
    ----------
    codes : ndarray of int32
        [rows, ceil(cols / 8)]: eight codes in a word, each plus 8, the first in its lowest bits.
    scales : ndarray
        [rows, groups].
    zeros : ndarray of int32 or None
        [ceil(rows / 8), groups]: the zero points of eight rows in a word, each plus 8.
    shape : (int, int)
        Rows and columns of the matrix.
    """

    codes: NDArray[Any]
    scales: NDArray[Any]
    zeros: NDArray[Any] | None
    shape: tuple[int, int]


@memory.quantizer
def quantize(
    array: NDArray[Any],
    group_size: int | None = 128,
    *,
    symmetric: bool = True,
    **options: Unpack[memory.QuantizeOptions],
) -> Packed:
    """Return 4-bit integers in words, with their scales and zero points.

    Parameters
    ----------
    array : ndarray of float32, float16 or ml_dtypes.bfloat16
        [rows, cols], finite.
    group_size : int or None
        Columns that share a scale, of which a row is a whole number of groups; None for one scale a
        row.
    symmetric : bool
        Whether there are no zero points.
    **options
        `threads` and `level`: see `anamnesis.schemes`.

    Returns
    -------
    Packed

    Raises
    ------
    ValueError
        If it is not a matrix, is empty, or not of whole groups.

    Notes
    -----
    Byte for byte what `calculate_qparams`, `quantize` and `pack_to_int32` of compressed-tensors
    give. Every operation rounds to the array's dtype.
    """
    matrix = memory.matrices(array)
    encoding = pack_quantized(group_size, symmetric)
    rows, cols = matrix.shape
    memory.check_groups(matrix.shape, group_size or cols)
    codes, scales, *rest = memory.quantize(encoding, matrix, **options)
    return Packed(codes, scales, None if symmetric else rest[0], (rows, cols))


@memory.dequantizer
def dequantize(
    packed: Packed | tuple[Any, ...],
    **options: Unpack[memory.DequantizeOptions],
) -> NDArray[Any]:
    """Return 4-bit integers, less their zero points, times their scales.

    Parameters
    ----------
    packed : Packed, or a tuple of its fields
        Scales are of float32, float16 or ml_dtypes.bfloat16.
    **options
        `dtype`, `out`, `threads` and `level`: see `anamnesis.schemes`.

    Returns
    -------
    ndarray
        [rows, cols]. NaNs are the one quiet NaN.

    Notes
    -----
    `unpack_from_int32` and `_dequantize` of compressed-tensors with float32 scales: one
    multiplication, one rounding.
    """
    if not isinstance(packed, (tuple, list)) or len(packed) != len(Packed._fields):
        raise TypeError(f"packed must be what `quantize` returns, not {shown(packed)}")
    codes, scales, zeros, shape = packed
    return memory.dequantize(of_arrays(codes, scales, zeros, shape), **options)
