"""A directory as publishers put it on the hub: shards, and what lies beside them.

That is `model.safetensors`, else `pytorch_model.bin`, or shards with an index, which may be stale
(left over from the model before it was quantised), with config.json, the tokenizer and other files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from anamnesis.base.dropped import Dropped
from anamnesis.base.errors import AnamnesisError, LimitExceeded, ParseError
from anamnesis.base.limits import Budget, ParseLimits
from anamnesis.base.stored import StoredTensor
from anamnesis.checkpoint.file_names import (
    ADAPTER_NAMES,
    CONFIG_NAME,
    EXTENSION,
    PARAMS_NAME,
    PARTIAL_SUFFIX,
    QUANT_FILES,
    is_index,
)
from anamnesis.checkpoint.hub_cache import repository_of
from anamnesis.checkpoint.indexes import Index, Kind, read_index
from anamnesis.checkpoint.json_file import read_json, read_quant_files
from anamnesis.checkpoint.second_copies import first_without_twin, is_renamed_copy
from anamnesis.formats.base import Container
from anamnesis.formats.registry import Opening, parse_file

DIRECTORY_MAX_FILES = 100_000

_SINGLE = (
    ".gguf",
    ".pth",
    ".pt",
    ".npz",
    ".ckpt",
    *ADAPTER_NAMES,
)  # of models that are in one file

_NUMBERED = re.compile(r"(.*)-[0-9]{5}-of-([0-9]{5})\.(safetensors|bin)", re.DOTALL)
_TORCH_SHARD = re.compile(r"pytorch_model(-[0-9]{5}-of-[0-9]{5})?\.bin")
_MISTRAL_COPY = re.compile(r"consolidated(-[0-9]{5}-of-[0-9]{5})?\.safetensors")
_USUAL = re.compile(
    r"((diffusion_pytorch_)?model(-[0-9]{5}-of-[0-9]{5})?\.safetensors)"
    rf"|{_TORCH_SHARD.pattern}"
)

_COPIES = {
    "torch": "a second copy of the model in PyTorch's format",
    "mistral": "a second copy of the model under Mistral's names",
}


class Found(NamedTuple):
    """What a directory holds, in the fields that `Checkpoint` has."""

    shards: dict[str, Container]
    stored: dict[str, StoredTensor]
    config: dict[str, Any]
    quant_config: dict[str, Any]
    sidecars: list[str]
    left_out: list[Dropped]
    indexes: list[Index]
    has_config: bool


def read_directory(root: Path, budget: Budget, opening: Opening) -> Found:
    """Parse the headers of all shards, the indexes and the configs."""
    return _Directory(root, budget, opening).read()


def files_of(root: Path) -> list[str]:
    """Return the files below a directory that may be copied: no links out of it, no pipes."""
    found = _Directory(root, Budget(ParseLimits()), Opening())
    return [name for name in found.files if name not in found.special]


class _Directory:
    """One directory on its way to a checkpoint."""

    def __init__(self, root: Path, budget: Budget, opening: Opening) -> None:
        self.root = root
        self.budget = budget
        self.opening = opening
        self.fence = _fence(root)
        self.left_out: list[Dropped] = []
        self.special: set[str] = set()
        self.files = self.walk()

    def read(self) -> Found:
        top = [f for f in self.files if "/" not in f]
        indexes = [read_index(self.root, f, self.budget) for f in top if is_index(f)]
        groups = self.group(top, indexes)
        kind = next((kind for kind, names in groups.items() if names), None)
        if kind is None:
            raise self.no_weights()
        weights = set().union(*groups.values())
        names = groups.pop(kind)
        shards: dict[str, Container] = {}
        try:
            for name in sorted(names):
                shards[name] = self.parse(name)
            own = [index for index in indexes if index.kind == kind]
            stored = self.merge(shards, self.shard_of_tensors(own, shards))
            is_usual = self.is_usual(names, own)
            for index in own if is_usual else indexes:
                self.check_index(index, names, stored)
            self.check_numbering(names, {s for index in own for s in index.shards()})
            self.leave_out_copies(groups, stored, is_usual)
            has_config = CONFIG_NAME in self.files
            config = read_json(self.root / CONFIG_NAME, self.budget) if has_config else {}
            quant_config = self.quant_config()
        except BaseException:
            for container in shards.values():
                container.source.close()
            raise
        kept = self.choose_indexes(own, names)
        why = "an index of files that are left out or missing"
        self.left_out += [Dropped(index.name, why) for index in indexes if index not in kept]
        sidecars = self.sidecars({CONFIG_NAME, *weights, *(index.name for index in indexes)})
        return Found(
            shards, stored, config, quant_config, sidecars, self.left_out, kept, has_config
        )

    # --- what is there -------------------------------------------------------------------------

    def walk(self) -> dict[str, None]:
        """Return all files below the directory, as relative paths with forward slashes, sorted."""
        found: list[str] = []
        folders = [""]
        while folders:
            folder = folders.pop()
            with os.scandir(self.root / folder) as entries:
                for entry in entries:
                    name = folder + entry.name
                    if _is_folder(entry):
                        # What tools keep for themselves: .git, .cache (the hub's own bookkeeping)
                        if not _is_private(entry.name):
                            self.add_folder(entry, name, folders)
                        continue
                    if len(found) == DIRECTORY_MAX_FILES:
                        raise LimitExceeded(
                            "DIRECTORY_MAX_FILES",
                            f"{self.root}: more than {DIRECTORY_MAX_FILES:,} files",
                        )
                    found.append(name)
                    self.add_file(entry, name)
        gone = {dropped.name for dropped in self.left_out}
        self.left_out.sort(key=lambda dropped: dropped.name)
        return {name: None for name in sorted(found) if name not in gone}

    def add_folder(self, entry: os.DirEntry[str], name: str, folders: list[str]) -> None:
        if entry.is_symlink():
            self.left_out.append(Dropped(name, "a link to a folder"))
        else:
            folders.append(f"{name}/")

    def add_file(self, entry: os.DirEntry[str], name: str) -> None:
        if entry.is_symlink() and not self.inside(name):
            self.left_out.append(Dropped(name, "a link that leads out of the directory"))
        elif entry.name.endswith(PARTIAL_SUFFIX):
            self.left_out.append(Dropped(name, "left over from a run that did not finish"))
        elif not _may_be_read(entry):
            self.special.add(name)

    def inside(self, name: str) -> bool:
        """Tell whether a file that is there stays in the directory, links followed."""
        return Path(os.path.realpath(self.root / name)).is_relative_to(self.fence)

    def sidecars(self, rewritten: set[str]) -> list[str]:
        """Return all other files; pipes, sockets and devices, which are no files, are left out."""
        others = [f for f in self.files if f not in rewritten]
        self.left_out += [Dropped(f, "not a regular file") for f in others if f in self.special]
        return [f for f in others if f not in self.special]

    # --- which files are the model ----------------------------------------------------------------

    def group(self, top: Iterable[str], indexes: list[Index]) -> dict[Kind, set[str]]:
        """Return the weights by kind; the first kind that is not empty is the model."""
        indexed: dict[Kind, set[str]] = {"safetensors": set(), "torch": set(), "mistral": set()}
        for index in indexes:
            indexed[index.kind] |= index.shards() & self.files.keys()
        safetensors = {f for f in top if f.endswith(EXTENSION)}
        mistral = {f for f in safetensors if _MISTRAL_COPY.fullmatch(f)} | indexed["mistral"]
        torch = {f for f in top if _TORCH_SHARD.fullmatch(f)} | indexed["torch"]
        adapters = {f for f in ADAPTER_NAMES if f in self.files}
        mistral -= indexed["safetensors"]
        adapters -= indexed["safetensors"] | indexed["torch"]
        safetensors = (safetensors | indexed["safetensors"]) - mistral - adapters
        groups = {"safetensors": safetensors, "torch": torch - safetensors, "mistral": mistral}
        if not any(groups.values()):
            groups["safetensors"] = {f for f in adapters if f.endswith(EXTENSION)}
        return groups

    def is_usual(self, names: set[str], indexes: list[Index]) -> bool:
        """Tell whether these are the weights that transformers and diffusers would load."""
        return any(map(_USUAL.fullmatch, names)) or any(
            not names.isdisjoint(index.shards()) for index in indexes
        )

    def quant_config(self) -> dict[str, Any]:
        """Read the files beside config.json that describe a quantisation.

        params.json is the name of other programs' files too: one that is no object is left out.
        """
        names = [name for name in QUANT_FILES if name in self.files]
        found = read_quant_files(self.root, names, self.budget)
        if PARAMS_NAME in self.files:
            try:
                found |= read_quant_files(self.root, [PARAMS_NAME], self.budget)
            except ParseError:
                del self.files[PARAMS_NAME]
                self.left_out.append(Dropped(PARAMS_NAME, "not a JSON object"))
        return found

    def no_weights(self) -> ParseError:
        folders = [f.rpartition("/")[0] for f in self.files if "/" in f and f.endswith(EXTENSION)]
        others = [f for f in self.files if f.lower().endswith(_SINGLE)]
        which = None
        if folders:
            which = f"pass one of its folders, such as {folders[0]}"
        elif others:
            kind = "GGUF " if others[0].lower().endswith(".gguf") else ""
            which = f"name one of its {kind}files, such as {others[0]}"
        return ParseError(
            "no .safetensors file in this directory", source=str(self.root), remedy=which
        )

    def leave_out_copies(
        self, groups: dict[Kind, set[str]], stored: dict[str, StoredTensor], is_usual: bool
    ) -> None:
        """Leave out files that hold the model again; refuse others that hold weights.

        One that cannot be read is left out where transformers, too, would take the others.
        """
        for kind, names in groups.items():
            copies: dict[str, Container] = {}
            try:
                for name in sorted(names):
                    try:
                        copies[name] = self.parse(name)
                    except LimitExceeded:
                        raise
                    except (AnamnesisError, OSError) as error:
                        if not is_usual:
                            raise
                        self.left_out.append(Dropped(name, f"cannot be read: {error}"))
                self.compare(kind, copies, stored)
            finally:
                for container in copies.values():
                    container.source.close()
            self.left_out += [Dropped(name, _COPIES[kind]) for name in copies]

    def compare(
        self, kind: Kind, copies: dict[str, Container], stored: dict[str, StoredTensor]
    ) -> None:
        alone = {name: first_without_twin(copy, stored) for name, copy in copies.items()}
        if kind == "mistral" and is_renamed_copy(copies.values(), stored):
            return
        for name, tensor in alone.items():
            if tensor is not None:
                raise self.error(
                    f"{name} is not a second copy of the model: the other weights lack {tensor!r}"
                    " in its shape; move away what is not to be converted"
                )

    # --- shards and indexes ----------------------------------------------------------------------

    def parse(self, name: str) -> Container:
        return parse_file(self.root / name, self.budget, self.opening)

    def error(self, message: str) -> ParseError:
        return ParseError(message, source=str(self.root))

    def shard_of_tensors(
        self, indexes: list[Index], shards: dict[str, Container]
    ) -> dict[str, str]:
        """Return which shard each tensor is in, according to the indexes."""
        if len(indexes) == 1:
            return indexes[0].weight_map
        told: dict[str, str] = {}
        for index in indexes:
            for tensor, shard in index.weight_map.items():
                if shard in shards and told.setdefault(tensor, shard) != shard:
                    raise self.error(
                        f"the indexes name two shards for tensor {tensor!r}: {told[tensor]} and"
                        f" {shard}"
                    )
        return told

    def merge(self, shards: dict[str, Container], index: dict[str, str]) -> dict[str, StoredTensor]:
        """Join the shards' tensors; where two have the same name, the index says which counts."""
        stored: dict[str, StoredTensor] = {}
        holder: dict[str, str] = {}
        for shard, container in shards.items():
            for name, tensor in container.tensors.items():
                first = holder.get(name)
                if first is not None and index.get(name) not in (first, shard):
                    raise ParseError(
                        f"tensor {name!r} is in both {first} and {shard}; no index says which to"
                        " use: parse one of the files, or move away what is not to be converted",
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

    def check_index(self, index: Index, names: set[str], stored: dict[str, StoredTensor]) -> None:
        """Refuse a directory that misses a shard of an index.

        An index whose tensors are all in other shards is merely stale.
        """
        lost = index.lost(stored)
        missing = [tensor for tensor in lost if index.weight_map[tensor] not in self.files]
        is_alien = names.isdisjoint(index.shards())
        if is_alien and index.is_of_source(stored):
            return
        if not missing:
            why = "an index names it, but no shard has it"
            self.left_out += [Dropped(tensor, why) for tensor in lost if not is_alien]
            return
        shard = index.weight_map[missing[0]]
        alien = ""
        if is_alien:
            alien = f" (none of the shards in {index.name} is here; remove it if it is stale)"
        raise self.error(
            f"{shard} is missing: the index says that it holds {missing[0]!r}; {len(missing):,}"
            f" tensors are missing in all{alien}"
        )

    def check_numbering(self, names: set[str], indexed: set[str]) -> None:
        """Refuse `model-00001-of-00003.safetensors` without its fellows, unless it is indexed."""
        numbered = (_NUMBERED.fullmatch(name) for name in sorted(names - indexed))
        for stem, total, ending in {found.groups(): None for found in numbered if found}:
            for number in range(1, int(total) + 1):
                name = f"{stem}-{number:05d}-of-{total}.{ending}"
                if name not in names:
                    raise ParseError(
                        f"{name} is missing; others of the {int(total):,} are there",
                        source=str(self.root),
                    )

    def choose_indexes(self, indexes: list[Index], names: set[str]) -> list[Index]:
        """Return the indexes to rewrite: the ones of shards that exist, else one."""
        live = [index for index in indexes if not names.isdisjoint(index.shards())]
        return live or indexes[:1]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link in a circle
        return False


def _may_be_read(entry: os.DirEntry[str]) -> bool:
    """Tell whether it is a regular file, or a dangling link, which opening it will report."""
    try:
        return entry.is_file() or not os.path.exists(entry.path)
    except OSError:
        return True


def _is_private(folder: str) -> bool:
    return folder.startswith(".") or folder.endswith(PARTIAL_SUFFIX)


def _fence(root: Path) -> str:
    """Return what no link may lead out of: the directory itself.

    In the hub's cache it is the repository's folder, for all files are links into its `blobs`.
    """
    real = os.path.realpath(root)
    cached = repository_of(real)
    return real if cached is None else cached[0]
