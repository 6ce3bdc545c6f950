"""The folder of output on its way, which one run at a time holds, and its room."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from anamnesis.base.errors import OutputError
from anamnesis.base.sizes import format_size
from anamnesis.checkpoint.file_names import PARTIAL_SUFFIX
from anamnesis.convert.resume.folder import PRIVATE, Folder

# Files that may be there but the lock.
NOTES = ("plan.json", "plan.json.new", "journal", "surveys", "commit")
FOLDERS = ("files", "parts", "gone")
NO_ROOM = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


class PartialFolder:
    """`OUT.amn-partial`, or the one inside an OUT that is a directory and exists."""

    parent: Folder
    home: Folder

    def __init__(self, out: Path, suffix: str = PARTIAL_SUFFIX) -> None:
        self._out = out
        beside = out.with_name(out.name + suffix)
        self._inside = out.is_dir() and not os.path.lexists(beside)
        self.path = out / suffix if self._inside else beside
        self._around: Folder  # that it is in
        self._stack = ExitStack()  # of these folders
        self._lock_fd = -1

    @contextmanager
    def seen(self) -> Iterator[Folder | None]:
        """Yield the folder as it is now, locked or not; None if it is not there."""
        if self._lock_fd >= 0:
            yield self.home
            return
        with ExitStack() as stack:
            home = None
            with suppress(FileNotFoundError):
                home = self._open(stack, make=False)[-1]
            yield home

    @contextmanager
    def shared(self) -> Iterator[Folder]:
        """Make the folder, and yield it for one of several that write to it."""
        self._make_parent()
        with ExitStack() as stack:
            home = self._open(stack, make=True)[-1]
            with suppress(FileExistsError):
                os.close(home.create("lock"))
            yield home

    def _make_parent(self) -> None:
        try:
            self._out.parent.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise OutputError(
                f"{self._out}: would lie in what is no folder; name another output"
            ) from None

    def _open(self, stack: ExitStack, *, make: bool) -> tuple[Folder, Folder, Folder]:
        around = parent = stack.enter_context(Folder.named(self._out.parent))
        if self._inside:
            around = stack.enter_context(parent.inner(self._out.name))
        mode = PRIVATE if make else None
        home = stack.enter_context(around.inner(self.path.name, make=mode))
        home.check_private()
        return parent, around, home

    def acquire(self) -> None:
        """Make the folder and lock it; again, if the run that held it has removed it meanwhile."""
        for _ in range(100):
            self._make_parent()
            with ExitStack() as stack, suppress(FileNotFoundError, FileExistsError):
                parent, around, home = self._open(stack, make=True)
                fd = _lock(home, f"{self._out}: another run is writing it")
                if fd >= 0:
                    self.parent, self._around, self.home = parent, around, home
                    self._stack, self._lock_fd = stack.pop_all(), fd
                    return
        raise OutputError(f"{self._out}: cannot lock {self.path}")

    def release(self, *, remove: bool) -> None:
        """Unlock the folder, having removed it if wished."""
        try:
            if remove:
                self._remove()
        finally:  # whoever is interrupted here may write the same output again
            self._unlock()
            self._stack.close()

    def _unlock(self) -> None:
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def _remove(self) -> None:
        """Remove the folder, the lock last: nobody shall take half a folder for a partial run."""
        with suppress(FileNotFoundError):  # at once, for each note in it stands for a file
            self.home.remove_tree("gone")
            self.home.move("parts", self.home, "gone")
        for name in NOTES:
            self.home.remove(name)
        for name in FOLDERS:
            with suppress(OSError, RecursionError):
                self.home.remove_tree(name)
        if os.name == "nt":  # an open file cannot be removed there
            self._unlock()
        with suppress(OSError):
            if all(self.home.status(name) is None for name in FOLDERS):
                self.home.remove("lock")
                self._around.remove_empty(self.path.name)


def _lock(home: Folder, held: str) -> int:
    """Lock an open folder; return the lock's descriptor, -1 if the lock was removed meanwhile."""
    is_new = home.status("lock") is None
    fd = home.create("lock") if is_new else home.open("lock", os.O_RDWR)
    try:
        if not try_lock(fd):
            raise OutputError(held)
        status = home.status("lock")
        if status is None or not os.path.samestat(os.fstat(fd), status):
            os.close(fd)
            return -1
        try:
            _check_left_by_a_run(home, new_lock=is_new)
        except OutputError:
            if is_new:  # leave it as it was
                home.remove("lock")
            raise
    except BaseException:
        os.close(fd)
        raise
    return fd


def _check_left_by_a_run(home: Folder, *, new_lock: bool) -> None:
    """Raise `OutputError` if a folder holds what no run leaves, or anything but was not locked."""
    for name in home.names():
        status = home.status(name)
        if name.startswith(".") or status is None:
            continue  # file managers and network file systems leave such
        foreign = name not in ("lock", *FOLDERS, *NOTES) or (name == "lock" and status.st_size)
        if foreign or (new_lock and name != "lock"):
            raise OutputError(
                f"{home.path}: was not left by a run ({name!r} is in it); remove it or name another"
                " output"
            )
        if name in FOLDERS:
            home.inner(name).close()
        else:
            home.check_file(name, status)


def try_lock(fd: int) -> bool:
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


def no_room(folder: Path, out: Path, need: int, code: int | None = errno.ENOSPC) -> OSError:
    """Return the error that an output has no room in a folder."""
    why = f"{os.strerror(code or 0)}: the output takes {format_size(need)}"
    if code == errno.ENOSPC:
        why += f", {format_size(shutil.disk_usage(folder).free)} are free"
    return OSError(code, why, str(out))


def allocate(fd: int, size: int) -> None:
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
