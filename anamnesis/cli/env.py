"""`amn env`: facts of the machine for bug reports."""

from __future__ import annotations

import os
import platform
import sys
from typing import Any

from anamnesis.base.version import __version__
from anamnesis.cli.app import ENVIRONMENT
from anamnesis.cli.streams import print_json
from anamnesis.cli.verbs import verb

_DEPENDENCIES = ("numpy", "ml-dtypes", "click", "rich")


@verb("env", "amn env", "amn env --json")
def command(as_json: bool) -> None:
    """Show versions, processor and settings, for bug reports."""
    from anamnesis.base.levels import supported_levels
    from anamnesis.base.workers import default_threads

    facts: dict[str, Any] = {
        "anamnesis": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "levels": list(supported_levels()),
        "cpus": os.cpu_count(),
        "threads": default_threads(),
        "encoding": sys.stdout.encoding,
        "dependencies": {name: _version(name) for name in _DEPENDENCIES},
        "environment": {name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
    }
    if as_json:
        print_json(facts)
        return
    for name, value in facts.items():
        text = value
        if isinstance(value, dict):
            text = ", ".join(f"{key} {item}" for key, item in value.items()) or "none set"
        elif isinstance(value, list):
            text = ", ".join(map(str, value))
        print(f"{name + ':':<14}{text}")
    print("\nSettings, as environment variables:")
    for name, meaning in ENVIRONMENT.items():
        print(f"  {name:<21}{meaning}")


def _version(name: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"
