"""The table of a mix that `amn plan` prints: the type of each tensor."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Container, Iterable, Iterator
from math import prod
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from anamnesis.convert.plan.plan import Plan

_FIGURES = "{type:<7}  {size:>8}  {bits:>6}"
_FEWEST = 20  # characters of a name that is cut


class _Row(NamedTuple):
    name: str
    type: str
    size: str
    bits: str
    of: str
    why: str


def mix_lines(plan: Plan, chosen: Container[str] = ()) -> Iterator[str]:
    """Yield a row for each tensor: its name, type and size, and what it is made of.

    A terminal that is too narrow shows the latter of none, and then names that are cut.
    """
    from anamnesis.base.printable import printable

    rows = list(_rows(plan, chosen))
    head = _Row("tensor", "type", "size", "bits", "made of" if plan.names else "", "")
    name, of = _longest(row.name for row in rows), _longest(row.of for row in (head, *rows))
    if sys.stdout.isatty():
        room = shutil.get_terminal_size().columns - 1
        room -= len(_figures(head)) + _longest(row.why for row in rows) + 6
        of = of if name + of + 2 <= room else 0
        name = min(name, max(room, _FEWEST))
    yield ""
    for row in (head, *rows):
        made_of = f"{printable(row.of):<{of}}  " if of else ""
        cut = row.name if len(row.name) <= name else f"{row.name[: name - 1]}…"
        yield f"  {printable(cut):<{name}}  {_figures(row)}  {made_of}{row.why}".rstrip()
    yield ""


def _longest(texts: Iterable[str]) -> int:
    return max(map(len, texts), default=0)


def _figures(row: _Row) -> str:
    return _FIGURES.format(type=row.type, size=row.size, bits=row.bits)


def _rows(plan: Plan, chosen: Container[str]) -> Iterator[_Row]:
    from anamnesis.base.printable import format_size
    from anamnesis.schemes.families.ggml.choose import OWN

    for made in plan.weights():
        name = made.weight.name
        why = plan.why.get(name, "")
        why = "" if why == OWN or name in chosen else why
        for part in made.parts:
            bits = 8 * part.n_bytes / max(prod(part.shape), 1)
            size = format_size(part.n_bytes)
            of = _of(plan.names.get(name, ()))
            yield _Row(part.name, part.dtype.name, size, f"{bits:.4g}", of, why)


def _of(names: tuple[str, ...]) -> str:
    from anamnesis.base.printable import abbreviate

    return abbreviate(names, 1) if names else ""
