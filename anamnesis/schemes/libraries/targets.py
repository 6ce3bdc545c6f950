"""Which modules a config speaks of: by names, regular expressions or globs.

A config is input like any other, so its regular expressions are not run. Those that tools write
are words with gaps and choices between, which take time that grows as the name: `re:.*\\.mlp\\.
(gate|up)_proj$`. Any other one may mean every module.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import product
from typing import Generic, NamedTuple, TypeVar

from anamnesis.schemes.libraries.module_names import match_names

T = TypeVar("T")

REGEX = "re:"
_MOST_CHOICES = 64  # that the groups of one regular expression may come to
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
    parts: list[list[str | None]] = []  # None is a gap
    place = 0
    while place < len(text):
        token = _TOKEN.match(text, place)
        if token is None or (not is_regex and token.lastgroup != "plain" and token[0] != "*"):
            return None
        place = token.end()
        if token["gap"]:
            if is_regex == (token[0] == "*"):
                return None
            parts.append([None])
        elif token["group"]:
            parts.append([word.replace("\\", "") for word in token["words"].split("|")])
        else:
            parts.append([token["escaped"] or token["plain"]])
    n = 1
    for choices in parts:
        n *= len(choices)
        if n > _MOST_CHOICES:
            return None
    return [_Glob(tuple(_words(choice)), to_end) for choice in product(*parts)]


def _words(choice: Iterable[str | None]) -> Iterator[str]:
    word = ""
    for part in choice:
        if part is None:
            yield word
            word = ""
        else:
            word += part
    yield word


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
