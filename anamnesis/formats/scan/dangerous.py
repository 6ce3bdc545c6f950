"""Globals that give a pickle access to code, files or the network.

It only separates the dangerous from the unknown; what is safe is on an allow-list elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from anamnesis.base.plain_json import json_table

LONGEST_NAME = 200  # characters of a module or a name; a longer one hides something


_TABLE = json_table(__file__)


def _words(lines: Iterable[str]) -> frozenset[str]:
    return frozenset(" ".join(lines).split())


# Whole modules, with all that is in or below them: processes, the system and other machines; files;
# code; and gadgets that lead there.
DANGEROUS_MODULES = _words(_TABLE["modules"])
_BUILTINS = _words(_TABLE["builtins"])
# Single names of modules whose others may be harmless.
DANGEROUS_NAMES = {
    "builtins": _BUILTINS,
    "__builtin__": _BUILTINS,
    **{module: frozenset(names.split()) for module, names in _TABLE["names"].items()},
}
_LONGEST_MODULE = max(map(len, DANGEROUS_MODULES))


def is_extension(module: str, name: str) -> bool:
    """Return whether a global is a number, which may mean any global that someone registered."""
    return module == "copyreg" and name.startswith("extension ")


def is_dangerous(module: str, name: str) -> bool:
    """Return whether a global is in the table, or gets at one that is by dots or underscores."""
    if max(len(module), len(name)) > LONGEST_NAME:
        return True
    if name in DANGEROUS_NAMES.get(module, ()):
        return True
    if is_extension(module, name):
        return True
    if any(package in DANGEROUS_MODULES for package in _packages(module)):
        return True
    steps = name.split(".")
    if len(steps) > 1 and any(step in DANGEROUS_MODULES or step in _BUILTINS for step in steps):
        return True
    return any(step.startswith("__") and step.endswith("__") for step in steps)


def _packages(module: str) -> Iterator[str]:
    """Yield a module and the packages that it is in, except those too long for the table."""
    end = module.find(".")
    while 0 <= end <= _LONGEST_MODULE:
        yield module[:end]
        end = module.find(".", end + 1)
    if end < 0:
        yield module
