"""What a container holds, and what its writer must do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, TypeVar

from anamnesis.base.dtypes import DType
from anamnesis.base.errors import AnamnesisError, UnsupportedError
from anamnesis.base.printable import abbreviate
from anamnesis.base.source import Source
from anamnesis.base.stored import Part, StoredTensor

T = TypeVar("T")

CARRIED_HEADER = "gguf.header"  # of the keys of a GGUF in the metadata of safetensors


class FileLayout(NamedTuple):
    """A future file without its data: known before any of that is read."""

    fixed: list[tuple[int, bytes]]
    offsets: list[int]
    n_bytes: int


class Writer(ABC):
    """How a format is written: the mirror of its parser; one for each file."""

    id: ClassVar[str]
    extension: ClassVar[str]
    wants_sums: ClassVar[bool] = False
    takes_metadata: ClassVar[bool] = True
    self_contained: ClassVar[bool] = False

    @abstractmethod
    def holds(self, dtype: DType) -> bool:
        """Return whether the format can store tensors of a dtype."""

    def floats(self, shape: tuple[int, ...], dtype: DType) -> DType:
        """Return what floats of a shape are written as where a dtype is asked for: that."""
        return dtype

    def refuses(self, part: Part) -> str | None:
        """Return why a part cannot be stored, for its dtype, name or shape; None if it can."""
        if not self.holds(part.dtype):
            return f"{self.id} cannot store {part.dtype.name}"
        return None

    @abstractmethod
    def lay_out(self, parts: Sequence[Part], metadata: Mapping[str, Any]) -> FileLayout:
        """Return where everything goes; nothing is read or written."""

    def finish(self, sums: Sequence[int]) -> Sequence[tuple[int, bytes]]:
        """Return what is known only when all data is there, as bytes and their offsets."""
        # Called after `lay_out`, with the CRC-32 of each part in the order in which they were
        # given. None of these bytes are in the layout's `fixed`.
        return ()

    def check(self, parts: Sequence[Part], metadata: Mapping[str, Any]) -> None:
        """Refuse parts that cannot be stored, two of one name, and metadata without a place."""
        names = set()
        for part in parts:
            why = self.refuses(part)
            if why is not None:
                raise UnsupportedError(f"tensor {part.name!r}: {why}")
            names.add(part.name)
        if len(names) < len(parts):
            twice = next(name for name, n in Counter(p.name for p in parts).items() if n > 1)
            raise UnsupportedError(f"two tensors are called {twice!r}; a file can hold one of them")
        if metadata and not self.takes_metadata:
            raise UnsupportedError(
                f"{self.id} has no place for metadata such as {next(iter(metadata))!r}"
            )


class Opening(NamedTuple):
    """How files are opened."""

    mmap: bool = False
    allow_foreign: bool = False
    void_dtype: DType | None = None
    remote_buffer: int | None = None


class TypedMetadata(Mapping[str, Any]):
    """Metadata that are more than strings, some of it read only when it is asked for."""

    @abstractmethod
    def summary(self) -> dict[str, Any]:
        """Return what is read already, and of the rest its type in words."""

    @abstractmethod
    def is_carried(self, key: str) -> bool:
        """Return whether a value is short enough for another format's metadata."""

    @abstractmethod
    def text(self, key: str) -> str:
        """Return a value as another format's metadata may hold it."""

    def n_items(self, key: str) -> int | None:
        """Return how many items an array has, without reading it; None if the key has none."""
        return None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self):,} keys: {abbreviate(map(repr, self))}>"

    def below(self, prefix: str) -> TypedMetadata:
        """Return what belongs to a subtree of the tensors; all of it if it is the file's."""
        return self


def n_items(metadata: Mapping[str, Any], key: str) -> int | None:
    """Return how many items a key's array has, unread if it is a file's; None if it has none."""
    if isinstance(metadata, TypedMetadata):
        return metadata.n_items(key)
    value = metadata.get(key)
    return len(value) if isinstance(value, Sized) else None


@dataclass(frozen=True, slots=True, eq=False)
class Container:
    """One parsed file."""

    id: str
    format: str
    source: Source
    tensors: dict[str, StoredTensor]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    header_bytes: int = 0
    facts: dict[str, Any] = field(default_factory=dict)
    unreadable: dict[str, AnamnesisError] = field(default_factory=dict)
    self_contained: bool = False
    tied: list[list[str]] = field(default_factory=list)
    described: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    sharded: Mapping[str, Any] = field(default_factory=dict)  # torch's, of one rank's parts

    def below(self, prefix: str) -> Container:
        """Return the tensors of a subtree, by their names in it."""
        metadata = self.metadata
        tensors = names_below(self.tensors, prefix)
        return replace(
            self,
            tensors={name: tensor._replace(name=name) for name, tensor in tensors.items()},
            metadata=metadata.below(prefix) if isinstance(metadata, TypedMetadata) else metadata,
            unreadable=names_below(self.unreadable, prefix),
            tied=[
                list(below)
                for names in self.tied
                if len(below := names_below(dict.fromkeys(names), prefix)) > 1
            ],
            described=names_below(self.described, prefix),
            shapes=names_below(self.shapes, prefix),
        )

    def only(self, names: Collection[str]) -> Container:
        tied = [[name for name in group if name in names] for group in self.tied]
        return replace(
            self,
            tensors={name: tensor for name, tensor in self.tensors.items() if name in names},
            unreadable={name: error for name, error in self.unreadable.items() if name in names},
            tied=[group for group in tied if len(group) > 1],
        )


def names_below(named: Mapping[str, T], prefix: str) -> dict[str, T]:
    """Return what is called `prefix.NAME` as NAME, and what is called `prefix` by its last part."""
    prefix = prefix.removesuffix(".")
    start = f"{prefix}."
    below = {name[len(start) :]: item for name, item in named.items() if name.startswith(start)}
    if prefix in named:
        below[prefix.rpartition(".")[2]] = named[prefix]
    return below
