"""Names chosen by globs: `*.mlp.*`, `model.layers.[0-3].*`, `model.layers.0`.

This is the one rule of all verbs: for what is taken, left out, encoded or written otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import translate
from functools import lru_cache

_MOST_KEPT = 64


def chooser(include: Sequence[str] = (), exclude: Sequence[str] = ()) -> Callable[[str], bool]:
    """Return a function that tells whether a dotted name is chosen."""
    included, excluded = _any_of(tuple(include)), _any_of(tuple(exclude))

    def is_chosen(name: str) -> bool:
        return (not include or bool(included(name))) and not (exclude and excluded(name))

    return is_chosen


class UnmatchedError(ValueError):
    """A pattern of an option matches no weight: it is misspelt."""

    def __init__(self, option: str, pattern: str, hint: str = "") -> None:
        super().__init__(f"{option}: no weight matches {pattern!r}{hint}")
        self.option, self.pattern = option, pattern


def unfitting(globs: Iterable[str], names: Sequence[str]) -> list[str]:
    """Return those globs that fit none of some names: they are misspelt."""
    return [glob for glob in globs if not any(map(_any_of((glob,)), names))]


@lru_cache(maxsize=_MOST_KEPT)
def _any_of(globs: tuple[str, ...]) -> Callable[[str], object]:
    return re.compile("|".join(f"{translate(g)}|{translate(g + '.*')}" for g in globs)).match
