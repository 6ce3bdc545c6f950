"""Values of JSON, which knows no NaN and no infinity."""

from __future__ import annotations

from math import isfinite
from typing import Any

_NAMES = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def plain_json(value: Any) -> Any:
    """Return `value` with the strings `NaN`, `Infinity` and `-Infinity` for such floats."""
    # Lists, tuples and dictionaries are looked into; everything else stays as it is.
    if type(value) is float:
        return value if isfinite(value) else _NAMES[str(value)]
    if isinstance(value, dict):
        return {key: plain_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_json(item) for item in value]
    return value
