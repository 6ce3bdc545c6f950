"""A model's folder elsewhere, with copies of its small files."""

from __future__ import annotations

import posixpath
import shutil
import tempfile
import weakref
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import compress
from pathlib import Path

from anamnesis.base.errors import AnamnesisError, LimitExceeded, ParseError
from anamnesis.base.limits import Budget
from anamnesis.base.source import Source
from anamnesis.base.stored import Dropped
from anamnesis.checkpoint.file_names import (
    CONFIG_NAME,
    MODEL_STEM,
    PARAMS_NAME,
    QUANT_FILES,
    is_index,
)
from anamnesis.checkpoint.folder import DIRECTORY_MAX_FILES, Files, Folder
from anamnesis.checkpoint.indexes import leads_out, read_index
from anamnesis.checkpoint.json_file import JSON_MAX_BYTES
from anamnesis.checkpoint.pipelines import is_foreign, is_read
from anamnesis.formats.base import Container, Opening
from anamnesis.formats.registry import parse_container
from anamnesis.formats.safetensors.read import LENGTH_BYTES, SAFETENSORS_MAX_HEADER
from anamnesis.sources.remote import PAGE, open_remote
from anamnesis.sources.retries import at_once
from anamnesis.sources.urls import file_name, kind_of_url, shown_url, url_beside

_AT_ONCE = 128  # files that are opened at the same time
_COPIES, _PIECE = 8, 10 << 20  # that are copied, and bytes of each in memory
# What inspecting reads, and what else is looked for where nothing lists the files.
_SMALL = {CONFIG_NAME, PARAMS_NAME, *QUANT_FILES, "README.md", "tokenizer_config.json"}
_USUAL = (
    *("generation_config.json", "tokenizer.json", "tokenizer.model", "special_tokens_map.json"),
    *("added_tokens.json", "vocab.json", "merges.txt", "chat_template.jinja"),
    *("preprocessor_config.json", "modules.json", "1_Pooling/config.json"),
)


class RemoteFolder(Folder):
    """A folder elsewhere. Its weights stay there; what else is needed is copied to `root`.

    `base` ends where the names of files begin; people read `url`.
    """

    def __init__(
        self, base: str, names: Iterable[str], buffer: int | None = None, url: str = ""
    ) -> None:
        room = tempfile.mkdtemp(prefix="amn-")
        self._finish = weakref.finalize(self, shutil.rmtree, room, ignore_errors=True)
        self.url = url or shown_url(base).rstrip("/")
        self.base, self._buffer = base, buffer
        self._copied: set[str] = set()
        self._opened: dict[str, Future[Source]] = {}
        name = file_name(self.url)
        self.root = Path(room) / (name if name.strip(".") and not leads_out(name) else MODEL_STEM)
        self.root.mkdir()
        self.files = _files(base, names)

    def close(self) -> None:
        self._finish()

    @contextmanager
    def named(self) -> Iterator[None]:
        """Have the small files at hand; let errors name the address, not the copies."""
        try:
            self._fetch([name for name in self.files.names if _is_small(name)], JSON_MAX_BYTES)
            yield
        except AnamnesisError as error:
            error.args = tuple(str(arg).replace(str(self.root), self.url) for arg in error.args)
            error.source = error.source and error.source.replace(str(self.root), self.url)
            raise
        finally:
            for left in self._opened.values():  # behind a failure
                left.cancel()

    def _fetch(self, names: Iterable[str], most: int | None = None) -> None:
        """Copy files, of at most so many bytes each."""

        def copy(name: str) -> None:
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with open_remote(url_beside(self.base, name), first=_PIECE) as source:
                if most is not None and source.size > most:
                    raise LimitExceeded("JSON_MAX_BYTES", f"{source.name}: {source.size:,} bytes")
                with path.open("wb") as file:
                    for at in range(0, source.size, _PIECE):
                        file.write(source.read(at, min(_PIECE, source.size - at)))
            self._copied.add(name)

        for _ in at_once(copy, [name for name in names if name not in self._copied], _COPIES):
            pass

    def complete(self, sidecars: list[str]) -> None:
        """Copy what goes with the weights."""
        with self.named():
            self._fetch(sidecars)

    def ready(self, names: Collection[str], budget: Budget) -> None:
        spare = replace(budget)  # parsing accounts for all of it again
        pool = ThreadPoolExecutor(_AT_ONCE)  # the first are parsed while others are on their way
        self._opened |= {name: pool.submit(self._open, name, spare) for name in names}
        pool.shutdown(wait=False)

    def _open(self, name: str, budget: Budget) -> Source:
        """Open a file; of safetensors, read the header, and keep no more; of archives, the end."""
        source = open_remote(url_beside(self.base, name), self._buffer)
        head = source.read(0, min(LENGTH_BYTES, source.size))
        n_header = int.from_bytes(head, "little")
        if n_header <= SAFETENSORS_MAX_HEADER:
            budget.alloc(n_header, "the header")
            source.prefetch([(PAGE, LENGTH_BYTES + n_header)])
            source.settle(LENGTH_BYTES + n_header)
        elif head.startswith(b"PK"):
            source.prefetch([(max(0, source.size - PAGE), source.size)])
        return source

    def parse(self, name: str, budget: Budget, opening: Opening) -> Container:
        if name not in self._opened:
            self.ready([name], budget)
        return parse_container(self._opened.pop(name).result(), budget, opening)


