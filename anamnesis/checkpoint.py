"""A file, or a directory of shards, as one model's stored tensors."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from anamnesis.errors import AnamnesisError, ParseError
from anamnesis.file_names import CONFIG_NAME, QUANT_FILES
from anamnesis.formats import Container, Opening, StoredTensor, parse_file
from anamnesis.formats.stored import TypedMetadata, names_below
from anamnesis.limits import Budget, ParseLimits
from anamnesis.schemes.claim import Dropped

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Checkpoint", "open_checkpoint"]


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
        Parsed config.json, and what other files say of the quantisation; empty where there is none.
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

    def select(self, prefix: str) -> None:
        """Leave out all tensors but those of a subtree, which lose its name.

        Raises
        ------
        ParseError
            If there are none.
        """
        kept = names_below(self.stored, prefix)
        if not kept:
            tops = dict.fromkeys(name.partition(".")[0] for name in self.stored)
            shown = ", ".join(repr(top) for top in list(tops)[:5])
            more = f" and {len(tops) - 5:,} more" if len(tops) > 5 else ""
            raise ParseError(
                f"no tensor is below {prefix!r}; there are {shown}{more}",
                source=next(iter(self.shards)),
            )
        ids = {id(tensor) for tensor in kept.values()}
        self.left_out += [
            Dropped(name, "outside the selection")
            for name, tensor in self.stored.items()
            if id(tensor) not in ids
        ]
        self.stored = {name: tensor._replace(name=name) for name, tensor in kept.items()}
        self.shards = {name: shard.below(prefix) for name, shard in self.shards.items()}


def open_checkpoint(
    where: Any,
    limits: ParseLimits,
    opening: Opening,
    *,
    select: str | None = None,
) -> Checkpoint:
    """Parse the headers of a file, of a directory's shards, or of a stream of bytes.

    Parameters
    ----------
    where : path, bytes-like or file object
    limits : ParseLimits
    opening : Opening
    select : str, optional
        The subtree of the tensors' names that is the model.

    Raises
    ------
    OSError
        If something cannot be opened.
    ParseError
        If something is malformed, a shard is missing, or a name leads out of the directory.
    LimitExceeded
        If a limit or a permanent cap would be exceeded.
    """
    checkpoint = _open(where, Budget(limits), opening)
    if select is not None:
        try:
            checkpoint.select(select)
        except BaseException:
            checkpoint.close()
            raise
    return checkpoint


def _open(where: Any, budget: Budget, opening: Opening) -> Checkpoint:
    if isinstance(where, (str, os.PathLike)) and os.path.isdir(where):
        # Only here, for the sake of a quick start: most inputs are single files.
        from pathlib import Path

        from anamnesis.directory import read_directory

        root = Path(where)
        return Checkpoint(root, *read_directory(root, budget, opening))
    container = parse_file(where, budget, opening)
    source = container.source
    try:
        if container.self_contained and isinstance(container.metadata, TypedMetadata):
            return _of_parts(container, budget, opening)
        config, quant_config = (
            ({}, {}) if container.self_contained else _configs_beside(source.path, budget)
        )
    except BaseException:
        source.close()
        raise
    shards = {source.name: container}
    return Checkpoint(None, shards, container.tensors, config, quant_config)


def _of_parts(first: Container, budget: Budget, opening: Opening) -> Checkpoint:
    """Join the parts of a model that is in several files of this format."""
    from anamnesis.gguf_parts import gather_parts

    parts = gather_parts(first, lambda path: parse_file(path, budget, opening))
    stored = {name: tensor for part in parts.values() for name, tensor in part.tensors.items()}
    return Checkpoint(None, parts, stored)


def _configs_beside(path: str | None, budget: Budget) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read `NAME.config.json`, else config.json, and configs of quantisation, beside a file."""
    if path is None:
        return {}, {}
    name = os.path.basename(path)
    folder = path.removesuffix(name)  # with its separator
    own = f"{os.path.splitext(name)[0]}.{CONFIG_NAME}"
    found = [n for n in (own, CONFIG_NAME, *QUANT_FILES) if _is_file(folder + n)]
    if not found:
        return {}, {}
    from anamnesis.json_file import read_json, read_quant_files

    config = next((read_json(folder + n, budget) for n in found if n not in QUANT_FILES), {})
    return config, read_quant_files(folder, [n for n in found if n in QUANT_FILES], budget)


def _is_file(path: str) -> bool:
    # Most are not there, which `access` tells in a third of the time: it raises nothing.
    return os.access(path, os.F_OK) and os.path.isfile(path)
