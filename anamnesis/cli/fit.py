"""`amn plan --target-size`, and the table of types that a plan of a mix shows."""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from anamnesis.base.errors import OutputError
from anamnesis.base.printable import abbreviate, printable
from anamnesis.base.sizes import format_size
from anamnesis.cli.encoding import what_is_asked
from anamnesis.cli.errors import as_options
from anamnesis.convert.request.kinds import read_target

if TYPE_CHECKING:
    from anamnesis.cli.options import OpenModel
    from anamnesis.convert.fit.fit import Fit
    from anamnesis.convert.plan.plan import Plan
    from anamnesis.convert.request.targets import Target


def run_fit(
    paths: tuple[str, ...],
    to: tuple[Target, ...],
    asked: dict[str, Any],
    recipe: str | None,
    given: dict[str, Any],
    *,
    open_model: OpenModel,
    as_json: bool,
) -> None:
    """Choose types, show them, and write or print the recipe."""
    from anamnesis.cli.inputs import run_each
    from anamnesis.cli.progress import waiting

    _check(to, asked, recipe)
    types = [word.strip() for word in (asked["types"] or "k").split(",")]
    asked |= {"types": types, "least": dict(asked["least"]), "most": dict(asked["most"])}
    _, options = what_is_asked(read_target("gguf-q8_0"), given, None)  # as of any type of blocks

    def work(path: str) -> dict[str, Any]:
        with open_model(path) as model:
            try:
                with waiting("Measuring"):
                    found = model.fit(**asked, **options)
            except ValueError as error:
                raise as_options(error) from None
        text = found.recipe()
        if recipe is not None:
            with open(recipe, "x", encoding="utf-8") as file:
                file.write(text)
        if as_json:
            figures = {"error": found.error, "types": found.types, "errors": found.errors}
            return {**found.plan.to_dict(), **figures, "recipe": text}
        for line in _lines(found):
            print(line)
        print(f"\n{text.rstrip()}" if recipe is None else f"Recipe:      {recipe}")
        return {}

    run_each(paths, work, as_json=as_json)


def _check(to: tuple[Target, ...], asked: dict[str, Any], recipe: str | None) -> None:
    """Refuse options that do not go together; take out those that only say so."""
    if [target.text for target in to] != ["gguf"]:
        raise click.UsageError(
            "--target-size and --target-bpw choose types by themselves: --to gguf"
        )
    if (asked["target_size"] is None) == (asked["target_bpw"] is None):
        raise click.UsageError("give one of --target-size and --target-bpw")
    if asked.pop("sample") is not None or not asked.pop("loss"):
        raise click.UsageError(
            "--target-size and --target-bpw measure some values of each weight, or all with --full"
        )
    if recipe is not None and os.path.exists(recipe):
        raise OutputError(f"{recipe}: exists already; name another file")


def _lines(found: Fit) -> Iterator[str]:
    """Yield the chosen types, and what they cost."""
    plan = found.plan
    yield from mix_lines(plan, found.types)
    counts = Counter(found.types.values())
    yield f"Types:       {', '.join(f'{n} {type}' for type, n in counts.most_common())}"
    yield f"Would write: {format_size(plan.n_bytes)}, {plan.bits_per_weight:.4g} bits a weight"
    part = " of a sample" if found.is_sample else ""
    yield f"Error:       {found.error:.5g}, the sum of squared errors{part};"
    yield "             the error of weights is not the quality of a model"


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
    from anamnesis.schemes.families.ggml.choose import OWN

    for made in plan.weights():
        name = made.weight.name
        why = plan.why.get(name, "")
        why = "" if why == OWN or name in chosen else why
        for part in made.parts:
            bits = 8 * part.n_bytes / max(prod(part.shape), 1)
            size = format_size(part.n_bytes)
            made_of = plan.names.get(name)
            of = abbreviate(made_of, 1) if made_of else ""
            yield _Row(part.name, part.dtype.name, size, f"{bits:.4g}", of, why)
