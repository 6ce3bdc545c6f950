"""What is imported only when it is asked for, for the sake of a quick start."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["NDArray", "lazily", "np"]


class _Lazy:
    """A module that is imported when something of it is first asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(import_module(self._name), attribute)
        setattr(self, attribute, value)  # not asked for again
        return value


if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
else:
    np, NDArray = _Lazy("numpy"), None  # in annotations, which nobody evaluates


def lazily(
    package: str, names: Iterable[str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and `__dir__` of a package that shows modules of its own."""
    shown = sorted(names)

    def get(name: str) -> Any:
        if name not in shown:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return import_module(f"{package}.{name}")

    return get, lambda: shown
