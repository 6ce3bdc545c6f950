"""What each allowed global may do in a pickle: be called, with what; get a state.

Checkpoints hold dates, counters, the paths of datasets, numpy's and torch's values. A pickle of
them calls a few functions with arguments of a few kinds, and these do nothing but make the value.
The same names do harm in other roles: `numpy.ndarray`, which arrays only name, makes pointers of a
file's bytes if it is called; a class that gets a state is changed for the whole process.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from anamnesis.formats.pickle.nodes import SCALARS, Call, Global, PickledSet
from anamnesis.formats.scan.numpy_states import has_usual_state
from anamnesis.formats.torch.globals import is_allowed

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


def _each(check: Check) -> Check:
    return lambda args: all(map(check, args))


def _anything(args: Any) -> bool:
    return True


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
    Role(_each(_text)),
)
_MAPPING = Role(_args(_items, least=0), _attributes)
_MULTIARRAY = {
    "scalar": Role(_args(_dtype, _either(_scalar, _bytes), least=1)),
    "_reconstruct": Role(_args(_named("numpy.ndarray"), _is(tuple), _bytes), has_usual_state),
}
_NUMERIC = {"_frombuffer": Role(_args(_buffer, _dtype, _is(tuple), _text))}
_REBUILDS = Role(_anything)  # torch.load(weights_only=True) calls them with anything, too

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
        ("date", "datetime", "time", "timedelta", "timezone"), Role(_each(_moment))
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
    if module == _NAMED_TUPLES and name.isidentifier() and not name.startswith("_"):
        return Role(_args(_is(tuple, list), _is(dict), least=1))
    if not is_allowed(module, name):
        return None
    if module == "torch._utils":
        return _REBUILDS
    if module.startswith("torchao."):
        return Role(_anything, _attributes)
    return _OTHERS.get(module, {}).get(name, Role())
