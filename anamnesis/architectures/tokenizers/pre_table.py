"""Pre-tokenizers that llama.cpp knows, and how each of them splits a text.

A step is what tokenizer.json calls a pre-tokenizer: `("split", regex)` cuts out what matches, each
match a piece of its own; `("digits",)` each digit, `("punctuation",)` runs of punctuation;
`("words",)` is the splitting that `ByteLevel` does by itself, which is GPT-2's. Regexes are brought
into one spelling to be compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import NamedTuple

from anamnesis.base.plain_json import json_table

_ATOM = re.compile(
    r"\\(?:x\{(?P<long>[0-9A-Fa-f]{1,6})\}|x(?P<two>[0-9A-Fa-f]{2})|u(?P<four>[0-9A-Fa-f]{4})"
    r"|(?P<of>[pP])\{(?P<name>[^}]*)\}|(?P<escaped>.))|(?P<plain>.)",
    re.DOTALL,
)
_COUNT = re.compile(r"\{(\d)(,?)(\d?)\}(?![?+])")
_COUNTS = {("1", "", ""): "", ("0", ",", ""): "*", ("1", ",", ""): "+", ("0", ",", "1"): "?"}
_CONTROLS = {"r": "\r", "n": "\n", "t": "\t", "f": "\f", "v": "\v", "a": "\a", "e": "\x1b"}
_TABLE = json_table(__file__)
_CATEGORIES: Mapping[str, str] = _TABLE["categories"]
_SPECIAL = frozenset(r"\.^$|?*+()[]{}")
_SPECIAL_IN_CLASS = frozenset(r"\^-[]&")


@cache
def meaning(regex: str) -> str:
    """Return a regex with escapes as characters, and the members of classes in one order."""
    # Two that mean the same may still differ, but two that differ in meaning do not become equal.
    made, at = [], 0
    while at < len(regex):
        count = _COUNT.match(regex, at)
        if count is not None and count.groups() in _COUNTS:
            made.append(_COUNTS[count[1], count[2], count[3]])
            at = count.end()
        elif regex[at] == "[":
            end = _end_of_class(regex, at + 1)
            if end is None:
                return "".join([*made, regex[at:]])
            inside = regex[at + 1 : end]
            members = "".join(sorted(set(_members(inside.removeprefix("^")))))
            made.append(f"[{'^' if inside.startswith('^') else ''}{members}]")
            at = end + 1
        else:
            atom = _ATOM.match(regex, at)
            assert atom is not None
            made.append(_spelt(atom, _SPECIAL))
            at = atom.end()
    return "".join(made)


def _end_of_class(regex: str, at: int) -> int | None:
    """Return where a class ends; None of one that holds others, which stays as it is."""
    start = at
    while at < len(regex) and regex[at] != "[" and not regex.startswith("&&", at):
        if regex[at] == "]":
            return at if regex[start:at].strip("^") else None
        at += 2 if regex[at] == "\\" else 1
    return None


def _members(inside: str) -> Iterator[str]:
    """Yield the members of a class: characters, categories, and ranges."""
    atoms = list(_ATOM.finditer(inside))
    spelt = [_spelt(atom, _SPECIAL_IN_CLASS) for atom in atoms]
    i = 0
    while i < len(atoms):
        if i + 2 < len(atoms) and atoms[i + 1][0] == "-":
            yield f"{spelt[i]}-{spelt[i + 2]}"
            i += 3
        else:
            yield "\\-" if atoms[i][0] == "-" else spelt[i]
            i += 1


def _spelt(atom: re.Match[str], special: frozenset[str]) -> str:
    """Return a character, escaped where it would be an operator; or what stands for several."""
    if atom["plain"] is not None:
        return atom["plain"]
    if atom["name"] is not None:
        return _category(atom["of"] == "P", atom["name"])
    escaped = atom["escaped"]
    if escaped is None:
        code = int(atom["long"] or atom["two"] or atom["four"], 16)
        char = chr(code) if code < 0x110000 else atom[0]
    elif escaped.isascii() and escaped.isalnum():
        char = _CONTROLS.get(escaped, atom[0])
    else:
        char = escaped
    return f"\\{char}" if char in special else char


def _category(is_not: bool, name: str) -> str:
    is_not ^= name.startswith("^")
    word = name.removeprefix("^").lower()
    for char in " _-":
        word = word.replace(char, "")
    return f"\\{'P' if is_not else 'p'}{{{_CATEGORIES.get(word, word)}}}"


Step = tuple[str, ...]


class Pattern(NamedTuple):
    """Names of pre-tokenizers that split alike; the first is written where only that is known."""

    names: tuple[str, ...]
    steps: tuple[Step, ...]
    ignore_merges: bool | None = None
    normalizer: str | None = None


WORDS: Step = ("words",)
DIGITS: Step = ("digits",)

PATTERNS = tuple(
    Pattern(
        tuple(row["names"].split()),
        tuple(tuple(step) for step in row["steps"]),
        row.get("ignore_merges"),
        row.get("normalizer"),
    )
    for row in _TABLE["patterns"]
)

# What other steps are as regexes.
_AS_REGEXES = {
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": WORDS,
    r"\p{N}": DIGITS,
}


@cache
def steps_by_regex() -> dict[str, Step]:
    """Return the steps that known tokenizers have, by the meaning of their regexes."""
    splits = {step[1]: step for row in PATTERNS for step in row.steps if step[0] == "split"}
    return {meaning(regex): step for regex, step in {**splits, **_AS_REGEXES}.items()}
