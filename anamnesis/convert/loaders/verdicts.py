"""Which programs load an output, by the table, and what writes what we do not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import NamedTuple

from anamnesis.convert.loaders.output_facts import IMAGES, IMAGES_IN_ROWS, Facts
from anamnesis.convert.loaders.table import ANY, CELLS, PLACES, PROGRAMS, Cell, Outcome

_OTHERS = {
    "exl2": "exllamav2",
    "exl3": "exllamav3",
    "hqq": "hqq",
    "aqlm": "aqlm",
    "vptq": "vptq",
    "quanto": "optimum-quanto",
    "torchao": "torchao",
    "mxfp6": "Quark",
}
_LAYOUTS = {
    "int8-packed-32": "int8 does",
    "fp8-tensor-modelopt": "fp8-tensor does, and its codes can be moved there",
    "fp8-tensor-mistral": "fp8-tensor does, and its codes can be moved there",
    "gguf-mxfp4": "gguf-mxfp4_moe does",
    "gguf-nvfp4": "mlx-nvfp4 does, and its codes can be moved there",
}


def absent(name: str) -> str | None:
    """Return why an encoding is not written; None if the name is unknown."""
    tool = next((who for word, who in _OTHERS.items() if name.lower().startswith(word)), None)
    return None if tool is None else f"amn does not quantise to {name} yet; {tool} does"


def who_quantises(layout: str) -> str:
    """Return the tool that quantises to a layout for moved codes only."""
    return absent(layout) or _LAYOUTS.get(layout, "use an encoding that does")


__all__ = ["Verdict", "cell", "loaders", "otherwise", "verdicts", "warnings"]

_WORST: dict[Outcome, int] = {"loads": 0, "unwritten": 1, "refuses": 2, "wrong": 3}
_LLAMA_CPP = "llama.cpp"
_OF_IMAGES = (IMAGES, IMAGES_IN_ROWS)  # which nobody expects of a program of texts


class Verdict(NamedTuple):
    """Whether a program loads an output.

    Attributes
    ----------
    program : str
        With what it needs beside.
    outcome : str
        `loads`, `refuses`, `otherwise`: it computes something else with the same values; or
        `wrong`: it loads other values without an error.
    why, instead : str
        What is in the way, and what works; arguments stand with a value, as in errors' remedies.
    warns : bool
        Whether the end of a run warns of it.
    """

    program: str
    outcome: Outcome
    why: str = ""
    instead: str = ""
    warns: bool = False

    def __str__(self) -> str:
        return sentence([self.program], self.outcome, self.why, self.instead)

    def to_dict(self) -> dict[str, str]:
        return {name: getattr(self, name) for name in ("program", "outcome", "why", "instead")}


@cache
def _rows() -> dict[tuple[str, str, str], Cell]:
    """Return the rows by program, encoding and kind; later rows replace earlier ones."""
    return {(row.program, name, row.kind): row for row in CELLS for name in row.encodings}


def cell(program: str, encoding: str, kind: str) -> Cell | None:
    """Return the row of a cell; None if the program does not know the encoding."""
    rows = _rows()
    return rows.get((program, encoding, kind)) or rows.get((program, encoding, ANY))


def verdicts(facts: Facts) -> tuple[Verdict, ...]:
    """Return what each program makes of an output that knows all of its encodings."""
    found = []
    for program in PROGRAMS:
        rows = [_of(program, name, facts.kinds) for name in facts.encodings]
        if rows and all(rows):
            worst = max((row for some in rows for row in some), key=lambda row: _WORST[row.outcome])
            found.append(_verdict(worst))
    return tuple(found)


def otherwise(found: Sequence[Verdict], why: Sequence[str]) -> tuple[Verdict, ...]:
    """Return verdicts, with what llama.cpp computes otherwise."""
    otherwise = [Verdict(_LLAMA_CPP, "otherwise", one, warns=True) for one in why]
    hides = bool(otherwise)
    rest = [one for one in found if not (hides and one[:2] == (_LLAMA_CPP, "loads"))]
    return (*rest, *otherwise)


def _of(program: str, encoding: str, kinds: Iterable[str]) -> list[Cell]:
    """Return the rows of all kinds; the row of any kind, where a kind has none."""
    rows = _rows()
    own = [rows[key] for kind in sorted(kinds) if (key := (program, encoding, kind)) in rows]
    own = [row for row in own if row.outcome != "unwritten"]  # such an output is never written
    usual = rows.get((program, encoding, ANY))
    return [row for row in own if row.kind in PLACES] or own or ([usual] if usual else [])


def _verdict(row: Cell) -> Verdict:
    title = PROGRAMS[row.program].title
    needs = f" (with {row.needs})" if row.needs and row.outcome == "loads" else ""
    # People expect a program to load an encoding that it has a library for.
    is_expected = row.kind not in (ANY, *_OF_IMAGES) or bool(row.needs)
    warns = row.outcome == "wrong" or (row.outcome == "refuses" and is_expected)
    outcome: Outcome = "refuses" if row.outcome == "unwritten" else row.outcome
    return Verdict(f"{title}{needs}", outcome, row.why, row.instead, warns)


def warnings(found: Sequence[Verdict]) -> tuple[str, ...]:
    """Return a sentence, with its programs, for each reason that a user must know."""
    by_reason: dict[tuple[Outcome, str, str], list[str]] = {}
    for one in found:
        if one.warns:
            by_reason.setdefault((one.outcome, one.why, one.instead), []).append(one.program)
    return tuple(
        sentence(programs, outcome, why, instead)
        for (outcome, why, instead), programs in by_reason.items()
    )


def sentence(programs: Sequence[str], outcome: Outcome, why: str, instead: str) -> str:
    """Return a sentence: why programs do not load an output, and what they load."""
    *first, last = programs
    who = f"{', '.join(first)} and {last}" if first else last
    if outcome == "otherwise":
        return f"{who} computes this otherwise: {why}"
    do = "do" if first else "does"
    verb = f"load{'' if first else 's'} this wrong, without an error"
    text = f"{who} {verb if outcome == 'wrong' else f'{do} not load this'}: {why}"
    return f"{text}; {instead}" if instead else text


def loaders(encoding: str) -> str:
    """Return the programs that load an encoding of linear layers, for a listing."""
    found = []
    for program in PROGRAMS:
        some = [row for row in CELLS if row.program == program and encoding in row.encodings]
        some = [row for row in some if row.kind not in _OF_IMAGES]
        usual = cell(program, encoding, "dense")
        rows = [usual] if usual is not None and usual.outcome != "unwritten" else some
        found += [_verdict(row).program for row in rows if row.outcome == "loads"][:1]
    return ", ".join(found)
