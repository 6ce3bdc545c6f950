"""Output that appears whole or not at all, and that a later run can take up.

Everything is written below `OUT.amn-partial` (inside OUT, if OUT is a directory that exists) and
renamed when it is whole:

    lock        held by the run that writes; a second run is refused
    plan.json   what is being made, of what: a run may resume only its own plan
    journal     for each finished band a record, appended after its bytes were written: its ordinal,
                how many of its values became infinite, and what else is added up of all bands
    surveys     what a first pass over a weight has found, where its bytes depend on that
    commit      there once all is written and files begin to get their final names; says so, if
                all was synced before
    files/      the files to be

What a run may do with what it finds there is decided in `protocol`. This is the mechanism.

Whoever made the folder that the output goes to, a download say, may have put links at these names.
No link is followed, neither here nor in OUT, and no file is written that has a second name: nothing
outside is touched. The staging folder is refused, and left as it is, if it is a link, belongs to
another user, can be written to by others, or holds what no run leaves. Links in the path of OUT
that the user named are followed, but OUT may not be one if it is a directory.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from anamnesis.base.errors import OutputError
from anamnesis.checkpoint.file_names import PARTIAL_SUFFIX
from anamnesis.convert.resume.folder import PUBLIC, Folder
from anamnesis.convert.resume.identity import boot_id
from anamnesis.convert.resume.journal import Damaged, Journal, read
from anamnesis.convert.resume.partial import NO_ROOM, NOTES, PartialFolder, allocate, no_room
from anamnesis.convert.write.sinks import write_all, write_at
from anamnesis.sources.file import FileSource

_SYNCED = b"synced"
_SURVEYS, _FOUND = "surveys", range((1 << 12) + 1)  # bytes that a survey may find
_BOOT_BYTES = 100  # the most that the boot's id adds to a plan
_PIECE = 1 << 20
ANEW = "run again without resume=True to begin anew"


class Notes(NamedTuple):
    """What a partial run says of itself."""

    plan: dict[str, Any] | None
    committing: bool
    synced: bool
    surveys: dict[int, bytes]

    def is_of(self, plan: dict[str, Any]) -> bool:
        """Tell whether the folder was begun for this plan, whatever the boot."""
        return self.plan is not None and {**self.plan, "boot": None} == {**plan, "boot": None}

    @property
    def is_of_this_boot(self) -> bool:
        """Whether the machine has not been started anew since: what was written is there still."""
        return self.plan is not None and self.plan.get("boot") == boot_id()


class Staging:
    """The partial output of one run; use it as a context manager.

    Leaving it without `commit` keeps what was journalled, for a later run to resume, unless
    `discard` was called. What is long begins with `check`, which raises if it shall not be done.
    """

    def __init__(
        self,
        out: Path,
        *,
        sync: bool = False,
        record_bytes: int = 8,
        check: Callable[[], None] = lambda: None,
        suffix: str = PARTIAL_SUFFIX,
    ) -> None:
        self.out = out
        self.sync = sync
        self._record_bytes = record_bytes
        self._check = check
        self._partial = PartialFolder(out, suffix)
        self.folder = self._partial.path
        self.files = self.folder / "files"
        self._fds: dict[str, int] = {}
        self._bands: Journal | None = None
        self._surveys: Journal | None = None
        self._surveyed: set[int] = set()
        self._discard = False
        self._position = threading.Lock()

    def __enter__(self) -> Staging:
        self._partial.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self._close_files()
        self._partial.release(remove=self._discard)

    @contextmanager
    def _place(self, name: str) -> Iterator[tuple[Folder, str]]:
        """Open the folder that one of the files to be lies in."""
        with (
            self._partial.home.inner("files", make=PUBLIC) as files,
            files.place(name, make=PUBLIC) as place,
        ):
            yield place

    def discard(self) -> None:
        """Leave nothing behind on exit."""
        self._discard = True

    def discard_new(self) -> None:
        """Leave nothing behind on exit, unless there is a partial run to resume."""
        self._discard |= self._partial.home.status("plan.json") is None

    # --- beginning and resuming ----------------------------------------------------------------

    def look(self, plan: dict[str, Any]) -> Notes | None:
        """Return what the partial run here says of itself, locked or not; None if there is none.

        Its plan is read no further than `plan` is long: a longer one is another.
        """
        most = len(json.dumps(plan)) + _BOOT_BYTES
        with self._partial.seen() as home:
            if home is None:
                return None
            raw = home.read("plan.json", most + 1)
            commit = home.read("commit", len(_SYNCED))
            surveys: dict[int, bytes] = {}
            with suppress(FileNotFoundError), self._whole(_SURVEYS):
                if plan["surveys"]:
                    with open(home.open(_SURVEYS), "rb") as stream:
                        surveys = dict(read(stream, plan["weights"], _FOUND))
        known = {} if raw is not None and len(raw) > most else parsed_note(raw)
        return Notes(known, commit is not None, commit == _SYNCED, surveys)

    @contextmanager
    def _whole(self, name: str) -> Iterator[None]:
        """Refuse a journal that is damaged."""
        try:
            yield
        except Damaged:
            raise self.damaged(name) from None

    def begin(self, plan: dict[str, Any]) -> None:
        """Begin anew; nothing is done."""
        home = self._partial.home
        with self._deep_folders():
            for name in NOTES:
                home.remove(name)
            home.remove_tree("files")
            home.inner("files", make=PUBLIC).close()
            with open(home.create("plan.json.new"), "wb") as stream:
                stream.write(json.dumps({**plan, "boot": boot_id()}).encode())
            home.move("plan.json.new", home, "plan.json")
        self._open_journals(plan)

    def resume(self, plan: dict[str, Any], names: Set[str]) -> None:
        """Take up a killed run of this plan."""
        with self._deep_folders():
            if self._partial.home.status("files") is not None:
                self._check_files({PurePath(name).as_posix() for name in names})
        self._open_journals(plan)

    def _check_files(self, names: Set[str]) -> None:
        """Refuse files that no run of the plan leaves; remove those that were being created."""
        with self._partial.home.inner("files") as files:
            for name in set(files.walk()) - names:
                if name.removesuffix(".new") not in names:
                    raise self.damaged(f"files/{name}")
                with files.place(name) as (folder, last):
                    folder.remove(last)

    def _open_journals(self, plan: dict[str, Any]) -> None:
        home = self._partial.home
        one = range(self._record_bytes, self._record_bytes + 1)
        self._bands = Journal(home, "journal", plan["bands"], one)
        if plan["surveys"]:
            self._surveys = Journal(home, _SURVEYS, plan["weights"], _FOUND)
            with self._whole(_SURVEYS):
                self._surveyed = {index for index, _ in self._surveys.records()}

    def done(self) -> Iterator[tuple[int, bytes]]:
        """Yield all bands that are written, and what is noted of each."""
        assert self._bands is not None
        with self._whole("journal"):
            yield from self._bands.records()

    @contextmanager
    def _deep_folders(self) -> Iterator[None]:
        """Refuse what is nested too deep to be looked through."""
        try:
            yield
        except RecursionError:
            raise OutputError(
                f"{self.files}: has folders nested too deep; remove it or name another output"
            ) from None

    def damaged(self, name: str) -> OutputError:
        """Return the error that a note, or a file, is none that a run leaves."""
        return OutputError(f"{self.folder / name}: is damaged, or of no run", remedy=ANEW)

    # --- writing -------------------------------------------------------------------------------

    def check_room(self, need: int) -> None:
        """Raise `OSError` (ENOSPC) unless `need` bytes are free; nothing is left behind then."""
        if need > shutil.disk_usage(self.folder).free:
            self.discard()
            raise no_room(self.folder, self.out, need)

    def reserve(self, sizes: dict[str, int], extra: int) -> None:
        """Create the files that are not there yet, with room for all their bytes.

        `extra` bytes more must be free, for files that come later. Where a file of a partial run
        is gone or was cut, nothing of it counts as done.
        """
        assert self._bands is not None
        missing = {name: n for name, n in sizes.items() if self._size(name) != n}
        if missing:
            self._bands.clear()
        need = sum(missing.values()) + extra
        self.check_room(need)
        try:
            for name, size in missing.items():
                with self._place(name) as (folder, last):
                    folder.remove(last + ".new")
                    fd = folder.create(last + ".new")
                    try:
                        allocate(fd, size)
                    finally:
                        os.close(fd)
                    folder.move(last + ".new", folder, last)  # only when the room is there
        except OSError as error:
            self.discard()
            if error.errno in NO_ROOM:
                raise no_room(self.folder, self.out, need, error.errno) from None
            raise

    def _size(self, name: str) -> int | None:
        """Return the size of one of the files to be, None if it is not there."""
        with self._place(name) as (folder, last):
            status = folder.status(last)
            folder.check_file(last, status)
        return None if status is None else status.st_size

    def write(self, name: str, offset: int, data: bytes | memoryview) -> None:
        fd = self._fds.get(name)
        if fd is None:
            with self._position:
                fd = self._fds.get(name)
                if fd is None:
                    with self._place(name) as (folder, last):
                        fd = self._fds[name] = folder.open(last, os.O_RDWR)
        write_at(fd, offset, data, self._position)

    def finished(self, ordinal: int, record: bytes) -> None:
        """Note that a band's bytes are written."""
        assert self._bands is not None
        self._bands.append(ordinal, record)

    def survey_found(self, index: int, found: bytes) -> None:
        """Note what a survey has found, unless it is noted."""
        assert self._surveys is not None
        if index not in self._surveyed:
            self._surveyed.add(index)
            self._surveys.append(index, found)

    def add(self, name: str, data: bytes | bytearray) -> None:
        """Write a small file whole."""
        with self._place(name) as (folder, last):
            folder.remove(last)
            with open(folder.create(last), "wb") as stream:
                stream.write(data)

    def copy(self, source: Path, name: str) -> None:
        """Copy a file as it is, with its times and mode."""
        with FileSource(source) as original, self._place(name) as (folder, last):
            folder.remove(last)
            with open(folder.create(last), "wb", buffering=0) as stream:
                for offset in range(0, original.size, _PIECE):
                    self._check()
                    write_all(stream, original.read(offset, min(_PIECE, original.size - offset)))
            original.check_unchanged()
            folder.copy_status(os.fstat(original.fileno()), last)

    # --- committing ----------------------------------------------------------------------------

    def commit(self, last: str, *, inside: bool) -> None:
        """Give all files their final names, inside OUT or in its place, `last` after all others."""
        home, parent = self._partial.home, self._partial.parent
        with ExitStack() as stack:
            names: list[str] = []
            if home.status("files") is not None:
                files = stack.enter_context(home.inner("files"))
                names = list(files.walk())
            self._finish(names)
            if names and inside and parent.status(self.out.name) is None:
                stack.close()  # Windows does not rename an open folder
                home.move("files", parent, self.out.name)
            elif names:
                out = stack.enter_context(parent.inner(self.out.name)) if inside else parent
                for name in names:
                    out.check_place(name)
                # While old files and new ones are mixed, nothing must load.
                if last in names and len(names) > 1:
                    out.remove(last)
                for name in sorted(names, key=lambda n: n == last):
                    with files.place(name) as (of, own), out.place(name, make=PUBLIC) as (to, new):
                        of.move(own, to, new)
        self.discard()
        if self.sync:
            status = parent.status(self.out.name)
            if status is not None and stat.S_ISDIR(status.st_mode):
                with parent.inner(self.out.name) as out:
                    out.sync_tree()
            parent.sync()

    def _finish(self, names: Iterable[str]) -> None:
        self._close_files()
        home = self._partial.home
        if self.sync:
            for name in names:
                with self._place(name) as (folder, last):
                    folder.sync(last)
            if home.status("files") is not None:
                with home.inner("files") as files:
                    files.sync_tree()
        with open(home.open_or_create("commit"), "wb") as note:
            note.write(_SYNCED if self.sync else b"")
        if self.sync:
            for name in NOTES:
                if home.status(name) is not None:
                    home.sync(name)
            home.sync()

    def _close_files(self) -> None:
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()
        for one in (self._bands, self._surveys):
            if one is not None:
                one.close()


def parsed_note(raw: bytes | None) -> dict[str, Any] | None:
    """Return what a note says; None if there is none, or it is not whole."""
    try:
        told = json.loads(raw or b"")
    except (ValueError, RecursionError):
        return None
    return told if isinstance(told, dict) else None
