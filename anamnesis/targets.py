"""The two kinds of output: one safetensors file, or a directory that `transformers` loads."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

from anamnesis.checkpoint import Checkpoint
from anamnesis.errors import OutputError
from anamnesis.file_names import (
    CONFIG_NAME,
    EXTENSION,
    INDEX_NAME,
    MODEL_NAME,
    PARAMS_NAME,
    QUANT_FILES,
)
from anamnesis.formats import Container
from anamnesis.hf_config import (
    dense_params,
    describes_quantization,
    model_config,
    shard_index,
)
from anamnesis.json_file import read_json
from anamnesis.limits import Budget
from anamnesis.metadata import carried_metadata
from anamnesis.options import Options
from anamnesis.plan import OutputFile, OutputTensor, Plan, split_by_size
from anamnesis.schemes.claim import Dropped
from anamnesis.schemes.config import COMFY_METADATA_KEY, GPTQ_METADATA_PREFIX
from anamnesis.schemes.weight import Plain
from anamnesis.staging import Staging

__all__ = ["DirectoryTarget", "FileTarget", "Target", "single_plan"]


def single_plan(
    name: str, checkpoint: Checkpoint, tensors: list[OutputTensor], *, dense: bool
) -> Plan:
    """Plan one file of all tensors; `dense` says that none of them is quantised any more."""
    metadata = _output_metadata(checkpoint.shards.values(), dense=dense)
    return Plan([OutputFile(name, tensors, metadata)])


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
    """One file."""

    def __init__(
        self,
        out: Path,
        checkpoint: Checkpoint,
        options: Options,
        tensors: list[OutputTensor],
        *,
        dense: bool = True,
    ) -> None:
        super().__init__(out, checkpoint, options, dense=dense)
        self.plan = single_plan(out.name, checkpoint, tensors, dense=dense)

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
        if not self.out.is_file():
            raise OutputError(f"{self.out}: is not a regular file; name another output")
        for container in self.checkpoint.shards.values():
            _refuse_input(self.out, container.source.path)
        if not self.options.force:
            raise OutputError(f"{self.out}: exists; --force replaces it")

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
        tensors: list[OutputTensor],
        *,
        dense: bool = True,
    ) -> None:
        super().__init__(out, checkpoint, options, dense=dense)
        if checkpoint.root is None:
            raise ValueError("only a directory becomes a directory")
        self.root = checkpoint.root
        quantised = any(not isinstance(t.weight, Plain) for t in tensors)
        self.config_dtype = options.dtype if quantised or options.cast_all else None
        if options.max_shard_size is None:
            self.plan = Plan(self._same_shards(tensors))
        else:
            self.plan = Plan(self._new_shards(tensors, options.max_shard_size))

    def _same_shards(self, tensors: list[OutputTensor]) -> list[OutputFile]:
        """Keep each weight in the shard that has its codes; a shard of scales alone goes."""
        by_source: dict[int, list[OutputTensor]] = {}
        for tensor in tensors:
            by_source.setdefault(id(tensor.weight.parts[0].source.base), []).append(tensor)
        return [
            OutputFile(_output_name(name), by_source[id(c.source.base)], self._metadata([c]))
            for name, c in self.checkpoint.shards.items()
            if id(c.source.base) in by_source
        ]

    def _new_shards(self, tensors: list[OutputTensor], limit: int) -> list[OutputFile]:
        metadata = self._metadata(self.checkpoint.shards.values())
        pieces = split_by_size(tensors, limit)
        n = len(pieces)
        names = [f"model-{i:05d}-of-{n:05d}.safetensors" for i in range(1, n + 1)]
        if n == 1:
            names = [MODEL_NAME]
        return [
            OutputFile(name, piece, metadata) for name, piece in zip(names, pieces, strict=True)
        ]

    def _metadata(self, containers: Iterable[Container]) -> dict[str, str]:
        """Merge the same for a shard; transformers refuses one that does not say its format."""
        return {"format": "pt", **_output_metadata(containers, dense=self.dense)}

    def final_path(self, file: OutputFile) -> Path:
        """Return the place in the output directory."""
        return self.out / file.name

    def is_finished(self) -> bool:
        """Tell whether config.json, the last file, is there as well."""
        has_config = not self.checkpoint.config or (self.out / CONFIG_NAME).exists()
        return has_config and super().is_finished()

    def check(self) -> None:
        """Refuse a file, the input, what is not empty without `force`, and foreign weights."""
        if self.out.suffix == ".safetensors" or self.out.is_file():
            raise OutputError(f"{self.out}: a directory of shards becomes a directory; name one")
        root = Path(os.path.realpath(self.root))
        if root in Path(os.path.realpath(self.out)).parents:
            raise OutputError(f"{self.out}: lies inside the input; name another output")
        if not self.out.exists():
            return
        _refuse_input(self.out, self.root)
        present = {p.name for p in self.out.iterdir() if not p.name.startswith(".")}
        if present and not self.options.force:
            raise OutputError(f"{self.out}: exists and is not empty; --force replaces its files")
        planned = {file.name for file in self.plan.files}
        others = sorted(n for n in present - planned if n.endswith(".safetensors"))
        if others:
            raise OutputError(
                f"{self.out}: holds other weights ({others[0]}), which would mix with these; name"
                " another output"
            )

    @cached_property
    def sidecars(self) -> list[str]:
        """Files to copy; those that describe the quantisation are dropped if none is left."""
        if not self.dense:
            if describes_quantization(self.checkpoint.config):
                self.kept.append(CONFIG_NAME)
            self.kept += [name for name in self.checkpoint.sidecars if name in QUANT_FILES]
            return self.checkpoint.sidecars
        kept = [name for name in self.checkpoint.sidecars if name not in QUANT_FILES]
        gone = [name for name in self.checkpoint.sidecars if name in QUANT_FILES]
        self.dropped += [Dropped(name, "description of the quantisation") for name in gone]
        return kept

    def sidecar_bytes(self) -> int:
        """Return the size of all files to copy."""
        return sum((self.root / name).stat().st_size for name in self.sidecars)

    def add_sidecars(self, staging: Staging) -> None:
        """Copy what lay beside the source; write index and config.json anew."""
        for name in self.sidecars:
            if name == PARAMS_NAME and self.dense:
                staging.add(name, dense_params(read_json(self.root / name, Budget())))
            else:
                staging.copy(self.root / name, name)
        names = [file.name for file in self.plan.files]
        if names != [MODEL_NAME] or (self.root / INDEX_NAME).is_file():
            weight_map = {t.name: file.name for file in self.plan.files for t in file.tensors}
            total_size = sum(t.n_bytes for file in self.plan.files for t in file.tensors)
            staging.add(INDEX_NAME, shard_index(weight_map, total_size))
        if self.checkpoint.config:
            config = model_config(self.checkpoint.config, self.config_dtype, dense=self.dense)
            staging.add(CONFIG_NAME, config)

    def commit(self, staging: Staging) -> None:
        """Rename all files, config.json last."""
        staging.commit_directory(last=CONFIG_NAME)


def _output_name(shard: str) -> str:
    """Return what a shard is called as safetensors: `pytorch_model.bin` is `model.safetensors`."""
    if shard.endswith(EXTENSION):
        return shard
    folder, name = os.path.split(shard)
    return os.path.join(folder, os.path.splitext(name)[0].removeprefix("pytorch_") + EXTENSION)


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


def _is_output(path: Path, file: OutputFile, newest_ns: int) -> bool:
    try:
        with open(path, "rb") as stream:
            status = os.fstat(stream.fileno())
            if status.st_size != file.n_bytes or status.st_mtime_ns < newest_ns:
                return False
            return stream.read(len(file.header)) == file.header
    except OSError:
        return False
