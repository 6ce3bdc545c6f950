"""What a pickle may cost: the permanent caps, and what each kind of value is counted as."""

from __future__ import annotations

from typing import Any

from anamnesis.formats.pickle_nodes import PickledSet

__all__ = [
    "CONTAINER",
    "ENTRY",
    "NUMBER",
    "PICKLE_MAX_BYTES",
    "PICKLE_MAX_DEPTH",
    "PICKLE_MAX_GROWTH",
    "PICKLE_MAX_INT",
    "PICKLE_MAX_PAYLOAD",
    "PICKLE_MAX_RATIO",
    "PICKLE_MAX_WORKING_SET",
    "PICKLE_SMALL",
    "SLOT",
    "args_cost",
    "made_cost",
]

PICKLE_MAX_BYTES = 100 << 20  # of one pickle
PICKLE_MAX_RATIO = 16  # bytes of a pickle for each that it takes in an archive; 6 are usual
PICKLE_SMALL = 4 << 10  # bytes that it may have in any case
PICKLE_MAX_PAYLOAD = 64 << 20  # bytes of one string
PICKLE_MAX_WORKING_SET = 512 << 20  # bytes that all values take together
PICKLE_MAX_GROWTH = 320  # of those bytes for each of the pickle, and 8 MiB: an opcode takes no more
PICKLE_MAX_DEPTH = 256  # of values in values
PICKLE_MAX_INT = 1024  # bytes of one integer; a larger one could not even be printed

# What CPython takes at most, in bytes, for the slot that holds a value, a number or an empty
# string, a container with its first items, one entry of the memo or of a dictionary.
SLOT, NUMBER, CONTAINER, ENTRY = 16, 64, 320, 128

_COUNTED = frozenset((tuple, list, dict))


def args_cost(args: tuple[Any, ...]) -> int:
    """Return what looking through a builder's arguments, and what they hold, is counted as."""
    n = len(args)
    for arg in args:
        if type(arg) in _COUNTED:
            n += len(arg)
    return SLOT * n


def made_cost(made: Any) -> int:
    """Return what a builder's result takes at most, beside the object itself."""
    kind = type(made)
    if kind is tuple or kind is list:
        return SLOT * len(made)
    if kind is dict:
        return 2 * ENTRY * len(made)
    if kind is PickledSet:
        return SLOT * len(made.items)
    if kind is bytes:
        return len(made)
    if kind is str:
        return len(made) if made.isascii() else 4 * len(made)
    return 0
