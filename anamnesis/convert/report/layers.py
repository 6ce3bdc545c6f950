"""Names of weights as a layer and a module, or as one with ranges of numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

_LAYER = re.compile(r"(?:.*?\.)?(?:layers?|blocks?|blk|h|resblocks|enc|dec)\.(\d{1,6})\.(.+)")
_EXPERT = re.compile(r"\.experts\.\d+\.")
_NUMBER = re.compile(r"[0-9]+")
T = TypeVar("T")


def map_of(
    figures: Iterable[tuple[str, float | None]],
) -> tuple[dict[str, dict[int, float]], list[int]]:
    """Return the worst figure of each module in each layer, and all layers; None is left out."""
    modules: dict[str, dict[int, float]] = {}
    for name, figure in figures:
        found = _LAYER.fullmatch(name.removesuffix(".weight"))
        if found is not None and figure is not None:
            layer, module = int(found[1]), _EXPERT.sub(".experts.*.", found[2])
            row = modules.setdefault(module, {})
            row[layer] = min(figure, row.get(layer, figure))
    return modules, sorted({layer for row in modules.values() for layer in row})


def in_columns(layers: list[int], most: int) -> list[list[int]]:
    """Return layers in at most so many columns, several in one where there are more."""
    each = -(-len(layers) // max(most, 1))
    return [layers[at : at + each] for at in range(0, len(layers), each)] if layers else []


def worst_of(row: Mapping[int, float], column: Iterable[int]) -> float | None:
    """Return the worst figure of a column; None if it has none."""
    return min((row[layer] for layer in column if layer in row), default=None)


def groups(
    things: Iterable[T], name_of: Callable[[T], str], kind_of: Callable[[T], object]
) -> list[tuple[str, list[T]]]:
    """Return things of one kind under one name each, in the order of the first of them."""
    found: dict[tuple[tuple[str, ...], object], list[T]] = {}
    for thing in things:
        words = tuple(_NUMBER.split(name_of(thing)))
        found.setdefault((words, kind_of(thing)), []).append(thing)
    return [(_name([name_of(one) for one in some]), some) for some in found.values()]


def _name(names: list[str]) -> str:
    """Return names as one, with the range of each number that differs."""
    numbers = [_NUMBER.findall(name) for name in names]
    by_length = [
        sorted(column, key=lambda digits: (len(digits), digits))  # which orders them as numbers
        for column in zip(*numbers, strict=True)
    ]
    ranges = iter([(column[0], column[-1]) for column in by_length])

    def shown(_: re.Match[str]) -> str:
        low, high = next(ranges)
        return low if low == high else f"{{{low}-{high}}}"

    return _NUMBER.sub(shown, names[0])
