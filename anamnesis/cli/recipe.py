"""`--recipe`: what a file asks for, as far as no option says otherwise."""

from __future__ import annotations

from typing import Any

import click

from anamnesis.cli.grouped import option


def _take(ctx: click.Context, _: click.Parameter, path: str | None) -> tuple[tuple[str, str], ...]:
    """Make a recipe's options the defaults of the command; return its overrides.

    These stand behind those of the command line, the first of which decides.
    """
    if path is None or ctx.resilient_parsing:
        return ()
    from anamnesis.convert.ask.recipe import read_recipe

    try:
        told: dict[str, Any] = {**read_recipe(path)}
    except OSError as error:
        raise click.BadParameter(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    overrides = told.pop("overrides", {})
    for pairs in ("rename", "override_kv"):
        told[pairs] = list(told.pop(pairs, {}).items())
    ctx.default_map = told
    return tuple(overrides.items())


recipe_option = option(
    "Input",
    "--recipe",
    type=click.Path(),
    metavar="FILE.toml",
    is_eager=True,
    callback=_take,
    help="Take what is not on the command line from a file: to, dtype, drop, [tensors], ...",
    brief="Take options from a file.",
)
