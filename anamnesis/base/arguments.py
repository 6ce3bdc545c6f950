"""What arguments must be, said in one line before anything is done with them."""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import Any


def check_kind(name: str, value: Any, kind: type, *, optional: bool = True) -> None:
    """Refuse a value of another type."""
    if not isinstance(value, kind) and not (optional and value is None):
        raise TypeError(f"{name} must be a {kind.__name__}, not {value!r}")


def check_mapping(name: str, value: Any, of: tuple[type, ...] = ()) -> None:
    """Refuse what is no mapping, such as a list of pairs; or not from texts to values of a type."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a mapping, such as a dict, not {type(value).__name__}")
    for key, item in value.items() if of else ():
        if not isinstance(key, str) or not isinstance(item, of):
            raise TypeError(f"{name} cannot map {key!r} to {item!r}")


def check_block_size(value: Any) -> None:
    """Refuse what is no pair of whole numbers of at least 1."""
    why = f"block_size must be two whole numbers, rows and columns, not {value!r}"
    if isinstance(value, (str, bytes)):
        raise TypeError(why)
    try:
        rows, columns = map(index, value)
    except (TypeError, ValueError):
        raise TypeError(why) from None
    if min(rows, columns) < 1:
        raise ValueError(f"block_size must be at least 1 by 1, not {value!r}")


def whole_number(name: str, value: Any, *, least: int = 1) -> int:
    """Return a number of at least `least`."""
    try:
        number = index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, not {value!r}") from None
    if number < least:
        raise ValueError(f"{name} must be at least {least}, got {number}")
    return number
