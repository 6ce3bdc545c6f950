"""Globals that make plain values and do nothing else.

Checkpoints of training runs hold them: dates, counters, the paths of datasets. Whatever a pickle
gives to one of them, no code runs but the constructor, which opens nothing and imports nothing.
"""

from __future__ import annotations

__all__ = ["HARMLESS", "is_harmless"]

_PATHS = ("Path", "PosixPath", "PurePath", "PurePosixPath", "PureWindowsPath", "WindowsPath")
_BUILTINS = (
    *("Ellipsis", "bool", "dict", "float", "frozenset", "int", "list", "range", "slice", "tuple"),
)

HARMLESS: dict[str, frozenset[str]] = {
    "__builtin__": frozenset((*_BUILTINS, "long", "xrange")),
    "array": frozenset(("_array_reconstructor", "array")),
    "builtins": frozenset(_BUILTINS),
    "collections": frozenset(("defaultdict", "deque")),
    "datetime": frozenset(("date", "datetime", "time", "timedelta", "timezone")),
    "decimal": frozenset(("Decimal",)),
    "pathlib": frozenset(_PATHS),
    "pathlib._local": frozenset(_PATHS),  # of Python 3.13
    "types": frozenset(("SimpleNamespace",)),
    "uuid": frozenset(("SafeUUID", "UUID")),
}
_NAMED_TUPLES = "torch.return_types"  # of torch.max and its like


def is_harmless(module: str, name: str) -> bool:
    """Tell whether a global makes a plain value."""
    if module == _NAMED_TUPLES:
        return name.isidentifier() and not name.startswith("_")
    return name in HARMLESS.get(module, ())
