"""How the models that a command line names are opened."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import click

if TYPE_CHECKING:
    from anamnesis.base.limits import ParseLimits
    from anamnesis.model import Model


class OpenModel(NamedTuple):
    """Opens a model by its path and the options."""

    opening: dict[str, Any]
    choice: dict[str, Any]
    limits: ParseLimits | None

    @contextmanager
    def __call__(self, path: str) -> Iterator[Model]:
        """Open a model for the time of a `with` statement."""
        import gc

        from anamnesis.cli.errors import complain
        from anamnesis.cli.inputs import misnomer
        from anamnesis.cli.progress import waiting
        from anamnesis.cli.streams import is_pipe, spooled
        from anamnesis.opening import parse

        opening, choice = self.opening, self.choice
        below = opening["select"] if choice["keep_names"] else None
        if below is not None:
            opening = {**opening, "select": None}
        gc.disable()  # walking a growing header would take a tenth of the time
        try:
            with waiting("Reading"):
                whole = parse(spooled(path) if is_pipe(path) else path, **opening)
        finally:
            gc.enable()
        gc.freeze()  # the header lives as long as the command: do not walk it, not even at exit
        with whole:
            model = _chosen(whole, path, below, choice)
            warning = misnomer(path, model.format_id, model.format)
            if warning:
                complain(warning, "warning")
            yield model


def _chosen(model: Model, path: str, below: str | None, choice: dict[str, Any]) -> Model:
    """Return the weights that --select with --keep-names, --only and --drop leave."""
    drop = choice.get("drop", ())
    if below is None and not (choice["only"] or drop):
        return model
    from glob import escape

    only = _fitting("--only", choice["only"], model, path)
    drop = _fitting("--drop", drop, model, path)
    n = len(model.weights)
    if below is not None:
        model = _selected(model, n, [escape(below.removesuffix("."))])
    return _selected(model, n, only, drop) if only or drop else model


def _selected(model: Model, n: int, only: Sequence[str], exclude: Sequence[str] = ()) -> Model:
    from anamnesis.base.errors import UnsupportedError

    try:
        return model.select(*only, exclude=exclude)
    except ValueError:
        raise UnsupportedError(f"none of the {n:,} weights is selected") from None


def _fitting(name: str, globs: Sequence[str], model: Model, path: str) -> Sequence[str]:
    """Return the globs that match a name; another one is an error, in a batch a warning."""
    from anamnesis.base.errors import UnsupportedError
    from anamnesis.base.patterns import unfitting
    from anamnesis.cli.errors import complain

    unfit = unfitting(globs, list(model))
    paths = click.get_current_context().params.get("paths", ())
    for glob in unfit:
        message = f"{name}: no weight matches {glob!r}"
        if len(paths) == 1 and path in paths:
            raise UnsupportedError(message)
        complain(f"{path}: {message}", "warning")
    # If no glob of --only matches, nothing is taken.
    return globs if name == "--only" else [glob for glob in globs if glob not in unfit]
