"""A file, or a directory of shards, as one model's stored tensors."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from anamnesis.base.arrays import array_of
from anamnesis.base.errors import AnamnesisError, ParseError
from anamnesis.base.limits import Budget, ParseLimits
from anamnesis.base.source import Source
from anamnesis.base.stored import OUTSIDE, Dropped, StoredTensor
from anamnesis.checkpoint.file_names import (
    CONFIG_NAME,
    DCP_EXTENSION,
    DCP_METADATA_NAME,
    EXTENSION,
    MODEL_STEM,
    OLLAMA_PREFIX,
    PARAMS_NAME,
    QUANT_FILES,
    TORCHS_SHARD,
    indexed_directory,
    may_be_trainers,
)
from anamnesis.checkpoint.metadata import all_metadata
from anamnesis.formats.base import Container, Opening, TypedMetadata, names_below
from anamnesis.formats.registry import parse_file
from anamnesis.schemes.detect.config_facts import QuantFacts, read_facts
from anamnesis.sources.memory import BufferSource, array_source
from anamnesis.sources.urls import kind_of_url

if TYPE_CHECKING:
    from pathlib import Path

    from anamnesis.checkpoint.indexes import Index
    from anamnesis.checkpoint.remote import RemoteFolder


@dataclass(slots=True, eq=False)
class Checkpoint:
    """What was found at a path, or in one stream of bytes."""

    root: Path | None
    shards: dict[str, Container]
    stored: dict[str, StoredTensor]
    config: dict[str, Any] = field(default_factory=dict)
    quant_config: dict[str, Any] = field(default_factory=dict)
    sidecars: list[str] = field(default_factory=list)
    left_out: list[Dropped] = field(default_factory=list)
    indexes: list[Index] = field(default_factory=list)
    has_config: bool = False
    lone_part: str | None = None
    selected: str | None = None  # the prefix that has been stripped
    is_joined: bool = False  # of what the ranks of a trainer have written
    made: dict[str, bytes | bytearray] = field(default_factory=dict)
    beside: tuple[Source, Budget] | None = None
    variant: str | None = None
    notes: list[str] = field(default_factory=list)
    folder: RemoteFolder | None = None
    vocabulary: Any = None  # kept for the next plan by what reads it

    @property
    def is_mistral(self) -> bool:
        """Whether params.json describes the model, and no config.json does."""
        return PARAMS_NAME in self.sidecars and not self.has_config

    def read_config(self) -> dict[str, Any]:
        """Return what the files beside the weights say of the quantisation, config.json last."""
        if self.beside is not None:
            self.config, self.quant_config = _configs_beside(*self.beside)
            self.beside = None
        return {**self.quant_config, **self.config}

    def read_facts(self) -> QuantFacts:
        """Return what the config and the files say of how the weights are encoded.

        Nothing, where each tensor is a weight by itself.
        """
        if self.self_contained:
            return QuantFacts(tiles=False)
        containers = self.shards.values()
        described = {name: said for one in containers for name, said in one.described.items()}
        facts = read_facts(self.read_config(), all_metadata(containers), described)
        if any(container.id == "safetensors" for container in containers):
            return facts
        return replace(facts, tiles=False)  # ComfyUI writes no other files

    @property
    def self_contained(self) -> bool:
        """Whether each tensor is a weight by itself, regardless of its name."""
        for container in self.shards.values():  # noqa: SIM110 -- `all` takes longer for one
            if not container.self_contained:
                return False
        return True

    @property
    def is_whole(self) -> bool:
        """Whether these are all tensors of the model that the config is of, not one shard's."""
        if self.root is not None:
            return True
        name, container = next(iter(self.shards.items()))
        return container.id == "safetensors" and os.path.basename(name) == MODEL_STEM + EXTENSION

    @property
    def below(self) -> str | None:
        """Below which name all weights lie, and how to strip it, in a sentence; None if none."""
        kinds = {container.format for container in self.shards.values()}
        return wrapped_below(self.stored, is_checkpoint=kinds == {"PyTorch checkpoint"})

    @property
    def unreadable(self) -> dict[str, AnamnesisError]:
        """Tensors that are listed but cannot be decoded, and why."""
        return {name: why for one in self.shards.values() for name, why in one.unreadable.items()}

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of tensors that are stored in another shape."""
        return {name: shape for one in self.shards.values() for name, shape in one.shapes.items()}

    def check_unchanged(self) -> None:
        """Raise `ParseError` if a file was written to since it was opened."""
        for container in self.shards.values():
            container.source.base.check_unchanged()

    def close(self) -> None:
        for container in self.shards.values():
            container.source.close()
        if self.folder is not None:
            self.folder.close()

    def named(self) -> AbstractContextManager[None]:
        """Let errors name files where they are, not where they were copied to."""
        return nullcontext() if self.folder is None else self.folder.named()

    def in_flight(self, n_bytes: int) -> int:
        """Return how many reads of so many bytes to have at the same time; 0 if it is all one."""
        return max(shard.source.in_flight(n_bytes) for shard in self.shards.values())

    def complete(self) -> None:
        """Have at hand what goes with the weights, from wherever it is."""
        if self.folder is not None:
            self.folder.complete(self.sidecars)

    def select(self, prefix: str) -> None:
        """Leave out all tensors outside of a subtree; those that stay lose its name."""
        kept = names_below(self.stored, prefix)
        if not kept:
            tops = dict.fromkeys(name.partition(".")[0] for name in self.stored)
            shown = ", ".join(repr(top) for top in list(tops)[:5])
            more = f" and {len(tops) - 5:,} more" if len(tops) > 5 else ""
            raise ParseError(
                f"no name starts with {f'{prefix}.'!r}; top level: {shown}{more}",
                source=next(iter(self.shards)),
            )
        ids = {id(tensor) for tensor in kept.values()}
        self.left_out += [
            Dropped(name, OUTSIDE) for name, tensor in self.stored.items() if id(tensor) not in ids
        ]
        self.stored = {name: tensor._replace(name=name) for name, tensor in kept.items()}
        self.selected = prefix
        self.shards = {name: shard.below(prefix) for name, shard in self.shards.items()}

    def only(self, stored: dict[str, StoredTensor]) -> Checkpoint:
        outside = [Dropped(name, OUTSIDE) for name in self.stored if name not in stored]
        return replace(
            self,
            stored=stored,
            left_out=[*self.left_out, *outside],
            shards={name: shard.only(stored) for name, shard in self.shards.items()},
        )


def open_checkpoint(
    where: Any,
    limits: ParseLimits,
    opening: Opening,
    *,
    select: str | None = None,
    variant: str | None = None,
    config: str | os.PathLike[str] | None = None,
) -> Checkpoint:
    """Parse the headers of a file, of a directory's shards, or of a stream of bytes."""
    budget = Budget(limits)
    checkpoint = _open(where, budget, opening, variant, select)
    try:
        if config is not None:
            from anamnesis.checkpoint.trainers.open import beside

            if checkpoint.has_config and not checkpoint.is_joined:
                raise ParseError("has a config.json of its own", source=str(checkpoint.root))
            for name, value in beside(os.fspath(config), budget).items():
                setattr(checkpoint, name, value)
            checkpoint.beside, checkpoint.is_joined = None, True
        if select is not None:
            checkpoint.select(select)
        if checkpoint.is_joined and checkpoint.has_config:
            from anamnesis.checkpoint.trainers.megatron import renamed

            checkpoint.stored, padding = renamed(checkpoint.stored, checkpoint.config, select)
            checkpoint.left_out += padding
    except BaseException:
        checkpoint.close()
        raise
    return checkpoint