def _is_small(name: str) -> bool:
    is_config = name.endswith(f".{CONFIG_NAME}") or is_index(name)
    return name in _SMALL or (is_config and "/" not in name)


def _files(base: str, listed: Iterable[str]) -> Files:
    """Return the names of a listing that can be those of files in a folder."""
    names = sorted(set(listed))
    if len(names) > DIRECTORY_MAX_FILES:
        raise LimitExceeded(
            "DIRECTORY_MAX_FILES", f"{base}: more than {DIRECTORY_MAX_FILES:,} files"
        )
    files = Files({}, {}, [])
    folders = {str(folder) for name in names for folder in Path(name).parents}
    for name in names:
        if leads_out(name) or posixpath.normpath(name) != name:
            files.left_out.append(Dropped(name, "a name that leads out of the directory"))
        elif name in folders:
            files.left_out.append(Dropped(name, "also the name of a folder"))
        elif not any(part.startswith(".") for part in name.split("/")[:-1]):
            files.names[name] = None
            if is_read(name) or is_foreign(name):
                files.special[name] = "other weights, which are not fetched"
    return files


def files_at(url: str) -> list[str] | None:
    """Return the addresses of all files of a folder; None if an address is that of a file."""
    folder = folder_at(url, Budget())
    if folder is None:
        return None
    return [url_beside(folder.base, name) for name in folder.files.names]


def folder_at(url: str, budget: Budget, buffer: int | None = None) -> RemoteFolder | None:
    """Return the folder at an address; None if a file is there."""
    kind, name = kind_of_url(url), file_name(url)
    if kind == "web":
        if is_index(name):
            base = url_beside(url, "")
            folder = RemoteFolder(base, [name, *present(url, (*_SMALL, *_USUAL))], buffer)
            with folder.named():
                shards = read_index(folder.root, name, budget).shards
            folder.files = _files(base, [*folder.files.names, *shards])
            return folder
        if url.endswith("/"):
            remedy = "name a file, or the index of its shards"
            raise ParseError("a web server does not list folders", source=url, remedy=remedy)
        return None
    if is_index(name):
        url = url_beside(url, "")
    if is_read(url):
        return None
    if kind == "hub":
        from anamnesis.sources.hub import list_repository

        found = list_repository(url)
        return found and RemoteFolder(*found, buffer, url.rstrip("/"))
    from anamnesis.sources.bucket import list_bucket

    sizes = list_bucket(url)
    return RemoteFolder(f"{url.rstrip('/')}/", sizes, buffer) if sizes else None


def present(url: str, names: Iterable[str]) -> list[str]:
    """Return which files are beside one."""

    def is_there(name: str) -> bool:
        try:
            open_remote(url_beside(url, name)).close()
        except (FileNotFoundError, PermissionError):  # which some servers say of what is not there
            return False
        return True

    names = list(names)
    return list(compress(names, at_once(is_there, names, _AT_ONCE)))
