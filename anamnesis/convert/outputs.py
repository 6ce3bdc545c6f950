"""The two kinds of output: one safetensors file, or a directory that `transformers` loads."""

from __future__ import annotations

import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path, PurePosixPath

from anamnesis.base.dropped import Dropped
from anamnesis.base.errors import OutputError, ParseError
from anamnesis.base.limits import Budget
from anamnesis.checkpoint.file_names import (
    CONFIG_NAME,
    DIFFUSERS_STEM,
    EXTENSION,
    MODEL_STEM,
    PARAMS_NAME,
    QUANT_FILES,
)
from anamnesis.checkpoint.hf_config import (
    dense_params,
    describes_quantization,
    model_config,
    shard_index,
)
from anamnesis.checkpoint.indexes import Index, is_index
from anamnesis.checkpoint.json_file import read_json
from anamnesis.checkpoint.metadata import carried_metadata
from anamnesis.checkpoint.open import Checkpoint
from anamnesis.convert.folder import Folder
from anamnesis.convert.output_names import Named, check_distinct, check_writable, shard_names
from anamnesis.convert.plan import OutputFile, OutputWeight, Plan, split_by_size
from anamnesis.convert.request import Options
from anamnesis.convert.staging import Staging
from anamnesis.formats.base import Container
from anamnesis.formats.safetensors.write import SafetensorsWriter
from anamnesis.formats.writers import writer_for
from anamnesis.schemes.facts import COMFY_METADATA_KEY, GPTQ_METADATA_PREFIX
from anamnesis.schemes.plain import Plain
from anamnesis.sources.file import FileSource

__all__ = ["WRITER", "DirectoryTarget", "FileTarget", "Target", "single_plan"]

WRITER = SafetensorsWriter()


def single_plan(
    name: str, checkpoint: Checkpoint, weights: list[OutputWeight], *, dense: bool
) -> Plan:
    """Plan one file of all weights; `dense` says that none of them is quantised any more."""
    metadata = _output_metadata(checkpoint.shards.values(), dense=dense)
    return Plan([OutputFile(name, weights, writer_for(name), metadata)])


class Target(ABC):
    """Where an output goes; the two kinds differ in names, checks and sidecars.

    Attributes
    ----------
    out : Path
        Its final name, absolute.
    plan : Plan
    dropped : list of Dropped
        Files of the source that it has no use for.
    kept : list of str
        Files that still describe the quantisation, because not all of it could be read.
    """

    plan: Plan

    def __init__(self, out: Path, checkpoint: Checkpoint, options: Options, *, dense: bool) -> None:
        self.out = out
        self.checkpoint = checkpoint
        self.options = options
        self.dense = dense
        self.dropped: list[Dropped] = []
        self.kept: list[str] = []

    @abstractmethod
    def check(self) -> None:
        """Refuse an output that is the input, or exists and is not to be replaced."""

    @abstractmethod
    def refuse_input(self) -> None:
        """Refuse an output that is the input; the output must exist."""

    def names(self) -> set[str]:
        """Return what files the output may have, relative to where they are staged."""
        return {file.name for file in self.plan.files}

    @abstractmethod
    def final_path(self, file: OutputFile) -> Path:
        """Return where a file of the plan ends."""

    @abstractmethod
    def commit(self, staging: Staging) -> None:
        """Give everything its final name."""

    def is_finished(self) -> bool:
        """Tell whether all files of the plan are there already, and no older than the source."""
        return all(
            _is_output(self.final_path(file), file, self._newest()) for file in self.plan.files
        )

    def is_whole(self, staging: Staging) -> bool:
        """Tell whether each file of the plan is at its final place, or waits to be renamed."""
        newest = self._newest()
        return all(
            _is_output(self.final_path(file), file, newest)
            or _is_output(staging.files / file.name, file, newest)
            for file in self.plan.files
        )

    def _newest(self) -> int:
        stamps = (c.source.stamp() for c in self.checkpoint.shards.values())
        return max((stamp[1] for stamp in stamps if len(stamp) > 1), default=0)

    def sidecar_bytes(self) -> int:
        """Return how much room `add_sidecars` needs."""
        return 0

    def add_sidecars(self, staging: Staging) -> None:  # noqa: B027 -- one file has none
        """Write what goes with the weights."""


