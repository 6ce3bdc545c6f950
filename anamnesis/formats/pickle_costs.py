"""What a pickle may cost: the permanent caps, and what each kind of value is counted as."""

from __future__ import annotations

__all__ = [
    "CONTAINER",
    "ENTRY",
    "NUMBER",
    "PICKLE_MAX_BYTES",
    "PICKLE_MAX_DEPTH",
    "PICKLE_MAX_INT",
    "PICKLE_MAX_PAYLOAD",
    "PICKLE_MAX_RATIO",
    "PICKLE_MAX_WORKING_SET",
    "PICKLE_SMALL",
    "SLOT",
]

PICKLE_MAX_BYTES = 100 << 20  # of one pickle
PICKLE_MAX_RATIO = 16  # bytes of a pickle for each that it takes in an archive; 6 are usual
PICKLE_SMALL = 4 << 10  # bytes that it may have in any case
PICKLE_MAX_PAYLOAD = 64 << 20  # bytes of one string
PICKLE_MAX_WORKING_SET = 512 << 20  # bytes that all values take together
PICKLE_MAX_DEPTH = 256  # of values in values
PICKLE_MAX_INT = 1024  # bytes of one integer; a larger one could not even be printed

# What CPython takes at most, in bytes, for the slot that holds a value, a number or an empty
# string, a container with its first items, one entry of the memo or of a dictionary.
SLOT, NUMBER, CONTAINER, ENTRY = 16, 64, 320, 128
