"""ggml's blocks, given as arrays."""

from __future__ import annotations

from typing import Any, Unpack

from numpy.typing import NDArray

from anamnesis.base.dtypes import BLOCK_DTYPES
from anamnesis.schemes.core import in_memory as memory
from anamnesis.schemes.core.arrays import stored
from anamnesis.schemes.ggml.weight import GgmlWeight

__all__ = ["dequantize"]


@memory.dequantizer
def dequantize(
    blocks: NDArray[Any],
    type: str,
    **options: Unpack[memory.DequantizeOptions],
) -> NDArray[Any]:
    """Return the values of GGUF blocks: ggml's in float32, then one rounding.

    Parameters
    ----------
    blocks : ndarray of uint8
        [..., bytes]: whole blocks along the last axis.
    type : str
        ggml's name of the block type, such as `Q4_K`, in either case.
    **options
        `dtype`, `out`, `threads` and `level`: see `anamnesis.schemes`.

    Returns
    -------
    ndarray
        [..., elements]. NaNs are the one quiet NaN.

    Raises
    ------
    TypeError
        If `blocks` is not of uint8, or `out` of another dtype than asked for.
    ValueError
        If there is no such type, or the last axis is not a whole number of blocks.

    Notes
    -----
    In float32 equal to the bit to ggml's own C, and to `gguf.dequantize(blocks, type)` where that
    package has the type; then rounded to nearest, ties to even.
    """
    stored_type = BLOCK_DTYPES.get(type.upper())
    if stored_type is None:
        raise ValueError(f"type must be one of {', '.join(BLOCK_DTYPES)}; got {type!r}")
    part = stored(blocks, "blocks", ("U8",))
    *lead, n_bytes = part.shape or (0,)
    if not part.shape or n_bytes % stored_type.block_bytes:
        raise ValueError(
            f"blocks of shape {list(part.shape)} are not whole {stored_type} blocks of "
            f"{stored_type.block_bytes} bytes along the last axis"
        )
    shape = (*lead, n_bytes // stored_type.block_bytes * stored_type.block_elements)
    weight = GgmlWeight("blocks", shape, (part._replace(dtype=stored_type, shape=shape),))
    return memory.dequantize(weight, **options)
