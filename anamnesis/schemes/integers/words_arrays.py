"""GPTQ's and AWQ's words, given as arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import index
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from anamnesis.base.errors import AnamnesisError
from anamnesis.base.levels import resolve_level
from anamnesis.schemes.core import arrays as memory
from anamnesis.schemes.integers.words import SCALE_DTYPES, PackedWeight, Parts
from anamnesis.schemes.integers.words_encode import Awq, Gptq

if TYPE_CHECKING:
    from anamnesis.base.dtypes import DTypeLike
    from anamnesis.base.levels import LevelName

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
    dtype: DTypeLike,
    out: NDArray[Any] | None,
    threads: int | None,
    level: LevelName | None,
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
        memory.stored(qweight, "qweight", ("I32",)),
        memory.stored(qzeros, "qzeros", ("I32",)),
        memory.stored(scales, "scales", SCALE_DTYPES),
        None if g_idx is None else memory.stored(g_idx, "g_idx", ("I32",)),
    )
    try:
        weight = weight_of(parts)
        return memory.values_of(weight, dtype, out, threads, level)
    except AnamnesisError as error:
        raise ValueError(str(error)) from None


def quantize(
    encoding: Awq | Gptq, array: NDArray[Any], threads: int, level: LevelName | None
) -> tuple[NDArray[Any], ...]:
    """Return the parts of a matrix in memory.

    Raises
    ------
    TypeError, ValueError, UnsupportedError
        As `awq.quantize` and `gptq.quantize` say.
    """
    matrix = memory.matrix(array)
    encoding = replace(encoding, dtype=memory.float_dtype(matrix))
    why = encoding.refuses_features(matrix.shape)
    if why is not None:
        raise ValueError(f"array of shape {list(matrix.shape)}: {why}")
    return memory.encode(encoding, matrix, threads, resolve_level(level))
