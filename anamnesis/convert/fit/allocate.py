"""Allocates options to weights, so that all fit a size with the least error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple


class Option(NamedTuple):
    """A way to write a weight."""

    type: str
    n_bytes: int
    error: float


Chosen = dict[str, Option]


def allocate(
    options: Mapping[str, Sequence[Option]],
    budget: int,
    starts: Iterable[Mapping[str, str]] = (),
) -> Chosen | None:
    """Return an option for each weight, of at most `budget` bytes together; None if none fit."""
    # Steps are taken where a byte saves the most error, along the lower convex hull of each
    # weight's options: with a budget that ends at such a step nothing is better. What is left of
    # the budget goes to steps that still fit. The error is never above that of a start.
    least = {name: min(some, key=lambda o: (o.n_bytes, o.error)) for name, some in options.items()}
    if _bytes(least) > budget:
        return None
    found = [_filled(_along_hulls(options, least, budget), options, budget)]
    for types in starts:
        chosen = {
            name: option
            for name, some in options.items()
            for option in some
            if option.type == types.get(name)
        }
        if len(chosen) == len(options) and _bytes(chosen) <= budget:
            found.append(_filled(chosen, options, budget))
    return min(found, key=lambda chosen: sum([option.error for option in chosen.values()]))


def _along_hulls(options: Mapping[str, Sequence[Option]], least: Chosen, budget: int) -> Chosen:
    """Take the best steps that fit, those of a weight in order."""
    steps = sorted(
        (
            (_slope(one, other), name, i, other)
            for name, some in options.items()
            for i, (one, other) in enumerate(pairwise(_hull(some)))
        ),
        key=lambda step: (-step[0], step[1], step[2]),
    )
    chosen, left = dict(least), budget - _bytes(least)
    stopped: set[str] = set()
    for _, name, _, option in steps:
        more = option.n_bytes - chosen[name].n_bytes
        if name in stopped or more > left:
            stopped.add(name)
            continue
        chosen[name] = option
        left -= more
    return chosen


def _hull(options: Sequence[Option]) -> list[Option]:
    """Return the lower convex hull of options, from small to large."""
    hull: list[Option] = []
    for option in sorted(options, key=lambda o: (o.n_bytes, o.error)):
        if hull and option.error >= hull[-1].error:
            continue
        while len(hull) > 1 and _slope(hull[-2], hull[-1]) <= _slope(hull[-1], option):
            hull.pop()
        hull.append(option)
    return hull


def _slope(one: Option, other: Option) -> float:
    """Return the error that one more byte saves."""
    return (one.error - other.error) / max(other.n_bytes - one.n_bytes, 1)


def _filled(chosen: Chosen, options: Mapping[str, Sequence[Option]], budget: int) -> Chosen:
    """Spend the rest of a budget, one weight after another."""
    chosen, left = dict(chosen), budget - _bytes(chosen)
    while True:
        better = [
            (one.error - option.error, name, option)
            for name, one in chosen.items()
            for option in options[name]
            if option.error < one.error and option.n_bytes - one.n_bytes <= left
        ]
        if not better:
            return chosen
        _, name, option = max(better, key=lambda step: (step[0], step[1]))
        left -= option.n_bytes - chosen[name].n_bytes
        chosen[name] = option


def _bytes(chosen: Chosen) -> int:
    return sum([option.n_bytes for option in chosen.values()])
