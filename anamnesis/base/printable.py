"""Text from files as a terminal may show it: no control characters, no line breaks."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["abbreviate", "printable"]


def printable(text: str) -> str:
    """Return `text` with everything that does not print written as Python escapes.

    Names in a hostile file may hold escape sequences, line breaks that forge output, or marks that
    turn the direction of writing.
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


def abbreviate(names: Iterable[str], most: int = 5) -> str:
    """Return a list as text: the first `most` names and how many more there are."""
    all_names = [printable(name) for name in names]
    shown = ", ".join(all_names[:most])
    more = len(all_names) - most
    return f"{shown} and {more:,} more" if more > 0 else shown
