"""Matches names of modules that were given elsewhere to a model's own.

A model may lie inside another (`model.diffusion_model.blocks.0` where the tool saw `blocks.0`), its
wrappers may change places (`model.language_model.` and `language_model.model.`), and some tools
name the weight of a module.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TypeVar

T = TypeVar("T")

_WEIGHT = ".weight"
# What names begin with where a whole model lies inside another, and no part of it.
_WRAPPERS = frozenset(
    {
        *("model", "module", "base_model", "_orig_mod", "net", "diffusion_model", "transformer"),
        *("language_model", "text_model", "backbone", "llm"),
    }
)


def match_names(
    said: Mapping[str, T], modules: Collection[str]
) -> tuple[dict[str, T], tuple[str, ...]]:
    """Return the statement about each module, and the names that match none, or several."""
    # The empty name stands for all other modules. A module's own name comes first.
    hits = {name: value for name, value in said.items() if not name or name in modules}
    others = [name for name in said if name not in hits]
    if not others:
        return hits, ()
    ends = _Ends(modules)
    found: dict[str, list[str]] = {}
    for name in others:
        found.setdefault(ends.module_of(name), []).append(name)
    missed = found.pop("", [])
    for module, names in found.items():
        if any(said[name] != said[names[0]] for name in names):
            missed += names
        else:
            hits.setdefault(module, said[names[0]])
    return hits, tuple(missed)


def common_end(name: str, other: str) -> int:
    """Return how many dotted parts two names have in common at their ends."""
    pairs = zip(*(reversed(_bare(one).split(".")) for one in (name, other)), strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(map(_length, (name, other))))


class _Ends:
    """Finds modules by the ends of their names."""

    def __init__(self, modules: Collection[str]) -> None:
        self._whole = {_bare(module): module for module in modules}
        self._cores: dict[str, str] = {}
        self._ends: dict[str, str] = {}  # what several modules share is of none
        for bare, module in self._whole.items():
            core = _core(bare)
            self._cores[core] = "" if core in self._cores else module
            for end in _dotted_ends(core):
                self._ends[end] = "" if end in self._ends else module

    def module_of(self, name: str) -> str:
        """Return the one module that a name means; an empty string without one."""
        bare = _bare(name)
        if bare in self._whole:
            return self._whole[bare]
        core = _core(bare)
        if core in self._cores:
            return self._cores[core]
        if core in self._ends:
            return self._ends[core]
        return next((self._whole[end] for end in _dotted_ends(core) if end in self._whole), "")


def _bare(name: str) -> str:
    return name.removesuffix(_WEIGHT)


def _length(name: str) -> int:
    return _bare(name).count(".") + 1


def _core(name: str) -> str:
    """Return a name without the wrappers that it begins with."""
    first, dot, rest = name.partition(".")
    while dot and first in _WRAPPERS:
        name = rest
        first, dot, rest = name.partition(".")
    return name


def _dotted_ends(name: str) -> Iterator[str]:
    """Yield what a name of several parts ends with, of two parts and more."""
    _, _, end = name.partition(".")
    while "." in end:
        yield end
        _, _, end = end.partition(".")
