"""EXL3 of arrays."""

from __future__ import annotations

from typing import Any, Literal, Unpack

import numpy as np
from numpy.typing import NDArray

from anamnesis.schemes.core import in_memory as memory
from anamnesis.schemes.core.arrays import stored
from anamnesis.schemes.families.exl3.read import check_sizes
from anamnesis.schemes.families.exl3.weight import MULTIPLIERS, TILE, Exl3Weight

__all__ = ["dequantize"]

CODEBOOKS = ("3inst", *MULTIPLIERS)
_FACTORS = ("F16", "I16")


@memory.dequantizer
def dequantize(
    trellis: NDArray[Any],
    suh: NDArray[Any],
    svh: NDArray[Any],
    *,
    codebook: Literal["3inst", "mcg", "mul1"] = "3inst",
    **options: Unpack[memory.DequantizeOptions],
) -> NDArray[Any]:
    """Return the weight that a trellis of EXL3 encodes.

    Parameters
    ----------
    trellis : ndarray of int16
        [in features / 16, out features / 16, 16 * bits], both features multiples of 128.
    suh : ndarray of float16 or int16
        [in features], or the signs of older files: [in features / 16], a bit each.
    svh : ndarray of float16 or int16
        [out features], or [out features / 16].
    codebook : str
        `mcg` or `mul1` where a file has a part of that name beside the trellis, else `3inst`.
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
        If the shapes do not go together, or there is no such codebook.

    Notes
    -----
    Values of the codebook are half floats, all else is in float32, in the order of exllamav3's own
    kernels; its `get_weight_tensor` rounds each step to half floats.
    """
    if codebook not in CODEBOOKS:
        raise ValueError(f"codebook must be {', '.join(CODEBOOKS)}, not {codebook!r}")
    codes = stored(trellis, "trellis", ("I16",))
    parts = [codes, stored(suh, "suh", _FACTORS), stored(svh, "svh", _FACTORS)]
    with memory.as_arguments():
        check_sizes(*parts)
    if codebook in MULTIPLIERS:
        marker = np.array(MULTIPLIERS[codebook], np.uint32).view(np.int32)
        parts.append(stored(marker, codebook, ("I32",)))
    shape = (codes.shape[1] * TILE, codes.shape[0] * TILE)
    return memory.dequantize(Exl3Weight("weight", shape, tuple(parts), codebook), **options)
