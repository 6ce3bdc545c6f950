"""The files that say how text becomes tokens, read with caps."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from anamnesis.architectures.tokenizers.merges import cut_merges
from anamnesis.base.errors import LimitExceeded, ParseError
from anamnesis.base.limits import Budget
from anamnesis.checkpoint.folder import repository_of
from anamnesis.checkpoint.json_file import read_json
from anamnesis.formats.gguf.strings import Strings
from anamnesis.sources.file import FileSource

TOKENIZER_MAX_BYTES = 50_000_000  # tokenizer.model of Gemma 3 has 4.7 MB
TOKENIZER_MAX_VALUES = 8_000_000  # tokenizer.json of Gemma 4 has 1.8 million
TEMPLATES_MAX_FILES = 100

State = tuple[int, int] | None  # of a file that is there: its size, its time

CONFIG = "tokenizer_config.json"
FAST = "tokenizer.json"


class Folder:
    """A directory's tokenizer files. What is missing, or a link out of the directory, is None."""

    def __init__(self, root: Path, budget: Budget) -> None:
        self.root = root
        self.budget = budget
        real = os.path.realpath(root)
        cached = repository_of(real)  # whose files are links into its `blobs`
        self.seen: dict[str, State] = {}
        self._fence = real if cached is None else cached[0]
        self._json: dict[str, dict[str, Any] | None] = {}
        self._merges: Strings | None = None

    def has(self, name: str) -> bool:
        path = self.root / name
        self.seen[name] = _state(path)
        return path.is_file() and Path(os.path.realpath(path)).is_relative_to(self._fence)

    def json(self, name: str) -> dict[str, Any] | None:
        """Return a JSON object, read once; nobody may change it."""
        if name not in self._json:
            found = None
            if self.has(name):
                path = self.root / name
                cut = self._without_merges if name == FAST else None
                found = read_json(path, self.budget, max_values=TOKENIZER_MAX_VALUES, cut=cut)
            self._json[name] = found
        return self._json[name]

    def _without_merges(self, raw: bytes) -> bytes:
        raw, self._merges = cut_merges(raw)
        return raw

    @property
    def merges(self) -> Strings | None:
        """The merges of tokenizer.json, which its object lacks then; None if it has them itself."""
        self.json(FAST)
        return self._merges

    def raw(self, name: str) -> bytes | None:
        if not self.has(name):
            return None
        with FileSource(self.root / name) as source:
            if source.size > TOKENIZER_MAX_BYTES:
                given = f"{source.name}: {source.size:,} bytes"
                raise LimitExceeded("TOKENIZER_MAX_BYTES", given)
            self.budget.alloc(source.size, name)
            return bytes(source.read(0, source.size))

    def text(self, name: str) -> str | None:
        """Return a file's text, its ends of lines as Python's text files have them."""
        raw = self.raw(name)
        if raw is None:
            return None
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            at = error.start
            raise ParseError("not UTF-8", source=str(self.root / name), offset=at) from None
        return text.replace("\r\n", "\n").replace("\r", "\n")

    def names(self, folder: str, suffix: str) -> list[str]:
        """Return the files of a folder that end so, in the order of their names."""
        self.seen[folder] = _state(self.root / folder)
        try:
            found = sorted(name for name in os.listdir(self.root / folder) if name.endswith(suffix))
        except (FileNotFoundError, NotADirectoryError):
            return []
        if len(found) > TEMPLATES_MAX_FILES:
            given = f"{self.root / folder}: more than {TEMPLATES_MAX_FILES} files"
            raise LimitExceeded("TEMPLATES_MAX_FILES", given)
        return [f"{folder}/{name}" for name in found]

    def malformed(self, name: str, what: str) -> ParseError:
        return ParseError(what, source=str(self.root / name))


def is_as_seen(root: Path, seen: Mapping[str, State]) -> bool:
    """Whether what was looked for in a directory is still what it was."""
    return all(_state(root / name) == state for name, state in seen.items())


def _state(path: Path) -> State:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


def section(given: Any, *keys: str) -> dict[str, Any]:
    """Return an object in an object; one that is missing, or is none, is empty."""
    for key in keys:
        given = given.get(key) if isinstance(given, dict) else None
    return given if isinstance(given, dict) else {}


def flat(given: Any, key: str) -> Iterator[Mapping[str, Any]]:
    """Yield the steps of what may be a `Sequence`, which has them under a key."""
    if isinstance(given, dict) and given.get("type") == "Sequence":
        for inner in objects(given.get(key)):
            yield from flat(inner, key)
    elif isinstance(given, dict):
        yield given


def objects(given: Any) -> list[dict[str, Any]]:
    """Return the items of a list that are objects; none if it is no list."""
    return [item for item in given if isinstance(item, dict)] if isinstance(given, list) else []
