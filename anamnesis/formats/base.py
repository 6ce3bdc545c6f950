"""What a container holds: stored tensors, each a name, a dtype, a shape and a byte range."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, TypeVar

from anamnesis.base.dtypes import DType
from anamnesis.base.errors import AnamnesisError
from anamnesis.base.printable import abbreviate
from anamnesis.base.source import Source
from anamnesis.base.stored import Part, StoredTensor

__all__ = ["Container", "Layout", "TypedMetadata", "Writer", "names_below"]

T = TypeVar("T")


class Layout(NamedTuple):
    """A file to be, but for its data: known before any of that is read.

    Attributes
    ----------
    header : bytes
        What the file begins with.
    offsets : list of int
        Where the bytes of each part begin, in the order in which the parts were given.
    n_bytes : int
        The length of the file.
    """

    header: bytes
    offsets: list[int]
    n_bytes: int


class Writer(ABC):
    """How a format is written: the mirror of its parser.

    Attributes
    ----------
    id : str
        The format's.
    extension : str
        Of its files, with the dot.
    """

    id: ClassVar[str]
    extension: ClassVar[str]

    @abstractmethod
    def holds(self, dtype: DType) -> bool:
        """Tell whether the format can store tensors of a dtype."""

    @abstractmethod
    def lay_out(self, parts: Sequence[Part], metadata: Mapping[str, str]) -> Layout:
        """Return where everything goes; nothing is read or written.

        Raises
        ------
        LimitExceeded
            If the header would be longer than readers take.
        """

    def finish(self, sums: Sequence[int]) -> Sequence[tuple[int, bytes]]:
        """Return what is known only when all data is there, as bytes and their offsets.

        Parameters
        ----------
        sums : sequence of int
            The CRC-32 of each part.
        """
        return ()


class TypedMetadata(Mapping[str, Any]):
    """Metadata that are more than strings, some of it read only when it is asked for."""

    @abstractmethod
    def summary(self) -> dict[str, Any]:
        """Return what is read already, and of the rest its type in words."""

    @abstractmethod
    def is_carried(self, key: str) -> bool:
        """Tell whether a value is short enough for another format's metadata."""

    @abstractmethod
    def text(self, key: str) -> str:
        """Return a value as another format's metadata may hold it."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self):,} keys: {abbreviate(map(repr, self))}>"

    def below(self, prefix: str) -> TypedMetadata:
        """Return what belongs to a subtree of the tensors; all of it if it is the file's."""
        return self


@dataclass(frozen=True, slots=True, eq=False)
class Container:
    """One parsed file.

    Attributes
    ----------
    id : str
        The format's: `safetensors`, `gguf`, `npz`, `npy` or `torch`.
    format : str
        The same for people, with its version or kind: `GGUF v3`, `PyTorch state dict`.
    source : Source
    tensors : dict of str to StoredTensor
        In the order of the header.
    metadata : mapping of str to anything
        What the file says of itself: strings in safetensors; typed, and read when asked for, in
        GGUF.
    header_bytes : int
        Size of everything before the tensor data.
    facts : dict of str to anything
        What is to be told of the container beside its tensors.
    unreadable : dict of str to AnamnesisError
        Tensors that are listed but that nobody can decode, and why.
    self_contained : bool
        Whether each tensor is a weight by itself, whatever it is called.
    tied : list of list of str
        Names of one and the same tensor.
    """

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
        )

    def only(self, names: Collection[str]) -> Container:
        """Return it with some of its tensors."""
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
