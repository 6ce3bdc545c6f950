"""ggml's blocks of arrays, as GGUF files have them."""

from __future__ import annotations

from hashlib import sha256
from math import prod
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anamnesis.base.arguments import Word, word
from anamnesis.base.dtypes import BLOCK_DTYPES
from anamnesis.schemes.core import in_memory as memory
from anamnesis.schemes.core.arrays import stored
from anamnesis.schemes.core.codes import Importance
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.families.ggml.encode import TYPES, BlockCodes
from anamnesis.schemes.families.ggml.layouts import Blocks
from anamnesis.schemes.families.ggml.weight import GgmlWeight

__all__ = ["dequantize", "quantize"]


@memory.dequantizer
def dequantize(
    blocks: NDArray[Any],
    type: Word,
    **options: Unpack[memory.DequantizeOptions],
) -> NDArray[Any]:
    """Return the values of GGUF blocks: ggml's in float32, then one rounding.

    Parameters
    ----------
    blocks : ndarray of uint8
        [..., bytes]: whole blocks along the last axis.
    type : str or gguf.GGMLQuantizationType
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
    stored_type = BLOCK_DTYPES.get(word("type", type).upper())
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


@memory.quantizer
def quantize(
    array: NDArray[Any],
    type: Word,
    imatrix: ArrayLike | None = None,
    **options: Unpack[memory.QuantizeOptions],
) -> NDArray[np.uint8]:
    """Return the values of an array as GGUF blocks: byte for byte what ggml makes of them.

    Parameters
    ----------
    array : ndarray of float32, float16 or ml_dtypes.bfloat16
        [..., rows, cols] or [cols], finite; cols of whole blocks, of 32, 64, 128 or 256 values.
    type : str or gguf.GGMLQuantizationType
        ggml's name of the block type, such as `Q4_K`, in either case.
    imatrix : array of float32, optional
        [cols], or [..., cols] of a stack of matrices: how important each column is. `IQ1_S`,
        `IQ2_XXS` and `IQ2_XS` need it; types without a search, such as `Q8_0`, ignore it.
    **options
        `threads` and `level`: see `anamnesis.schemes`.

    Returns
    -------
    ndarray of uint8
        [..., rows, bytes]: whole blocks along the last axis, as `dequantize` takes them.

    Raises
    ------
    TypeError
        If the array is of another dtype.
    ValueError
        If there is no such type, rows are not of whole blocks, or the importance is missing where
        it is needed, has another shape, or holds what is no finite number from 0 on.
    UnsupportedError
        If a value is infinite or a NaN, or too large for a block's scale.

    Notes
    -----
    Equal to `ggml_quantize_chunk` of ggml 0.25.3 as it is built for x86-64, without fused
    multiplications and additions; other processors' builds of ggml differ in some blocks. Values
    of float16 and bfloat16 are widened to float32 first, as llama-quantize does.
    """
    array = memory.values(array)
    name = word("type", type).upper()
    if name not in TYPES:
        raise ValueError(f"type must be one of {', '.join(TYPES)}; got {type!r}")
    importance = None if imatrix is None else _importance(imatrix, array.shape)
    codes = BlockCodes(name, importance)
    why = codes.refuses(array.shape)
    if why is not None:
        raise ValueError(f"array of shape {list(array.shape)}: {why}")
    (blocks,) = memory.quantize(
        Encoding(f"gguf-{name.lower()}", Blocks(name), codes), array, **options
    )
    return blocks.reshape(*array.shape[:-1], -1)


def _importance(imatrix: ArrayLike, shape: tuple[int, ...]) -> Importance:
    """Return the importance of columns, one row of it for each matrix of a stack."""
    values = np.ascontiguousarray(imatrix, np.float32)
    matrices = prod(shape[:-2])
    if values.shape not in {shape[-1:], (*shape[:-2], shape[-1])}:
        raise ValueError(f"imatrix has shape {values.shape}, but array {shape}")
    if not np.isfinite(values).all() or (values < 0).any():
        raise ValueError("imatrix must hold finite numbers from 0 on")
    values = np.broadcast_to(values.reshape(-1, shape[-1]), (matrices, shape[-1]))
    data = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    return Importance(sha256(data.data).hexdigest(), data.data)
