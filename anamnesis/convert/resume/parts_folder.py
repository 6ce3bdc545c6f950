"""The folder of an output whose files several processes make, wherever they run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from uuid import uuid4

from anamnesis.base.errors import OutputError
from anamnesis.checkpoint.file_names import PARTS_SUFFIX
from anamnesis.convert.resume.folder import PUBLIC, Folder
from anamnesis.convert.resume.partial import NO_ROOM, PartialFolder, allocate, no_room, try_lock
from anamnesis.convert.resume.staging import Staging, parsed_note

if TYPE_CHECKING:
    from anamnesis.convert.plan.files import OutputFile
    from anamnesis.convert.resume.destination import Destination
    from anamnesis.convert.write.tally import Tally

PLAN = "plan-"  # of the notes that say what the parts are of: one, but for who comes too late
_NOTES = "parts"
_MOST = 1 << 28  # bytes of a note


class PartsFolder:
    """`OUT.amn-parts`: whole files in `files/`, and in `parts/` a note for each of them.

    A name is given only to what is whole, so that a file and its note are there or not, and two
    processes that make the same one do no harm. A staging folder has the same `files/`, `lock` and
    `commit`.
    """

    def __init__(self, out: Path) -> None:
        self._out = out
        self._partial = PartialFolder(out, PARTS_SUFFIX)
        self.path = self._partial.path

    def begin(self) -> None:
        """Make the folder, if it is not there."""
        with self._partial.shared() as home:
            for name in (_NOTES, "files"):
                home.inner(name, make=PUBLIC).close()

    @contextmanager
    def _open(self) -> Iterator[Folder]:
        with self._partial.seen() as home:
            if home is None:
                raise OutputError(
                    f"{self._out}: {self.path} is not there: another run has ended, or this machine"
                    " does not share it"
                )
            yield home

    def names(self) -> set[str]:
        with suppress(FileNotFoundError), self._partial.seen() as home:
            if home is not None:
                with home.inner(_NOTES) as notes:
                    found = (name.partition(".json") for name in notes.names())
                    return {stem for stem, suffix, more in found if suffix and not more}
        return set()

    def read(self, name: str) -> dict[str, Any] | None:
        """Return a note; None if it is not there, or was not written whole before a power cut."""
        with self._open() as home, home.inner(_NOTES) as notes:
            return parsed_note(notes.read(f"{name}.json", _MOST))

    def note(self, name: str, told: Mapping[str, Any]) -> None:
        """Write a note, whole."""
        new = f"{name}.json.{uuid4().hex}"
        with self._open() as home, home.inner(_NOTES) as notes:
            with open(notes.create(new), "wb") as stream:
                stream.write(json.dumps(told).encode())
            notes.move(new, notes, f"{name}.json")

    def forget(self, name: str) -> None:
        with self._open() as home, home.inner(_NOTES) as notes:
            notes.remove(f"{name}.json")

    @property
    def is_committing(self) -> bool:
        """Whether files begin to get their final names."""
        with self._partial.seen() as home:
            return home is not None and home.status("commit") is not None

    def size(self, name: str) -> int | None:
        """Return the size of a file; None if it is not there."""
        with (
            suppress(FileNotFoundError),
            self._open() as home,
            home.inner("files") as files,
            files.place(name) as (folder, last),
        ):
            status = folder.status(last)
            return None if status is None else status.st_size
        return None

    @contextmanager
    def room(self, stem: str, file: OutputFile, *, sync: bool) -> Iterator[BinaryIO]:
        """Yield room for a file, which gets its name when all is written; `stem` is its note's."""
        with self._open() as home, home.inner(_NOTES) as notes:
            _sweep(notes, f"{stem}.new.")
            new = f"{stem}.new.{uuid4().hex}"
            try:
                with open(notes.create(new), "r+b", buffering=0) as room:
                    try_lock(room.fileno())  # whoever dies lets go of it
                    try:
                        allocate(room.fileno(), file.n_bytes)
                    except OSError as error:
                        if error.errno in NO_ROOM:
                            args = self.path, self._out, file.n_bytes, error.errno
                            raise no_room(*args) from None
                        raise
                    yield room
                    if sync:
                        os.fsync(room.fileno())
                    if os.name == "nt":
                        room.close()  # or it cannot be renamed; elsewhere its lock holds until then
                    with (
                        home.inner("files") as files,
                        files.place(file.name, make=PUBLIC) as (folder, last),
                    ):
                        notes.move(new, folder, last)
            finally:
                notes.remove(new)

    def commit(self, where: Destination, joined: Callable[[], Tally]) -> Tally:
        """Give all files their final names; return what `joined` says they came to."""
        sync, check = where.request.sync, where.request.how.check
        with Staging(where.out, sync=sync, check=check, suffix=PARTS_SUFFIX) as staging:
            if not self.names():
                staging.discard()  # made just now, maybe after another's commit
            tally = joined()
            if not self.is_committing:
                where.check()
                where.checkpoint.check_unchanged()
                where.add_sidecars(staging)
            elif not where.is_whole(staging):
                raise staging.damaged("commit")
            where.commit(staging)
        return tally


def _sweep(notes: Folder, stem: str) -> None:
    """Remove what killed processes have left of a file: nobody holds it any more.

    One that is empty may be about to be locked.
    """
    for name in notes.names():
        if name.startswith(stem):
            with suppress(FileNotFoundError), open(notes.open(name, os.O_RDWR), "r+b") as file:
                if os.fstat(file.fileno()).st_size and try_lock(file.fileno()):
                    notes.remove(name)
