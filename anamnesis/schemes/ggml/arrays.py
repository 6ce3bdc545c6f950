"""ggml's blocks, given as arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from anamnesis.base.dtypes import BLOCK_DTYPES, output_dtype
from anamnesis.base.levels import resolve_level
from anamnesis.schemes.core import arrays as memory
from anamnesis.schemes.ggml.read import GgmlWeight

if TYPE_CHECKING:
    from anamnesis.base.dtypes import DTypeLike
    from anamnesis.base.levels import LevelName

__all__ = ["dequantize"]


def dequantize(
    blocks: NDArray[Any],
    type: str,
    *,
    dtype: DTypeLike = "bf16",
    out: NDArray[Any] | None = None,
    threads: int | None = None,
    level: LevelName | None = None,
) -> NDArray[Any]:
    """Return the values of GGUF blocks: ggml's in float32, then one rounding.

    Parameters
    ----------
    blocks : ndarray of uint8
        [..., bytes]: whole blocks along the last axis.
    type : str
        ggml's name of the block type, such as `Q4_K`, in either case.
    dtype : str, numpy.dtype, scalar type or torch.dtype
        `bf16` (ml_dtypes.bfloat16), `f16` or `f32`.
    out : ndarray, optional
        C-contiguous, of the result's shape and of `dtype`; written and returned.
    threads : int, optional
        By default one for each CPU, at most 8 and at most one for each megabyte.
    level : str, optional
        Kernel level, see `anamnesis.base.levels`.

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
    stored = memory.stored(blocks, "blocks", ("U8",))
    *lead, n_bytes = stored.shape or (0,)
    if not stored.shape or n_bytes % stored_type.block_bytes:
        raise ValueError(
            f"blocks of shape {list(stored.shape)} are not whole {stored_type} blocks of "
            f"{stored_type.block_bytes} bytes along the last axis"
        )
    shape = (*lead, n_bytes // stored_type.block_bytes * stored_type.block_elements)
    weight = GgmlWeight("blocks", shape, (stored._replace(dtype=stored_type, shape=shape),))
    return memory.decode(weight, output_dtype(dtype), out, threads, resolve_level(level))
