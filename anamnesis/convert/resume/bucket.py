"""An output in a bucket: files as uploads that appear whole, config.json last.

    PREFIX/model-00001-of-00002.safetensors   an upload in parts, which is aborted if it fails
    PREFIX.amn-parts/00000.json               what making a file came to: it is there
    PREFIX.amn-parts/commit.json              all files are made; the index and the config follow
    PREFIX/config.json                        created last: no program loads the rest without it

The notes are removed in the end. Two processes that make one file write the same bytes. With
`force` the old config is removed first: no program takes old files and new ones for one model.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anamnesis.base.errors import OutputError
from anamnesis.checkpoint.file_names import CONFIG_NAME, PARTS_SUFFIX, is_index
from anamnesis.checkpoint.gguf_parts import has_parts
from anamnesis.checkpoint.open import Checkpoint
from anamnesis.convert.plan.files import OutputFile
from anamnesis.convert.plan.plan import Plan
from anamnesis.convert.request.request import Request
from anamnesis.convert.resume.destination import Destination
from anamnesis.convert.resume.parts_folder import PLAN
from anamnesis.convert.resume.staging import parsed_note
from anamnesis.convert.write.sinks import copy_to
from anamnesis.sources.bucket import failing, list_bucket, names_in, size_of, store_of
from anamnesis.sources.urls import kind_of_url

if TYPE_CHECKING:
    from anamnesis.convert.write.one_file import Room
    from anamnesis.convert.write.tally import Tally

_COMMIT = "commit"
_NOTE = re.compile(r"(\d+|plan-\w+|command|commit)\.json")
_PIECE, _MOST_PIECES, _AT_ONCE = 8 << 20, 9_000, 4  # of an upload: of S3's a part, and parts


class BucketParts:
    """What is made of an output in a bucket."""

    def __init__(self, url: str, where: BucketDestination | None = None) -> None:
        _, key = store_of(url)
        self.path = f"{url.rstrip('/')}{'' if key.strip('/') else '/'}{PARTS_SUFFIX}"
        self._of = where

    @property
    def _where(self) -> BucketDestination:
        assert self._of is not None  # of those that are made or committed
        return self._of

    def begin(self) -> None:
        """Take down what would make a program load old files and new ones as one model."""
        if self._where.request.force and not self.is_committing:
            delete([self._where.place(name) for name in sorted(self._where.entries())])

    def names(self) -> set[str]:
        found = map(_NOTE.fullmatch, list_bucket(self.path))
        return {note[1] for note in found if note} - {_COMMIT}

    def read(self, name: str) -> dict[str, Any] | None:
        """Return a note; None if it is not there."""
        return parsed_note(get(self._url(name)))

    def note(self, name: str, told: Mapping[str, Any]) -> None:
        put(self._url(name), json.dumps(told).encode())

    def forget(self, name: str) -> None:
        delete([self._url(name)])

    def _url(self, name: str) -> str:
        return f"{self.path}/{name}.json"

    @property
    def is_committing(self) -> bool:
        """Whether all files are made, and what goes with them is written."""
        return self.read(_COMMIT) is not None

    def size(self, name: str) -> int | None:
        """Return the size of a file; None if it is not there."""
        return size_of(self._where.place(name))

    @contextmanager
    def room(self, stem: str, file: OutputFile, *, sync: bool) -> Iterator[Room]:
        """Yield a stream that uploads; a file that is uploaded, if bytes do not come in order."""
        import tempfile

        with _upload(self._where.place(file.name), file.n_bytes) as stream:
            if file.in_order and not self._where.request.verify:
                yield stream
                return
            with tempfile.TemporaryFile() as room:
                room.truncate(file.n_bytes)
                yield room
                copy_to(room, stream, self._where.request.how.check)

    def commit(self, where: Destination, joined: Callable[[], Tally]) -> Tally:
        """Write what goes with the files, the config last, and remove the notes."""
        tally = joined()
        if not self.is_committing:
            where.check()
            where.checkpoint.check_unchanged()
            self.note(_COMMIT, {})
        for name, given in where.beside():  # the config behind all others
            url = self._where.place(name)
            if name != CONFIG_NAME or where.request.force:
                put(url, given)
            elif not put(url, given, mode="create") and get(url) != given:
                raise OutputError(f"{url}: another run has written it meanwhile")
        notes = self.names()
        last = {name for name in notes if name.startswith(PLAN)} | {_COMMIT}
        for some in (notes - last, last):  # those that say whose it is last
            delete([self._url(name) for name in sorted(some)])
        return tally


class BucketDestination(Destination):
    """A prefix of a bucket, or one object."""

    is_local = False

    def __init__(self, url: str, plan: Plan, checkpoint: Checkpoint, request: Request) -> None:
        self._bucket, key = store_of(url)
        self._key = key.strip("/")
        if plan.directory is None and not self._key:
            raise OutputError(f"{url}: is a bucket; name an object in it")
        super().__init__(Path(url), plan, checkpoint, request)
        self.url = self.shown = url.rstrip("/")

    def parts(self) -> BucketParts:
        return BucketParts(self.url, self)

    def place(self, name: str) -> str:
        folder = self.url.rpartition("/")[0] if self.plan.directory is None else self.url
        return f"{folder}/{name}"

    def entries(self) -> set[str]:
        """Return the files by which programs find the others of a model, if there are others."""
        if self.plan.directory is None:
            return {self.plan.files[0].name} if len(self.plan.files) > 1 else set()
        return {name for name in self.names() if name == CONFIG_NAME or is_index(name)}

    def is_there(self) -> bool:
        return self._made() <= self._present()

    def _newest(self) -> int:
        return 0  # a store's clock is another one, and goes by seconds

    def _made(self) -> set[str]:
        return {file.name.partition("/")[0] for file in self.plan.files}

    def _present(self) -> set[str]:
        if self.plan.directory is None:
            return {name for name in self.names() if size_of(self.place(name)) is not None}
        return {name for name in names_in(self.url) if not name.startswith(".")}

    def check(self) -> None:
        self.refuse_input()
        present = self._present()
        others = present - self._made()
        if not self.request.force and present and (others or not self.parts().names()):
            raise OutputError(f"{self.url}: exists", remedy="force=True replaces its files")
        self.refuse_others(present)

    def refuse_input(self) -> None:
        mine = {store_of(self.place(name))[1] for name in self.names()}  # all of them are keys
        for container in self.checkpoint.shards.values():
            url = getattr(container.source, "url", "")
            if kind_of_url(url) != "bucket":
                continue
            bucket, key = store_of(url)
            of_it = f"{self._key}/".lstrip("/")
            is_in = self.plan.directory is not None and key.startswith(of_it)
            folder = key[: key.rfind("/") + 1]
            beside = self.checkpoint.root is not None and of_it.startswith(folder)
            if bucket is self._bucket and (is_in or beside or key in mine):
                what = "is the input, or holds it, or lies inside it; name another output"
                raise OutputError(f"{self.url}: {what}")


def is_made(url: str) -> bool:
    """Tell whether an output is there that no run is making any more."""
    is_there = size_of(url) is not None or bool(names_in(url)) or has_parts(url)
    return is_there and not BucketParts(url).names()


class _Stream:
    """A stream to an object, whose errors are lines that name it."""

    def __init__(self, stream: Any, url: str) -> None:
        self._stream, self._url = stream, url

    def write(self, data: bytes) -> int:
        with failing(self._url):
            self._stream.write(data)
        return len(data)


@contextmanager
def _upload(url: str, n_bytes: int) -> Iterator[_Stream]:
    """Yield a stream to an object, which appears when all is written; else it is given up."""
    import obstore

    store, key = store_of(url)
    piece = max(_PIECE, -(-n_bytes // _MOST_PIECES))
    stream = obstore.open_writer(store, key, buffer_size=piece, max_concurrency=_AT_ONCE)
    stream.__enter__()
    try:
        yield _Stream(stream, url)
    except BaseException:
        with suppress(Exception):  # the first error says why
            stream.__exit__(*sys.exc_info())
        raise
    with failing(url):
        stream.__exit__(None, None, None)


def put(url: str, raw: bytes | bytearray | Path, mode: Any = "overwrite") -> bool:
    """Write an object; return whether it is created, where only that is asked for."""
    import obstore
    from obstore.exceptions import AlreadyExistsError

    store, key = store_of(url)
    with failing(url):
        try:
            obstore.put(store, key, raw, mode=mode)
        except AlreadyExistsError:
            return False
    return True


def get(url: str) -> bytes | None:
    """Return a small object; None if it is not there."""
    import obstore

    store, key = store_of(url)
    try:
        with failing(url):
            return bytes(obstore.get(store, key).bytes())
    except FileNotFoundError:
        return None


def delete(urls: list[str]) -> None:
    """Remove objects, as far as they are there."""
    import obstore

    keys = [store_of(url)[1] for url in urls]
    for url in urls[:1]:
        try:
            with failing(url):
                obstore.delete(store_of(url)[0], keys)
        except FileNotFoundError:  # of one, by Google's and Azure's; others may be left
            for each in urls[1:]:
                delete([each])
