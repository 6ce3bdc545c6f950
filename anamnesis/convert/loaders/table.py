"""Which program loads which encoding of which kind of model, with the proof.

A row of table.json is of some programs, encodings (`@ct` is several, listed there) and kinds; `any`
is every kind that has no row of its own. The pages and the tests read these rows too:
docs/loading.md is made of them, and tests/convert/test_loads_table.py runs the programs for each.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Literal, NamedTuple

from anamnesis.base.plain_json import json_table
from anamnesis.schemes.libraries.stacks import OF_MIXTRAL

Outcome = Literal["loads", "otherwise", "refuses", "wrong", "unwritten"]

ANY = "any"


class Program(NamedTuple):
    """A program, and the version that was run or read; empty if none was."""

    title: str
    version: str


class Cell(NamedTuple):
    """How a program treats some encodings."""

    program: str
    encodings: tuple[str, ...]
    kind: str
    outcome: Outcome
    proof: str
    why: str = ""
    instead: str = ""
    needs: str = ""


_TABLE = json_table(__file__)
PROGRAMS = {name: Program(**row) for name, row in _TABLE["programs"].items()}
KINDS: dict[str, str] = _TABLE["kinds"]
# What quantises to encodings that are not written, by their first word; and to layouts of codes.
QUANTISED_BY: dict[str, str] = _TABLE["quantised_by"]
LAYOUTS: dict[str, str] = _TABLE["layouts"]
# What models of diffusers have that ComfyUI renames as it loads them; of others it has the names.
OF_DIFFUSERS = tuple(frozenset(names.split()) for names in _TABLE["of_diffusers"])
PLACES = frozenset({"mistral", "lone", "elsewhere"})  # kinds by which nothing else matters any more
# Types of models whose experts transformers has as stacks, in files too: it joins no single ones.
SPLIT_BY_TOOLS = frozenset(" ".join(_TABLE["split_by_tools"]).split())
# Types whose experts files have one by one; transformers makes stacks of them as it loads.
ONE_BY_ONE = OF_MIXTRAL | frozenset(" ".join(_TABLE["one_by_one"]).split())


def _named(words: str) -> Iterator[str]:
    """Yield encodings; `@` and a name is several."""
    for word in words.split():
        yield from _named(_TABLE["encodings"][word]) if word.startswith("@") else (word,)


def _cells() -> Iterator[Cell]:
    for row in _TABLE["cells"]:
        programs, kinds = (row.pop(key).split() for key in ("programs", "kinds"))
        encodings = tuple(_named(row.pop("encodings")))
        for program, kind in product(programs, kinds):
            yield Cell(program, encodings, kind, **row)


CELLS = tuple(_cells())
