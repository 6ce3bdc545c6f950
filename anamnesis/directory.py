"""A directory as publishers put it on the hub: shards, and what lies beside them.

That is `model.safetensors`, else `pytorch_model.bin`, or shards with an index, which may be stale
(left over from the model before it was quantised), with config.json, tokenizer and whatever else.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from anamnesis.errors import LimitExceeded, ParseError
from anamnesis.file_names import (
    CONFIG_NAME,
    EXTENSION,
    INDEX_NAME,
    PARTIAL_SUFFIX,
    QUANT_FILES,
    TORCH_INDEX_NAME,
)
from anamnesis.formats import Container, Opening, StoredTensor, parse_file
from anamnesis.json_file import read_json, read_quant_files
from anamnesis.limits import Budget
from anamnesis.schemes.claim import Dropped

__all__ = ["DIRECTORY_MAX_FILES", "Found", "read_directory"]

DIRECTORY_MAX_FILES = 100_000

_SINGLE = (".gguf", ".pth", ".pt", ".npz")  # of models that are in one file

_NUMBERED = re.compile(r"(.*)-[0-9]{5}-of-([0-9]{5})\.(safetensors|bin)")
_TORCH_SHARD = re.compile(r"pytorch_model(-\d{5}-of-\d{5})?\.bin")
_MISTRAL_COPY = re.compile(r"consolidated(-\d{5}-of-\d{5})?\.safetensors")


class Found(NamedTuple):
    """What a directory holds; the fields are those of `Checkpoint`."""

    shards: dict[str, Container]
    stored: dict[str, StoredTensor]
    config: dict[str, Any]
    quant_config: dict[str, Any]
    sidecars: list[str]
    left_out: list[Dropped]


def read_directory(root: Path, budget: Budget, opening: Opening) -> Found:
    """Parse the headers of all shards, the index and the configs.

    Raises
    ------
    OSError
        If something cannot be opened.
    ParseError
        If something is malformed, a shard is missing, or a name leads out of the directory.
    LimitExceeded
        If a limit or a permanent cap would be exceeded.
    """
    return _Directory(root, budget, opening).read()


class _Directory:
    """One directory on its way to a checkpoint."""

    def __init__(self, root: Path, budget: Budget, opening: Opening) -> None:
        self.root = root
        self.budget = budget
        self.opening = opening
        self.fence = _fence(root)
        self.left_out: list[Dropped] = []

    def read(self) -> Found:
        files = sorted(self.files())
        index = self.read_index(files)
        names = self.shard_names(files, index)
        shards: dict[str, Container] = {}
        try:
            for name in names:
                shards[name] = parse_file(self.root / name, self.budget, self.opening)
            stored = self.merge(shards, index)
            self.check_complete(names, stored, index)
            config = read_json(self.root / CONFIG_NAME, self.budget) if CONFIG_NAME in files else {}
            quant_names = [name for name in QUANT_FILES if name in files]
            quant_config = read_quant_files(self.root, quant_names, self.budget)
        except BaseException:
            for container in shards.values():
                container.source.close()
            raise
        indexes = {INDEX_NAME, TORCH_INDEX_NAME}
        rewritten = {CONFIG_NAME, *indexes, *names, *(d.name for d in self.left_out)}
        sidecars = [f for f in files if f not in rewritten]
        return Found(shards, stored, config, quant_config, sidecars, self.left_out)

    def files(self) -> Iterator[str]:
        """Yield all files below the directory, as relative paths with forward slashes."""
        count = 0
        for folder, subfolders, names in os.walk(self.root, onerror=_raise):
            # What tools keep for themselves: .git, .cache (the hub's own bookkeeping)
            subfolders[:] = sorted(s for s in subfolders if not _is_private(s))
            for path in (Path(folder, s) for s in subfolders):
                if path.is_symlink():
                    relative = path.relative_to(self.root).as_posix()
                    self.left_out.append(Dropped(relative, "a link to a folder"))
            for name in names:
                count += 1
                if count > DIRECTORY_MAX_FILES:
                    raise LimitExceeded(
                        "DIRECTORY_MAX_FILES",
                        f"{self.root}: more than {DIRECTORY_MAX_FILES:,} files",
                    )
                relative = Path(folder, name).relative_to(self.root).as_posix()
                if self.inside(relative):
                    yield relative
                else:
                    self.left_out.append(
                        Dropped(relative, "a link that leads out of the directory")
                    )

    def inside(self, name: str) -> bool:
        """Tell whether a file that is there stays in the directory, links followed."""
        return Path(os.path.realpath(self.root / name)).is_relative_to(self.fence)

    def read_index(self, files: list[str]) -> dict[str, str]:
        """Return the index's map from tensor to shard, empty where there is no index."""
        is_torch = self.is_torch(files)
        index_name = TORCH_INDEX_NAME if is_torch else INDEX_NAME
        if index_name not in files:
            return {}
        path = self.root / index_name
        mapping = read_json(path, self.budget).get("weight_map")
        if not isinstance(mapping, dict) or not all(
            isinstance(shard, str) for shard in mapping.values()
        ):
            raise ParseError("weight_map must map tensors to shards", source=str(path))
        self.budget.items(len(mapping), "the index")
        for shard in set(mapping.values()):
            if _leads_out(shard):
                raise ParseError(f"shard {shard!r} leads out of the directory", source=str(path))
        return mapping

    def is_torch(self, files: list[str]) -> bool:
        """Tell whether the model is there in PyTorch's format only."""
        has_torch = any(_TORCH_SHARD.fullmatch(f) for f in files) or TORCH_INDEX_NAME in files
        return has_torch and not any(f.endswith(EXTENSION) and "/" not in f for f in files)

    def shard_names(self, files: list[str], index: dict[str, str]) -> list[str]:
        """Return the shards: all weights of the directory, and those the index names."""
        present = set(files)
        torch_shards = {f for f in files if _TORCH_SHARD.fullmatch(f)}
        if self.is_torch(files):
            found = torch_shards
        else:
            found = {f for f in files if f.endswith(EXTENSION) and "/" not in f}
            self.left_out += [
                Dropped(name, "a second copy of the model in PyTorch's format")
                for name in sorted(torch_shards)
            ]
        found |= {shard for shard in index.values() if shard in present}
        copies = {f for f in found if _MISTRAL_COPY.fullmatch(f)}
        if found - copies:
            found -= copies
            for name in sorted(copies):
                self.left_out.append(
                    Dropped(name, "a second copy of the model under Mistral's names")
                )
        if not found:
            others = [f for f in files if f.lower().endswith(_SINGLE)]
            kind = "GGUF " if others and others[0].lower().endswith(".gguf") else ""
            which = f"; name one of its {kind}files, such as {others[0]}" if others else ""
            raise ParseError(
                f"no .safetensors file in this directory{which}", source=str(self.root)
            )
        return sorted(found)

    def merge(self, shards: dict[str, Container], index: dict[str, str]) -> dict[str, StoredTensor]:
        """Join the shards' tensors; where two have the same name, the index says which counts."""
        stored: dict[str, StoredTensor] = {}
        holder: dict[str, str] = {}
        for shard, container in shards.items():
            for name, tensor in container.tensors.items():
                first = holder.get(name)
                if first is not None and index.get(name) not in (first, shard):
                    raise ParseError(
                        f"tensor {name!r} stands in {first} and in {shard}, and no index says which"
                        " counts",
                        source=str(self.root),
                    )
                if first is not None:
                    loser = first if index[name] == shard else shard
                    self.left_out.append(
                        Dropped(f"{name} in {loser}", "the index names another shard for it")
                    )
                if first is None or index[name] == shard:
                    stored[name] = tensor
                    holder[name] = shard
        return stored

    def check_complete(
        self, names: list[str], stored: dict[str, StoredTensor], index: dict[str, str]
    ) -> None:
        """Refuse a directory that misses a shard, be it an index or the numbering that shows it.

        An index none of whose shards is there, or all of whose tensors are there under other
        shards, is merely stale.
        """
        indexed = set(index.values())
        missing = indexed - set(names)
        lost = [t for t, shard in index.items() if shard in missing and t not in stored]
        if lost and len(missing) < len(indexed):
            raise ParseError(
                f"{index[lost[0]]} is missing: the index says that it holds {lost[0]!r};"
                f" {len(lost):,} tensors are missing in all",
                source=str(self.root),
            )
        self.check_numbering(set(names), indexed)

    def check_numbering(self, names: set[str], indexed: set[str]) -> None:
        """Refuse `model-00001-of-00003.safetensors` without its fellows, unless it is indexed."""
        numbered = (_NUMBERED.fullmatch(name) for name in sorted(names - indexed))
        for stem, total, ending in {found.groups(): None for found in numbered if found}:
            for number in range(1, int(total) + 1):
                name = f"{stem}-{number:05d}-of-{total}.{ending}"
                if name not in names:
                    raise ParseError(
                        f"{name} is missing, others of the {int(total):,} are there",
                        source=str(self.root),
                    )


def _leads_out(name: str) -> bool:
    """Tell whether an index names no file, or one that on some system is elsewhere."""
    return (
        not name
        or name.startswith("/")
        or not {"\\", ":", "\0"}.isdisjoint(name)
        or ".." in name.split("/")
    )


def _raise(error: OSError) -> None:
    raise error


def _is_private(folder: str) -> bool:
    return folder.startswith(".") or folder.endswith(PARTIAL_SUFFIX)


def _fence(root: Path) -> str:
    """Return what no link may lead out of: the directory itself.

    In the hub's cache (`models--org--name/snapshots/REVISION`) all files are links into the
    repository's own `blobs` folder beside, so there it is the repository's folder.
    """
    real = Path(os.path.realpath(root))
    if real.parent.name == "snapshots" and "--" in real.parent.parent.name:
        return str(real.parent.parent)
    return str(real)
