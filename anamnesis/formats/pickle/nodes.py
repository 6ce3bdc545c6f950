"""Inert stand-ins for the objects of a pickle, and what each kind may cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anamnesis.base.printable import kind_of

_LONGEST = 200  # characters of a module or name that are shown; it may be shown many times

SCALARS = frozenset((type(None), bool, int, float, complex, str, bytes))


class Global:
    """A function or class that a pickle refers to by name."""

    __slots__ = ("module", "name")

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.name = name

    def __str__(self) -> str:
        return f"{self.module[:_LONGEST]}.{self.name[:_LONGEST]}"


class Builder(Global):
    """A global whose calls a function of this package answers."""

    # The function raises TypeError or ValueError for arguments that it cannot take.

    __slots__ = ("build",)

    def __init__(self, module: str, name: str, build: Callable[..., Any]) -> None:
        super().__init__(module, name)
        self.build = build


class Call:
    """An object that a pickle would have made."""

    __slots__ = ("args", "function", "items", "pairs", "states")

    def __init__(self, function: Any, args: tuple[Any, ...]) -> None:
        self.function = function
        self.args = args
        self.states: list[Any] = []
        self.items: list[Any] = []
        self.pairs: dict[Any, Any] = {}


class PickledSet:
    """A set, its items unhashed and in the order of the pickle."""

    __slots__ = ("items",)

    def __init__(self, items: list[Any]) -> None:
        self.items = items


class Key:
    """A dictionary's key that is not a plain value; it is equal to nothing but itself."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def in_words(value: Any) -> str:
    """Return a value for a message; of a container only the type, for it may have no end."""
    if type(value) in SCALARS or isinstance(value, Global):
        return str(value)[:200]
    return kind_of(value)


# What CPython takes at most, in bytes, for the slot that holds a value, a number or an empty
# string, a container with its first items, one entry of the memo or of a dictionary.
SLOT, NUMBER, CONTAINER, ENTRY = 16, 64, 320, 128

_COUNTED = frozenset((tuple, list, dict))


def built_cost(args: tuple[Any, ...], made: Any) -> int:
    """Return what a call of a builder is counted as, beside the object that it returns."""
    # That is a slot for each argument, and for each value in one, for it may look at them all; and
    # what is in the result, at most.
    n = len(args)
    for arg in args:
        if type(arg) in _COUNTED:
            n += len(arg)
    measure = _MEASURES.get(type(made))
    return SLOT * n if measure is None else SLOT * n + measure(made)


def text_cost(text: str) -> int:
    """Return what a string takes at most, beside the object itself."""
    return len(text) if text.isascii() else 4 * len(text)


_MEASURES: dict[type, Callable[[Any], int]] = {
    bytes: len,
    str: text_cost,
    tuple: lambda made: SLOT * len(made),
    list: lambda made: SLOT * len(made),
    dict: lambda made: 2 * ENTRY * len(made),
    PickledSet: lambda made: SLOT * len(made.items),
}
