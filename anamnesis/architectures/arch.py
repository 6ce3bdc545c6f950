"""What a row of an architecture says, and which tensors its rules claim."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
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


class Naming:
    """Names that a fact decides, such as those of layers that follow the others: here of none."""

    def there(self, name: str, facts: Facts) -> str:
        """Return the name that rules speak of; the same one if it is."""
        return name

    def back(self, name: str, facts: Facts) -> str:
        """Return Hugging Face's."""
        return name


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


AS_THEY_ARE = Naming()
Constants = Mapping[str, Any]
Find = Callable[[str], Any]  # a key's value, by its name behind the architecture's


class Vocabulary(NamedTuple):
    """How the header describes the tokenizer."""

    kind: str
    options: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Arch:
    """One architecture."""

    gguf: str
    hf: tuple[str, ...]
    model_type: str
    rules: tuple[Rule, ...]
    keys: tuple[Key, ...]
    vocabulary: Vocabulary
    dropped: tuple[str, ...]
    switches: Mapping[str, tuple[str, ...]]
    required: tuple[str, ...]  # keys without which llama.cpp does not load it
    biases: tuple[str, ...] | None  # tensors that have one, beside queries, keys and values
    fixed: Constants = field(default_factory=dict)
    computed: Callable[[Facts], Mapping[str, Any]] = lambda facts: {}
    extra: Callable[[Facts], Mapping[str, Any]] = lambda facts: {}
    derived: Callable[[Facts], Mapping[str, Any]] = lambda facts: {}
    left: Callable[[Facts, str], bool] = lambda facts, name: False
    pools: bool = False
    ranks: bool = False
    tokenizer: str = ""
    tells: str = ""  # a tensor that a row has, and others of its name have not
    config: Constants = field(default_factory=dict)
    spelt: Mapping[str, str] = field(default_factory=dict)
    naming: Naming = AS_THEY_ARE
    shapes: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)
    uncomputed: Callable[[Find, Mapping[str, Any]], Mapping[str, Any]] = lambda find, config: {}
    unextra: Callable[[Find, Mapping[str, Any]], Mapping[str, Any]] = lambda find, config: {}


IN_LAYER = "blk.{bid}."
_IN_LAYER = re.compile(r"((?:enc\.)?blk)\.(0|[1-9][0-9]{0,5})\.(.+)")
SUFFIXES = (".weight", ".bias")


class Group(NamedTuple):
    """Tensors that become some others together."""

    rule: Rule
    names: tuple[str, ...]
    new: tuple[str, ...]


def groups(names: Iterable[str], rules: tuple[Rule, ...]) -> tuple[list[Group], list[str]]:
    """Return what the tensors of a model become, in its order; and those that no rule claims."""
    places: dict[tuple[int, str, str], dict[int, str]] = {}
    unclaimed, tables = [], _by_blank(rules)
    for name in names:
        stem, dot, last = name.rpartition(".")
        suffix = dot + last
        found = _find(stem, tables[False]) if suffix in SUFFIXES else None
        if found is None:
            found, suffix = _find(name, tables[True]), ""
        if found is None:
            unclaimed.append(name)
            continue
        i, layer, expert = found
        places.setdefault((i, layer, suffix), {})[expert] = name
    made = []
    for (i, layer, suffix), members in places.items():
        ordered = tuple(members[expert] for expert in sorted(members))
        new = tuple(filled(name, layer) + suffix for name in rules[i].gguf)
        made.append(Group(rules[i], ordered, new))
    return made, unclaimed


def filled(pattern: str, layer: str | int, expert: int = 0) -> str:
    """Return a name of a layer, and of an expert."""
    return pattern.replace("{bid}", str(layer)).replace("{xid}", str(expert))


def split(name: str) -> tuple[int, str]:
    """Return which layer a GGUF's tensor is of, -1 if of none, and its name for any layer."""
    found = _IN_LAYER.fullmatch(name)
    return (-1, name) if found is None else (int(found[2]), f"{found[1]}.{{bid}}.{found[3]}")


def tail_of(pattern: str) -> str:
    """Return what stands behind the layer of a name; all of it, if it is of none."""
    return pattern.partition("{bid}.")[2] or pattern


@cache
def patterns(rules: tuple[Rule, ...]) -> dict[str, str]:
    """Return the names of GGUF's tensors, for any layer, and what each is made of."""
    found: dict[str, str] = {}
    for rule in rules:
        suffix = "" if rule.exact else ".weight"
        for name in rule.gguf:
            found.setdefault(name + suffix, rule.hf + suffix)
    return found


_HOLE = re.compile(r"\{(bid|xid)\}")
_NUMBER = re.compile(r"(?<=\.)(0|[1-9][0-9]{0,5})(?=\.|$)")  # `03` is no 3, and no name


def _find(stem: str, table: Mapping[str, tuple[int, list[str]]]) -> tuple[int, str, int] | None:
    """Return the number of a rule, a layer and an expert."""
    parts = _NUMBER.split(stem)
    found = table.get("#".join(parts[::2]))
    if found is None:
        return None
    i, holes = found
    numbers = dict(zip(holes, parts[1::2], strict=True))
    return i, numbers.get("bid", ""), int(numbers.get("xid", 0))


@cache
def _by_blank(rules: tuple[Rule, ...]) -> tuple[dict[str, tuple[int, list[str]]], ...]:
    """Return numbers of rules by names without numbers, and what these count; exact ones apart."""
    found: tuple[dict[str, tuple[int, list[str]]], ...] = ({}, {})
    for i, rule in enumerate(rules):
        blank = _HOLE.sub("#", rule.hf)
        found[rule.exact].setdefault(blank, (i, _HOLE.findall(rule.hf)))
    return found
