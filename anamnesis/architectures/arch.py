"""What a row of an architecture says: names, keys and operations, both ways."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from anamnesis.architectures.facts import Facts
    from anamnesis.schemes.core.weight import Weight

__all__ = ["Arch", "Constants", "Find", "Key", "Naming", "Op", "Rule", "Vocabulary"]


class Op(Protocol):
    """One step from Hugging Face's tensors to llama.cpp's, and back.

    A step takes some weights and returns as many as its rule has names for, or the next step takes.
    It reads nothing: what it returns are views.
    """

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
    """Tensors of Hugging Face's, and what they are in llama.cpp's files.

    Attributes
    ----------
    hf : str
        A name without `.weight` or `.bias`, unless `exact`. `{bid}` stands for the number of a
        layer, `{xid}` for that of an expert, of which there are as many tensors as experts.
    gguf : tuple of str
        Names without `.weight` or `.bias`; several where a tensor is taken apart.
    ops : tuple of Op
        One after the other.
    exact : bool
        Whether both names are whole ones.
    """

    hf: str
    gguf: tuple[str, ...]
    ops: tuple[Op, ...] = ()
    exact: bool = False


class Key(NamedTuple):
    """A key of the metadata, behind the architecture's name, and the fact that it says.

    Attributes
    ----------
    name : str
        Such as `context_length`.
    fact : str
        Of config.json, in the spelling of `facts`.
    type : str
        As GGUF has it: `uint32`, `float32`, `bool`, `string`, or of the items of an array.
    values : mapping, optional
        What the config's values are in GGUF, where they are words.
    """

    name: str
    fact: str
    type: str = "uint32"
    values: Mapping[Any, Any] | None = None


Constants = Mapping[str, Any]
Find = Callable[[str], Any]  # a key's value, by its name behind the architecture's


class Vocabulary(NamedTuple):
    """How the tokenizer is told.

    Attributes
    ----------
    kind : str
        See `tokenizers.read_vocabulary`.
    options : mapping
        What else that takes.
    """

    kind: str
    options: Mapping[str, Any] = {}


_BPE = Vocabulary("gpt2")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arch:
    """One architecture.

    Attributes
    ----------
    gguf : str
        What llama.cpp calls it.
    hf : tuple of str
        The classes of transformers', the first of which is written on the way back.
    model_type : str
        As config.json has it.
    rules : tuple of Rule
    keys : tuple of Key
        Those behind the ones that all have, in their order.
    fixed : mapping
        Typed keys that are the same in all models of it.
    computed : function, optional
        Facts to keys, where no row can say them.
    extra : function, optional
        Facts to tensors that no checkpoint has, by their names, as float32 arrays.
    derived : function, optional
        Facts that follow from others where the config leaves them out, as its class has them.
    vocabulary : Vocabulary
    dropped : tuple of str
        Globs of tensors that llama.cpp does not take, beside those of other modalities.
    left : function, optional
        Facts and a tensor's name to whether llama.cpp does not take it, where no glob says it.
    pools : bool
        Whether it may embed texts, and sentence-transformers' files say how: `pooling_type`.
    ranks : bool
        Whether it may be a reranker, whose card or name says it.
    tokenizer : str
        On the way back: `tokenizer.ggml.model` of its files, if other rows of its name differ in
        nothing else.
    config : mapping
        On the way back: what config.json has in all models of it.
    spelt : mapping of str to str
        On the way back: what config.json calls a key's fact, where the first of its spellings is
        another's.
    naming : Naming, optional
    shapes : mapping of str to str
        Of tensors, where they are others than in `tensor_table`.
    groups : mapping of str to str
        Of tensors, likewise.
    switches : mapping of str to tuple of str
        Tensors that are there if a fact is true, by the fact; by an empty one those that always
        are, such as biases. On the way back any of them says the fact.
    uncomputed : function, optional
        On the way back: from a function that finds keys, and config.json so far, to further facts.
    unextra : function, optional
        On the way back: from a function that finds a tensor's float32 values, or None, and
        config.json so far, to further facts.
    """

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
    config: Constants = field(default_factory=dict)
    spelt: Mapping[str, str] = field(default_factory=dict)
    naming: Naming | None = None
    shapes: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)
    switches: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    uncomputed: Callable[[Find, Mapping[str, Any]], Mapping[str, Any]] | None = None
    unextra: Callable[[Find, Mapping[str, Any]], Mapping[str, Any]] | None = None
