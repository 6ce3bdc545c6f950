"""Names chosen by globs: `*.mlp.*`, `model.layers.[0-3].*`, or a name that others lie below."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fnmatch import translate

__all__ = ["chooser"]


def chooser(include: Sequence[str] = (), exclude: Sequence[str] = ()) -> Callable[[str], bool]:
    """Return a function that tells whether a dotted name is chosen.

    Parameters
    ----------
    include, exclude : sequence of str
        Globs as `fnmatch` has them, in which `*` matches dots as well. A glob matches a whole name,
        or the beginning of one up to a dot. Without `include` every name is chosen that is not
        excluded.
    """
    included, excluded = _any_of(include), _any_of(exclude)

    def is_chosen(name: str) -> bool:
        return (not include or bool(included(name))) and not (exclude and excluded(name))

    return is_chosen


def _any_of(globs: Sequence[str]) -> Callable[[str], object]:
    return re.compile("|".join(f"{translate(g)}|{translate(g + '.*')}" for g in globs)).match