def _open(
    where: Any, budget: Budget, opening: Opening, variant: str | None, select: str | None
) -> Checkpoint:
    path = os.fspath(where) if isinstance(where, (str, os.PathLike)) else None
    if path == "":
        raise ParseError("the path is empty; name a file or a directory, such as .")
    if kind_of_url(path) == "hub":
        from anamnesis.sources.hub import snapshot  # only here, for a quick start

        where = path = snapshot(str(path)) or path
    if kind_of_url(path):
        from anamnesis.checkpoint.directory import Directory
        from anamnesis.checkpoint.remote import folder_at

        folder = folder_at(str(path), budget, opening.remote_buffer)
        if folder is not None:
            with folder.named():
                found = Directory(folder, budget, opening, variant).read()
            return Checkpoint(folder.root, **found._asdict(), folder=folder)
    if path is not None and path.startswith(OLLAMA_PREFIX):
        from anamnesis.checkpoint.ollama import resolve

        where = path = resolve(path)
        if not isinstance(path, str):
            from anamnesis.checkpoint.ollama_tensors import read_blobs

            folder, found = read_blobs(path, budget, opening, variant)
            return Checkpoint(folder.root, **found._asdict(), folder=folder, is_joined=True)
    directory = indexed_directory(path) if isinstance(path, str) else None
    if directory is not None:
        return _open_directory(directory, budget, opening, variant, select)
    if isinstance(path, str) and path.endswith(DCP_EXTENSION):
        raise ParseError(
            "holds pieces of tensors that one rank has written",
            source=path,
            remedy=f"name its folder, whose {DCP_METADATA_NAME} says what they are",
        )
    try:
        container = parse_file(where, budget, opening)
    except IsADirectoryError:
        return _open_directory(where, budget, opening, variant, select)
    source = container.source
    if variant is not None:
        source.close()
        raise ParseError(
            f"is one file, which has no variant {variant!r}; name its directory", source=source.name
        )
    checkpoint = Checkpoint(None, {source.name: container}, container.tensors)
    try:
        if container.sharded or "rank" in source.name or TORCHS_SHARD in source.name:
            from anamnesis.checkpoint.trainers.ranks import lone_rank  # few files are of ranks

            checkpoint.lone_part = lone_rank(container)
        if not container.self_contained:
            checkpoint.beside = (source, budget)
            if container.id == "safetensors" and not source.in_flight(1):  # whose config it is
                checkpoint.read_config()
        elif isinstance(container.metadata, TypedMetadata):
            return _of_parts(container, budget, opening)
    except BaseException:
        source.close()
        raise
    return checkpoint


