"""Integers that lie in arrays, as compressed-tensors has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anamnesis.base.errors import AnamnesisError
from anamnesis.schemes.core import arrays as memory
from anamnesis.schemes.integers.checks import SCALES, group_size
from anamnesis.schemes.integers.weight import IntegerWeight, row_bytes, zero_words

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["of_arrays"]


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
    parts = [memory.stored(codes, "codes", (dtype,)), memory.stored(scales, "scales", SCALES)]
    parts += [] if zeros is None else [memory.stored(zeros, "zeros", (dtype,))]
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
    try:
        size = group_size(parts[0], cols, n_groups, frozenset())
    except AnamnesisError as error:
        raise ValueError(str(error)) from None
    return IntegerWeight(
        "codes",
        (rows, cols),
        tuple(parts),
        kernel,
        (1, size),
        None if zeros is None else parts[2],
        0 if shape is None else 8,
    )
