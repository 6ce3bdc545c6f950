"""The front matter of README.md: the part of YAML that model cards are written in.

Between two lines `---` stand entries `key: value`. What is read of values:

    text, 'text', "text"            a scalar on one line; a comment may follow
    [one, two]                      a list of scalars on one line
    - one                           a list, indented or not
    - name: one                     a list of entries, or entries by themselves (indented),
      version: two                  of scalars

A scalar that YAML takes for something else than text (`null`, `true`, `7`, a date) is None. A key
whose value is anything else (text over several lines, anchors, deeper nesting) is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from anamnesis.base.errors import ParseError
from anamnesis.base.limits import Budget
from anamnesis.sources.file import FileSource

FRONT_MATTER_MAX_BYTES = 1_000_000  # the longest of real cards have 100 kB

Scalar: TypeAlias = "str | None"
Entries: TypeAlias = "dict[str, Scalar]"
Value: TypeAlias = "Scalar | Entries | list[Scalar | Entries]"

_KEY = re.compile(r"([A-Za-z_][\w.-]*|\"[\w .-]+\"|'[\w .-]+')[ ]*:(?=[ ]|$)[ ]*")
_MARK = re.compile(r"[-?:]([ ]|$)")
_QUOTED = re.compile(r"'((?:[^']|'')*)'|(\"(?:[^\"\\]|\\.)*\")")
_ITEM = re.compile(r"-(?=[ ]|$)[ ]*")
# What YAML 1.1 resolves plain scalars to, but for text.
_NOT_TEXT = re.compile(
    r"~|null|Null|NULL|=|<<"
    r"|yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF"
    r"|[-+]?0b[01_]+|[-+]?0[0-7_]+|[-+]?(0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+"
    r"|[-+]?[1-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+\.[0-9_]*"
    r"|[-+]?[0-9][0-9_]*\.[0-9_]*([eE][-+][0-9]+)?|\.[0-9][0-9_]*([eE][-+][0-9]+)?"
    r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
    r"|\d{4}-\d\d-\d\d|\d{4}-\d\d?-\d\d?([Tt]|[ ]+)\d\d?:\d\d:\d\d(\.\d*)?"
    r"([ ]*(Z|[-+]\d\d?(:\d\d)?))?",
    re.ASCII,
)
_NOT_PLAIN = tuple("[]{},&*#|>!%@`\"'")


class _UnknownError(Exception):
    """A value is none of those that are read here."""


def read_card(path: Path, budget: Budget) -> dict[str, Value]:
    """Read the front matter of a README.md; without either there is nothing in it."""
    if not path.is_file():
        return {}
    with FileSource(path) as source:
        n = min(source.size, FRONT_MATTER_MAX_BYTES)
        budget.alloc(n, path.name)
        raw = source.read(0, n)
    try:
        # The cap may cut a letter in two.
        text = bytes(raw).decode("utf-8", "strict" if n == source.size else "ignore")
    except UnicodeDecodeError as error:
        raise ParseError(f"not valid UTF-8: {error}", source=str(path)) from None
    budget.items(text.count("\n"), f"the lines of {path.name}")
    return front_matter(text)


def front_matter(text: str) -> dict[str, Value]:
    """Return the entries at the head of a text that are read here; the last of a name counts."""
    lines = text.splitlines()
    if not lines or lines[0] != "---":
        return {}
    end = lines.index("---", 1) if "---" in lines[1:] else len(lines)
    found: dict[str, Value] = {}
    for key, given, below in _entries([line.replace("\t", "  ") for line in lines[1:end]]):
        found.pop(key, None)
        try:
            found[key] = _value(given, below)
        except _UnknownError:
            continue
    return found


def _entries(lines: Sequence[str]) -> Iterator[tuple[str, str, list[str]]]:
    """Yield each key that is not indented, what follows it on its line, and the lines below it."""
    start: re.Match[str] | None = None
    below: list[str] = []
    for line in lines:
        at = _KEY.match(line)
        if at is None:
            below.append(line)
            continue
        if start is not None:
            yield start[1].strip("\"'"), start.string[start.end() :], below
        start, below = at, []
    if start is not None:
        yield start[1].strip("\"'"), start.string[start.end() :], below


def _value(given: str, below: Sequence[str]) -> Value:
    lines = [line for line in below if line.strip() and not line.lstrip().startswith("#")]
    given = "" if given.startswith("#") else given
    if not lines:
        return _flow_list(given) if given.startswith("[") else _scalar(given)
    if given:
        raise _UnknownError
    depth = _indent(lines[0])
    if _ITEM.match(lines[0], depth):
        return [_item(part) for part in _items(lines, depth)]
    return _mapping(lines, depth)


def _items(lines: Sequence[str], depth: int) -> Iterator[list[str]]:
    """Yield the lines of each item, its dash replaced by blanks."""
    part: list[str] = []
    for line in lines:
        dash = _ITEM.match(line, depth) if _indent(line) == depth else None
        if dash is None and (not part or _indent(line) <= depth):
            raise _UnknownError
        if dash is None:
            part.append(line)
            continue
        if part:
            yield part
        part = [" " * dash.end() + line[dash.end() :]]
    yield part


def _item(lines: Sequence[str]) -> Scalar | Entries:
    depth = _indent(lines[0])
    if _KEY.match(lines[0], depth):
        return _mapping(lines, depth)
    if len(lines) > 1:
        raise _UnknownError
    text = lines[0].strip()
    return "no" if text == "no" else _scalar(text)  # Norwegian, in a list of languages


def _mapping(lines: Sequence[str], depth: int) -> Entries:
    found: Entries = {}
    for line in lines:
        at = _KEY.match(line, depth)
        if at is None or _indent(line) != depth:
            raise _UnknownError
        found[at[1].strip("\"'")] = _scalar(line[at.end() :])
    return found


def _flow_list(given: str) -> list[Scalar | Entries]:
    inner = _uncommented(given)[1:]
    if not inner.endswith("]"):
        raise _UnknownError
    parts = [part.strip() for part in inner[:-1].split(",")]
    if parts[-1] == "":
        parts.pop()
    if any(mark in part for part in parts for mark in "[]{}"):
        raise _UnknownError
    return [_scalar(part) for part in parts]


def _scalar(given: str) -> Scalar:
    if given.startswith(('"', "'")):
        whole = _QUOTED.match(given)
        if whole is None or _uncommented(given[whole.end() :]):
            raise _UnknownError
        if whole[2] is None:
            return whole[1].replace("''", "'")
        try:
            return str(json.loads(whole[2]))
        except ValueError:  # an escape that JSON has not
            raise _UnknownError from None
    text = _uncommented(given)
    if text == "" or _NOT_TEXT.fullmatch(text):
        return None
    is_plain = not text.startswith(_NOT_PLAIN) and not _MARK.match(text)
    if not is_plain or ": " in text or text.endswith(":"):
        raise _UnknownError
    return text


def _uncommented(given: str) -> str:
    at = given.find(" #")
    return (given if at < 0 else given[:at]).rstrip(" ")


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