def _open_directory(
    where: Any, budget: Budget, opening: Opening, variant: str | None, select: str | None
) -> Checkpoint:
    # Only here, for the sake of a quick start: most inputs are single files.
    from pathlib import Path

    from anamnesis.checkpoint.directory import Directory
    from anamnesis.checkpoint.folder import Folder
    from anamnesis.checkpoint.pipelines import refuse_pipeline

    refuse_pipeline(os.fspath(where))
    root = Path(where)
    if may_be_trainers(os.listdir(root)):
        from anamnesis.checkpoint.trainers.open import read_trainers

        of_trainer = read_trainers(root, budget, opening, select)
        if of_trainer is not None:
            return Checkpoint(**of_trainer, is_joined=True)
    found = Directory(Folder(root), budget, opening, variant).read()
    return Checkpoint(root, **found._asdict())


def _of_parts(first: Container, budget: Budget, opening: Opening) -> Checkpoint:
    """Join the parts of a model that is in several files of this format."""
    from anamnesis.checkpoint.gguf_parts import gather_parts, lone_part

    parts = gather_parts(first, lambda path: parse_file(path, budget, opening))
    stored = {name: tensor for part in parts.values() for name, tensor in part.tensors.items()}
    return Checkpoint(None, parts, stored, lone_part=lone_part(first))