class FileTarget(Target):
    """One file, also of a directory's shards; what lies beside these stays behind."""

    def __init__(
        self,
        out: Path,
        checkpoint: Checkpoint,
        options: Options,
        weights: list[OutputWeight],
        *,
        dense: bool = True,
    ) -> None:
        super().__init__(out, checkpoint, options, dense=dense)
        beside = [*checkpoint.sidecars, *([CONFIG_NAME] if checkpoint.has_config else [])]
        self.dropped = [Dropped(name, "one file has no room for it") for name in beside]
        self.plan = single_plan(out.name, checkpoint, weights, dense=dense)

    def final_path(self, file: OutputFile) -> Path:
        """Return the output itself."""
        return self.out

    def check(self) -> None:
        """Refuse a directory, the input, and what exists without `force`."""
        if self.options.max_shard_size is not None:
            raise OutputError(f"{self.out}: one file is not cut into shards; a directory is")
        if self.out.is_dir():
            raise OutputError(f"{self.out}: is a directory; name a file")
        if not os.path.lexists(self.out):
            return
        if not self.out.is_file() or _is_open_file(self.out):
            raise OutputError(f"{self.out}: is not a regular file; name another output")
        self.refuse_input()
        if not self.options.force:
            raise OutputError(f"{self.out}: exists", remedy="force=True replaces it")

    def refuse_input(self) -> None:
        """Refuse any file that is read."""
        for container in self.checkpoint.shards.values():
            _refuse_input(self.out, container.source.path)

    def commit(self, staging: Staging) -> None:
        """Rename the file."""
        staging.commit_file(self.out.name)


