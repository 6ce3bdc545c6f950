"""A folder that is written to without following links out of it.

Names are looked up relative to the open folder, one component at a time, and never through a
link: whoever swaps a folder for a link meanwhile changes nothing. Windows has no such lookup;
there each name is checked just before it is used.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path, PurePath
from typing import Any, Self

from anamnesis.base.errors import OutputError

# Modes of new folders, less the umask. On Windows a private folder's files would stay private,
# wherever they are moved.
PUBLIC = 0o777
PRIVATE = PUBLIC if os.name == "nt" else 0o700

_RELATIVE = {os.open, os.mkdir, os.unlink, os.rmdir, os.rename, os.stat} <= os.supports_dir_fd
_BY_FD = {os.utime, os.chmod} <= os.supports_fd

# Opening a named pipe would wait for its other end.
_SAFELY = (
    getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_CLOEXEC", 0)
)
_DIRECTORY = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_NAME_SURROGATE = 0x2000_0000  # of reparse tags: it stands for something elsewhere
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class Folder:
    """An open folder; use it as a context manager. An `OSError` names the whole path."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd  # -1 where names cannot be looked up relative to it

    @classmethod
    def named(cls, path: Path) -> Folder:
        """Open a folder that the user has named, links followed; it need not be readable."""
        if not _RELATIVE:
            return cls(path, -1)
        return cls(path, os.open(path, getattr(os, "O_PATH", os.O_RDONLY) | _DIRECTORY))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close it; closing twice is harmless."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    @contextmanager
    def _at(self, name: str) -> Iterator[tuple[Any, dict[str, int]]]:
        """Give the arguments that tell a call of `os` where `name` is."""
        try:
            yield (name, {"dir_fd": self._fd}) if _RELATIVE else (self.path / name, {})
        except OSError as error:
            error.filename = str(self.path / name)
            raise

    # --- looking -------------------------------------------------------------------------------

    def status(self, name: str) -> os.stat_result | None:
        """Return what `lstat` tells of a name, None if there is none."""
        with suppress(FileNotFoundError), self._at(name) as (path, where):
            return os.stat(path, follow_symlinks=False, **where)
        return None

    def names(self) -> list[str]:
        return sorted(os.listdir(self._fd if _RELATIVE else self.path))

    def walk(self) -> Iterator[str]:
        """Yield all files below, as relative paths with forward slashes."""
        for name in self.names():
            status = self.status(name)
            if status is not None and stat.S_ISDIR(status.st_mode):
                with self.inner(name) as inner:
                    for below in inner.walk():
                        yield f"{name}/{below}"
            else:
                self.check_file(name, status)
                yield name

    def check_file(self, name: str, status: os.stat_result | None) -> None:
        """Raise `OutputError` unless a status describes a regular file of one name."""
        if status is None:
            return
        if not stat.S_ISREG(status.st_mode) or _is_link(status):
            raise self._misplaced(name, _kind(status), "regular file")
        if status.st_nlink > 1:
            raise self._misplaced(name, "one of several names of a file", "regular file")

    def check_private(self) -> None:
        """Raise `OutputError` if the folder is another user's, or others can write to it."""
        status = os.stat(self._fd if _RELATIVE else self.path)
        if not hasattr(os, "geteuid"):
            return
        uid, loose = os.geteuid(), status.st_mode & _OTHERS_WRITE
        if status.st_uid != uid or loose:
            # Over a network another user may stand for us; some file systems know no modes.
            import tempfile

            with tempfile.TemporaryFile(dir=self.path.parent) as probe:
                ours = os.fstat(probe.fileno())
            uid, loose = ours.st_uid, loose & ~ours.st_mode
        if status.st_uid != uid:
            raise OutputError(
                f"{self.path}: belongs to another user; remove it or name another output"
            )
        if loose:
            mode = stat.filemode(status.st_mode)
            raise OutputError(
                f"{self.path}: other users may write to it ({mode}); remove it or name another"
                " output"
            )

    def check_place(self, name: str) -> None:
        """Raise `OutputError` if a file cannot get a name, or not without following a link."""
        with suppress(FileNotFoundError), self.place(name) as (folder, last):
            status = folder.status(last)
            if status is not None and stat.S_ISDIR(status.st_mode):
                raise folder._misplaced(last, "a folder", "file")

    def _misplaced(self, name: str, found: str, wanted: str) -> OutputError:
        return OutputError(
            f"{self.path / name}: is {found}, where a {wanted} belongs; remove it or name another"
            " output"
        )

    # --- folders -------------------------------------------------------------------------------

    def inner(self, name: str, *, make: int | None = None) -> Folder:
        """Open a folder in this one, which is made with the mode `make`, if given."""
        if make is not None:
            with suppress(FileExistsError), self._at(name) as (path, where):
                os.mkdir(path, make, **where)
        status = self.status(name)
        if status is not None and (not stat.S_ISDIR(status.st_mode) or _is_link(status)):
            raise self._misplaced(name, _kind(status), "folder")
        with self._at(name) as (path, where):
            if not _RELATIVE:
                os.stat(path)  # raises FileNotFoundError
                return Folder(path, -1)
            return Folder(self.path / name, os.open(path, _DIRECTORY | _SAFELY, **where))

    @contextmanager
    def place(self, name: str, *, make: int | None = None) -> Iterator[tuple[Folder, str]]:
        """Open the folder that a relative path lies in; yield it and the path's last name."""
        pure = PurePath(name)
        if pure.anchor or ".." in pure.parts:
            raise OutputError(f"{self.path}: {name!r} leads out of the output")
        *parents, last = pure.parts
        with ExitStack() as stack:
            folder = self
            for parent in parents:
                folder = stack.enter_context(folder.inner(parent, make=make))
            yield folder, last

    # --- files ---------------------------------------------------------------------------------

    def create(self, name: str, flags: int = 0) -> int:
        """Create a file, which must not exist, and return its descriptor."""
        flags |= os.O_RDWR | os.O_CREAT | os.O_EXCL | _SAFELY
        with self._at(name) as (path, where):
            return os.open(path, flags, 0o666, **where)

    def open(self, name: str, flags: int = os.O_RDONLY) -> int:
        self.check_file(name, self.status(name))
        with self._at(name) as (path, where):
            fd = os.open(path, flags | _SAFELY, **where)
        try:
            self.check_file(name, os.fstat(fd))
        except BaseException:
            os.close(fd)
            raise
        return fd

    def open_or_create(self, name: str, flags: int = 0) -> int:
        """Open a file to read and write; what is in it stays."""
        if self.status(name) is None:
            return self.create(name, flags)
        return self.open(name, os.O_RDWR | flags)

    def read(self, name: str, most: int) -> bytes | None:
        """Return the first `most` bytes of a file; None if it is not there."""
        try:
            fd = self.open(name)
        except FileNotFoundError:
            return None
        with open(fd, "rb") as stream:
            return stream.read(most)

    def copy_status(self, status: os.stat_result, name: str) -> None:
        """Give a file of this folder the times and the permissions of another."""
        fd = self.open(name, os.O_RDWR)
        try:
            target = fd if _BY_FD else self.path / name
            os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
            os.chmod(target, status.st_mode & 0o777)
        finally:
            os.close(fd)

    def sync(self, name: str | None = None) -> None:
        """Let the content of a file, or the names in this folder, survive a power cut."""
        if name is not None:
            fd = self.open(name, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
        elif _RELATIVE:
            fd = os.open(".", _DIRECTORY, dir_fd=self._fd)
        else:
            return  # Windows has no such thing
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_tree(self) -> None:
        """Let the names in this folder and all below survive a power cut."""
        self.sync()
        for name in self.names():
            status = self.status(name)
            if status is not None and stat.S_ISDIR(status.st_mode):
                with self.inner(name) as inner:
                    inner.sync_tree()

    # --- moving and removing -------------------------------------------------------------------

    def move(self, name: str, to: Folder, new: str) -> None:
        """Rename a file or a folder; a file or a link of the new name is replaced."""
        with to._at(new) as (target, _), self._at(name) as (path, _):
            if _RELATIVE:
                os.replace(path, target, src_dir_fd=self._fd, dst_dir_fd=to._fd)
            else:
                os.replace(path, target)

    def remove(self, name: str) -> None:
        """Remove a file, or a link itself, if it is there."""
        with suppress(FileNotFoundError), self._at(name) as (path, where):
            os.unlink(path, **where)

    def remove_empty(self, name: str) -> None:
        with self._at(name) as (path, where):
            os.rmdir(path, **where)

    def remove_tree(self, name: str) -> None:
        """Remove a folder and all in it, links themselves and not what they lead to."""
        if self.status(name) is not None:
            with self._at(name) as (path, where):
                shutil.rmtree(path, dir_fd=where.get("dir_fd"))


def _is_link(status: os.stat_result) -> bool:
    """Tell whether a name stands for something elsewhere: a link, or a junction of Windows'."""
    surrogate = getattr(status, "st_reparse_tag", 0) & _NAME_SURROGATE
    return stat.S_ISLNK(status.st_mode) or bool(surrogate)


def _kind(status: os.stat_result) -> str:
    if _is_link(status):
        return "a link"
    if stat.S_ISDIR(status.st_mode):
        return "a folder"
    return "a regular file" if stat.S_ISREG(status.st_mode) else "a pipe, socket or device"
