"""Output that appears whole or not at all, and that a killed run can take up again.

Everything is written below `OUT.amn-partial` (inside OUT, if OUT is a directory that exists) and
renamed when it is whole:

    lock        held by the run that writes; a second run is refused
    plan.json   what is being made, of what: a run may resume only its own plan
    journal     for each finished band two 8-byte numbers, appended after its bytes were written:
                its ordinal, and how many of its values became infinite
    commit      there once all is written and files begin to get their final names; says so, if
                all was synced before
    files/      the files to be

The journal of a killed process can be trusted, for what it wrote is in the page cache. After a
power cut it cannot: `plan.json` holds the id of the boot, and a partial run of another boot is
begun anew, unless all of it was synced.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import struct
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from anamnesis.errors import OutputError
from anamnesis.file_names import PARTIAL_SUFFIX
from anamnesis.sizes import format_size

__all__ = ["Done", "Staging"]

_NOTES = ("plan.json", "journal", "commit")
_RECORD = struct.Struct("<QQ")
_SYNCED = b"synced"
_CREATE = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)


class Done(NamedTuple):
    """What an earlier run has done of a plan.

    Attributes
    ----------
    flags : bytearray
        For each band 1 if it is written.
    overflows : dict of int to int
        For bands whose values became infinite by the rounding: how many.
    """

    flags: bytearray
    overflows: dict[int, int]


class Staging:
    """The partial output of one run; use it as a context manager.

    Leaving it without `commit` keeps what was journalled, for a later run to resume, unless
    `discard` was called.
    """

    def __init__(self, out: Path, *, sync: bool = False) -> None:
        self.out = out
        self.sync = sync
        beside = out.with_name(out.name + PARTIAL_SUFFIX)
        inside = out.is_dir() and not beside.exists()
        self.folder = out / PARTIAL_SUFFIX if inside else beside
        self.files = self.folder / "files"
        self._fds: dict[str, int] = {}
        self._lock_fd = -1
        self._journal_fd = -1
        self._discard = False
        self._position = threading.Lock()

    def __enter__(self) -> Staging:
        self._acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self._close_files()
        if self._discard:
            self._remove()
        self._release()

    # --- one run at a time ---------------------------------------------------------------------

    def _acquire(self) -> None:
        """Take the lock; again, if the run that held it has removed the folder meanwhile."""
        for _ in range(100):
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                fd = os.open(self.folder / "lock", _CREATE, 0o644)
            except FileNotFoundError:
                continue
            if not _try_lock(fd):
                os.close(fd)
                raise OutputError(f"{self.out}: another run is writing it")
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(fd), os.stat(self.folder / "lock")):
                    self._lock_fd = fd
                    return
            os.close(fd)
        raise OutputError(f"{self.out}: cannot lock {self.folder}")

    def _release(self) -> None:
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def _remove(self) -> None:
        """Remove the folder, the lock last: nobody shall take half a folder for a partial run."""
        for name in _NOTES:
            with suppress(FileNotFoundError):
                os.unlink(self.folder / name)
        shutil.rmtree(self.files, ignore_errors=True)
        if os.name == "nt":  # an open file cannot be removed there
            self._release()
        with suppress(OSError):
            os.unlink(self.folder / "lock")
            os.rmdir(self.folder)

    def discard(self) -> None:
        """Leave nothing behind on exit."""
        self._discard = True

    def discard_new(self) -> None:
        """Leave nothing behind on exit, unless there is a partial run to resume."""
        self._discard = not (self.folder / "plan.json").exists()

    # --- beginning and resuming ----------------------------------------------------------------

    def begin(self, plan: dict[str, Any], *, resume: bool) -> Done:
        """Begin anew, or take up a killed run of the same plan; return what is done already.

        Raises
        ------
        OutputError
            If a partial run of another plan is to be resumed.
        """
        done = Done(bytearray(plan["bands"]), {})
        old = self._old_plan() if resume else None
        if old is not None and not _same(old, plan):
            raise OutputError(
                f"{self.out}: the partial run in {self.folder} was of another source, version or"
                " options; run again without --resume to begin anew"
            )
        if old is None or not self._survived(old):
            self._begin_anew({**plan, "boot": _boot_id()})
        self._journal_fd = os.open(self.folder / "journal", _CREATE | os.O_APPEND, 0o644)
        for ordinal, n_overflows in self._journalled():
            if ordinal < len(done.flags):
                done.flags[ordinal] = 1
                if n_overflows:
                    done.overflows[ordinal] = n_overflows
        return done

    def was_committing(self, plan: dict[str, Any]) -> bool:
        """Tell whether a run of this plan was killed while files got their final names."""
        old = self._old_plan()
        return old is not None and _same(old, plan) and self.committing and self._survived(old)

    def is_leftover(self, plan: dict[str, Any]) -> bool:
        """Tell whether there is a partial run, but none that could be of another plan."""
        old = self._old_plan()
        return self.folder.exists() and (old is None or _same(old, plan))

    def _survived(self, old: dict[str, Any]) -> bool:
        """Tell whether what was written before is there still, had the power been cut."""
        if old.get("boot") == _boot_id():
            return True
        with suppress(OSError):
            return (self.folder / "commit").read_bytes() == _SYNCED
        return False

    def _old_plan(self) -> dict[str, Any] | None:
        try:
            plan = json.loads((self.folder / "plan.json").read_bytes())
        except (OSError, ValueError):
            return None
        return plan if isinstance(plan, dict) else None

    def _begin_anew(self, plan: dict[str, Any]) -> None:
        for name in _NOTES:
            with suppress(FileNotFoundError):
                os.unlink(self.folder / name)
        if self.files.exists():
            shutil.rmtree(self.files)
        self.files.mkdir()
        temporary = self.folder / "plan.json.new"
        temporary.write_text(json.dumps(plan))
        os.replace(temporary, self.folder / "plan.json")

    def _journalled(self) -> Iterator[tuple[int, int]]:
        """Yield the records of the journal; a torn last one is cut off."""
        data = (self.folder / "journal").read_bytes()
        whole = len(data) - len(data) % _RECORD.size
        if whole != len(data):
            os.ftruncate(self._journal_fd, whole)
        yield from _RECORD.iter_unpack(data[:whole])

    # --- writing -------------------------------------------------------------------------------

    def reserve(self, sizes: dict[str, int], extra: int, done: Done) -> None:
        """Create the files that are not there yet, with room for all their bytes.

        `extra` bytes more must be free, for files that come later. Where a file of a partial run
        is gone, nothing of it counts as `done`.

        Raises
        ------
        OSError
            If there is no room (ENOSPC, EDQUOT) or a file may not be that large (EFBIG). Nothing
            is left behind then.
        """
        missing = {name: n for name, n in sizes.items() if not (self.files / name).exists()}
        if missing and any(done.flags):
            os.ftruncate(self._journal_fd, 0)
            done.flags[:] = bytes(len(done.flags))
            done.overflows.clear()
        need = sum(missing.values()) + extra
        try:
            free = shutil.disk_usage(self.folder).free
            if need > free:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            for name, size in missing.items():
                self._create(name, size)
        except OSError as error:
            self.discard()
            if error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
                why = f"{error.strerror}: the output takes {format_size(need)}"
                if error.errno == errno.ENOSPC:
                    why += f", {format_size(free)} are free"
                raise OSError(error.errno, why, str(self.out)) from None
            raise

    def _create(self, name: str, size: int) -> None:
        """Make a file of `size`; it gets its name in the folder only when the room is there."""
        path = self.files / name
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(path.name + ".new")
        fd = os.open(temporary, _CREATE | os.O_TRUNC, 0o644)
        try:
            _allocate(fd, size)
        finally:
            os.close(fd)
        os.replace(temporary, path)

    def write(self, name: str, offset: int, data: bytes | memoryview) -> None:
        """Write bytes at an offset of a reserved file."""
        fd = self._fds.get(name)
        if fd is None:
            with self._position:
                fd = self._fds.get(name)
                if fd is None:
                    fd = self._fds[name] = os.open(self.files / name, _CREATE, 0o644)
        view = memoryview(data)
        while view:
            n = self._write_some(fd, offset, view)
            offset += n
            view = view[n:]

    if hasattr(os, "pwrite"):

        def _write_some(self, fd: int, offset: int, view: memoryview) -> int:
            return os.pwrite(fd, view, offset)

    else:  # Windows: no positioned write

        def _write_some(self, fd: int, offset: int, view: memoryview) -> int:
            with self._position:
                os.lseek(fd, offset, os.SEEK_SET)
                return os.write(fd, view)

    def finished(self, ordinal: int, n_overflows: int) -> None:
        """Note that a band's bytes are written."""
        if os.write(self._journal_fd, _RECORD.pack(ordinal, n_overflows)) != _RECORD.size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.out))

    def add(self, name: str, data: bytes) -> None:
        """Write a small file whole."""
        path = self.files / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def copy(self, source: Path, name: str) -> None:
        """Copy a file as it is, with its times and mode."""
        path = self.files / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, path)

    # --- committing ----------------------------------------------------------------------------

    def commit_file(self, name: str) -> None:
        """Give a single file its final name."""
        self._finish([name])
        if (self.files / name).exists():
            os.replace(self.files / name, self.out)
        self._after_commit()

    def commit_directory(self, last: str) -> None:
        """Give all files of a directory their final names, `last` after all others."""
        found = [p for p in self.files.rglob("*") if p.is_file()] if self.files.exists() else []
        names = [p.relative_to(self.files).as_posix() for p in found]
        self._finish(names)
        if not self.out.exists() and self.files.exists():
            os.rename(self.files, self.out)
            self._after_commit()
            return
        if last in names:  # while old and new files are mixed, nothing must load
            with suppress(FileNotFoundError):
                os.unlink(self.out / last)
        for name in sorted(names, key=lambda n: n == last):
            (self.out / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(self.files / name, self.out / name)
        self._after_commit()

    @property
    def committing(self) -> bool:
        """Whether all is written, and a run was killed while files got their final names."""
        return (self.folder / "commit").exists()

    def _finish(self, names: Iterable[str]) -> None:
        self._close_files()
        commit = self.folder / "commit"
        if not self.sync:
            commit.touch()
            return
        _sync(path for name in names if (path := self.files / name).exists())
        _sync_folders(self.files)
        commit.write_bytes(_SYNCED)
        _sync(self.folder / name for name in _NOTES)
        _sync_folders(self.folder)

    def _after_commit(self) -> None:
        self.discard()
        if self.sync:
            _sync_folders(self.out)
            _sync_folders(self.out.parent, deep=False)

    def _close_files(self) -> None:
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()
        if self._journal_fd >= 0:
            os.close(self._journal_fd)
            self._journal_fd = -1


def _sync(paths: Iterable[Path]) -> None:
    """Let the contents of files, or the names in folders, survive a power cut."""
    for path in paths:
        fd = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _sync_folders(folder: Path, *, deep: bool = True) -> None:
    """Do so with a folder and, if `deep`, all below; Windows has no such thing."""
    if os.name != "nt" and folder.is_dir():
        _sync([folder, *(p for p in folder.rglob("*") if deep and p.is_dir())])


def _same(old: dict[str, Any], plan: dict[str, Any]) -> bool:
    return {**old, "boot": None} == {**plan, "boot": None}


def _allocate(fd: int, size: int) -> None:
    """Give a file its length and, where the system can, its blocks."""
    if size and hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(fd, 0, size)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                raise
        else:
            return
    os.ftruncate(fd, size)


def _try_lock(fd: int) -> bool:
    """Take an exclusive lock that the system lets go of when the process ends."""
    try:
        import fcntl
    except ImportError:
        import msvcrt

        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        except OSError:
            return False
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        # File systems without locks: better unlocked than not at all.
        if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
    return True


def _boot_id() -> str:
    """Return what changes when the machine is started anew."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    # Elsewhere the minute of the start. Where the clock was set since, it looks like another boot,
    # and a partial run is begun anew: slower, but right.
    return str(round((time.time() - time.monotonic()) / 60))
