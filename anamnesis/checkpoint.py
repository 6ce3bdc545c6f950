"""A file, or a directory of shards, as one model's stored tensors.

A directory is what publishers put on the hub: `model.safetensors`, or shards with an index, which
may be stale (left over from the model before it was quantised), with config.json, tokenizer and
whatever else beside them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anamnesis.errors import AnamnesisError, LimitExceeded, ParseError
from anamnesis.formats import Container, StoredTensor, parse_container
from anamnesis.gguf_parts import gather_parts
from anamnesis.limits import Budget, ParseLimits
from anamnesis.schemes.claim import Dropped
from anamnesis.source import FileSource, open_source

__all__ = ["CONFIG_NAME", "INDEX_NAME", "QUANT_FILES", "Checkpoint", "open_checkpoint", "read_json"]

CONFIG_NAME = "config.json"
INDEX_NAME = "model.safetensors.index.json"
CHECKPOINT_MAX_JSON = 200_000_000  # index and config files; the largest real index has 20 MB
CHECKPOINT_MAX_FILES = 100_000
CHECKPOINT_MAX_DEPTH = 64  # of JSON

# Describe the quantisation that the output no longer has.
HF_QUANT_NAME = "hf_quant_config.json"
QUANT_FILES = frozenset({HF_QUANT_NAME, "quantize_config.json", "quant_config.json"})

_NUMBERED = re.compile(r"(.*)-[0-9]{5}-of-([0-9]{5})\.safetensors")
_MISTRAL_COPY = re.compile(r"consolidated(-\d{5}-of-\d{5})?\.safetensors")


@dataclass(slots=True, eq=False)
class Checkpoint:
    """What was found at a path, or in one stream of bytes.

    Attributes
    ----------
    root : Path or None
        The directory, if it is one.
    shards : dict of str to Container
        By file name relative to `root`; one for a single file.
    stored : dict of str to StoredTensor
        All tensors of all shards, or parts.
    config, quant_config : dict
        Parsed config.json and ModelOpt's hf_quant_config.json; empty where there is none.
    sidecars : list of str
        Other files, relative to `root`.
    left_out : list of Dropped
        Files that are not part of the model.
    """

    root: Path | None
    shards: dict[str, Container]
    stored: dict[str, StoredTensor]
    config: dict[str, Any] = field(default_factory=dict)
    quant_config: dict[str, Any] = field(default_factory=dict)
    sidecars: list[str] = field(default_factory=list)
    left_out: list[Dropped] = field(default_factory=list)

    @property
    def self_contained(self) -> bool:
        """Whether each tensor is a weight by itself, whatever it is called."""
        return all(container.self_contained for container in self.shards.values())

    @property
    def unreadable(self) -> dict[str, AnamnesisError]:
        """Tensors that are listed but that nobody can decode, and why."""
        merged: dict[str, AnamnesisError] = {}
        for container in self.shards.values():
            merged.update(container.unreadable)
        return merged

    def close(self) -> None:
        """Close all files."""
        for container in self.shards.values():
            container.source.close()


def open_checkpoint(where: Any, limits: ParseLimits, *, mmap: bool = False) -> Checkpoint:
    """Parse the headers of a file, of a directory's shards, or of a stream of bytes.

    Raises
    ------
    OSError
        If something cannot be opened.
    ParseError
        If something is malformed, a shard is missing, or a name leads out of the directory.
    LimitExceeded
        If a limit or a permanent cap would be exceeded.
    """
    budget = Budget(limits)
    if isinstance(where, (str, os.PathLike)) and os.path.isdir(where):
        return _Directory(Path(where), budget, mmap).open()
    container = _parse_file(where, budget, mmap)
    source = container.source
    try:
        if container.self_contained:
            return _of_parts(gather_parts(container, lambda path: _parse_file(path, budget, mmap)))
        path = None if source.path is None else Path(source.path)
        beside = (f"{path.stem}.{CONFIG_NAME}", CONFIG_NAME) if path else ()
        config, quant_config = (
            _read_first(path, names, budget) for names in (beside, (HF_QUANT_NAME,))
        )
    except BaseException:
        source.close()
        raise
    shards = {source.name: container}
    return Checkpoint(None, shards, container.tensors, config, quant_config)


def _parse_file(where: Any, budget: Budget, mmap: bool) -> Container:
    source = open_source(where, mmap=mmap)
    try:
        return parse_container(source, budget)
    except BaseException:
        source.close()
        raise


def _of_parts(parts: dict[str, Container]) -> Checkpoint:
    stored = {name: tensor for part in parts.values() for name, tensor in part.tensors.items()}
    return Checkpoint(None, parts, stored)


def _read_first(path: Path | None, names: Iterable[str], budget: Budget) -> dict[str, Any]:
    """Read the first of the JSON files `names` that exists beside `path`."""
    for candidate in [path.with_name(name) for name in names] if path else []:
        if candidate.is_file():
            return read_json(candidate, budget)
    return {}


def read_json(path: Path, budget: Budget) -> dict[str, Any]:
    """Read a JSON object from a file.

    Raises
    ------
    ParseError
        If it is not one.
    LimitExceeded
        If it is over `CHECKPOINT_MAX_JSON` or the budget.
    """
    with FileSource(path) as source:
        if source.size > CHECKPOINT_MAX_JSON:
            raise LimitExceeded("CHECKPOINT_MAX_JSON", f"{path}: {source.size:,} bytes of JSON")
        budget.alloc(source.size, path.name)
        raw = source.read(0, source.size)
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ParseError(f"not valid JSON: {error}", source=str(path)) from None
    if not isinstance(value, dict):
        raise ParseError("must hold a JSON object", source=str(path))
    _check_depth(value, path)
    return value


def _check_depth(value: Any, path: Path) -> None:
    """Refuse JSON that nests deeper than any real config, so that walking it may recurse."""
    level: list[Any] = [value]
    for _ in range(CHECKPOINT_MAX_DEPTH):
        level = [
            child
            for node in level
            if isinstance(node, (dict, list))
            for child in (node.values() if isinstance(node, dict) else node)
        ]
        if not level:
            return
    raise LimitExceeded("CHECKPOINT_MAX_DEPTH", f"{path}: JSON nested too deep")


class _Directory:
    """One directory on its way to a `Checkpoint`."""

    def __init__(self, root: Path, budget: Budget, mmap: bool) -> None:
        self.root = root
        self.budget = budget
        self.mmap = mmap
        self.fence = _fence(root)
        self.left_out: list[Dropped] = []

    def open(self) -> Checkpoint:
        files = sorted(self.files())
        index = self.read_index(files)
        names = self.shard_names(files, index)
        shards: dict[str, Container] = {}
        try:
            for name in names:
                shards[name] = _parse_file(self.root / name, self.budget, self.mmap)
            stored = self.merge(shards, index)
            self.check_complete(names, stored, index)
            config, quant_config = (
                read_json(self.root / name, self.budget) if name in files else {}
                for name in (CONFIG_NAME, HF_QUANT_NAME)
            )
        except BaseException:
            for container in shards.values():
                container.source.close()
            raise
        rewritten = {CONFIG_NAME, INDEX_NAME, *names, *(d.name for d in self.left_out)}
        sidecars = [f for f in files if f not in rewritten]
        return Checkpoint(self.root, shards, stored, config, quant_config, sidecars, self.left_out)

    def files(self) -> Iterator[str]:
        """Yield all files below the directory, as relative paths with forward slashes."""
        count = 0
        for folder, subfolders, names in os.walk(self.root, onerror=_raise):
            # What tools keep for themselves: .git, .cache (the hub's own bookkeeping)
            subfolders[:] = sorted(s for s in subfolders if not s.startswith("."))
            for path in (Path(folder, s) for s in subfolders):
                if path.is_symlink():
                    relative = path.relative_to(self.root).as_posix()
                    self.left_out.append(Dropped(relative, "a link to a folder"))
            for name in names:
                count += 1
                if count > CHECKPOINT_MAX_FILES:
                    raise LimitExceeded(
                        "CHECKPOINT_MAX_FILES",
                        f"{self.root}: more than {CHECKPOINT_MAX_FILES:,} files",
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
        if INDEX_NAME not in files:
            return {}
        path = self.root / INDEX_NAME
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

    def shard_names(self, files: list[str], index: dict[str, str]) -> list[str]:
        """Return the shards: all safetensors files of the directory, and those the index names."""
        present = set(files)
        found = {f for f in files if f.endswith(".safetensors") and "/" not in f}
        found |= {shard for shard in index.values() if shard in present}
        copies = {f for f in found if _MISTRAL_COPY.fullmatch(f)}
        if found - copies:
            found -= copies
            for name in sorted(copies):
                self.left_out.append(
                    Dropped(name, "a second copy of the model under Mistral's names")
                )
        if not found:
            others = [f for f in files if f.lower().endswith(".gguf")]
            which = f"; name one of its GGUF files, such as {others[0]}" if others else ""
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
        for stem, total in {(found[1], found[2]): None for found in numbered if found}:
            for number in range(1, int(total) + 1):
                name = f"{stem}-{number:05d}-of-{total}.safetensors"
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


def _fence(root: Path) -> str:
    """Return what no link may lead out of: the directory itself.

    In the hub's cache (`models--org--name/snapshots/REVISION`) all files are links into the
    repository's own `blobs` folder beside, so there it is the repository's folder.
    """
    real = Path(os.path.realpath(root))
    if real.parent.name == "snapshots" and "--" in real.parent.parent.name:
        return str(real.parent.parent)
    return str(real)
