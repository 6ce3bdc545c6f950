"""Where an output goes: what is there already, and its final names."""

from __future__ import annotations

import json
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from anamnesis.base.errors import OutputError, ParseError
from anamnesis.base.limits import Budget
from anamnesis.checkpoint.file_names import CONFIG_NAME, EXTENSION, is_index
from anamnesis.checkpoint.hf_config import edited_params, shard_index
from anamnesis.checkpoint.json_file import read_json
from anamnesis.checkpoint.open import Checkpoint
from anamnesis.convert.plan.files import DirectoryOutput, OutputFile, check_distinct, check_writable
from anamnesis.convert.plan.plan import Plan
from anamnesis.convert.request.request import Request
from anamnesis.convert.resume.folder import Folder
from anamnesis.convert.resume.parts_folder import PartsFolder
from anamnesis.convert.resume.staging import Staging
from anamnesis.sources.file import FileSource
from anamnesis.sources.open import open_source

_PIECE = 1 << 20


class Destination(ABC):
    """A path, and what is planned to be there."""

    is_local: ClassVar[bool] = True

    def __init__(self, out: Path, plan: Plan, checkpoint: Checkpoint, request: Request) -> None:
        self.out, self.shown = out, str(out)
        self.plan = plan
        self.checkpoint = checkpoint
        self.request = request

    def parts(self) -> Any:
        """Return where files are kept that several processes make, a folder or what acts as one."""
        return PartsFolder(self.out)

    @property
    def config(self) -> dict[str, Any] | None:
        """What config.json will say; None if there is none."""
        directory = self.plan.directory
        return (
            None if directory is None or directory.config is None else json.loads(directory.config)
        )

    @abstractmethod
    def check(self) -> None:
        """Refuse an output that is the input, or exists and is not to be replaced."""

    @abstractmethod
    def refuse_input(self) -> None:
        """Refuse an output that is the input; the output must exist."""

    def refuse_others(self, present: set[str]) -> None:
        """Refuse weights in the place of the output that it does not replace."""
        others = [n for n in present - self.names() if n.endswith(EXTENSION) or is_index(n)]
        if others:
            raise OutputError(
                f"{self.shown}: holds other weights ({min(others)}), which would mix with these;"
                " name another output"
            )

    def names(self) -> set[str]:
        """Return what files the output may have, relative to where they are staged."""
        if self.plan.directory is None:
            return {file.name for file in self.plan.files}
        return {name for name, _ in self.directory.named}

    @abstractmethod
    def place(self, name: str) -> str | Path:
        """Return where a file of the output ends."""

    @property
    def directory(self) -> DirectoryOutput:
        """What goes with the weights, where they are in a directory."""
        assert self.plan.directory is not None
        return self.plan.directory

    @property
    def root(self) -> Path:
        """Where files are copied from."""
        assert self.directory.root is not None
        return self.directory.root

    def beside(self) -> Iterator[tuple[str, Path | bytes | bytearray]]:
        """Yield what goes with the weights: copies of files, and new bytes; the config is last."""
        if self.plan.directory is None:
            return
        directory = self.directory
        for name in directory.sidecars:
            if name != directory.params:
                yield name, self.root / name
        if directory.params is not None:
            params = read_json(self.root / directory.params, Budget())
            yield directory.params, edited_params(params, directory.params_sections)
        for name, files in directory.indexes:
            parts = [(part, file) for file in files for w in file.weights for part in w.parts]
            weight_map = {part.name: file.name for part, file in parts}
            yield name, shard_index(weight_map, sum(part.n_bytes for part, _ in parts))
        yield from directory.described.items()
        if directory.config is not None:
            yield CONFIG_NAME, directory.config

    def told_path(self) -> str:
        """Return what a program opens."""
        if self.plan.directory is None:
            return str(self.place(self.plan.files[0].name))
        return self.shown

    def commit(self, staging: Staging) -> None:
        """Give everything its final name, that of what programs open last."""
        inside = self.plan.directory is not None
        staging.commit(last=CONFIG_NAME if inside else self.plan.files[0].name, inside=inside)

    def is_there(self) -> bool:
        """Tell whether there is something at the place of each file of the plan."""
        return all(os.path.lexists(self.place(file.name)) for file in self.plan.files)

    def is_finished(self) -> bool:
        """Tell whether all files are there already, those of the plan no older than the source."""
        newest = self._newest()
        return all(
            _is_output(self.place(file.name), file, newest) for file in self.plan.files
        ) and all(_is_same(given, self.place(name)) for name, given in self.beside())

    def is_whole(self, staging: Staging) -> bool:
        """Tell whether each file of the plan is at its final place, or waits to be renamed."""
        newest = self._newest()
        return all(
            _is_output(self.place(file.name), file, newest)
            or _is_output(staging.files / file.name, file, newest)
            for file in self.plan.files
        )

    def _newest(self) -> int:
        stamps = (c.source.stamp()[1:2] for c in self.checkpoint.shards.values())
        return max((int(mtime_ns) for stamp in stamps for mtime_ns in stamp), default=0)

    def sidecar_bytes(self) -> int:
        """Return how much room `add_sidecars` needs."""
        directory = self.plan.directory
        names = [] if directory is None else directory.sidecars
        return sum((self.root / name).stat().st_size for name in names)

    def add_sidecars(self, staging: Staging) -> None:
        """Write what goes with the weights."""
        for name, given in self.beside():
            if not isinstance(given, Path):
                staging.add(name, given)
            elif not _is_copied(given, staging.files / name):
                staging.copy(given, name)


