"""The ledger: each stored tensor is part of a weight, dropped, or a problem."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from anamnesis.base.errors import AnamnesisError, UnsupportedError
from anamnesis.base.patterns import UnmatchedError, chooser, unfitting
from anamnesis.base.stored import ASKED, Dropped, StoredTensor
from anamnesis.schemes.core.plain import Plain
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.detect.config_facts import QuantFacts
from anamnesis.sources.strided import Strips

Finder: TypeAlias = "Callable[[StoredTensor, Ledger, QuantFacts], Weight | None]"


@dataclass(slots=True)
class Ledger:
    """The account of a model's stored tensors; each is claimed exactly once."""

    stored: dict[str, StoredTensor]
    weights: dict[str, Weight] = field(default_factory=dict)
    dropped: list[Dropped] = field(default_factory=list)
    problems: dict[str, AnamnesisError] = field(default_factory=dict)
    read_facts: Callable[[], QuantFacts] = QuantFacts
    apart: set[str] = field(default_factory=set)
    strips: Strips = field(default_factory=Strips)
    _free: dict[str, StoredTensor] = field(init=False)
    _by_end: dict[str, list[str]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._free = dict(self.stored)

    @property
    def facts(self) -> QuantFacts:
        """What the config and the files say, and the user; read when it is first asked for."""
        return self.read_facts()

    @property
    def coded(self) -> list[Weight]:
        """The weights that are quantised."""
        return [weight for weight in self.weights.values() if weight.own_dtype is None]

    def find(self, name: str) -> StoredTensor | None:
        """Return the stored tensor of this name if there is one and it is not claimed yet."""
        return self._free.get(name)

    @property
    def by_end(self) -> Mapping[str, list[str]]:
        """The names of stored tensors, claimed ones too, by their last word."""
        if not self._by_end:
            for name in self.stored:
                self._by_end.setdefault(name.rpartition(".")[2], []).append(name)
        return self._by_end

    def called(self, *ends: str) -> list[StoredTensor]:
        """Return what is not claimed yet, and has one of these for its last word."""
        names = (name for end in ends for name in self.by_end.get(end, ()))
        return [self._free[name] for name in names if name in self._free]

    def free(self) -> list[StoredTensor]:
        """Return what is not claimed yet."""
        return list(self._free.values())

    def take(self, weight: Weight) -> None:
        """Claim all parts of a weight; refuse them if there is another one of its name."""
        names = [part.name for part in weight.parts]
        if weight.name in self.weights or (weight.name in self.stored and weight.name not in names):
            error = weight.parts[0].unsupported(
                f"{names[0]} holds codes of {weight.name}, but there is another tensor of that name"
            )
            self.refuse(names, error)
            return
        for name in names:
            self._mark(name)
        self.weights[weight.name] = weight

    def extend(self, weight: Weight) -> None:
        """Put a weight in the place of the one of its name; claim what else it is made of."""
        for part in weight.parts:
            if part.name in self._free:
                self._mark(part.name)
        self.weights[weight.name] = weight

    def take_found(self, finders: Mapping[str, Iterable[Finder]], facts: QuantFacts) -> None:
        """Take the weights of free tensors that hold codes, each by the first that finds it."""
        for codes in [tensor for tensor in self.free() if tensor.dtype.name in finders]:
            if self.find(codes.name) is None:  # a part of one that was taken meanwhile
                continue
            for find in finders[codes.dtype.name]:
                try:
                    weight = find(codes, self, facts)
                except AnamnesisError as error:
                    self.refuse([codes.name], error)
                    break
                if weight is not None:
                    self.take(weight)
                    break

    def take_rest(self) -> None:
        """Claim what is not claimed yet, each as a plain weight."""
        for name, tensor in self._free.items():
            self.weights[name] = Plain(name, tensor.shape, (tensor,))
        self._free.clear()

    def drop(self, name: str, reason: str) -> None:
        """Claim a tensor that is left out."""
        self._mark(name)
        self.dropped.append(Dropped(name, reason))

    def refuse(self, names: Iterable[str], error: AnamnesisError) -> None:
        """Claim tensors that cannot be read, for `error`."""
        for name in names:
            self._mark(name)
            self._blame(name, error)

    @contextmanager
    def refusing(self, names: Iterable[str]) -> Iterator[None]:
        """Refuse those of some tensors that are free, for what the block raises."""
        try:
            yield
        except AnamnesisError as error:
            self.refuse([name for name in names if name in self._free], error)

    def retract(self, weight: Weight, error: AnamnesisError) -> None:
        """Give a weight back and refuse its parts, for `error`."""
        del self.weights[weight.name]
        for part in weight.parts:
            self._blame(part.name, error)

    def _blame(self, name: str, error: AnamnesisError) -> None:
        self.problems[name] = error
        if error.tensor is None:  # of several, the first
            error.tensor, error.source = name, self.stored[name].source.name

    def without(self, globs: Sequence[str]) -> Ledger:
        """Return the account in which the weights, and problems, of some names are dropped."""
        if not globs:
            return self
        names = [*self.weights, *self.problems]
        for glob in unfitting(globs, names):
            raise UnmatchedError("drop", glob)
        return self.dropping(chooser(globs))

    def dropping(self, goes: Callable[[str], bool]) -> Ledger:
        """Return the account in which the weights, and problems, of chosen names are dropped."""
        weights = {name: weight for name, weight in self.weights.items() if not goes(name)}
        problems = {name: error for name, error in self.problems.items() if not goes(name)}
        if not weights and not problems:
            n = len(self.weights.keys() | self.problems.keys())
            raise UnsupportedError(f"none of the {n:,} weights is left")
        parts = dict.fromkeys(part.name for w in self.weights.values() for part in w.parts)
        left = {part.name for weight in weights.values() for part in weight.parts} | problems.keys()
        asked = [Dropped(name, ASKED) for name in parts | self.problems if name not in left]
        return replace(self, weights=weights, dropped=[*self.dropped, *asked], problems=problems)

    def only(self, is_wanted: Callable[[str], bool]) -> Ledger:
        """Return the account of some weights and problems, chosen by their names."""
        # What is dropped stays where it is chosen as well, or lies beside a weight that is.
        weights = {name: weight for name, weight in self.weights.items() if is_wanted(name)}
        beside = {module for name in weights for module in around(name)}
        dropped = [
            drop
            for drop in self.dropped
            if is_wanted(drop.name) or next(around(drop.name)) in beside
        ]
        problems = {name: error for name, error in self.problems.items() if is_wanted(name)}
        names = {part.name for weight in weights.values() for part in weight.parts}
        names |= {*problems, *(drop.name for drop in dropped)}
        stored = {name: tensor for name, tensor in self.stored.items() if name in names}
        return Ledger(stored, weights, dropped, problems, self.read_facts)

    def _mark(self, name: str) -> None:
        if self._free.pop(name, None) is None:
            raise AssertionError(f"stored tensor {name!r} claimed twice")


def around(name: str) -> Iterator[str]:
    """Yield the module of a tensor, the one around that, and so on; the model, which is ``."""
    while name:
        name = name.rpartition(".")[0]
        yield name
