"""`amn plan --target-size`: a type for each weight, and the recipe for them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from anamnesis.base.errors import OutputError
from anamnesis.cli.encoding import what_is_asked
from anamnesis.cli.errors import as_options
from anamnesis.convert.request.kinds import read_target

if TYPE_CHECKING:
    from anamnesis.cli.opening import OpenModel
    from anamnesis.convert.fit.fit import Fit
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
    from anamnesis.cli.batch import run_each
    from anamnesis.cli.waiting import waiting

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
    from anamnesis.base.printable import format_size
    from anamnesis.cli.mix_table import mix_lines

    plan = found.plan
    yield from mix_lines(plan, found.types)
    counts = Counter(found.types.values())
    yield f"Types:       {', '.join(f'{n} {type}' for type, n in counts.most_common())}"
    yield f"Would write: {format_size(plan.n_bytes)}, {plan.bits_per_weight:.4g} bits a weight"
    part = " of a sample" if found.is_sample else ""
    yield f"Error:       {found.error:.5g}, the sum of squared errors{part};"
    yield "             the error of weights is not the quality of a model"
