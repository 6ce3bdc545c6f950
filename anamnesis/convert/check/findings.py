"""What a check found of a model: the account that it ends with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from anamnesis.base.printable import abbreviate, numbered

Severity = Literal["problem", "note"]
OfFiles = Literal["unreadable", "config", "index", "hash", "tied head", "copies"]
OfValues = Literal["unreadable", "NaN", "infinity", "zeros", "zero rows", "constant", "size"]
Kind = OfFiles | OfValues | Literal["scales", "manifest", "codes", "lora"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something worth knowing of some tensors.

    Attributes
    ----------
    severity : str
        `problem`: the model is damaged, or contradicts itself; `note`: it may well be meant so.
    kind : str
        What it is, in a word or two, as `Kind` lists them.
    names : tuple of str
        The tensors, or files, that it is about.
    text : str
        What is wrong, in words.
    """

    severity: Severity
    kind: Kind
    names: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        shown = f"{abbreviate(self.names, 3)}: " if self.names else ""
        return f"{shown}{self.text}"


@dataclass(frozen=True, slots=True, repr=False)
class Check:
    """What a check found; `str()` prints it, `to_dict()` gives it to scripts.

    Attributes
    ----------
    path : str
    n_tensors, n_bytes : int
        Stored tensors that were looked at, and their size.
    findings : tuple of Finding
        Problems first.
    done : mapping of str to str
        What was checked, and what was not, with the reason.
    """

    path: str
    n_tensors: int
    n_bytes: int
    findings: tuple[Finding, ...]
    done: Mapping[str, str]

    @property
    def ok(self) -> bool:
        """Whether there are no problems; notes do not count."""
        return not self.problems

    @property
    def problems(self) -> list[Finding]:
        """The findings that say that something is wrong."""
        return [finding for finding in self.findings if finding.severity == "problem"]

    @property
    def notes(self) -> list[Finding]:
        """The others."""
        return [finding for finding in self.findings if finding.severity == "note"]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as values that JSON has."""
        return {"ok": self.ok, **asdict(self)}

    def __repr__(self) -> str:
        return f"<anamnesis.Check: {self.outcome}>"

    def __str__(self) -> str:
        lines = [f"{finding.kind}: {finding}" for finding in self.findings]
        return "\n".join([*lines, self.outcome])

    @property
    def outcome(self) -> str:
        """How it went, in a line."""
        found = [numbered(len(self.problems), "problem"), numbered(len(self.notes), "note")]
        counted = ", ".join(found if self.notes else found[:1])
        return f"{numbered(self.n_tensors, 'tensor')}: {counted if self.findings else 'sound'}"
