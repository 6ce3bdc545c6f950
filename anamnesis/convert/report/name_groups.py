"""Names of weights that differ in numbers alone, as one.

model.layers.{0-27}.mlp.up_proj.weight
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TypeVar

_NUMBER = re.compile(r"\d+")

T = TypeVar("T")


def groups(
    things: Iterable[T], name_of: Callable[[T], str], kind_of: Callable[[T], object]
) -> list[tuple[str, list[T]]]:
    """Return things of one kind under one name each, in the order of the first of them."""
    found: dict[tuple[str, object], list[T]] = {}
    for thing in things:
        found.setdefault((_NUMBER.sub("*", name_of(thing)), kind_of(thing)), []).append(thing)
    return [(_name([name_of(one) for one in some]), some) for some in found.values()]


def _name(names: list[str]) -> str:
    """Return names as one, with the range of each number that differs."""
    numbers = [list(map(int, _NUMBER.findall(name))) for name in names]
    ranges = iter([(min(column), max(column)) for column in zip(*numbers, strict=True)])

    def shown(_: re.Match[str]) -> str:
        low, high = next(ranges)
        return f"{low}" if low == high else f"{{{low}-{high}}}"

    return _NUMBER.sub(shown, names[0])
