"""numpy's basic indexing: which elements of a shape an index takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

from anamnesis.base.printable import kind_of, numbered


@dataclass(frozen=True, slots=True)
class Box:
    """Some indices along each axis of a shape: every `steps` from `starts` on."""

    starts: tuple[int, ...]
    counts: tuple[int, ...]
    steps: tuple[int, ...]
    rest: tuple[Any, ...]


def box_of(key: object, shape: Sequence[int]) -> Box:
    """Return what `array[key]` takes of an array of `shape`."""
    items = key if isinstance(key, tuple) else (key,)
    n_axes = sum(item is not None and item is not Ellipsis for item in items)
    n_ellipses = sum(item is Ellipsis for item in items)
    if n_ellipses > 1:
        raise IndexError("an index can only have one ellipsis ('...')")
    if n_axes > len(shape):
        raise IndexError(f"too many indices: {n_axes} for {numbered(len(shape), 'dimension')}")
    left = len(shape) - n_axes  # axes that `...` stands for, or that follow
    spans: list[tuple[int, int, int]] = []
    rest: list[Any] = []
    for item in items:
        if item is Ellipsis:
            spans += [(0, n, 1) for n in shape[len(spans) : len(spans) + left]]
            rest.append(item)
        elif item is None:
            rest.append(item)
        else:
            span, kept = _along(item, len(spans), shape[len(spans)])
            spans.append(span)
            rest.append(kept)
    spans += [(0, n, 1) for n in shape[len(spans) :]]
    starts, counts, steps = zip(*spans, strict=True) if spans else ((), (), ())
    return Box(starts, counts, steps, tuple(rest))


def _along(item: object, axis: int, n: int) -> tuple[tuple[int, int, int], int | slice]:
    """Return start, count and step along an axis of `n`, and what numpy does with them."""
    if isinstance(item, slice):
        start, stop, step = item.indices(n)
        count = -((start - stop) // step)  # `len` of a range has an end, sizes alone have none
        if count <= 0:
            return (0, 0, 1), slice(None)
        if step < 0:
            return (start + (count - 1) * step, count, -step), slice(None, None, -1)
        return (start, count, step), slice(None)
    is_array = getattr(item, "ndim", 0) not in (0, None)  # torch's of one number has an index
    if isinstance(item, bool) or is_array or not hasattr(item, "__index__"):
        raise _not_basic(item)
    try:
        at = index(item)
    except TypeError:  # an array of several
        raise _not_basic(item) from None
    if not -n <= at < n:
        raise IndexError(f"index {at} is out of bounds for axis {axis} with size {n}")
    return (at % n, 1, 1), 0


def _not_basic(item: object) -> IndexError:
    return IndexError(
        f"{kind_of(item)} is not supported as an index: take whole numbers, slices, ... "
        "and None, or index the array that numpy() returns"
    )