class DirectoryTarget(Target):
    """Shards, their index, and everything that lay beside the source's."""

    def __init__(
        self,
        out: Path,
        checkpoint: Checkpoint,
        options: Options,
        weights: list[OutputWeight],
        *,
        dense: bool = True,
    ) -> None:
        super().__init__(out, checkpoint, options, dense=dense)
        if checkpoint.root is None:
            raise ValueError("only a directory becomes a directory")
        self.root = checkpoint.root
        self.stem = _stem(checkpoint)
        quantised = any(not isinstance(w.weight, Plain) for w in weights)
        self.config_dtype = options.dtype if quantised or options.cast_all else None
        self.shard_of: dict[str, str] = {}  # the source's, by the name of the output's
        self.sidecars = self._account(checkpoint.sidecars)
        if options.max_shard_size is None:
            self.plan = Plan(self._same_shards(weights))
        else:
            self.plan = Plan(self._new_shards(weights, options.max_shard_size))

    def _same_shards(self, weights: list[OutputWeight]) -> list[OutputFile]:
        """Keep each weight in the shard that has its codes; a shard of scales alone goes."""
        by_source: dict[int, list[OutputWeight]] = {}
        for weight in weights:
            by_source.setdefault(id(weight.weight.parts[0].source.base), []).append(weight)
        shards = {
            name: container
            for name, container in self.checkpoint.shards.items()
            if id(container.source.base) in by_source
        }
        names = shard_names(shards)
        self.shard_of = {new: old for old, new in names.items()}
        return [
            OutputFile(names[name], by_source[id(c.source.base)], WRITER, self._metadata([c]))
            for name, c in shards.items()
        ]

    def _new_shards(self, weights: list[OutputWeight], limit: int) -> list[OutputFile]:
        if len(self.checkpoint.indexes) > 1:
            one, other = (index.name for index in self.checkpoint.indexes[:2])
            raise OutputError(
                f"{self.root}: has two indexes, {one} and {other}, so that its weights are not cut"
                " anew",
                remedy="leave max_shard_size=... out",
            )
        metadata = self._metadata(self.checkpoint.shards.values())
        pieces = split_by_size(weights, limit)
        n = len(pieces)
        names = [f"{self.stem}-{i:05d}-of-{n:05d}{EXTENSION}" for i in range(1, n + 1)]
        if n == 1:
            names = [self.stem + EXTENSION]
        return [
            OutputFile(name, piece, WRITER, metadata)
            for name, piece in zip(names, pieces, strict=True)
        ]

    @cached_property
    def indexes(self) -> list[tuple[Named, list[OutputFile]]]:
        """The indexes, and the files that each names; the first names what no other does."""
        files, old = self.plan.files, self.checkpoint.indexes
        if not old:
            if [file.name for file in files] == [self.stem + EXTENSION]:
                return []
            return [(Named(f"{self.stem}{EXTENSION}.index.json", "the index"), files)]
        named = [self._of_index(index) for index in old]
        elsewhere = {id(file) for group in named[1:] for file in group}
        own = {id(file) for file in named[0]}
        named[0] = [file for file in files if id(file) in own or id(file) not in elsewhere]
        names = [Named(index.new_name, index.name) for index in old]
        return list(zip(names, named, strict=True))

    def _of_index(self, index: Index) -> list[OutputFile]:
        shards = index.shards()
        return [file for file in self.plan.files if self.shard_of.get(file.name) in shards]

    @cached_property
    def named(self) -> list[Named]:
        """All files of the output, and what each is made of."""
        names = [Named(f.name, self.shard_of.get(f.name, "a shard")) for f in self.plan.files]
        names += [Named(name, name) for name in self.sidecars]
        names += [name for name, _ in self.indexes]
        if self.checkpoint.has_config:
            names.append(Named(CONFIG_NAME, CONFIG_NAME))
        return names

    def names(self) -> set[str]:
        """Return the shards and all that goes with them."""
        return {name for name, _ in self.named}

    def _metadata(self, containers: Iterable[Container]) -> dict[str, str]:
        """Merge the same for a shard; transformers refuses one that does not say its format."""
        return {"format": "pt", **_output_metadata(containers, dense=self.dense)}

    def final_path(self, file: OutputFile) -> Path:
        """Return the place in the output directory."""
        return self.out / file.name

    def is_finished(self) -> bool:
        """Tell whether config.json, the last file, is there as well."""
        has_config = not self.checkpoint.has_config or (self.out / CONFIG_NAME).exists()
        return has_config and super().is_finished()

    def check(self) -> None:
        """Refuse names that meet, a file, the input, what is not empty without `force`, others.

        And sidecars that cannot be read.
        """
        check_distinct(self.named, self.out)
        for name in self.sidecars:
            FileSource(self.root / name).close()
        if self.out.suffix == EXTENSION or self.out.is_file():
            raise OutputError(f"{self.out}: a directory of shards becomes a directory; name one")
        root, out = Path(os.path.realpath(self.root)), Path(os.path.realpath(self.out))
        if root in out.parents:
            raise OutputError(f"{self.out}: lies inside the input; name another output")
        if out in root.parents:
            raise OutputError(f"{self.out}: holds the input; name another output")
        if not os.path.lexists(self.out):
            return
        if self.out.exists():
            self.refuse_input()
        with Folder.named(self.out.parent) as parent, parent.inner(self.out.name) as folder:
            for name in sorted(self.names()):
                folder.check_place(name)
        present = {p.name for p in self.out.iterdir() if not p.name.startswith(".")}
        if present and not self.options.force:
            raise OutputError(
                f"{self.out}: exists and is not empty", remedy="force=True replaces its files"
            )
        own = self.names()
        others = sorted(n for n in present - own if n.endswith(EXTENSION) or is_index(n))
        if others:
            raise OutputError(
                f"{self.out}: holds other weights ({others[0]}), which would mix with these; name"
                " another output"
            )
        check_writable(self.named, self.out)

    def _account(self, sidecars: list[str]) -> list[str]:
        """Return the files to copy: those that describe the quantisation go if none is left."""
        describing = [name for name in sidecars if name in QUANT_FILES]
        if self.dense:
            self.dropped = [Dropped(name, "description of the quantisation") for name in describing]
            return [name for name in sidecars if name not in QUANT_FILES]
        own = {
            CONFIG_NAME: self.checkpoint.config,
            PARAMS_NAME: self.checkpoint.quant_config.get(PARAMS_NAME, {}),
        }
        self.kept = [name for name, config in own.items() if describes_quantization(config)]
        self.kept += describing
        return sidecars

    def refuse_input(self) -> None:
        """Refuse the directory that is read."""
        _refuse_input(self.out, self.root)

    def sidecar_bytes(self) -> int:
        """Return the size of all files to copy."""
        return sum((self.root / name).stat().st_size for name in self.sidecars)

    def add_sidecars(self, staging: Staging) -> None:
        """Copy what lay beside the source; write index and config.json anew."""
        for name in self.sidecars:
            if name == PARAMS_NAME and self.dense:
                staging.add(name, dense_params(read_json(self.root / name, Budget())))
            elif not _is_copied(self.root / name, staging.files / name):
                staging.copy(self.root / name, name)
        for (name, _), files in self.indexes:
            parts = [(part, file) for file in files for w in file.weights for part in w.parts]
            weight_map = {part.name: file.name for part, file in parts}
            staging.add(name, shard_index(weight_map, sum(part.n_bytes for part, _ in parts)))
        if self.checkpoint.has_config:
            config = model_config(self.checkpoint.config, self.config_dtype, dense=self.dense)
            staging.add(CONFIG_NAME, config)

    def commit(self, staging: Staging) -> None:
        """Rename all files, config.json last."""
        staging.commit_directory(last=CONFIG_NAME)


