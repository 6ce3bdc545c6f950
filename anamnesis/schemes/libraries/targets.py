"""Which modules a config speaks of: by names, regular expressions or globs.

Names that were given elsewhere are matched to a model's own: it may lie inside another
(`model.diffusion_model.blocks.0` where the tool saw `blocks.0`), its wrappers may change places
(`model.language_model.` and `language_model.model.`), and some tools name the weight of a module.

A config is input like any other, so its regular expressions are not run. Those that tools write
are words with gaps and choices between, which take time that grows as the name: `re:.*\\.mlp\\.
(gate|up)_proj$`. Any other one may mean every module.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import product
from typing import Generic, NamedTuple, TypeVar

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
    both = [_bare(one).split(".")[::-1] for one in (name, other)]
    pairs = enumerate(zip(*both, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(map(len, both)))


def without_wrappers(name: str) -> str:
    """Return a name without the wrappers that it begins with."""
    first, dot, rest = name.partition(".")
    while dot and first in _WRAPPERS:
        name = rest
        first, dot, rest = name.partition(".")
    return name


class _Ends:
    """Finds modules by the ends of their names."""

    def __init__(self, modules: Collection[str]) -> None:
        self._whole = {_bare(module): module for module in modules}
        self._cores: dict[str, str] = {}
        self._ends: dict[str, str] = {}  # what several modules share is of none
        for bare, module in self._whole.items():
            core = without_wrappers(bare)
            self._cores[core] = "" if core in self._cores else module
            for end in _dotted_ends(core):
                self._ends[end] = "" if end in self._ends else module

    def module_of(self, name: str) -> str:
        """Return the one module that a name means; an empty string without one."""
        bare = _bare(name)
        if bare in self._whole:
            return self._whole[bare]
        core = without_wrappers(bare)
        if core in self._cores:
            return self._cores[core]
        if core in self._ends:
            return self._ends[core]
        return next((self._whole[end] for end in _dotted_ends(core) if end in self._whole), "")


def _bare(name: str) -> str:
    return name.removesuffix(".weight")


def _dotted_ends(name: str) -> Iterator[str]:
    """Yield what a name of several parts ends with, of two parts and more."""
    _, _, end = name.partition(".")
    while "." in end:
        yield end
        _, _, end = end.partition(".")


T = TypeVar("T")

REGEX = "re:"
_MOST_CHOICES = 64  # that the groups of one regular expression may come to
_GAP = "\n"  # between words, in none of which it can be
_TOKEN = re.compile(
    r"(?P<gap>\.[*+]\??|\\d\+|\[0-9\]\+|\*)|(?P<group>\((?:\?:)?(?P<words>[\w.\\|-]*)\))"
    r"|\\(?P<escaped>[.\-_])|(?P<plain>[\w.-])"
)


class _Glob(NamedTuple):
    """Words in their order, with anything between them."""

    words: tuple[str, ...]
    to_end: bool

    def matches(self, name: str) -> bool:
        """Return whether a name begins with the first word, and has the others behind it."""
        first, *rest = self.words
        if not name.startswith(first):
            return False
        if not rest:
            return not self.to_end or name == first
        place, last = len(first), rest.pop() if self.to_end else ""
        for word in rest:
            place = name.find(word, place)
            if place < 0:
                return False
            place += len(word)
        return name.endswith(last) and len(name) - len(last) >= place


def by_regex(regex: str) -> str:
    """Return a target that is a regular expression, as `re.match` takes it."""
    return regex if regex.startswith(REGEX) else REGEX + regex


@lru_cache(maxsize=256)
def _globs(target: str) -> list[_Glob] | None:
    """Return what a pattern means; None if it is none of those that tools write."""
    is_regex = target.startswith(REGEX)
    text = target.removeprefix(REGEX).removeprefix("^") if is_regex else target
    to_end = not is_regex or text.endswith("$")
    text = text.removesuffix("$") if is_regex else text
    parts: list[list[str]] = []
    place = 0
    while place < len(text):
        token = _TOKEN.match(text, place)
        if token is None or (not is_regex and token.lastgroup != "plain" and token[0] != "*"):
            return None
        place = token.end()
        if token["gap"]:
            if is_regex == (token[0] == "*"):
                return None
            parts.append([_GAP])
        elif token["group"]:
            parts.append([word.replace("\\", "") for word in token["words"].split("|")])
        else:
            parts.append([token["escaped"] or token["plain"]])
    n = 1
    for choices in parts:
        n *= len(choices)
        if n > _MOST_CHOICES:
            return None
    return [_Glob(tuple("".join(choice).split(_GAP)), to_end) for choice in product(*parts)]


def matches(target: str, name: str) -> bool | None:
    """Return whether a pattern is of a name; None if it is none of those that tools write."""
    globs = _globs(target)
    return None if globs is None else any(glob.matches(name) for glob in globs)


class Targets(Generic[T]):
    """Looks up what is said of a module."""

    def __init__(self, said: Iterable[tuple[str, T]], modules: Iterable[str]) -> None:
        self._named: dict[str, list[T]] = {}
        self._patterns: list[tuple[_Glob, T]] = []
        self._others: list[T] = []
        elsewhere: dict[str, list[T]] = {}
        known: set[str] | None = None
        for target, value in said:
            if not target:
                self._others.append(value)
                continue
            known = set(modules) if known is None else known
            if target in known:
                self._named.setdefault(target, []).append(value)
                continue
            is_pattern = target.startswith(REGEX) or "*" in target
            if not is_pattern and "." in target:  # others may be classes
                elsewhere.setdefault(target, []).append(value)
                continue
            globs = _globs(target) if is_pattern else None
            if globs is not None and any(g.matches(name) for g in globs for name in known):
                self._patterns += [(glob, value) for glob in globs]
            else:
                self._others.append(value)
        hits, missed = match_names(elsewhere, known or ())
        self._named = {**hits, **self._named}
        self._others += [value for target in missed for value in elsewhere[target]]

    @property
    def of_all(self) -> list[T] | None:
        """What is said of all modules alike; None if some are spoken of by their names."""
        return None if self._named or self._patterns else self._others

    def of(self, module: str) -> list[T]:
        """Return what may be said of a module: by its name, by a pattern, or of all others."""
        return self.by_name(module) or self._others

    def by_name(self, module: str) -> list[T]:
        """Return what is said of a module by its name, or else by a pattern."""
        named = self._named.get(module)
        if named is not None:
            return named
        if not self._patterns:
            return []
        return [value for glob, value in self._patterns if glob.matches(module)]
