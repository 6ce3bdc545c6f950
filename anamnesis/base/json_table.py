"""Tables that lie beside a module as JSON."""

from __future__ import annotations

import json
import os
from typing import Any


def json_table(module: str) -> Any:
    """Return the table that lies beside a module, given its `__file__`, under its name."""
    # Without pathlib, which the package does not import when it starts.
    with open(f"{os.path.splitext(module)[0]}.json", encoding="utf-8") as file:
        return json.load(file)
