"""What a row of an architecture says: names, keys and operations, both ways."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from anamnesis.architectures.model_facts import Facts
    from anamnesis.schemes.core.weight import Weight


class Op(Protocol):
    """One step from Hugging Face's tensors to llama.cpp's, and back."""

    # A step takes some weights and returns as many as its rule has names for, or the next step
    # takes. It reads nothing: what it returns are views.

    def there(self, weights: Sequence[Weight], facts: Facts) -> list[Weight]:
        """Return what llama.cpp has."""

    def back(self, weights: Sequence[Weight], facts: Facts) -> list[Weight]:
        """Return what Hugging Face has."""


class Naming(Protocol):
    """Names that a fact decides, such as those of layers that follow the others."""

    def there(self, name: str, facts: Facts) -> str:
        """Return the name that rules speak of; the same one if it is."""

    def back(self, name: str, facts: Facts) -> str:
        """Return Hugging Face's."""


class Rule(NamedTuple):
    """Tensors of Hugging Face's, and what they are in llama.cpp's files."""

    hf: str
    gguf: tuple[str, ...]
    ops: tuple[Op, ...] = ()
    exact: bool = False


class Key(NamedTuple):
    """A key of the metadata, behind the architecture's name, and the fact that it says."""

    name: str
    fact: str
    type: str = "uint32"
    values: Mapping[Any, Any] | None = None


Constants = Mapping[str, Any]
Find = Callable[[str], Any]  # a key's value, by its name behind the architecture's


class Vocabulary(NamedTuple):
    """How the header describes the tokenizer."""

    kind: str
    options: Mapping[str, Any] = {}


_BPE = Vocabulary("gpt2")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arch:
    """One architecture."""

    gguf: str
    hf: tuple[str, ...]
    model_type: str
    rules: tuple[Rule, ...]
    keys: tuple[Key, ...] = ()
    fixed: Constants = field(default_factory=dict)
    computed: Callable[[Facts], Mapping[str, Any]] | None = None
    extra: Callable[[Facts], Mapping[str, Any]] | None = None
    derived: Callable[[Facts], Mapping[str, Any]] | None = None
    vocabulary: Vocabulary = _BPE
    dropped: tuple[str, ...] = ()
    left: Callable[[Facts, str], bool] | None = None
    pools: bool = False
    ranks: bool = False
    tokenizer: str = ""
    tells: str = ""  # a tensor that a row has, and others of its name have not
    config: Constants = field(default_factory=dict)
    spelt: Mapping[str, str] = field(default_factory=dict)
    naming: Naming | None = None
    shapes: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)
    switches: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    uncomputed: Callable[[Find, Mapping[str, Any]], Mapping[str, Any]] | None = None
    unextra: Callable[[Find, Mapping[str, Any]], Mapping[str, Any]] | None = None
