"""Ids of encodings, and words behind names: both from one table of settings.

`fp8-block-64x64-e5m2` is `fp8-block` with a block size of (64, 64) and the format E5M2. An id has
a word for each setting that is not as usual, in the order of the table; a name may have them in any
order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

_NUMBER = re.compile(r"[0-9]{1,6}")
_BLOCK = re.compile(r"([1-9][0-9]{0,5})x([1-9][0-9]{0,5})")


class Setting(NamedTuple):
    """A setting of some encodings, and the words for it."""

    name: str
    usual: Any
    words: Mapping[Any, str] = {}
    form: Literal["", "number", "block"] = ""
    is_always_said: bool = False
    ids_alone: Mapping[Any, str] = {}

    def spelt(self, value: Any) -> str:
        for words in (self.words, self.ids_alone):
            if value in words:
                return words[value]
        return "x".join(map(str, value)) if self.form == "block" else str(value)

    def read(self, word: str) -> tuple[Any] | None:
        """Return the value that a word stands for, in a tuple; None if it is for another one."""
        for value, own in self.words.items():
            if word == own:
                return (value,)
        if self.form == "number" and _NUMBER.fullmatch(word):
            return (int(word),)
        block = _BLOCK.fullmatch(word) if self.form == "block" else None
        return None if block is None else ((int(block[1]), int(block[2])),)


def spelt(name: str, settings: Mapping[str, Any], table: Sequence[Setting]) -> str:
    """Return the id of an encoding: its name, and words for settings that are not as usual."""
    said = [
        one.spelt(settings[one.name])
        for one in table
        if one.name in settings and (one.is_always_said or settings[one.name] != one.usual)
    ]
    return "-".join([name, *filter(None, said)])


def parsed(words: str, table: Sequence[Setting]) -> dict[str, Any] | None:
    """Return what words behind a name say; None if they say nothing, or one thing twice."""
    settings: dict[str, Any] = {}
    for word in words.split("-"):
        found = [(s.name, value) for s in table if (value := s.read(word))]
        if len(found) != 1 or found[0][0] in settings:
            return None
        name, (settings[name],) = found[0]
    return settings
