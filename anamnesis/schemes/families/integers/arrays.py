"""Integers that lie in arrays, as compressed-tensors, MLX, GPTQ and AWQ have them."""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import Any, Unpack

from numpy.typing import NDArray

from anamnesis.schemes.core import in_memory as memory
from anamnesis.schemes.core.arrays import stored
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.families.integers.checks import SCALES, group_size
from anamnesis.schemes.families.integers.layouts import gptq_and_awq, mlx
from anamnesis.schemes.families.integers.rows import row_bytes, zero_words
from anamnesis.schemes.families.integers.weight import IntegerWeight
from anamnesis.schemes.families.integers.words import PackedWeight


def of_arrays(
    codes: NDArray[Any],
    scales: NDArray[Any],
    zeros: NDArray[Any] | None,
    shape: tuple[int, int] | None,
) -> IntegerWeight:
    """Return a weight that lies in arrays; a packed one, of 4 bits, if its shape is given."""
    kernel, dtype = ("INT8", "I8") if shape is None else ("PACKED4", "I32")
    parts = [stored(codes, "codes", (dtype,)), stored(scales, "scales", SCALES)]
    parts += [] if zeros is None else [stored(zeros, "zeros", (dtype,))]
    given = parts[0].shape if shape is None else tuple(shape)
    if len(given) != 2 or len(parts[0].shape) != 2 or len(parts[1].shape) != 2:
        raise ValueError("codes, scales and the matrix must have two dimensions")
    rows, cols = given
    if parts[0].shape[0] != rows or parts[0].n_bytes != rows * row_bytes(kernel, cols):
        raise ValueError(f"codes of shape {parts[0].shape} do not hold {rows} x {cols} values")
    if parts[1].shape[0] != rows:
        raise ValueError(f"scales of shape {parts[1].shape} do not fit {rows} x {cols} codes")
    n_groups = parts[1].shape[1]
    stacked = rows if shape is None else zero_words(kernel, rows)
    if zeros is not None and parts[2].shape != (stacked, n_groups):
        raise ValueError(f"zeros of shape {parts[2].shape} do not fit [{stacked}, {n_groups}]")
    with memory.as_arguments():
        size = group_size(parts[0], cols, n_groups, frozenset())
    zero_points, half = None if zeros is None else parts[2], 0 if shape is None else 8
    return IntegerWeight("codes", (rows, cols), tuple(parts), kernel, (1, size), zero_points, half)


def affine_of_arrays(
    weight: NDArray[Any],
    scales: NDArray[Any],
    biases: NDArray[Any] | None,
    bits: int,
    group_size: int,
) -> IntegerWeight:
    """Return MLX's integers as a weight."""
    codes = stored(weight, "weight", ("U32",))
    if biases is None:
        raise ValueError("affine has biases, which are missing")
    scale, bias = stored(scales, "scales", SCALES), stored(biases, "biases", SCALES)
    if len(codes.shape) < 2:
        raise ValueError(f"weight has shape {codes.shape}, but must be a matrix")
    if [32 * codes.shape[-1]] != [bits * group_size * n for n in scale.shape[-1:]]:
        raise ValueError(
            f"weight of shape {codes.shape} and scales of shape {scale.shape} are not of "
            f"{bits} bits in groups of {group_size}"
        )
    with memory.as_arguments():
        return mlx.weight_of(codes, scale, bias, (bits, group_size))


def declared_sizes(group_size: int | None) -> frozenset[int]:
    """Return a caller's `group_size` as a config's would be."""
    if group_size is None:
        return frozenset()
    size = index(group_size)
    if size < 1 and size != -1:
        raise ValueError(f"group_size must be positive, or -1 for one group; got {size}")
    return frozenset({size})


def dequantize_words(
    arrays: tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any] | None],
    weight_of: Callable[[gptq_and_awq.Parts], PackedWeight],
    **options: Unpack[memory.DequantizeOptions],
) -> NDArray[Any]:
    """Decode what `weight_of` makes of `qweight`, `qzeros`, `scales` and `g_idx`."""
    qweight, qzeros, scales, g_idx = arrays
    parts = gptq_and_awq.Parts(
        "",
        stored(qweight, "qweight", ("I32",)),
        stored(qzeros, "qzeros", ("I32",)),
        stored(scales, "scales", gptq_and_awq.SCALES),
        None if g_idx is None else stored(g_idx, "g_idx", ("I32",)),
    )
    with memory.as_arguments():
        return memory.dequantize(weight_of(parts), **options)


def quantize_words(
    encoding: Encoding, array: NDArray[Any], **options: Unpack[memory.QuantizeOptions]
) -> tuple[NDArray[Any], ...]:
    """Return the parts of a matrix in memory."""
    matrix = memory.matrices(array)
    why = encoding.encoder.refuses(matrix.shape)
    if why is not None:
        raise ValueError(f"array of shape {list(matrix.shape)}: {why}")
    return memory.quantize(encoding, matrix, **options)
