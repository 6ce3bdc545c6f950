"""What becomes of each stored tensor: a part of a weight, dropped by rule, or a problem."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from anamnesis.errors import AnamnesisError
from anamnesis.formats.stored import StoredTensor
from anamnesis.schemes.weight import Weight

__all__ = ["Claim", "Dropped"]


@dataclass(frozen=True, slots=True)
class Dropped:
    """Something that is left out of the output, and why."""

    name: str
    reason: str


@dataclass(slots=True)
class Claim:
    """The account of a model's stored tensors; each is claimed exactly once.

    Attributes
    ----------
    stored : dict of str to StoredTensor
        All of them.
    weights : dict of str to Weight
        By their name in the output.
    dropped : list of Dropped
    problems : dict of str to AnamnesisError
        Stored tensors that cannot be accounted for; they stop a conversion unless the user lets
        them pass through as they are.
    """

    stored: dict[str, StoredTensor]
    weights: dict[str, Weight] = field(default_factory=dict)
    dropped: list[Dropped] = field(default_factory=list)
    problems: dict[str, AnamnesisError] = field(default_factory=dict)
    _claimed: set[str] = field(default_factory=set)

    def is_free(self, name: str) -> bool:
        """Whether a stored tensor of this name exists and is not yet claimed."""
        return name in self.stored and name not in self._claimed

    def free(self) -> list[StoredTensor]:
        """Return what is not claimed yet."""
        return [t for name, t in self.stored.items() if name not in self._claimed]

    def take(self, weight: Weight) -> None:
        """Claim all parts of a weight."""
        for part in weight.parts:
            self._mark(part.name)
        self.weights[weight.name] = weight

    def drop(self, name: str, reason: str) -> None:
        """Claim a tensor that is left out."""
        self._mark(name)
        self.dropped.append(Dropped(name, reason))

    def refuse(self, names: Iterable[str], error: AnamnesisError) -> None:
        """Claim tensors that cannot be read, for `error`."""
        for name in names:
            self._mark(name)
            self.problems[name] = error

    def _mark(self, name: str) -> None:
        if name in self._claimed or name not in self.stored:
            raise AssertionError(f"stored tensor {name!r} claimed twice")
        self._claimed.add(name)
