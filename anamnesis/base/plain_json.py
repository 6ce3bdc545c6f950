"""JSON: tables that lie beside a module, and values without NaN and infinity."""

from __future__ import annotations

import json
import os
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


def json_table(module: str) -> Any:
    """Return the table that lies beside a module, given its `__file__`, under its name."""
    # Without pathlib, which the package does not import when it starts.
    with open(f"{os.path.splitext(module)[0]}.json", encoding="utf-8") as file:
        return json.load(file)
