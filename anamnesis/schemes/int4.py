"""4-bit integers of arrays, in words, with a scale for each group: compressed-tensors'
`pack-quantized`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from anamnesis.base.dtypes import output_dtype
from anamnesis.base.levels import resolve_level

if TYPE_CHECKING:
    from numpy.typing import NDArray

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


def quantize(
    array: NDArray[Any],
    group_size: int | None = 128,
    *,
    symmetric: bool = True,
    threads: int = 1,
    level: str | None = None,
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
    threads, level
        What all such functions take: see `anamnesis.schemes`.

    Returns
    -------
    Packed

    Raises
    ------
    TypeError
        If the array has another dtype.
    ValueError
        If it is not a matrix, is empty, or not of whole groups.
    UnsupportedError
        If a value is infinite or a NaN.

    Notes
    -----
    Byte for byte what `calculate_qparams`, `quantize` and `pack_to_int32` of compressed-tensors
    give. Every operation rounds to the array's dtype.
    """
    from anamnesis.schemes.core import arrays as memory
    from anamnesis.schemes.integers.encode import Int4

    matrix = memory.matrix(array)
    encoding = Int4(group_size, symmetric, dtype=memory.float_dtype(matrix))
    rows, cols = matrix.shape
    if group_size and cols % group_size:
        raise ValueError(f"{cols} columns are not a whole number of groups of {group_size}")
    codes, scales, *rest = memory.encode(encoding, matrix, threads, resolve_level(level))
    return Packed(codes, scales, None if symmetric else rest[0], (rows, cols))


def dequantize(
    packed: Packed | tuple[Any, ...],
    *,
    dtype: str = "bf16",
    out: NDArray[Any] | None = None,
    threads: int = 1,
    level: str | None = None,
) -> NDArray[Any]:
    """Return 4-bit integers, less their zero points, times their scales.

    Parameters
    ----------
    packed : Packed, or a tuple of its fields
        Scales are of float32, float16 or ml_dtypes.bfloat16.
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
    `unpack_from_int32` and `_dequantize` of compressed-tensors with float32 scales: one
    multiplication, one rounding.
    """
    from anamnesis.schemes.core import arrays as memory
    from anamnesis.schemes.integers.arrays import of_arrays

    codes, scales, zeros, shape = packed
    weight = of_arrays(codes, scales, zeros, shape)
    return memory.decode(weight, output_dtype(dtype), out, threads, resolve_level(level))
