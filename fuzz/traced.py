"""Runs a fuzzer's `check` under atheris."""

from __future__ import annotations

import gc
import pkgutil
import sys
import types
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import anamnesis

HERE = str(Path(__file__).parent)


def import_package() -> None:
    """Import all of the package, most of which is imported late."""
    for module in pkgutil.walk_packages(anamnesis.__path__, "anamnesis."):
        if not module.name.endswith("__main__"):
            import_module(module.name)


def trace(*homes: str) -> None:
    """Trace the functions whose code lies in some folders."""
    import atheris

    for function in gc.get_objects():
        if type(function) is types.FunctionType and function.__code__.co_filename.startswith(homes):
            atheris.instrument_func(function)


def run(check: Callable[[bytes], object]) -> None:
    """Fuzz until libFuzzer's options say stop."""
    import atheris

    atheris.Setup(sys.argv, check)
    atheris.Fuzz()


def fuzz(check: Callable[[bytes], object]) -> None:
    """Fuzz, with the package and what builds inputs traced."""
    import_package()
    trace(HERE, *anamnesis.__path__)
    run(check)
