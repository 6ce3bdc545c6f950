"""What two models are to one another: the account that a comparison ends with."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from anamnesis.base.plain_json import plain_json
from anamnesis.base.printable import abbreviate, numbered, printable
from anamnesis.convert.compare.figures import Difference, together

if TYPE_CHECKING:
    from anamnesis.convert.report.html_parts import Page

State = Literal[
    "same bytes",
    "same values",
    "differs",
    "alike",
    "other encoding",
    "more rows",
    "other shape",
    "not compared",
]
_SAME = ("same bytes", "same values", "alike")
_IN_WORDS = {
    "same bytes": "with the same bytes",
    "same values": "with the same values",
    "differs": "with other values",
    "alike": "alike",
    "other encoding": "in another encoding",
    "more rows": "with more rows in one, the others the same",
    "other shape": "of another shape",
    "not compared": "not compared",
}


@dataclass(frozen=True, slots=True)
class Stored:
    """How one of two models stores a weight: its encoding, in a word and in words, and its size."""

    kind: str
    encoding: str
    shape: tuple[int, ...]
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Compared:
    """A weight that both models have.

    Attributes
    ----------
    state : str
        `same bytes`, `same values`, `differs` or `other shape`; `more rows` if one model has a
        longer vocabulary of otherwise the same values; where headers alone were compared
        `alike` or `other encoding`; `not compared` if a value cannot be decoded.
    difference : Difference or None
        None where no values were compared, or all bytes are the same.
    note : str
        What else to know of it: that one model has it as its embeddings, ….
    """

    name: str
    a: Stored
    b: Stored
    state: State
    difference: Difference | None = None
    note: str = ""

    @property
    def noise(self) -> float:
        """The squared error by the squared values: by it the worst comes first."""
        if self.state in ("other shape", "not compared"):
            return math.inf
        if self.difference is None or not self.difference.differing:
            return 0.0
        nmse = self.difference.loss.nmse
        is_measured = nmse is not None and not math.isnan(nmse) and not self.difference.not_finite
        return nmse if is_measured and nmse is not None else math.inf

    @property
    def snr_db(self) -> float | None:
        """Signal to noise in decibels: infinite without noise, None where it is not known."""
        if not self.noise:
            return math.inf
        return -10 * math.log10(self.noise) if self.noise < math.inf else None

    def to_dict(self) -> dict[str, Any]:
        """Return everything as values that JSON has."""
        return {
            "name": self.name,
            "state": self.state,
            "a": asdict(self.a),
            "b": asdict(self.b),
            "difference": self.difference.to_dict() if self.difference else None,
            "note": self.note,
        }


@dataclass(frozen=True, slots=True)
class Change:
    """A fact of config.json or of metadata that differs; None where one has it not."""

    key: str
    a: Any
    b: Any


@dataclass(frozen=True, slots=True)
class Summary:
    """One of two models."""

    path: str
    format: str
    n_weights: int
    n_bytes: int
    kinds: Mapping[str, int]  # bytes of weights by encoding, in a word
    only: Mapping[str, str]  # weights that it alone has, and what they are, if that is known
    left_out: Mapping[str, str]  # what was left out to see it as the other, and why
    unread: Mapping[str, str]  # what cannot be decoded, and why


@dataclass(frozen=True, slots=True, repr=False)
class Comparison:
    """What two models are to one another; `str()` says it in a few lines.

    Attributes
    ----------
    a, b : Summary
    weights : tuple of Compared
        In the order of the first model.
    config, metadata : tuple of Change
        What they say otherwise, by meaning: spellings and defaults of a class do not matter, nor
        does what only says how weights are encoded.
    notes : tuple of str
    values : bool
        Whether values were compared, or headers alone.
    """

    a: Summary
    b: Summary
    weights: tuple[Compared, ...]
    config: tuple[Change, ...] = ()
    metadata: tuple[Change, ...] = ()
    notes: tuple[str, ...] = ()
    values: bool = False
    counts: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        counts = Counter(weight.state for weight in self.weights)
        object.__setattr__(self, "counts", dict(counts))

    @property
    def same(self) -> bool:
        """Whether nothing differs of what was compared.

        Of headers that is names, shapes, encodings, config and metadata. Of values it is which
        weights there are, their values, and config: the same values in another encoding, or under
        other names, are the same.
        """
        if self.a.only or self.b.only or self.config or self.differing:
            return False
        return self.values or not self.metadata

    @property
    def differing(self) -> list[Compared]:
        """The weights that differ, the worst first."""
        differing = [weight for weight in self.weights if weight.state not in _SAME]
        return sorted(differing, key=lambda weight: -weight.noise)

    @property
    def worst(self) -> list[Compared]:
        """Those of which more is to say than that their encodings differ."""
        return [weight for weight in self.differing if weight.state != "other encoding"]

    @property
    def total(self) -> Difference | None:
        """All weights that are not of the same bytes; None if no values were compared."""
        return together(one.difference for one in self.weights) if self.values else None

    def to_dict(self) -> dict[str, Any]:
        """Return everything as values that JSON has."""
        return {
            "same": self.same,
            "values": self.values,
            "a": asdict(self.a),
            "b": asdict(self.b),
            "counts": dict(self.counts),
            "total": self.total.to_dict() if self.total else None,
            "weights": [weight.to_dict() for weight in self.weights],
            "config": plain_json([asdict(change) for change in self.config]),
            "metadata": plain_json([asdict(change) for change in self.metadata]),
            "notes": list(self.notes),
        }

    def __repr__(self) -> str:
        return f"<anamnesis.Comparison: {self.outcome}>"

    def __str__(self) -> str:
        lines = [f"A  {self.a.path}", f"B  {self.b.path}", self.outcome]
        if self.total is not None and self.differing:
            lines.append(f"in all: {self.total.loss}")
        lines += [
            f"only in {side}: {abbreviate(list(one.only))}"
            for side, one in (("A", self.a), ("B", self.b))
            if one.only
        ]
        return "\n".join(map(printable, [*lines, *self.notes]))

    @property
    def outcome(self) -> str:
        """How many weights are the same, and how many are not, in a line."""
        parts = [f"{self.counts[s]:,} {word}" for s, word in _IN_WORDS.items() if s in self.counts]
        line = f"{numbered(len(self.weights), 'weight')} in both: {', '.join(parts)}"
        only = [f"{len(s.only):,} only in {w}" for w, s in (("A", self.a), ("B", self.b)) if s.only]
        return "; ".join([line if self.weights else "no weight in both", *only])

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return self.page()._repr_html_()

    def page(self) -> Page:
        """Return it as a page."""
        from anamnesis.convert.compare.page import comparison_page

        return comparison_page(self)
