"""A model's folder on disk: which of its files may be read, and their headers.

In the cache of the Hugging Face hub all files of a snapshot, those in its folders too, are links
into the repository's `blobs`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from anamnesis.base.errors import LimitExceeded
from anamnesis.base.limits import Budget
from anamnesis.base.stored import Dropped
from anamnesis.checkpoint.file_names import UNFINISHED
from anamnesis.formats.base import Container, Opening
from anamnesis.formats.registry import parse_file

_REPOSITORY = re.compile(r"(models|datasets|spaces)--.+", re.DOTALL)


def repository_of(path: str) -> tuple[str, str] | None:
    """Return the repository's folder, and the snapshot's, of a path in a snapshot or of one."""
    # Nothing is looked up: only the text of `path`, which is absolute, counts. None if the path is
    # elsewhere.
    folder, name = os.path.split(path)
    while name:
        repository, last = os.path.split(folder)
        if last == "snapshots" and _REPOSITORY.fullmatch(os.path.basename(repository)):
            return repository, os.path.join(folder, name)
        folder, name = os.path.split(folder)
    return None


DIRECTORY_MAX_FILES = 100_000


class Files(NamedTuple):
    """What lies below a directory."""

    names: dict[str, None]
    special: dict[str, str]  # those that cannot go with a model, and why
    left_out: list[Dropped]

    def regular(self, names: list[str]) -> list[str]:
        """Return those of some names that are files; list the others as left out."""
        self.left_out.extend(Dropped(f, self.special[f]) for f in names if f in self.special)
        return [f for f in names if f not in self.special]


def files_below(root: Path) -> Files:
    """Return the files below a directory."""
    fence = _fence(root)
    found: list[str] = []
    files = Files({}, {}, [])
    folders = [""]
    while folders:
        folder = folders.pop()
        with os.scandir(root / folder) as entries:
            for entry in entries:
                name = folder + entry.name
                if _is_folder(entry):
                    # What tools keep for themselves: .git, .cache (the hub's own bookkeeping)
                    if entry.name.startswith(".") or entry.name.endswith(UNFINISHED):
                        continue
                    if entry.is_symlink():
                        files.left_out.append(Dropped(name, "a link to a folder"))
                    else:
                        folders.append(f"{name}/")
                    continue
                if len(found) == DIRECTORY_MAX_FILES:
                    raise LimitExceeded(
                        "DIRECTORY_MAX_FILES",
                        f"{root}: more than {DIRECTORY_MAX_FILES:,} files",
                    )
                why = _why_left(entry, fence)
                if why is not None:
                    files.left_out.append(Dropped(name, why))
                    continue
                found.append(name)
                if not _may_be_read(entry):
                    files.special[name] = "not a regular file"
    files.left_out.sort(key=lambda dropped: dropped.name)
    files.names.update(dict.fromkeys(sorted(found)))
    return files


def is_inside(path: str, root: Path) -> bool:
    """Return whether something that is there stays in a directory, links followed."""
    return Path(os.path.realpath(path)).is_relative_to(_fence(root))


def _why_left(entry: os.DirEntry[str], fence: str) -> str | None:
    if entry.is_symlink() and not Path(os.path.realpath(entry.path)).is_relative_to(fence):
        return "a link that leads out of the directory"
    if entry.name.endswith(UNFINISHED):
        return "left over from a run that did not finish"
    return None


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link in a circle
        return False


def _may_be_read(entry: os.DirEntry[str]) -> bool:
    """Return whether it is a regular file, or a dangling link, which opening it will report."""
    try:
        return entry.is_file() or not os.path.exists(entry.path)
    except OSError:
        return True


def _fence(root: Path) -> str:
    """Return what no link may lead out of: the directory itself."""
    # In the hub's cache it is the repository's folder, for all files are links into its `blobs`.
    real = os.path.realpath(root)
    cached = repository_of(real)
    return real if cached is None else cached[0]


class Folder:
    """A folder on disk."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = files_below(root)

    def ready(self, names: Collection[str], budget: Budget) -> None:
        """Open files that are parsed next."""

    def parse(self, name: str, budget: Budget, opening: Opening) -> Container:
        return parse_file(self.root / name, budget, opening)
