"""The known words nearest to an unknown one, for errors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_MOST = 3
_MOST_WORDS = 4096  # to compare with; a model may have a million names
_LEAST_ALIKE = 0.5  # more than that
_ALMOST = 0.75


class UnknownWord(ValueError):
    """A word that is none of a list, which is too long to be told."""


class UnknownName(KeyError):
    """A name that a mapping has not; what is like it is looked for when it is shown."""

    def __init__(self, name: Any, known: Iterable[str] = ()) -> None:
        super().__init__(name)
        self._known = known

    def __str__(self) -> str:
        name = self.args[0]
        return f"{name!r}{did_you_mean(name, self._known) if isinstance(name, str) else ''}"

    def __reduce__(self) -> tuple[Any, ...]:
        return KeyError, self.args


def nearest(word: str, known: Iterable[str], most: int = _MOST) -> tuple[str, ...]:
    """Return the few of some words that are most like one, the likeliest first."""
    # Case, and which of `-`, `_` and `.` stands between the parts of a word, make no difference.
    # Words that begin or end as the other does go before those that merely share letters.
    from difflib import SequenceMatcher

    wanted = _folded(word)
    alike = SequenceMatcher(b=wanted, autojunk=False)
    found: list[tuple[float, int, str]] = []
    names = list(known)
    if len(names) > _MOST_WORDS:
        ending = word.rpartition(".")[2]
        names = [name for name in names if name.endswith(ending)] or names
    for i, name in enumerate(names[:_MOST_WORDS]):
        folded = _folded(name)
        alike.set_seq1(folded)
        more = _in_common(wanted, folded)
        if alike.real_quick_ratio() + more <= _LEAST_ALIKE:
            continue
        score = alike.ratio() + more
        if score > _LEAST_ALIKE:
            found.append((-score, i, name))
    return tuple(name for _, _, name in sorted(found)[:most])


def mistyped(word: str, known: Iterable[str]) -> bool:
    """Return whether a word is all but one of some: of the same letters, but for one or two."""
    from difflib import SequenceMatcher

    return any(
        SequenceMatcher(a=_folded(word), b=_folded(name), autojunk=False).ratio() >= _ALMOST
        for name in known
    )


def did_you_mean(word: str, known: Iterable[str], most: int = _MOST, marks: str = "") -> str:
    """Return " (did you mean 'x', 'y' or 'z'?)", to stand behind a word; empty if none is alike."""
    # The `marks` that words begin with, such as the dashes of options, are not compared.
    by_word = {name.lstrip(marks): name for name in known}
    names = [repr(by_word[found]) for found in nearest(word.lstrip(marks), by_word, most)]
    if not names:
        return ""
    others = ", ".join(names[:-1])
    return f" (did you mean {others}{' or ' if others else ''}{names[-1]}?)"


def _in_common(wanted: str, name: str) -> float:
    """Return what more a name scores for how it begins, or else ends."""
    if wanted and name.startswith(wanted):
        return 1.25
    if wanted and name.endswith(wanted):
        return 0.75
    n = next((i for i, pair in enumerate(zip(wanted, name, strict=False)) if len(set(pair)) > 1), 0)
    return 0.5 * n / max(1, len(wanted))


def _folded(word: str) -> str:
    return word.lower().replace("_", "-").replace(".", "-")
