"""Names of weights as a layer and a module, for maps of a model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

_LAYER = re.compile(r"(?:.*?\.)?(?:layers?|blocks?|blk|h|resblocks|enc|dec)\.(\d{1,6})\.(.+)")
_EXPERT = re.compile(r"\.experts\.\d+\.")


class Place(NamedTuple):
    """Where a weight is: its layer, None if it is in none, and what it is called there."""

    layer: int | None
    module: str


def place_of(name: str) -> Place:
    """Return the place of a weight; all experts of a layer have one."""
    short = name.removesuffix(".weight")
    found = _LAYER.fullmatch(short)
    if found is None:
        return Place(None, short)
    return Place(int(found[1]), _EXPERT.sub(".experts.*.", found[2]))


def map_of(figures: Iterable[tuple[str, float]]) -> tuple[dict[str, dict[int, float]], list[int]]:
    """Return the worst figure of each module in each layer, and all layers."""
    modules: dict[str, dict[int, float]] = {}
    for name, figure in figures:
        layer, module = place_of(name)
        if layer is not None:
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
