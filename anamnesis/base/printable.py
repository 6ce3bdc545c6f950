"""Text from files as a terminal may show it: no control characters or breaks."""

from __future__ import annotations

from collections.abc import Iterable

_LONGEST = 200  # characters of a name
_LONGEST_VALUE = 80
_SHOWN = (str, bytes, int, float, complex, tuple, list, dict, set, type(None))


def printable(text: str) -> str:
    """Return `text` with everything that does not print written as Python escapes."""
    # Names in a hostile file may hold escape sequences, line breaks that forge output, or marks
    # that turn the direction of writing.
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


def shortened(text: str, longest: int = _LONGEST) -> str:
    """Return `text` as `printable` does, and only its beginning if it is too long to be shown."""
    if len(text) > longest:
        return f"{printable(text[:longest])}… ({len(text):,} characters)"
    return printable(text)


def abbreviate(names: Iterable[str], most: int = 5) -> str:
    """Return a list as text: the first `most` names and how many more there are."""
    all_names = list(names)
    shown = ", ".join(map(shortened, all_names[:most]))
    more = len(all_names) - most
    return f"{shown} and {more:,} more" if more > 0 else shown


def numbered(n: int, word: str) -> str:
    """Return a number of things: `1 file`, `2,000 files`."""
    return f"{n:,} {word}{'s' * (n != 1)}"


def shown(value: object) -> str:
    """Return a value as a message shows it: in one short line, or else by its type."""
    text = repr(value) if isinstance(value, _SHOWN) else ""
    if text and len(text) <= _LONGEST_VALUE and text.isprintable():
        return text
    return kind_of(value)


def kind_of(value: object) -> str:
    """Return a value's type behind its article: `an int`."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeioAEIO' else 'a'} {name}"
