"""Facts as small tables, as notebooks show them; all text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from anamnesis.base.printable import printable

_LONGEST = 500  # characters of a cell
_LEFT = ' style="text-align: left"'


def html_table(
    rows: Iterable[Sequence[str]], *, head: Sequence[str] = (), caption: str = ""
) -> str:
    """Return a table; the first cell of each row is its heading if the table has no other."""
    parts = ["<table>"]
    if caption:
        parts.append(f"<caption{_LEFT}>{_text(caption)}</caption>")
    if head:
        parts.append(f"<tr>{''.join(_cell('th', text) for text in head)}</tr>")
    for row in rows:
        cells = (_cell("td" if i or head else "th", text) for i, text in enumerate(row))
        parts.append(f"<tr>{''.join(cells)}</tr>")
    return "".join([*parts, "</table>"])


def _cell(tag: str, text: str) -> str:
    return f"<{tag}{_LEFT}>{_text(text)}</{tag}>"


def _text(text: str) -> str:
    shown = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    return escape(printable(shown))
