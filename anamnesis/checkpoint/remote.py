"""A model's folder elsewhere, with copies of its small files."""

from __future__ import annotations

import posixpath
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from anamnesis.base.dropped import Dropped
from anamnesis.base.errors import AnamnesisError, LimitExceeded, ParseError
from anamnesis.base.limits import Budget
from anamnesis.base.source import Source
from anamnesis.checkpoint.file_names import (
    CONFIG_NAME,
    MODEL_STEM,
    PARAMS_NAME,
    QUANT_FILES,
    is_index,
)
from anamnesis.checkpoint.folder import Folder
from anamnesis.checkpoint.indexes import leads_out, read_index
from anamnesis.checkpoint.json_file import JSON_MAX_BYTES
from anamnesis.checkpoint.pipelines import is_foreign, is_read
from anamnesis.checkpoint.walk import DIRECTORY_MAX_FILES, Files
from anamnesis.formats.base import Container
from anamnesis.formats.registry import Opening, parse_container
from anamnesis.formats.safetensors.read import LENGTH_BYTES, SAFETENSORS_MAX_HEADER
from anamnesis.sources.ranges import at_once
from anamnesis.sources.remote import PAGE, open_remote
from anamnesis.sources.urls import HubPlace, file_name, kind_of_url, shown_url, url_beside

_AT_ONCE = 128  # files that are opened at the same time
_COPIES, _PIECE = 8, 10 << 20  # that are copied, and bytes of each in memory
# What inspecting reads, and what else is looked for where nothing lists the files.
_SMALL = {CONFIG_NAME, PARAMS_NAME, *QUANT_FILES, "README.md", "tokenizer_config.json"}
_USUAL = (
    *("generation_config.json", "tokenizer.json", "tokenizer.model", "special_tokens_map.json"),
    *("added_tokens.json", "vocab.json", "merges.txt", "chat_template.jinja"),
    *("preprocessor_config.json", "modules.json", "1_Pooling/config.json"),
)


class Listing(NamedTuple):
    """The files below an address, which ends where their names begin, and their sizes.

    `named` is what the folder is called to people, if that is another address.
    """

    base: str
    sizes: dict[str, int]
    named: str = ""


class RemoteFolder(Folder):
    """A folder elsewhere. Its weights stay there; what else is needed is copied to `root`."""

    def __init__(self, listing: Listing, buffer: int | None = None) -> None:
        room = tempfile.mkdtemp(prefix="amn-")
        self._finish = weakref.finalize(self, shutil.rmtree, room, ignore_errors=True)
        self.url = listing.named or shown_url(listing.base).rstrip("/")
        self._listing, self._buffer = listing, buffer
        self._opened: dict[str, Source | Exception] = {}
        name = file_name(self.url)
        self.root = Path(room) / (name if name.strip(".") and not leads_out(name) else MODEL_STEM)
        self.root.mkdir()
        self.files = _files(listing)
        top = [name for name in self.files.names if "/" not in name]
        self.fetch([name for name in top if name in _SMALL or is_index(name)], JSON_MAX_BYTES)

    def _address(self, name: str) -> str:
        return url_beside(self._listing.base, name)

    def close(self) -> None:
        """Remove the copies."""
        self._finish()

    @contextmanager
    def named(self) -> Iterator[None]:
        """Let errors name the address, not the copies."""
        try:
            yield
        except AnamnesisError as error:
            error.args = tuple(str(arg).replace(str(self.root), self.url) for arg in error.args)
            error.source = error.source and error.source.replace(str(self.root), self.url)
            raise

    def fetch(self, names: Iterable[str], most: int | None = None) -> None:
        """Copy files, of at most so many bytes each."""

        def copy(name: str) -> None:
            path, size = self.root / name, self._listing.sizes[name]
            path.parent.mkdir(parents=True, exist_ok=True)
            first = max(PAGE, min(size, _PIECE))
            with open_remote(self._address(name), first=first) as source:
                if most is not None and source.size > most:
                    raise LimitExceeded("JSON_MAX_BYTES", f"{source.name}: {source.size:,} bytes")
                _copy(source, path)

        missing = [name for name in names if not (self.root / name).exists()]
        for _ in at_once(copy, missing, _COPIES):
            pass

    def complete(self, sidecars: list[str]) -> None:
        """Copy what goes with the weights."""
        with self.named():
            self.fetch(sidecars)

    def ready(self, names: Collection[str], budget: Budget) -> None:
        spare, lock = replace(budget), threading.Lock()  # parsing accounts for it again

        def alloc(n_bytes: int) -> None:
            with lock:
                spare.alloc(n_bytes, "the header")

        def opened(name: str) -> Source | Exception:
            try:
                return self._open(name, alloc)
            except Exception as error:  # which `parse` raises
                return error

        names = [name for name in names if name not in self._opened]
        self._opened.update(zip(names, at_once(opened, names, _AT_ONCE), strict=True))

    def _open(self, name: str, alloc: Callable[[int], None]) -> Source:
        """Open a file; of safetensors, read the header, and keep no more; of archives, the end."""
        source = open_remote(self._address(name), self._buffer)
        head = source.read(0, min(LENGTH_BYTES, source.size))
        n_header = int.from_bytes(head, "little")
        if n_header <= SAFETENSORS_MAX_HEADER:
            alloc(n_header)
            source.prefetch([(PAGE, LENGTH_BYTES + n_header)])
            source.settle(LENGTH_BYTES + n_header)
        elif head.startswith(b"PK"):
            source.prefetch([(max(0, source.size - PAGE), source.size)])
        return source

    def parse(self, name: str, budget: Budget, opening: Opening) -> Container:
        self.ready([name], budget)
        source = self._opened.pop(name)
        if isinstance(source, Exception):
            raise source
        return parse_container(source, budget, opening)

    def kept(self, sidecars: list[str]) -> tuple[list[str], list[Dropped]]:
        """Return what goes with the weights, and what is not fetched for them."""
        others = [name for name in sidecars if is_read(name) or is_foreign(name)]
        why = "other weights, which are not fetched"
        return [n for n in sidecars if n not in others], [Dropped(n, why) for n in others]


