"""Packages that import what they show only when it is asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any


def lazily(
    package: str, names: Iterable[str], module: str = ""
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and `__dir__` of a package that shows some names of a `module` of
    its own, or its modules themselves."""
    shown = sorted(names)

    def get(name: str) -> Any:
        if name not in shown:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if not module:
            return import_module(f"{package}.{name}")
        value = getattr(import_module(f"{package}.{module}"), name)
        setattr(sys.modules[package], name, value)  # not asked for again
        return value

    return get, lambda: shown
