"""What each allowed global may do in a pickle: be called, with what; get a state.

Checkpoints hold dates, counters, the paths of datasets, numpy's and torch's values. A pickle of
them calls a few functions with arguments of a few kinds, and these do nothing but make the value.
The same names do harm in other roles: `numpy.ndarray`, which arrays only name, makes pointers of a
file's bytes if it is called; a class that gets a state is changed for the whole process. numpy's
`__setstate__` checks nothing: a dtype of objects that says that it has none makes pointers out of a
pickle's bytes; an array that gets a state twice lets memory go that another one still looks at. So
states must have the form that numpy writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import prod
from typing import Any, NamedTuple

from anamnesis.base.dtypes import DTYPES
from anamnesis.base.plain_json import json_table
from anamnesis.formats.pickle.nodes import SCALARS, Call, Global, PickledSet
from anamnesis.formats.torch.distributed import DATACLASSES
from anamnesis.formats.torch.globals import is_allowed

_DTYPE_KIND = re.compile(r"(c(?=[0-9])|[?biufmMOSUV])([0-9]{0,9})")  # "c" alone is bytes, of a size
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
    args, state, name = made.args, made.states[0], str(made.function)
    if name == "numpy.dtype":
        return _is_of_dtype(args, state)
    if name not in _ARRAYS or len(args) != 3 or not isinstance(args[0], Global):
        return False
    if str(args[0]) != "numpy.ndarray" or args[1] != (0,):  # it has memory before it gets a state
        return False
    if len(state) != 5 or type(state[1]) is not tuple:
        return False
    if not all(type(n) is int and n >= 0 for n in state[1]):
        return False
    # Of a list of objects numpy reads as many as the shape has.
    return type(state[4]) is not list or len(state[4]) == prod(state[1])


def _is_of_dtype(args: tuple[Any, ...], state: tuple[Any, ...]) -> bool:
    if len(args) != 3 or args[1:] != (False, True) or len(state) not in (8, 9):
        return False
    version, _, *record, n_bytes, alignment, flags = state[:8]
    if version not in (3, 4) or record != [None] * 3 or alignment not in _ALIGNMENTS:
        return False
    if isinstance(args[0], Global):
        return (n_bytes, flags) == (_EXTENDED.get(str(args[0])), _FLAGS_OF_EXTENDED)
    match = _DTYPE_KIND.fullmatch(args[0]) if type(args[0]) is str else None
    if match is None:
        return False
    kind, count = match.groups()
    wanted = _UNSIZED
    if kind in _CHARACTER_BYTES:
        wanted = _CHARACTER_BYTES[kind] * int(count or 0)
    metadata = state[8] if len(state) == 9 else None
    is_given = type(metadata) is tuple if kind in "mM" else type(metadata) in (dict, type(None))
    return is_given and (n_bytes, flags) == (wanted, _FLAGS.get(kind, 0))


Check = Callable[[Any], bool]


class Role(NamedTuple):
    """What a global may do beside being named: `None` if it may not be called, or get a state."""

    takes: Check | None = None  # the tuple of arguments
    state: Check | None = None  # the object with its states


# --- kinds of values ---------------------------------------------------------------------------


def _is(*kinds: type) -> Check:
    return lambda value: type(value) in kinds


def _made_by(*names: str) -> Check:
    return lambda value: type(value) is Call and str(value.function) in names


def _named(*names: str) -> Check:
    return lambda value: isinstance(value, Global) and str(value) in names


_LOOKED_UP = {"append", "extend", "add", "__setstate__"}  # by opcodes, which call what they find
_KIND = re.compile(r"[<>=|]?[?biufcmMOSUV][0-9]{0,9}")
_FACTORIES = tuple(
    f"{module}.{name}"
    for module in ("builtins", "__builtin__")
    for name in ("bool", "dict", "float", "frozenset", "int", "list", "set", "str", "tuple")
)
_scalar = _is(*SCALARS)
_text = _is(str)
_made_bytes = _made_by("_codecs.encode", "builtins.bytes", "__builtin__.bytes")
_made_buffer = _made_by("builtins.bytearray", "__builtin__.bytearray")


def _bytes(value: Any) -> bool:
    return type(value) is bytes or _made_bytes(value)


def _moment(value: Any) -> bool:
    is_made = type(value) is Call and isinstance(value.function, Global)
    return _scalar(value) or _bytes(value) or (is_made and value.function.module == "datetime")


def _attributes(made: Call) -> bool:
    """Whether each state is a dictionary, which becomes attributes; a pair would set slots."""
    return all(
        type(state) is dict and all(map(_text, state)) and not state.keys() & _LOOKED_UP
        for state in made.states
    )


_KINDS: dict[str, Check] = {
    "none": _is(type(None)),
    "text": _text,
    "whole": _is(int, bool),
    "number": _is(int, bool, float),
    "scalar": _scalar,
    "tuple": _is(tuple),
    "list": _is(list),
    "dict": _is(dict),
    "items": _is(list, tuple, dict, PickledSet),
    "bytes": _bytes,
    "buffer": lambda value: _bytes(value) or _made_buffer(value),
    "dtype": _made_by("numpy.dtype"),
    "ndarray": _named("numpy.ndarray"),
    "array": _named("array.array"),
    "factory": _named(*_FACTORIES),
    "moment": _moment,
    "encoding": lambda value: type(value) is str and value in ("latin1", "latin-1", "utf-8"),
    "typecode": lambda value: type(value) is str and len(value) == 1,
    "numpy kind": lambda value: type(value) is str and _KIND.fullmatch(value) is not None,
    "ml_dtype": lambda value: isinstance(value, Global) and value.module == "ml_dtypes",
}
_STATES: dict[str, Check] = {
    "attributes": _attributes,
    "numpy's": has_usual_state,
    "of dataclasses": lambda made: (
        all(type(state) is tuple for state in made.states) or _attributes(made)
    ),
}


def _role(said: str | None) -> Role:
    """Return the role of a row: `KIND, KIND|KIND, KIND?; STATE`; null is of what is only named."""
    # An argument with `?`, and those behind it, may be missing.
    if said is None:
        return Role()
    arguments, _, state = said.partition("; ")
    return Role(_taking(arguments), _STATES.get(state))


def _taking(said: str) -> Check:
    if said == "anything":
        return lambda args: True
    if said.startswith("each "):
        check = _KINDS[said.removeprefix("each ")]
        return lambda args: all(map(check, args))
    words = said.split(", ") if said else []
    kinds = [[_KINDS[kind] for kind in word.removesuffix("?").split("|")] for word in words]
    needed = sum(not word.endswith("?") for word in words)
    return lambda args: (
        needed <= len(args) <= len(kinds)
        and all(any(check(arg) for check in some) for some, arg in zip(kinds, args, strict=False))
    )


def _roles(rows: Mapping[str, Mapping[str, str | None]]) -> dict[str, dict[str, Role]]:
    found: dict[str, dict[str, Role]] = {}
    for modules, roles in rows.items():
        for module in modules.split():
            made = {name: _role(said) for names, said in roles.items() for name in names.split()}
            found.setdefault(module, {}).update(made)
    return found


_TABLE = json_table(__file__)
HARMLESS, _OTHERS = _roles(_TABLE["harmless"]), _roles(_TABLE["others"])
_DATACLASS = _role("whole?; of dataclasses")  # the number of an enumeration's member
_NAMED_TUPLE = _role("tuple|list, dict?")
_REBUILDS = _role("anything")  # torch.load(weights_only=True) calls them with anything, too
_OF_TORCHAO = _role("anything; attributes")
_NAMED_TUPLES = "torch.return_types"  # of torch.max and its like


def role_of(module: str, name: str) -> Role | None:
    """What an allowed global may do; None if it is not allowed."""
    role = HARMLESS.get(module, {}).get(name)
    if role is not None:
        return role
    if name in DATACLASSES.get(module, ()):
        return _DATACLASS
    if module == _NAMED_TUPLES and name.isidentifier() and not name.startswith("_"):
        return _NAMED_TUPLE
    if not is_allowed(module, name):
        return None
    if module == "torch._utils":
        return _REBUILDS
    if module.startswith("torchao."):
        return _OF_TORCHAO
    return _OTHERS.get(module, {}).get(name, Role())
