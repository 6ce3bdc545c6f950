"""Integers that lie in arrays, as compressed-tensors and MLX have them."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from anamnesis.schemes.core import in_memory as memory
from anamnesis.schemes.core.arrays import stored
from anamnesis.schemes.integers.checks import SCALES, group_size
from anamnesis.schemes.integers.layouts import mlx
from anamnesis.schemes.integers.weight import IntegerWeight, row_bytes, zero_words

__all__ = ["affine_of_arrays", "of_arrays"]


def of_arrays(
    codes: NDArray[Any],
    scales: NDArray[Any],
    zeros: NDArray[Any] | None,
    shape: tuple[int, int] | None,
) -> IntegerWeight:
    """Return a weight that lies in arrays; a packed one, of 4 bits, if its shape is told.

    Raises
    ------
    TypeError
        If an array has another dtype.
    ValueError
        If the shapes do not go together.
    """
    kernel, dtype = ("INT8", "I8") if shape is None else ("PACKED4", "I32")
    parts = [stored(codes, "codes", (dtype,)), stored(scales, "scales", SCALES)]
    parts += [] if zeros is None else [stored(zeros, "zeros", (dtype,))]
    told = parts[0].shape if shape is None else tuple(shape)
    if len(told) != 2 or len(parts[0].shape) != 2 or len(parts[1].shape) != 2:
        raise ValueError("codes, scales and the matrix must have two dimensions")
    rows, cols = told
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
    return IntegerWeight(
        "codes",
        (rows, cols),
        tuple(parts),
        kernel,
        (1, size),
        None if zeros is None else parts[2],
        0 if shape is None else 8,
    )


def affine_of_arrays(
    weight: NDArray[Any],
    scales: NDArray[Any],
    biases: NDArray[Any] | None,
    bits: int,
    group_size: int,
) -> IntegerWeight:
    """Return MLX's integers as a weight.

    Raises
    ------
    TypeError
        If an array has another dtype.
    ValueError
        If the biases are missing, or the shapes are not of such bits and groups.
    """
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