class FileDestination(Destination):
    """One file, or the parts of a GGUF model: side by side, for they are named by one file's name.

    The first part is what programs open, and gets its name last.
    """

    def place(self, name: str) -> Path:
        return self.out.with_name(name)

    def check(self) -> None:
        if self.request.max_shard_size is not None:
            raise OutputError(
                f"{self.out}: one file is not cut into shards",
                remedy="name a folder"
                if self.request.form.has_directories
                else "split_max_size=... cuts a GGUF file",
            )
        if self.out.is_dir():
            raise OutputError(f"{self.out}: is a directory; name a file")
        if self.checkpoint.root is not None:
            _refuse_inside(self.out, self.checkpoint.root)
        for path in (self.place(file.name) for file in self.plan.files):
            if not os.path.lexists(path):
                continue
            if path.is_symlink() and not path.exists():
                raise OutputError(
                    f"{path}: is a link to nothing; remove it, or name another output"
                )
            # Some links stand for what a process has open, as /dev/stdout does.
            is_link = path.is_symlink()
            is_open = is_link and os.readlink(path).startswith(("/proc/", "/dev/fd/", "fd/"))
            if not path.is_file() or is_open:
                raise OutputError(f"{path}: is not a regular file; name another output")
            self._refuse_input(path)
            if not self.request.force:
                raise OutputError(f"{path}: exists", remedy="force=True replaces it")

    def refuse_input(self) -> None:
        for file in self.plan.files:
            self._refuse_input(self.place(file.name))

    def _refuse_input(self, path: Path) -> None:
        for container in self.checkpoint.shards.values():
            _refuse_input(path, container.source.path)


class DirectoryDestination(Destination):
    """Shards, their index, and everything that lay beside the source's."""

    def place(self, name: str) -> Path:
        return self.out / name

    def check(self) -> None:
        check_distinct(self.directory.named, self.out)
        for name in self.directory.sidecars:  # which must be readable
            FileSource(self.root / name).close()
        if self.out.suffix == EXTENSION or self.out.is_file():
            is_file = "is a file; " if self.out.is_file() else ""
            raise OutputError(
                f"{self.out}: {is_file}a directory of shards becomes a directory; name one"
            )
        if self.directory.root is not None:
            _refuse_inside(self.out, self.directory.root)
            around = Path(os.path.realpath(self.directory.root)).parents
            if Path(os.path.realpath(self.out)) in around:
                raise OutputError(f"{self.out}: holds the input; name another output")
        if not os.path.lexists(self.out):
            return
        if self.out.exists():
            self.refuse_input()
        with Folder.named(self.out.parent) as parent, parent.inner(self.out.name) as folder:
            for name in sorted(self.names()):  # no links, and no folders where files belong
                folder.check_place(name)
        present = {p.name for p in self.out.iterdir() if not p.name.startswith(".")}
        if present and not self.request.force:
            raise OutputError(
                f"{self.out}: exists and is not empty", remedy="force=True replaces its files"
            )
        self.refuse_others(present)  # even so
        check_writable(self.directory.named, self.out)

    def refuse_input(self) -> None:
        _refuse_input(self.out, self.directory.root)


def _is_copied(source: Path, copy: Path) -> bool:
    """Tell whether a killed run has copied a file already: its time is set when it is whole."""
    try:
        there, here = source.stat(), copy.lstat()
    except FileNotFoundError:
        return False
    same = (there.st_size, there.st_mtime_ns) == (here.st_size, here.st_mtime_ns)
    return same and stat.S_ISREG(here.st_mode)


def _is_same(source: Path | bytes | bytearray, copy: str | Path) -> bool:
    """Tell whether a file has the bytes of another, or those that are given."""
    try:
        with open_source(source) as one, open_source(copy) as other:
            return one.size == other.size and all(
                one.read(at, min(_PIECE, one.size - at))
                == other.read(at, min(_PIECE, one.size - at))
                for at in range(0, one.size, _PIECE)
            )
    except (OSError, ParseError):  # nothing there, or no regular file
        return False


def _refuse_input(out: Path, source: str | Path | None) -> None:
    if source is not None and os.path.samefile(out, source):
        raise OutputError(f"{out}: is the input; name another output")


def _refuse_inside(out: Path, root: Path) -> None:
    if Path(os.path.realpath(root)) in Path(os.path.realpath(out)).parents:
        raise OutputError(f"{out}: lies inside the input; name another output")


def _is_output(place: str | Path, file: OutputFile, newest_ns: int) -> bool:
    try:
        with open_source(place) as source:
            size, mtime_ns, *_ = source.stamp()
            if size != file.n_bytes or int(mtime_ns) < newest_ns:
                return False
            return all(source.read(offset, len(raw)) == raw for offset, raw in file.fixed)
    except (OSError, ParseError):  # nothing there, or no regular file
        return False
