"""Plain values of a pickle as JSON has them, and what they cost."""

from __future__ import annotations

from typing import Any

from anamnesis.formats.pickle.costs import text_cost

_AS_IN_JSON = frozenset((bool, int, float, str))


def value_cost(value: Any) -> int:
    """Return a leaf's cost in bytes: of a long integer its bits, for digits take their square."""
    kind = type(value)
    if kind is str:
        return text_cost(value)
    if kind is int:
        return value.bit_length() // 64 * 64  # type: ignore[no-any-return]
    n_bytes = 0
    if kind is list or kind is tuple:
        for item in value:  # not a list of all their costs: there may be millions
            part = type(item)
            if part is str:
                n_bytes += text_cost(item)
            elif part is int:
                n_bytes += item.bit_length() // 64 * 64
            elif part is list or part is tuple:
                n_bytes += value_cost(item) if item else 0
    return n_bytes


def plain_list(items: Any, kinds: set[type]) -> list[Any]:
    """Return a list of plain values, of those kinds, as one that JSON has."""
    if kinds <= _AS_IN_JSON:
        return list(items)
    return ["None" if item is None else plain(item) for item in items]


def plain(value: Any) -> Any:
    """Return a leaf as a value that JSON has."""
    if type(value) in _AS_IN_JSON:
        return value
    if value is None:
        return "None"  # the same string each time, which `str` does not give
    if type(value) is bytes:
        return f"({len(value):,} bytes)"
    if type(value) is tuple:
        return "()"
    return str(value)[:200]
