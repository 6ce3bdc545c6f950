"""What each tensor of a GGUF becomes in a mix: the table that `amn plan` prints."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Container, Iterator
from math import prod
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from anamnesis.convert.plan.plan import Plan

__all__ = ["mix_lines"]

_FIGURES = "{type:<7}  {size:>8}  {bits:>6}"


class _Row(NamedTuple):
    name: str
    type: str
    size: str
    bits: str
    why: str


def mix_lines(plan: Plan, chosen: Container[str] = ()) -> Iterator[str]:
    """Yield a row for each tensor; names are cut to fit a terminal, and not in a pipe.

    Parameters
    ----------
    plan : Plan
    chosen : container of str, optional
        Weights of which nothing says their types but the size of all.
    """
    from anamnesis.base.printable import printable, shortened

    rows = list(_rows(plan, chosen))
    head = _Row("tensor", "type", "size", "bits", "")
    longest = max((len(row.name) for row in rows), default=0)
    if sys.stdout.isatty():
        beside = len(_figures(head)) + max((len(row.why) for row in rows), default=0) + 4
        longest = min(longest, max(shutil.get_terminal_size().columns - beside - 2, 20))
    yield ""
    for row in (head, *rows):
        name = printable(shortened(row.name, longest))
        yield f"  {name:<{longest}}  {_figures(row)}  {row.why}".rstrip()
    yield ""


def _figures(row: _Row) -> str:
    return _FIGURES.format(type=row.type, size=row.size, bits=row.bits)


def _rows(plan: Plan, chosen: Container[str]) -> Iterator[_Row]:
    from anamnesis.base.sizes import format_size
    from anamnesis.schemes.ggml.choose import OWN

    for made in plan.weights():
        for part in made.parts:
            bits = 8 * part.n_bytes / max(prod(part.shape), 1)
            why = plan.why.get(made.weight.name, "")
            why = "" if why == OWN or made.weight.name in chosen else why
            yield _Row(part.name, part.dtype.name, format_size(part.n_bytes), f"{bits:.4g}", why)
