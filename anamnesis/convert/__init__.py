"""From what is asked to what is written: request, plan, bands, staging, result."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """The package `anamnesis.convert`, which is called as the function of its name."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Do what `anamnesis.opening.convert` does."""
        return import_module("anamnesis.opening").convert(*args, **options)


sys.modules[__name__].__class__ = _Callable
