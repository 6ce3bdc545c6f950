"""GPTQ's and AWQ's words, given as arrays."""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import Any, Unpack

from numpy.typing import NDArray

from anamnesis.schemes.core import in_memory as memory
from anamnesis.schemes.core.arrays import stored
from anamnesis.schemes.core.encoding import CodesInLayout
from anamnesis.schemes.integers.layouts.qweights import SCALES, Parts
from anamnesis.schemes.integers.words import PackedWeight

__all__ = ["declared_sizes", "dequantize", "quantize"]


def declared_sizes(group_size: int | None) -> frozenset[int]:
    """Return a caller's `group_size` as a config's would be.

    Raises
    ------
    TypeError
        If it is no whole number.
    ValueError
        If it is neither positive nor -1.
    """
    if group_size is None:
        return frozenset()
    size = index(group_size)
    if size < 1 and size != -1:
        raise ValueError(f"group_size must be positive, or -1 for one group; got {size}")
    return frozenset({size})


def dequantize(
    arrays: tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any] | None],
    weight_of: Callable[[Parts], PackedWeight],
    **options: Unpack[memory.DequantizeOptions],
) -> NDArray[Any]:
    """Decode what `weight_of` makes of `qweight`, `qzeros`, `scales` and `g_idx`.

    Raises
    ------
    TypeError
        If an array has another dtype.
    ValueError
        If the arrays do not go together.
    """
    qweight, qzeros, scales, g_idx = arrays
    parts = Parts(
        "",
        stored(qweight, "qweight", ("I32",)),
        stored(qzeros, "qzeros", ("I32",)),
        stored(scales, "scales", SCALES),
        None if g_idx is None else stored(g_idx, "g_idx", ("I32",)),
    )
    with memory.as_arguments():
        return memory.dequantize(weight_of(parts), **options)


def quantize(
    encoding: CodesInLayout, array: NDArray[Any], **options: Unpack[memory.QuantizeOptions]
) -> tuple[NDArray[Any], ...]:
    """Return the parts of a matrix in memory.

    Raises
    ------
    TypeError, ValueError, UnsupportedError
        As `awq.quantize` and `gptq.quantize` say.
    """
    matrix = memory.matrices(array)
    why = encoding.numbers.refuses(matrix.shape)
    if why is not None:
        raise ValueError(f"array of shape {list(matrix.shape)}: {why}")
    return memory.quantize(encoding, matrix, **options)
