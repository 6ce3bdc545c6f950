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
from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

from anamnesis.base.dtypes import DTYPES
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


def _either(*checks: Check) -> Check:
    return lambda value: any(check(value) for check in checks)


def _args(*checks: Check, least: int | None = None) -> Check:
    """Positional arguments, of which the last ones may be missing."""
    needed = len(checks) if least is None else least
    return lambda args: (
        needed <= len(args) <= len(checks) and all(map(lambda check, arg: check(arg), checks, args))
    )


_LOOKED_UP = {"append", "extend", "add", "__setstate__"}  # by opcodes, which call what they find
_ENCODINGS = ("latin1", "latin-1", "utf-8")
_KIND = re.compile(r"[<>=|]?[?biufcmMOSUV][0-9]{0,9}")

_text = _is(str)
_int = _is(int, bool)
_number = _is(int, bool, float)
_scalar = _is(*SCALARS)
_items = _is(list, tuple, dict, PickledSet)
_bytes = _either(_is(bytes), _made_by("_codecs.encode", "builtins.bytes", "__builtin__.bytes"))
_buffer = _either(_bytes, _made_by("builtins.bytearray", "__builtin__.bytearray"))
_dtype = _made_by("numpy.dtype")


def _encoding(value: Any) -> bool:
    return type(value) is str and value in _ENCODINGS


def _typecode(value: Any) -> bool:
    return type(value) is str and len(value) == 1


def _ml_dtype(value: Any) -> bool:
    return isinstance(value, Global) and value.module == "ml_dtypes"


def _numpy_kind(value: Any) -> bool:
    return type(value) is str and _KIND.fullmatch(value) is not None


def _moment(value: Any) -> bool:
    is_made = type(value) is Call and isinstance(value.function, Global)
    return _scalar(value) or _bytes(value) or (is_made and value.function.module == "datetime")


def _attributes(made: Call) -> bool:
    """Whether each state is a dictionary, which becomes attributes; a pair would set slots."""
    return all(
        type(state) is dict and all(map(_text, state)) and not state.keys() & _LOOKED_UP
        for state in made.states
    )


# --- the table ---------------------------------------------------------------------------------

_FACTORIES = tuple(
    f"{module}.{name}"
    for module in ("builtins", "__builtin__")
    for name in ("bool", "dict", "float", "frozenset", "int", "list", "set", "str", "tuple")
)
_MAKES_ITEMS = Role(_args(_items, least=0))
_MAKES_NUMBER = Role(_args(_scalar, _scalar, least=0))
_MAKES_RANGE = Role(_args(*[_either(_int, _is(type(None)))] * 3, least=1))
_BUILTINS = {
    "Ellipsis": Role(),
    **dict.fromkeys(("bool", "float", "int", "long"), _MAKES_NUMBER),
    **dict.fromkeys(("dict", "frozenset", "list", "set", "tuple"), _MAKES_ITEMS),
    **dict.fromkeys(("range", "slice", "xrange"), _MAKES_RANGE),
    "bytes": Role(_args()),
    "bytearray": Role(_args(_either(_bytes, _text), _encoding, least=0)),
    "complex": Role(_args(_number, _number, least=0)),
}
_PATHS = dict.fromkeys(
    ("Path", "PosixPath", "PurePath", "PurePosixPath", "PureWindowsPath", "WindowsPath"),
    Role(lambda args: all(map(_text, args))),
)
_MAPPING = Role(_args(_items, least=0), _attributes)
_MULTIARRAY = {
    "scalar": Role(_args(_dtype, _either(_scalar, _bytes), least=1)),
    "_reconstruct": Role(_args(_named("numpy.ndarray"), _is(tuple), _bytes), has_usual_state),
}
_NUMERIC = {"_frombuffer": Role(_args(_buffer, _dtype, _is(tuple), _text))}
_DATACLASS = Role(
    _args(_int, least=0),  # of an enumeration's member
    lambda made: all(type(state) is tuple for state in made.states) or _attributes(made),
)
_REBUILDS = Role(lambda args: True)  # torch.load(weights_only=True) calls them with anything, too

HARMLESS: dict[str, dict[str, Role]] = {
    "__builtin__": _BUILTINS,
    "array": {
        "_array_reconstructor": Role(_args(_named("array.array"), _typecode, _int, _bytes)),
        "array": Role(_args(_typecode, _either(_is(list, str), _bytes), least=1)),
    },
    "builtins": {name: role for name, role in _BUILTINS.items() if name not in ("long", "xrange")},
    "collections": {
        "Counter": _MAPPING,
        "OrderedDict": _MAPPING,
        "defaultdict": Role(
            _args(_either(_is(type(None)), _named(*_FACTORIES)), _items, least=0), _attributes
        ),
        "deque": Role(_args(_items, _either(_int, _is(type(None))), least=0)),
    },
    "datetime": dict.fromkeys(
        ("date", "datetime", "time", "timedelta", "timezone"),
        Role(lambda args: all(map(_moment, args))),
    ),
    "decimal": {"Decimal": Role(_args(_text))},
    "pathlib": _PATHS,
    "pathlib._local": _PATHS,  # of Python 3.13
    "types": {"SimpleNamespace": Role(_args(_is(dict), least=0), _attributes)},
    "uuid": {
        "SafeUUID": Role(_args(_either(_int, _is(type(None))))),
        "UUID": Role(_args(_text, least=0), _attributes),
    },
}
_OTHERS: dict[str, dict[str, Role]] = {
    "_codecs": {"encode": Role(_args(_text, _encoding, least=1))},
    "numpy": {
        "dtype": Role(_args(_either(_numpy_kind, _ml_dtype), _int, _int, least=1), has_usual_state)
    },
    "numpy._core.multiarray": _MULTIARRAY,
    "numpy.core.multiarray": _MULTIARRAY,
    "numpy._core.numeric": _NUMERIC,
    "numpy.core.numeric": _NUMERIC,
    "torch": {
        "Size": Role(_args(_is(tuple, list), least=0)),
        "device": Role(_args(_text, _int, least=1)),
    },
    "torch.serialization": {"_get_layout": Role(_args(_text))},
    "torch.nn.parameter": {"Parameter": _REBUILDS},
    "torch._tensor": {"_rebuild_from_type_v2": _REBUILDS},
}
_NAMED_TUPLES = "torch.return_types"  # of torch.max and its like


def role_of(module: str, name: str) -> Role | None:
    """What an allowed global may do; None if it is not allowed."""
    role = HARMLESS.get(module, {}).get(name)
    if role is not None:
        return role
    if name in DATACLASSES.get(module, ()):
        return _DATACLASS
    if module == _NAMED_TUPLES and name.isidentifier() and not name.startswith("_"):
        return Role(_args(_is(tuple, list), _is(dict), least=1))
    if not is_allowed(module, name):
        return None
    if module == "torch._utils":
        return _REBUILDS
    if module.startswith("torchao."):
        return Role(lambda args: True, _attributes)
    return _OTHERS.get(module, {}).get(name, Role())
