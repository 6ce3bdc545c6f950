"""EXL2 of arrays."""

from __future__ import annotations

from typing import Any, Unpack

from numpy.typing import NDArray

from anamnesis.schemes.core import in_memory as memory
from anamnesis.schemes.core.arrays import stored
from anamnesis.schemes.families.exl2.read import Exl2, weight_of

__all__ = ["dequantize"]


@memory.dequantizer
def dequantize(
    q_weight: NDArray[Any],
    q_scale: NDArray[Any],
    q_scale_max: NDArray[Any],
    q_groups: NDArray[Any],
    q_invperm: NDArray[Any],
    **options: Unpack[memory.DequantizeOptions],
) -> NDArray[Any]:
    """Return the weight that EXL2's integers encode.

    Parameters
    ----------
    q_weight : ndarray of int32
        [words, out features].
    q_scale : ndarray of int32
        [groups, out features / 8].
    q_scale_max : ndarray of float16
        [groups], as stored: exllamav2 divides it by 256 as it loads it.
    q_groups : ndarray of int16
        [2 * groups]: bits, and the first row of `q_weight`, of each.
    q_invperm : ndarray of int32
        [in features], where each of them is in the groups.
    **options
        `dtype`, `out`, `threads` and `level`: see `anamnesis.schemes`.

    Returns
    -------
    ndarray
        [out features, in features]. NaNs are the one quiet NaN.

    Raises
    ------
    TypeError
        If a dtype is none of those above.
    ValueError
        If the shapes do not go together, or groups or order are none.

    Notes
    -----
    `(code - half of the codes) * scale` in float32, rounded once; the integers and the order are
    those of exllamav2's `reconstruct_kernel`, which rounds the scale and the product to float16.
    """
    arrays = (q_weight, q_scale, q_scale_max, q_groups, q_invperm)
    parts = [
        stored(array, field.named("weight"), field.dtypes)
        for array, field in zip(arrays, Exl2.fields, strict=False)
    ]
    with memory.as_arguments():
        return memory.dequantize(weight_of("weight", tuple(parts)), **options)
