"""Text from files, values and sizes, as a terminal may show them."""

from __future__ import annotations

import re
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


_UNITS = ("KB", "MB", "GB", "TB", "PB")
_FACTORS = {"": 1, **{unit[0]: 1000 ** (i + 1) for i, unit in enumerate(_UNITS)}}
_SIZE = r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGTP]?)(I?)B?\s*"


def format_size(n_bytes: int) -> str:
    """Return for instance `640 B`, `1.7 KB`, `89.1 MB`, `7.70 GB`."""
    if n_bytes < 1000:
        return f"{n_bytes} B"
    value = float(n_bytes)
    for unit in _UNITS:
        value /= 1000
        digits = 1 if unit in ("KB", "MB") else 2
        if round(value, digits) < 1000 or unit == _UNITS[-1]:
            break
    return f"{value:,.{digits}f} {unit}"


def parse_size(text: str) -> int:
    """Return the bytes that `5GB`, `500 MB`, `2GiB` or `1000` mean."""
    found = re.fullmatch(_SIZE, text, re.IGNORECASE)
    if not found:
        raise ValueError(f"{text!r} is not a size like 5GB, 500MB or 2GiB")
    factor = _FACTORS[found[2].upper()]
    if found[3]:
        power = [*_FACTORS].index(found[2].upper())
        factor = 1024**power
    n_bytes = int(float(found[1]) * factor)
    if n_bytes <= 0:
        raise ValueError(f"{text!r} is not a size greater than zero")
    return n_bytes