def _copy(source: Source, path: Path) -> None:
    try:
        with path.open("xb") as file:
            for at in range(0, source.size, _PIECE):
                file.write(source.read(at, min(_PIECE, source.size - at)))
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _files(listing: Listing) -> Files:
    """Return the names of a listing that can be those of files in a folder."""
    if len(listing.sizes) > DIRECTORY_MAX_FILES:
        told = f"{listing.base}: more than {DIRECTORY_MAX_FILES:,} files"
        raise LimitExceeded("DIRECTORY_MAX_FILES", told)
    files = Files({}, set(), [])
    folders = {str(folder) for name in listing.sizes for folder in Path(name).parents}
    for name in sorted(listing.sizes):
        if leads_out(name) or posixpath.normpath(name) != name:
            files.left_out.append(Dropped(name, "a name that leads out of the directory"))
        elif name in folders:
            files.left_out.append(Dropped(name, "the name of a folder, too"))
        elif not any(part.startswith(".") for part in name.split("/")[:-1]):
            files.names[name] = None
    return files


# --- which files there are ------------------------------------------------------------------------


def in_cache(url: str) -> str | None:
    """Return the path that stands for an address while the hub may not be asked."""
    if kind_of_url(url) != "hub":
        return None
    from anamnesis.sources.hub import snapshot

    return snapshot(HubPlace.parse(url))


def folder_at(url: str, budget: Budget, buffer: int | None = None) -> RemoteFolder | None:
    """Return the folder at an address; None if a file is there."""
    listing = listing_at(url, budget)
    return None if listing is None else RemoteFolder(listing, buffer)


def listing_at(url: str, budget: Budget) -> Listing | None:
    """Return the files below an address; None if it is that of one file."""
    kind = kind_of_url(url)
    if kind == "web":
        if is_index(file_name(url)):
            return _indexed(url, budget)
        if url.endswith("/"):
            remedy = "name a file, or the index of its shards"
            raise ParseError("a web server does not list folders", source=url, remedy=remedy)
        return None
    if is_index(file_name(url)):
        url = url_beside(url, "")
    if is_read(url):
        return None
    return _of_repository(url) if kind == "hub" else _of_bucket(url)


def files_at(url: str) -> list[str] | None:
    """Return the addresses of all files of a folder; None if an address is that of a file."""
    listing = listing_at(url, Budget())
    if listing is None:
        return None
    return [url_beside(listing.base, name) for name in _files(listing).names]


def _of_repository(url: str) -> Listing | None:
    from anamnesis.sources.hub import list_repository

    place, sizes = list_repository(HubPlace.parse(url))
    if place.path and place.path in sizes:
        return None
    base = f"{place}/"
    below = f"{place.path}/" if place.path else ""
    inside = {n.removeprefix(below): size for n, size in sizes.items() if n.startswith(below)}
    if not inside and place.path:
        raise ParseError("the repository has no such file or folder", source=url)
    return Listing(base, inside, url.rstrip("/"))


def _of_bucket(url: str) -> Listing | None:
    from anamnesis.sources.bucket import list_bucket

    sizes = list_bucket(url)
    return Listing(f"{url.rstrip('/')}/", sizes) if sizes else None


def _indexed(url: str, budget: Budget) -> Listing:
    """Return the shards that an index names, and what is found beside it."""
    name = file_name(url)
    with tempfile.TemporaryDirectory(prefix="amn-") as room:
        with open_remote(url, first=_PIECE) as source:
            if source.size > JSON_MAX_BYTES:
                raise LimitExceeded("JSON_MAX_BYTES", f"{source.name}: {source.size:,} bytes")
            _copy(source, Path(room) / name)
        shards = read_index(Path(room), name, budget).shards()
    found = present(url, (*_SMALL, *_USUAL))
    return Listing(url_beside(url, ""), {name: 0, **dict.fromkeys(shards, 0), **found})


def present(url: str, names: Iterable[str]) -> dict[str, int]:
    """Return the files beside one that are there, and their sizes."""

    def size(name: str) -> int | None:
        try:
            with open_remote(url_beside(url, name), first=PAGE) as source:
                return source.size
        except (FileNotFoundError, PermissionError):  # which some servers say of what is not there
            return None

    names = list(names)
    sizes = zip(names, at_once(size, names, _AT_ONCE), strict=True)
    return {name: n_bytes for name, n_bytes in sizes if n_bytes is not None}
