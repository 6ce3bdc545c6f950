"""An output in a bucket: files as uploads that appear whole, config.json last.

    PREFIX/model-00001-of-00002.safetensors   an upload in parts, which is aborted if it fails
    PREFIX.amn-parts/00000.json               what making a file came to: it is there
    PREFIX.amn-parts/commit.json              all files are made; the index and the config follow
    PREFIX/config.json                        created last: no program loads the rest without it

The notes are removed in the end. Two processes that make one file write the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anamnesis.base.errors import OutputError
from anamnesis.checkpoint.file_names import CONFIG_NAME, EXTENSION, PARTS_SUFFIX, is_index
from anamnesis.checkpoint.open import Checkpoint
from anamnesis.convert.plan.files import OutputFile
from anamnesis.convert.plan.plan import Plan
from anamnesis.convert.request.request import Request
from anamnesis.convert.resume.destination import (
    Destination,
    DirectoryDestination,
    local_destination,
)
from anamnesis.convert.write.sinks import copy_to
from anamnesis.sources.bucket import failure, list_bucket, store_of
from anamnesis.sources.urls import url_beside

if TYPE_CHECKING:
    from anamnesis.convert.write.one_file import Room
    from anamnesis.convert.write.tally import Tally

_COMMIT = "commit"
_PIECE, _MOST_PIECES, _AT_ONCE = 8 << 20, 9_000, 4  # of an upload: of S3's a part, and parts


class BucketParts:
    """What is made of an output in a bucket."""

    _where: BucketDestination  # of those that are made or committed

    def __init__(self, url: str) -> None:
        self.path = f"{url.rstrip('/')}{PARTS_SUFFIX}"

    def begin(self) -> None:
        """Do nothing: buckets have no folders."""

    def names(self) -> set[str]:
        """Return the names of all notes."""
        found = (name.partition(".json") for name in list_bucket(self.path))
        return {stem for stem, suffix, more in found if suffix and not more} - {_COMMIT}

    def read(self, name: str) -> dict[str, Any] | None:
        """Return a note; None if it is not there."""
        raw = get(f"{self.path}/{name}.json")
        try:
            told = json.loads(raw or b"")
        except (ValueError, RecursionError):
            return None
        return told if isinstance(told, dict) else None

    def note(self, name: str, told: Mapping[str, Any]) -> None:
        """Write a note."""
        put(f"{self.path}/{name}.json", json.dumps(told).encode())

    @property
    def is_committing(self) -> bool:
        """Whether all files are made, and what goes with them is written."""
        return self.read(_COMMIT) is not None

    def size(self, name: str) -> int | None:
        """Return the size of a file; None if it is not there."""
        return self._where.present().get(name)

    @contextmanager
    def room(self, stem: str, file: OutputFile, *, sync: bool) -> Iterator[Room]:
        """Yield a stream that uploads; a file that is uploaded, if bytes do not come in order."""
        import tempfile

        with self._upload(self._where.url_of(file.name), file.n_bytes) as stream:
            if file.in_order and not self._where.request.verify:
                yield stream
                return
            with tempfile.TemporaryFile() as room:
                room.truncate(file.n_bytes)
                yield room
                copy_to(room, stream, self._where.request.how.check)

    @contextmanager
    def _upload(self, url: str, n_bytes: int) -> Iterator[Any]:
        """Yield a stream to an object, which appears when all is written; else it is given up."""
        import obstore

        store, key = store_of(url)
        piece = max(_PIECE, -(-n_bytes // _MOST_PIECES))
        with (
            failing(url),
            obstore.open_writer(store, key, buffer_size=piece, max_concurrency=_AT_ONCE) as stream,
        ):
            yield stream

    def commit(self, where: Destination, joined: Callable[[], Tally]) -> Tally:
        """Write what goes with the files, the config last, and remove the notes."""
        tally = joined()
        if not self.is_committing:
            where.check()
            where.checkpoint.check_unchanged()
            self.note(_COMMIT, {})
        self._where.add_all()
        for name in sorted(list_bucket(self.path), key=lambda name: name.startswith(_COMMIT)):
            delete(f"{self.path}/{name}")
        return tally


class BucketDestination(Destination):
    """A prefix of a bucket, or one object."""

    is_local = False

    def __init__(self, url: str, plan: Plan, checkpoint: Checkpoint, request: Request) -> None:
        super().__init__(Path(url), plan, checkpoint, request)
        self.url = url
        self._local = local_destination(self.out, plan, checkpoint, request)  # as if it were

    @property
    def shown(self) -> str:
        return self.url

    def parts(self) -> BucketParts:
        parts = BucketParts(self.url)
        parts._where = self
        return parts

    def url_of(self, name: str) -> str:
        """Return the address of a file of the output."""
        if self.plan.directory is None:
            return url_beside(self.url, name)
        return f"{self.url.rstrip('/')}/{name}"

    def present(self) -> dict[str, int]:
        """Return the objects at the place of the output, and their sizes."""
        if self.plan.directory is not None:
            return list_bucket(self.url)
        names = {file.name for file in self.plan.files}
        beside = list_bucket(self.url.rpartition("/")[0])
        return {name: size for name, size in beside.items() if name in names}

    def check(self) -> None:
        present, planned = self.present(), self.names()
        for container in self.checkpoint.shards.values():
            if getattr(container.source, "url", "").startswith(f"{self.url.rstrip('/')}/"):
                raise OutputError(f"{self.url}: is the input; name another output")
        notes = self.parts().names()
        made = {file.name for file in self.plan.files} if notes else set()
        if present.keys() - made and not self.request.force:
            raise OutputError(
                f"{self.url}: exists and is not empty", remedy="force=True replaces its files"
            )
        others = [n for n in present.keys() - planned if n.endswith(EXTENSION) or is_index(n)]
        if others and self.plan.directory is not None:
            raise OutputError(
                f"{self.url}: holds other weights ({min(others)}); name another output"
            )

    def refuse_input(self) -> None:
        self.check()

    def names(self) -> set[str]:
        return self._local.names()

    def final_path(self, file: OutputFile) -> Path:
        return Path(self.url_of(file.name))

    def told_path(self) -> str:
        return self.url

    def commit(self, staging: Any) -> None:
        raise AssertionError("nothing is staged")

    def add_all(self) -> None:
        """Write the sidecars, the index, and the config behind all others."""
        if not isinstance(self._local, DirectoryDestination):
            return
        for name in self._local.copied():
            put(self.url_of(name), self._local.root / name)
        for name, raw in self._local.made():  # the config behind all others
            if name == CONFIG_NAME:
                self._create(self.url_of(name), bytes(raw))
            else:
                put(self.url_of(name), bytes(raw))

    def _create(self, url: str, raw: bytes) -> None:
        """Create the config; another one that is there meanwhile is another output's."""
        if self.request.force:
            put(url, raw)
        elif not put(url, raw, mode="create") and get(url) != raw:
            raise OutputError(f"{url}: another run has written it meanwhile")


@contextmanager
def failing(url: str) -> Iterator[None]:
    """Make one line of what obstore raises."""
    try:
        yield
    except Exception as error:
        if type(error).__module__.startswith("obstore"):
            raise failure(error, url) from None
        raise


def put(url: str, raw: bytes | Path, mode: Any = "overwrite") -> bool:
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


def delete(url: str) -> None:
    """Remove an object."""
    import obstore

    store, key = store_of(url)
    with failing(url):
        obstore.delete(store, key)
