"""What `scan` finds: globals, in pickles, in a file, each with a verdict."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from anamnesis.base.printable import numbered, printable

SAFE, UNKNOWN, DANGEROUS = "safe", "unknown", "dangerous"
_VERDICTS = (SAFE, UNKNOWN, DANGEROUS)
_OF_TORCHAO = "torchao."
_NEEDS_CONSENT = (
    "torchao's classes hold tensors, no more; torch.load(weights_only=True) takes them once torchao"
    " is imported (add_safe_globals)"
)
_WIDTH = 80
_MOST_ROWS = 50  # in a notebook


@dataclass(frozen=True, slots=True)
class FoundGlobal:
    """One global.

    Attributes
    ----------
    module, name : str
        As the pickle spells them.
    verdict : str
        `safe`, `unknown` or `dangerous`.
    offset : int
        Where the pickle refers to it first.
    """

    module: str
    name: str
    verdict: str
    offset: int


@dataclass(slots=True)
class PickleScan:
    """One pickle.

    Attributes
    ----------
    name : str
        The archive's member, or where in the file it begins.
    globals : list of FoundGlobal
    malformed : str or None
        Why it could not be read to its end.
    is_over_limit : bool
        Whether that is because it takes too much.
    """

    name: str
    globals: list[FoundGlobal] = field(default_factory=list)
    malformed: str | None = None
    is_over_limit: bool = False

    @property
    def verdict(self) -> str:
        """The worst verdict of its globals; malformed is not safe."""
        found = [g.verdict for g in self.globals] + ([UNKNOWN] if self.malformed else [])
        return max(found, key=_VERDICTS.index, default=SAFE)


@dataclass(slots=True, repr=False)
class Scan:
    """What a file's pickles refer to.

    Attributes
    ----------
    pickles : list of PickleScan
    problems : list of str
        What could not be looked into.
    """

    pickles: list[PickleScan] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """The worst verdict of its pickles; what was not looked into is not safe."""
        found = [p.verdict for p in self.pickles] + ([UNKNOWN] if self.problems else [])
        return max(found, key=_VERDICTS.index, default=SAFE)

    @property
    def notes(self) -> list[str]:
        """Notes on what is safe in the file, for whoever loads it."""
        safe = (g for p in self.pickles for g in p.globals if g.verdict == SAFE)
        return [_NEEDS_CONSENT] if any(g.module.startswith(_OF_TORCHAO) for g in safe) else []

    def to_dict(self) -> dict[str, Any]:
        pickles = [{"verdict": p.verdict, **asdict(p)} for p in self.pickles]
        given = {"verdict": self.verdict, "pickles": pickles, "problems": self.problems}
        return {**given, "notes": self.notes}

    def __repr__(self) -> str:
        found = {g.module + "." + g.name for p in self.pickles for g in p.globals}
        counts = {"pickle": len(self.pickles), "global": len(found), "problem": len(self.problems)}
        given = ", ".join(numbered(n, what) for what, n in counts.items())
        return f"<anamnesis.Scan: {self.verdict}, {given}>"

    def __str__(self) -> str:
        return "\n".join(self.lines("scan"))

    def _repr_html_(self) -> str:
        from anamnesis.base.html import html_table

        rows = [
            (found.verdict, f"{found.module}.{found.name}", pickle.name)
            for pickle in self.pickles
            for found in sorted(pickle.globals, key=lambda g: -_VERDICTS.index(g.verdict))
        ]
        rows += [("malformed", p.malformed, p.name) for p in self.pickles if p.malformed]
        rows += [("problem", problem, "") for problem in self.problems]
        if len(rows) > _MOST_ROWS:
            rows[_MOST_ROWS:] = [("", f"and {len(rows) - _MOST_ROWS:,} more", "")]
        head = ("verdict", "what", "pickle")
        return html_table(rows, head=head, caption=f"{self.verdict}: {len(self.pickles):,} pickles")

    def lines(self, path: str) -> Iterator[str]:
        yield f"{printable(path)}: {self.verdict}"
        for pickle in self.pickles:
            yield _cut(f"  {printable(pickle.name)}")
            for found in sorted(pickle.globals, key=lambda g: -_VERDICTS.index(g.verdict)):
                yield _cut(f"    {found.verdict:<9}  {printable(f'{found.module}.{found.name}')}")
            if pickle.malformed:
                yield f"    malformed  {printable(pickle.malformed)}"
        for problem in self.problems:
            yield f"  {printable(problem)}"
        for note in self.notes:
            yield f"  {note}"
        if not self.pickles and not self.problems:
            yield "  no pickle in it"


def _cut(line: str) -> str:
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…"
