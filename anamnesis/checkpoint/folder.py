"""A model's folder on disk: its files, and the headers of its weights."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from anamnesis.base.limits import Budget
from anamnesis.checkpoint.walk import files_below
from anamnesis.formats.base import Container
from anamnesis.formats.registry import Opening, parse_file


class Folder:
    """A folder on disk."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = files_below(root)

    def ready(self, names: Collection[str], budget: Budget) -> None:
        """Open files that are parsed next."""

    def parse(self, name: str, budget: Budget, opening: Opening) -> Container:
        return parse_file(self.root / name, budget, opening)