def _configs_beside(source: Source, budget: Budget) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read `NAME.config.json`, else config.json, and configs of quantisation, beside a file."""
    if source.path is not None:
        return _configs_at(source.path, budget)
    where, name = source.beside(""), source.file_name
    if where is None or name is None:
        return {}, {}
    from anamnesis.checkpoint.remote import RemoteFolder, present

    folder = RemoteFolder(where, present(where, _names_beside(name)))
    with folder.named():
        return _configs_at(str(folder.root / name), budget)


def _names_beside(name: str) -> tuple[str, ...]:
    return f"{os.path.splitext(name)[0]}.{CONFIG_NAME}", CONFIG_NAME, *QUANT_FILES


def _configs_at(path: str, budget: Budget) -> tuple[dict[str, Any], dict[str, Any]]:
    name = os.path.basename(path)
    folder = path.removesuffix(name)  # with its separator
    # Most do not exist, which `access` finds out in a third of the time: it raises nothing.
    at = {n: folder + n for n in _names_beside(name)}
    found = [n for n, path in at.items() if os.access(path, os.F_OK) and os.path.isfile(path)]
    if not found:
        return {}, {}
    from anamnesis.checkpoint.json_file import read_json, read_quant_files

    config = next((read_json(folder + n, budget) for n in found if n not in QUANT_FILES), {})
    return config, read_quant_files(folder, [n for n in found if n in QUANT_FILES], budget)


# What programs put a state dictionary under; as the first word of a name it means nothing else.
_WRAPPERS = ("state_dict", "model_state_dict", "module")
# The same, but also what models call their own modules, so that they count in checkpoints only.
_IN_CHECKPOINTS = ("model", "model_state", "net", "network", "params", "weights", "generator")
# What lies beside it there, and is no part of the model.
_BESIDE = re.compile(r"optim|sched|scaler|ema|rng|loss|callback|loops|step|epoch|iteration", re.I)


def wrapped_below(names: Collection[str], *, is_checkpoint: bool) -> str | None:
    """Return below which one name all weights lie, in a sentence that says what strips
    it; or None.
    """
    words = (*_WRAPPERS, *_IN_CHECKPOINTS) if is_checkpoint else _WRAPPERS
    tops: Counter[str] = Counter()
    for name in names:
        top, dot, _ = name.partition(".")
        if top not in words and not _BESIDE.search(top):
            return None  # at the first name of most models
        tops[top if dot else f".{top}"] += 1
        if len(tops) > 20:  # of models, whose names have many first words
            return None
    wrapper = next((word for word in words if word in tops), None)
    if wrapper is None:
        return None
    beside = {top.lstrip("."): n for top, n in tops.items() if top != wrapper}
    told = ", ".join(f"{top} ({n:,})" for top, n in beside.items())
    others = f"; tensors of other things lie beside it: {told}" if beside else ""
    return f"all weights lie below {wrapper!r}; select={wrapper!r} strips it{others}"


NAME = "<arrays>"


def in_memory(stored: Mapping[str, StoredTensor]) -> Checkpoint:
    """Return tensors of any sources as a model that was opened from no file."""
    # The files that some of them lie in are among its shards, so that none of these is written to.
    own = Container("arrays", "arrays in memory", BufferSource(b"", NAME), dict(stored))
    shards = {NAME: own}
    for source in {id(t.source.base): t.source.base for t in stored.values()}.values():
        if source.path is not None:
            shards.setdefault(source.name, Container("arrays", own.format, source, {}))
    return Checkpoint(None, shards, own.tensors)


def stored_array(name: str, given: Any) -> StoredTensor:
    """Return an array as a tensor that lies in memory; it is not copied."""
    array, dtype = array_of(name, given)
    shape = array.shape
    if dtype.bits < 8 and shape:  # several in a byte
        shape = (*shape[:-1], shape[-1] * 8 // dtype.bits)
    return StoredTensor(name, dtype, shape, array.nbytes, 0, array_source(array, NAME))
