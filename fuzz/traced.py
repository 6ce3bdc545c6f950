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


def fuzz(check: Callable[[bytes], object]) -> None:
    """Fuzz until libFuzzer's options say stop.

    What is traced is the package, all of it, though most is imported late, and what builds inputs.
    """
    import atheris

    for module in pkgutil.walk_packages(anamnesis.__path__, "anamnesis."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    homes = (HERE, *anamnesis.__path__)
    for function in gc.get_objects():
        if type(function) is types.FunctionType and function.__code__.co_filename.startswith(homes):
            atheris.instrument_func(function)
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()
