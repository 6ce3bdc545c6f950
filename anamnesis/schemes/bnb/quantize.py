"""Arrays of values in, arrays of codes out."""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple

from anamnesis.base.levels import resolve_level

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["FourBits", "quantize_4bit", "quantize_int8"]


class FourBits(NamedTuple):
    """What `quantize_4bit` gives: `dequantize_4bit(**packed._asdict())` is the way back.

    Attributes
    ----------
    weight : ndarray of uint8
        [ceil(n / 2), 1]: two codes to a byte, the first in the high nibble.
    absmax : ndarray of float32
        [blocks]: the largest magnitude of each; of uint8 if they are quantised themselves.
    quant_map : ndarray of float32
        [16]: what the codes stand for.
    shape : tuple of int
        Of the values.
    blocksize : int
        Values that share an absmax.
    nested_absmax, nested_quant_map : ndarray of float32 or None
        [ceil(blocks / 256)], [256]: the same of the absmax, if they are quantised.
    nested_blocksize : int
        Absmax that share a nested one.
    nested_offset : float
        The mean of the absmax, if they are quantised.
    """

    weight: NDArray[Any]
    absmax: NDArray[Any]
    quant_map: NDArray[Any]
    shape: tuple[int, ...]
    blocksize: int
    nested_absmax: NDArray[Any] | None = None
    nested_quant_map: NDArray[Any] | None = None
    nested_blocksize: int = 256
    nested_offset: float = 0.0


def quantize_4bit(
    array: NDArray[Any],
    kind: str = "nf4",
    *,
    blocksize: int = 64,
    nested: bool = False,
    second_zero: bool = False,
    threads: int = 1,
    level: str | None = None,
) -> FourBits:
    """Return NF4 or FP4 codes, and the largest magnitudes of their blocks.

    Parameters
    ----------
    array : ndarray of float32, float16 or ml_dtypes.bfloat16
        Of any shape, finite.
    kind : str
        `nf4` or `fp4`.
    blocksize : int
        Values that share an absmax: a power of two from 32 to 4096. The last block may be shorter.
    nested : bool
        Whether the absmax are quantised themselves (the library's `compress_statistics`).
    second_zero : bool
        Whether -0 becomes FP4's second zero, as which it is decoded again. The library writes the
        first one for it.
    threads, level
        What all such functions take: see `anamnesis.schemes`.

    Returns
    -------
    FourBits

    Raises
    ------
    TypeError
        If the array has another dtype.
    ValueError
        If it is empty, or there are no such settings.
    UnsupportedError
        If a value is infinite or a NaN.

    Notes
    -----
    Byte for byte what bitsandbytes' `functional.quantize_4bit` gives on a CPU. Its mean of nested
    absmax is torch's sum, whose order depends on threads and vectors; this is that of one thread
    and AVX2.
    """
    import json

    import numpy as np

    from anamnesis.schemes.bnb.encode import FourBit
    from anamnesis.schemes.core import arrays as memory

    array = np.asarray(array)
    dtype = memory.float_dtype(array)
    encoding = FourBit(kind, index(blocksize), nested, second_zero, dtype=dtype)
    if array.size == 0:
        raise ValueError(f"array has shape {array.shape}, and so no values")
    made = memory.encode(encoding, array, threads, resolve_level(level))
    weight, absmax, quant_map, *more, state = made
    found = FourBits(weight, absmax, quant_map, array.shape, encoding.block_size)
    if not nested:
        return found
    offset = json.loads(state.tobytes())["nested_offset"]
    return found._replace(nested_absmax=more[0], nested_quant_map=more[1], nested_offset=offset)


def quantize_int8(
    array: NDArray[Any], *, threads: int = 1, level: str | None = None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return LLM.int8() codes, and the largest magnitude of each row.

    Parameters
    ----------
    array : ndarray of float32, float16 or ml_dtypes.bfloat16
        [rows, cols], finite once it is rounded to float16.
    threads, level
        What all such functions take: see `anamnesis.schemes`.

    Returns
    -------
    codes : ndarray of int8
        [rows, cols].
    scb : ndarray of float32
        [rows].

    Raises
    ------
    TypeError
        If the array has another dtype.
    ValueError
        If it is not a matrix, or is empty.
    UnsupportedError
        If a value is infinite, a NaN, or too large for float16.

    Notes
    -----
    Byte for byte what bitsandbytes' `functional.int8_vectorwise_quant` gives on a CPU for the array
    as float16, as its `Int8Params` has it.
    """
    from anamnesis.schemes.bnb.encode import Int8
    from anamnesis.schemes.core import arrays as memory

    matrix = memory.matrix(array)
    encoding = Int8(dtype=memory.float_dtype(matrix))
    codes, scb, _ = memory.encode(encoding, matrix, threads, resolve_level(level))
    return codes, scb
