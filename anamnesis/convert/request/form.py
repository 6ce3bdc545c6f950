"""What form an output takes: which container, file or directory, under which name."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from anamnesis.base.errors import OutputError
from anamnesis.formats.written import WRITERS, asked_format, written_as

if TYPE_CHECKING:
    from anamnesis.convert.request.targets import Target

_DIRECTORIES = "safetensors"  # the container that has them

# Of files that others write; any other ending may be a part of a name: `Qwen2.5-7b`, `model.tmp`.
_FOREIGN = {
    *(".7z", ".csv", ".gz", ".h5", ".hdf5", ".json", ".keras", ".mlmodel", ".msgpack", ".onnx"),
    *(".parquet", ".pb", ".pkl", ".tar", ".tflite", ".tgz", ".txt", ".xz", ".zip", ".zst"),
}


class Form(NamedTuple):
    """What form an output takes, whatever it is made of."""

    container: str = _DIRECTORIES
    name: str = ""
    is_named_file: bool = False
    is_cut: bool = False
    is_named_directory: bool = False

    @property
    def has_directories(self) -> bool:
        """Whether its container may be a directory of shards."""
        return self.container == _DIRECTORIES

    @property
    def extension(self) -> str:
        """What names of its files usually end in."""
        return WRITERS[self.container].endings[0]

    def becomes_file(self, *, directory: bool) -> bool:
        """Return whether a file, or a directory, is written as one file, or as its parts."""
        return self.is_named_file or not self.has_directories or not (directory or self.is_cut)


def form_of(target: Target, out: Any, *, is_cut: bool) -> Form:
    """Return the form of an output."""
    check_named(out)
    if not isinstance(out, (str, os.PathLike)):
        container = target.container or target.usual
        return Form(container, "", out is not None, is_cut, target.is_directory)
    path = os.fspath(out)
    promised = None if os.path.isdir(path) else asked_format(path)
    if promised not in (None, _DIRECTORIES, written_as(path)):
        raise _unwritable(path)
    if promised is not None and target.container not in (None, promised):
        raise OutputError(
            f"{path}: has the extension of {WRITERS[promised].title}, but the target is"
            f" {target.container}; name another output"
        )
    name = os.path.basename(os.path.abspath(out))
    is_file = asked_format(name) is not None and not os.path.isdir(out)
    if is_file and target.is_directory:
        raise OutputError(f"{out}: names a file, and {target.text} means a directory")
    container = target.container or promised or target.usual
    return Form(container, name, is_file, is_cut, is_named_directory=not is_file)


def check_ending(target: Target, out: Any) -> None:
    """Refuse a path whose ending is of what is not written, where the target names no container."""
    if target.container is not None or not isinstance(out, (str, os.PathLike)):
        return
    name = os.fspath(out)
    if os.path.isdir(name):
        check_directory(target.usual, name)
    elif os.path.splitext(name)[1].lower() in _FOREIGN:
        raise _unwritable(name)


def check_named(out: Any) -> None:
    """Refuse an empty name, as of a variable that is not set; it would be the working directory."""
    if isinstance(out, str) and not out:
        raise OutputError("the output's name is empty; name a file or a directory")


def check_directory(container: str, name: str) -> None:
    """Refuse a directory that is called as a file of another container."""
    ending = written_as(name) if os.path.isdir(name) else None
    if ending not in (None, _DIRECTORIES, container):
        raise OutputError(
            f"{name}: is a directory, though it has the extension of {WRITERS[ending].title}",
            remedy="name another output; a slash behind the name says that a directory is meant",
        )


def _unwritable(name: str) -> OutputError:
    endings = [written.endings[0] for written in WRITERS.values()]
    return OutputError(
        f"{name}: {os.path.splitext(name)[1]} files cannot be written",
        remedy=f"name one that ends in {', '.join(endings[:-1])} or {endings[-1]}",
    )