def _stem(checkpoint: Checkpoint) -> str:
    """Return what the loaders that know this model look for: `model`, or diffusers' name."""
    if checkpoint.indexes:
        return checkpoint.indexes[0].stem
    is_diffusers = all(
        PurePosixPath(shard).name.startswith(DIFFUSERS_STEM) for shard in checkpoint.shards
    )
    return DIFFUSERS_STEM if is_diffusers else MODEL_STEM


def _is_copied(source: Path, copy: Path) -> bool:
    """Tell whether a killed run has copied a file already: its time is set when it is whole."""
    try:
        there, here = source.stat(), copy.lstat()
    except FileNotFoundError:
        return False
    same = (there.st_size, there.st_mtime_ns) == (here.st_size, here.st_mtime_ns)
    return same and stat.S_ISREG(here.st_mode)


def _output_metadata(containers: Iterable[Container], *, dense: bool) -> dict[str, str]:
    """Merge `__metadata__`, without what describes the quantisation where there is none left."""
    merged: dict[str, str] = {}
    for container in containers:
        merged.update(carried_metadata(container))
    return {
        key: value
        for key, value in merged.items()
        if not dense or not (key == COMFY_METADATA_KEY or key.startswith(GPTQ_METADATA_PREFIX))
    }


def _refuse_input(out: Path, source: str | Path | None) -> None:
    if source is not None and os.path.samefile(out, source):
        raise OutputError(f"{out}: is the input; name another output")


def _is_open_file(path: Path) -> bool:
    """Tell whether a name stands for what a process has open, as /dev/stdout does."""
    return path.is_symlink() and os.readlink(path).startswith(("/proc/", "/dev/fd/", "fd/"))


def _is_output(path: Path, file: OutputFile, newest_ns: int) -> bool:
    try:
        with FileSource(path) as source:
            size, mtime_ns = source.stamp()
            if size != file.n_bytes or mtime_ns < newest_ns:
                return False
            return source.read(0, len(file.header)) == file.header
    except (OSError, ParseError):  # nothing there, or no regular file
        return False
