"""The metadata of a file, changed where they lie: the function `edit_metadata`."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple

from anamnesis.base.arguments import Globs, check_kind, checked
from anamnesis.base.errors import OutputError, UnsupportedError
from anamnesis.base.limits import UNLIMITED, Budget, ParseLimits
from anamnesis.base.nearest import did_you_mean
from anamnesis.convert.resume.folder import Folder
from anamnesis.convert.resume.staging import Staging
from anamnesis.formats.base import Container
from anamnesis.formats.registry import UNDO_SUFFIX, parse_container
from anamnesis.sources.file import FileSource
from anamnesis.sources.urls import kind_of_url

__all__ = ["MetadataEdit", "edit_metadata"]

_PIECE = 1 << 20
_SIZE_BYTES = 8


class MetadataEdit(NamedTuple):
    """What `edit_metadata` did."""

    path: str
    n_set: int
    n_unset: int
    in_place: bool


@checked
def edit_metadata(
    path: str | os.PathLike[str],
    set: Mapping[str, Any] | None = None,
    unset: Globs = (),
    *,
    limits: ParseLimits | None = None,
) -> MetadataEdit:
    """Change the metadata of a GGUF or safetensors file; its tensors stay as they lie.

    Where the header has room, it alone is written: in safetensors what is padded with spaces, in
    GGUF up to the data, which begin at a multiple of the alignment. What was there is kept beside
    it meanwhile (`FILE.amn-undo`, synced to disk), so that a run that is killed, or a power cut,
    loses nothing: until it is put right, by this function called again, `parse` refuses the file.
    Else the file is copied behind its new header, in constant memory, and replaced when the copy
    is whole and on disk.

    Parameters
    ----------
    path : path
        One file, of a model in several each for itself. No link is followed.
    set : mapping of str to anything, optional
        Strings for safetensors. For GGUF what `Model.convert` takes as `metadata`: a key that is
        there keeps its type, a new one gets that of its value, and
        `{"type": "uint8", "value": 7}` says its own. None removes a key.
    unset : str or sequence of str
        Keys that are removed.
    limits : ParseLimits, optional
        As of `parse`.

    Returns
    -------
    MetadataEdit

    Raises
    ------
    ParseError, LimitExceeded
        As `parse`.
    UnsupportedError
        If it is of another format, a key to remove is not there, a value does not fit the type of
        its key, or a key says where tensors lie; the file is as it was.
    OutputError
        If the path is a link, no file or read-only, or is being written by another run.
    OSError
        If there is no room, or reading or writing fails.
    """
    check_kind("limits", limits, ParseLimits)
    if kind_of_url(path):
        raise OutputError(f"{path}: is not on this machine, where files are edited")
    where = Path(os.path.abspath(path))
    new = {key: value for key, value in (set or {}).items() if value is not None}
    gone = dict.fromkeys([*unset, *(key for key in set or {} if key not in new)])
    if both := gone.keys() & {*new}:
        raise UnsupportedError(f"metadata {min(both)!r}: is both set and removed")
    with Folder.named(where.parent) as folder:
        _check_file(path)
        with _held(where) as staging:
            _put_right(folder, where)
            with FileSource(path) as source:
                container = parse_container(source, Budget(limits or UNLIMITED))
                raw = _header(container, new, gone)
                alignment: int = container.facts.get("alignment", 1)
                begin = container.header_bytes + -container.header_bytes % alignment
                was = source.read(0, min(begin, source.size))
                if len(raw) == len(was):
                    _write_header(folder, where, was, raw)
                else:
                    _copy_behind(staging, source, raw, len(was))
            if len(raw) != len(was):
                staging.commit(last=where.name, inside=False)
    return MetadataEdit(os.fspath(path), len(new), len(gone), len(raw) == len(was))


def _check_file(where: str | os.PathLike[str]) -> None:
    """Refuse what is no file, or has other names, by which it would change too."""
    status = os.lstat(where)
    if stat.S_ISLNK(status.st_mode):
        raise OutputError(f"{where}: is a link; name the file that it leads to")
    if not stat.S_ISREG(status.st_mode):
        raise OutputError(f"{where}: is no regular file; name one of a model")
    if not (status.st_mode & 0o222 and os.access(where, os.W_OK)):
        raise OutputError(f"{where}: is read-only; make it writable first")
    if status.st_nlink > 1:
        raise OutputError(f"{where}: has other names, by which it would change too; copy it first")


@contextmanager
def _held(where: Path) -> Iterator[Staging]:
    """Hold the file against other runs; leave nothing beside it."""
    with Staging(where, sync=True) as staging:
        staging.discard()
        yield staging


def _header(container: Container, new: Mapping[str, Any], gone: Mapping[str, None]) -> bytes:
    """Return the new header, up to the data."""
    if container.id not in ("gguf", "safetensors"):
        raise UnsupportedError(
            f"{container.source.name}: metadata of {container.format} files cannot be edited, but"
            " those of GGUF and safetensors"
        )
    for key in gone:
        if key not in container.metadata:
            raise UnsupportedError(
                f"{container.source.name}: there is no key {key!r} to remove"
                f"{did_you_mean(key, container.metadata)}"
            )
    edited = import_module(f"anamnesis.formats.{container.id}.write").edited
    raw: bytes = edited(container, new, gone)
    return raw


def _copy_behind(staging: Staging, source: FileSource, raw: bytes, begin: int) -> None:
    """Stage a copy of a file behind another header."""
    name = os.path.basename(source.name)
    staging.begin({"bands": 0, "surveys": 0})
    staging.reserve({name: len(raw) + source.size - begin}, 0)
    staging.write(name, 0, raw)
    for at in range(begin, source.size, _PIECE):
        piece = source.read(at, min(_PIECE, source.size - at))
        staging.write(name, len(raw) + at - begin, piece)
    os.chmod(staging.files / name, os.fstat(source.fileno()).st_mode & 0o777)
    source.check_unchanged()


# --- in place -------------------------------------------------------------------------------------


def _write_header(folder: Folder, where: Path, was: bytes, raw: bytes) -> None:
    """Write a header over another of its length, which lies beside it until all is on disk."""
    if raw == was:
        return
    undo = where.name + UNDO_SUFFIX
    with open(folder.open(where.name, os.O_RDWR), "r+b", buffering=0) as stream:
        try:
            _note(folder, undo, len(raw).to_bytes(_SIZE_BYTES, "little") + was + raw)
            _overwrite(stream, raw)
        except BaseException:
            if folder.status(undo) is not None:
                _overwrite(stream, was)
                folder.remove(undo)
            raise
    folder.remove(undo)
    folder.sync()


def _note(folder: Folder, name: str, raw: bytes) -> None:
    """Write a file, whole and on disk, or none."""
    new = f"{name}.new"
    try:
        folder.remove(new)
        with open(folder.create(new), "wb") as stream:
            stream.write(raw)
        folder.sync(new)
        folder.move(new, folder, name)
    finally:
        folder.remove(new)
    folder.sync()


def _overwrite(stream: FileIO, raw: bytes) -> None:
    stream.seek(0)
    left = memoryview(raw)
    while left:
        left = left[stream.write(left) :]
    os.fsync(stream.fileno())


def _put_right(folder: Folder, where: Path) -> None:
    """Undo what a killed run has begun; each byte of the header must be its old or its new one."""
    undo = where.name + UNDO_SUFFIX
    if folder.status(undo) is None:
        return
    said = folder.read(undo, where.stat().st_size * 2 + _SIZE_BYTES) or b""
    n = int.from_bytes(said[:_SIZE_BYTES], "little")
    was, new = said[_SIZE_BYTES : _SIZE_BYTES + n], said[_SIZE_BYTES + n :]
    now = folder.read(where.name, n) or b""
    is_its = len(was) == len(new) == len(now) and all(
        byte in pair for byte, *pair in zip(now, was, new, strict=True)
    )
    if not is_its:
        raise OutputError(f"{where}{UNDO_SUFFIX}: is of another file; remove it")
    with open(folder.open(where.name, os.O_RDWR), "r+b", buffering=0) as stream:
        _overwrite(stream, was)
    folder.remove(undo)
    folder.sync()
