"""Named operations on weights, each beside its inverse: nothing is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anamnesis.architectures.gathered_rows import (
    every_other,
    first_rows,
    gathered_rows,
    half,
    heads_by_turns,
    in_order,
    interleaved,
    inverse,
    matrix_of,
    permuted,
    rows_between,
    stacked,
    unpermuted,
)
from anamnesis.architectures.shapes import renamed, reshaped, turned
from anamnesis.architectures.values import FUNCTIONS, ValuesSource
from anamnesis.base.dtypes import DTYPES
from anamnesis.base.lazy import NDArray, np
from anamnesis.base.stored import Part, StoredTensor
from anamnesis.schemes.core.plain import Plain
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.views import views
from anamnesis.schemes.views.gathered import GatheredColumns

__all__ = [
    "constant",
    "every_other",
    "first_rows",
    "gathered_columns",
    "gathered_rows",
    "half",
    "heads_by_turns",
    "in_order",
    "interleaved",
    "inverse",
    "inverse_function",
    "mapped_values",
    "matrix_of",
    "permuted",
    "renamed",
    "reshaped",
    "rows_between",
    "stacked",
    "turned",
    "unpermuted",
    "widened",
]

_F32 = DTYPES["F32"]


def gathered_columns(weight: Weight, name: str, order: Sequence[int]) -> Weight:
    """Return columns in an order: column i is what was `order[i]`; `inverse(order)` undoes it."""
    *lead, cols = weight.shape
    if not lead or not all(0 <= col < cols for col in order):
        raise ValueError(f"{weight.name} {list(weight.shape)} has not all of these columns")
    shape = (*lead, len(order))
    return GatheredColumns(name, shape, weight.parts, (weight,), tuple(order))


def mapped_values(weight: Weight, name: str, function: str) -> Weight:
    """Return what a function makes of each value, in F32."""
    return _of_values(weight, name, function)


def inverse_function(function: str) -> str:
    """Return the name of the function that undoes another one."""
    return FUNCTIONS[function].inverse


def widened(weight: Weight, name: str) -> Weight:
    """Return a float weight in F32, in which each of its values has a place, unless it is F64."""
    if weight.own_dtype is _F32:
        return renamed(weight, name)
    return _of_values(weight, name, "")


def _of_values(weight: Weight, name: str, function: str) -> Weight:
    source = ValuesSource(weight, function)
    stored = StoredTensor(name, _F32, weight.shape, source.size, 0, source)
    return Plain(name, weight.shape, (stored,))


def constant(name: str, array: NDArray[Any], like: Weight) -> Weight:
    """Return a small float32 array as a weight, as if it lay in the file of another one."""
    values = np.ascontiguousarray(array, np.float32)
    stored = views.constant(Part(name, _F32, values.shape), values.tobytes(), like.parts[0])
    return Plain(name, values.shape, (stored,))
