"""AWQ of arrays: integers of 4 bits in words, with zero points and scales."""

from __future__ import annotations

from typing import Any, NamedTuple, Unpack

from numpy.typing import NDArray

from anamnesis.schemes.core import in_memory as memory
from anamnesis.schemes.detect.config_facts import QuantFacts
from anamnesis.schemes.families.integers.arrays import (
    declared_sizes,
    dequantize_words,
    quantize_words,
)
from anamnesis.schemes.families.integers.layouts import awq

__all__ = ["Quantized", "dequantize", "quantize"]


class Quantized(NamedTuple):
    """What a matrix is packed into.

    Attributes
    ----------
    qweight : ndarray of int32
        [in features, out features / 8].
    qzeros : ndarray of int32
        [groups, out features / 8].
    scales : ndarray of float16
        [groups, out features].
    """

    qweight: NDArray[Any]
    qzeros: NDArray[Any]
    scales: NDArray[Any]


@memory.dequantizer
def dequantize(
    qweight: NDArray[Any],
    qzeros: NDArray[Any],
    scales: NDArray[Any],
    *,
    group_size: int | None = None,
    **options: Unpack[memory.DequantizeOptions],
) -> NDArray[Any]:
    """Return the weight that AWQ's packed integers encode: the GEMM layout in 4 bits.

    Parameters
    ----------
    qweight : ndarray of int32
        [in features, out features / 8].
    qzeros : ndarray of int32
        [groups, out features / 8].
    scales : ndarray of float16, ml_dtypes.bfloat16 or float32
        [groups, out features].
    group_size : int, optional
        In features of a group, -1 for all of them; by default what the shapes imply.
    **options
        `dtype`, `out`, `threads` and `level`: see `anamnesis.schemes`.

    Returns
    -------
    ndarray
        [out features, in features]. NaNs are the one quiet NaN.

    Raises
    ------
    TypeError
        If a dtype is none of those above, or `group_size` no whole number.
    ValueError
        If the shapes do not go together, or more than one group size would fit.

    Notes
    -----
    `(code - zero) * scale` in float32, rounded once; the integers are those of AutoAWQ's
    `dequantize_gemm`, which multiplies in the dtype of `scales`.
    """
    facts = QuantFacts(group_sizes=declared_sizes(group_size))
    arrays = (qweight, qzeros, scales, None)
    return dequantize_words(arrays, lambda p: awq.weight_of(p, facts), **options)


@memory.quantizer
def quantize(
    array: NDArray[Any],
    *,
    group_size: int = 128,
    **options: Unpack[memory.QuantizeOptions],
) -> Quantized:
    """Return rounded integers in AWQ's layout, of 4 bits, with zero points.

    Parameters
    ----------
    array : ndarray of float32, float16 or ml_dtypes.bfloat16
        [out features, in features], finite; both are multiples of 32.
    group_size : int
        In features that share a scale: 32, 64, 128, 256, 512 or 1024.
    **options
        `threads` and `level`: see `anamnesis.schemes`.

    Returns
    -------
    Quantized

    Raises
    ------
    ValueError
        If it is not a matrix, is empty, or not of whole words and groups.
    UnsupportedError
        If a value is infinite or a NaN, or no half float.

    Notes
    -----
    Byte for byte what `pseudo_quantize_tensor` and `WQLinear_GEMM.from_linear` of AutoAWQ give. The
    codes are those of plain rounding: no activations are looked at.
    """
    return Quantized(*quantize_words(awq.encoding(group_size), array, **options))
