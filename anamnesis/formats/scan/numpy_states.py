"""Which states of numpy's objects are those that numpy writes.

Its `__setstate__` checks nothing. A dtype of objects that says that it has none makes
pointers out of a pickle's bytes; an array that gets a state twice lets memory go that another one
still looks at. So globals that are harmless are so only with states of the usual form.
"""

from __future__ import annotations

import re
from math import prod
from typing import Any

from anamnesis.base.dtypes import DTYPES
from anamnesis.formats.pickle.nodes import Call, Global

_KIND = re.compile(r"(c(?=[0-9])|[?biufmMOSUV])([0-9]{0,9})")  # "c" alone is bytes, of a size
_ARRAYS = ("numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct")
_EXTENDED = {
    f"ml_dtypes.{dtype.numpy_name}": dtype.bits // 8
    for dtype in DTYPES.values()
    if dtype.numpy_name
}
_UNSIZED = -1  # what fixed dtypes say of their sizes
_ALIGNMENTS = (_UNSIZED, 1, 2, 4, 8, 16)
# Their flags are numpy's NPY_ITEM_HASOBJECT and so on.
_FLAGS = {"O": 63, "U": 8}
_FLAGS_OF_EXTENDED = 64
_CHARACTER_BYTES = {"S": 1, "U": 4, "V": 1}


def has_usual_state(made: Call) -> bool:
    """Return whether what is given to an object's `__setstate__` is what numpy writes for it."""
    # Records and dtypes of several dimensions are not looked into.
    if len(made.states) != 1 or type(made.states[0]) is not tuple:
        return False
    name = str(made.function)
    if name == "numpy.dtype":
        return _is_of_dtype(made.args, made.states[0])
    return name in _ARRAYS and _is_empty_array(made.args) and _is_filled(made.states[0])


def _is_empty_array(args: tuple[Any, ...]) -> bool:
    """Return whether an array has no memory before it gets its state."""
    if len(args) != 3 or not isinstance(args[0], Global):
        return False
    return str(args[0]) == "numpy.ndarray" and args[1] == (0,)


def _is_filled(state: tuple[Any, ...]) -> bool:
    """Return whether a list holds all objects of an array: numpy reads as many as its shape has."""
    if len(state) != 5 or type(state[1]) is not tuple:
        return False
    if not all(type(n) is int and n >= 0 for n in state[1]):
        return False
    return type(state[4]) is not list or len(state[4]) == prod(state[1])


def _is_of_dtype(args: tuple[Any, ...], state: tuple[Any, ...]) -> bool:
    if len(args) != 3 or args[1:] != (False, True) or len(state) not in (8, 9):
        return False
    version, _, *record, n_bytes, alignment, flags = state[:8]
    if version not in (3, 4) or record != [None] * 3 or alignment not in _ALIGNMENTS:
        return False
    if isinstance(args[0], Global):
        return (n_bytes, flags) == (_EXTENDED.get(str(args[0])), _FLAGS_OF_EXTENDED)
    match = _KIND.fullmatch(args[0]) if type(args[0]) is str else None
    if match is None:
        return False
    kind, count = match.groups()
    wanted = _UNSIZED
    if kind in _CHARACTER_BYTES:
        wanted = _CHARACTER_BYTES[kind] * int(count or 0)
    metadata = state[8] if len(state) == 9 else None
    is_given = type(metadata) is tuple if kind in "mM" else type(metadata) in (dict, type(None))
    return is_given and (n_bytes, flags) == (wanted, _FLAGS.get(kind, 0))
