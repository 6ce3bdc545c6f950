"""The many files that the ranks of a checkpoint have written."""

from __future__ import annotations

import threading
from pathlib import Path

from anamnesis.base.errors import ParseError
from anamnesis.base.source import Source
from anamnesis.checkpoint.indexes import leads_out
from anamnesis.checkpoint.walk import is_inside
from anamnesis.sources.file import FileSource

_KEPT_OPEN = 256  # of more files, each is open only while it is read


class PieceFiles:
    """Files of a folder, opened when they are first asked for."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._lock = threading.Lock()
        self._files: dict[str, Source] = {}

    def open(self, name: str) -> Source:
        with self._lock:
            if name not in self._files:
                path = self.root / name
                if leads_out(name) or not is_inside(str(path), self.root):
                    raise ParseError(
                        f"{name[:100]!r} is no file of the folder", source=str(self.root)
                    )
                kind = FileSource if len(self._files) < _KEPT_OPEN else ReopenedSource
                self._files[name] = kind(path)
            return self._files[name]

    def all(self) -> dict[str, Source]:
        return dict(self._files)


class ReopenedSource(Source):
    """A file that is open only while it is read."""

    def __init__(self, path: Path) -> None:
        with FileSource(path) as file:
            self.path = self.name = file.name
            self.size = file.size
            self._stamp = file.stamp()

    def _open(self) -> FileSource:
        file = FileSource(self.name)
        if file.stamp() != self._stamp:
            file.close()
            raise ParseError("was written to while it was read", source=self.name)
        return file

    def _read_some(self, offset: int, view: memoryview) -> int:
        with self._open() as file:
            return file._read_some(offset, view)

    def stamp(self) -> list[int | str]:
        return self._stamp

    def check_unchanged(self) -> None:
        self._open().close()
