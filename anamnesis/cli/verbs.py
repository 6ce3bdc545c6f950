"""Commands: their options, made from the table of all, and how they open models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import click

from anamnesis.base.errors import UnsupportedError
from anamnesis.base.patterns import unfitting
from anamnesis.cli.exit_codes import FAILED, ON_FAILURE
from anamnesis.cli.grouped import Command, Option
from anamnesis.cli.streams import COLOUR, is_pipe, spooled
from anamnesis.convert.request import options as table
from anamnesis.convert.request.kinds import Kind

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from anamnesis.base.limits import ParseLimits
    from anamnesis.model import Model

    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType  # generic only since click 8.2

_Function: TypeAlias = Callable[..., None]
_EXIT_CODES = (
    "0 if all went well, 1 if anything failed,",
    "2 for wrong usage, 130 after Ctrl-C",
)


def verb(
    name: str,
    *examples: str,
    exit_codes: Sequence[str] = _EXIT_CODES,
    on_failure: int = FAILED,
) -> Callable[[_Function], click.Command]:
    """Return the decorator that makes a command of a function, with all options of a verb.

    What says how inputs are opened comes as `open_model`, or where only limits do, as `limits`.
    A command that fails exits with `on_failure`.
    """
    options = table.options_of(name)

    def made(function: _Function) -> click.Command:
        @wraps(function)
        def run(**given: Any) -> None:
            click.get_current_context().meta[ON_FAILURE] = on_failure, given.get("as_json", False)
            if "untrusted" in options:
                given["limits"] = _limits(name, given)
            if "select" in options:
                limits = given.pop("limits")
                chosen = {each: given.pop(each) for each in table.options_of(name, "select")}
                opening = {each: given.pop(each) for each in table.options_of(name, "parse")}
                given["open_model"] = OpenModel(opening | {"limits": limits}, chosen)
            if "out" in options:
                _place(name, given)
            function(**given)

        sections = {"Examples": examples, "Exit codes": exit_codes}
        epilog = "\n\n".join(
            "\n".join(["\b", f"{title}:", *(f"  {line}" for line in lines)])
            for title, lines in sections.items()
        )
        found = click.command(name, cls=Command, epilog=epilog)(run)
        rows = table.rows_of(name)
        flags = {flag for row in rows for flag in row.flags.split()}
        found.params[-1:-1] = [_click_option(row, name, flags) for row in rows]  # before -h
        if "untrusted" in options:
            # click.Path only so that shells complete names of files; with --list there may be none.
            settings: dict[str, Any] = {"metavar": "PATH...", "nargs": -1, "type": click.Path()}
            paths = click.Argument(["paths"], required="lists" not in options, **settings)
            found.params.insert(0, paths)
        return found

    return made


def _limits(verb: str, given: dict[str, Any]) -> ParseLimits | None:
    """Take what limits are asked for out of a command's options; return them, if there are any."""
    untrusted = given.pop("untrusted")
    asked = {name: given.pop(name) for name in table.options_of(verb, "limits")}
    asked = {name: value for name, value in asked.items() if value is not None}
    if not (untrusted or asked):
        return None
    from dataclasses import replace

    from anamnesis.base.limits import ParseLimits

    return replace(ParseLimits.untrusted() if untrusted else ParseLimits(), **asked)


def _place(verb: str, given: dict[str, Any]) -> None:
    """Tell inputs, a target and the output apart where they follow each other."""
    paths, to, out = given["paths"], given["to"], given["out"]
    if out is not None and out.startswith("--"):
        raise click.UsageError(
            f"-o: a name is missing before {out}; a file of that name is ./{out}"
        )
    if len(paths) > 1 and not given.get("lists"):
        from anamnesis.cli.places import placed

        read = table.options_of(verb)["to"].kind.read
        needs_target = verb not in ("remember", "merge")
        paths, to, out = placed(paths, to, out, read, needs_target=needs_target)
    placed_as = {"paths": paths, "to": to, "out": out}
    click.get_current_context().params.update(placed_as)
    given.update(placed_as)


# --- from rows of the table to click's options ------------------------------------------------


def _click_option(row: table.Option, verb: str, flags: set[str]) -> Option:
    settings: dict[str, Any] = {"metavar": row.kind.metavar, "multiple": row.kind.many}
    if row.kind.value is None:
        settings["type"] = _type(row)
    elif "/" not in row.flags:
        settings |= {"is_flag": True, "flag_value": row.kind.value}
    if row.default is not None or row.kind.value is not True or "/" in row.flags:
        settings["default"] = row.default
    if row.name == "recipe":
        settings |= {"is_eager": True, "callback": _take_recipe}
    if row.name == "color":
        settings |= {"is_eager": True, "expose_value": False, "callback": _take_colour}
    if row.name == "to":
        settings |= {"multiple": True, "callback": _all if verb == "plan" else _only}
    usual = not row.usual or verb in row.usual
    return Option(
        [*row.flags.split(), row.name],
        group=row.group,
        help=row.help,
        brief=(row.brief or row.help) if row.brief is not None and usual else None,
        quiet=[flag for flag in row.quiet.split() if flag not in flags],
        hidden=row.hidden,
        **settings,
    )


def _type(row: table.Option) -> click.ParamType[Any]:
    if row.kind.path is not None:
        must: dict[str, Any] = {**row.kind.path}
        return click.Path(**must)
    if row.kind.choices:
        return click.Choice(row.kind.choices)
    return _Parsed(row)


class _Parsed(_ParamType):
    """The type of an option whose kind reads its text."""

    def __init__(self, row: table.Option) -> None:
        self.name = row.name
        self._kind: Kind = row.kind

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        before, comma, last = incomplete.rpartition(",")
        found = [value for value in self._kind.listed() if value.startswith(last)]
        return [CompletionItem(f"{before}{comma}{value}") for value in found]

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._kind.read(value)
        except ValueError as error:
            from anamnesis.base.nearest import UnknownWord
            from anamnesis.cli.errors import in_options

            remedy = "; amn convert --list shows all" if isinstance(error, UnknownWord) else ""
            self.fail(f"{in_options(str(error))}{remedy}", param, ctx)


def _take_colour(ctx: click.Context, _: click.Parameter, given: str | None) -> None:
    if given is not None:
        ctx.meta[COLOUR] = given


def _all(_: click.Context, __: click.Parameter, given: tuple[tuple[Any, ...], ...]) -> Any:
    """Return all targets of an option that lists some, and may be repeated."""
    return tuple(dict.fromkeys(one for some in given for one in some)) or None


def _only(ctx: click.Context, param: click.Parameter, given: tuple[Any, ...]) -> Any:
    """Return the one value of an option that may be repeated, but not contradict itself."""
    first, *others = given or (None,)
    if any(other != first for other in others):
        each = " and ".join(str(getattr(one, "text", one)) for one in given)
        message = f"takes one target, not {each}; amn plan compares several"
        raise click.BadParameter(message, ctx, param)
    return first


def _take_recipe(
    ctx: click.Context, _: click.Parameter, path: str | None
) -> tuple[tuple[str, str], ...]:
    """Make a recipe's options the defaults of the command; return its overrides.

    These stand behind those of the command line, the first of which decides.
    """
    if path is None or ctx.resilient_parsing:
        return ()
    from anamnesis.convert.request.recipe import read_recipe

    try:
        given: dict[str, Any] = {**read_recipe(path)}
    except OSError as error:
        raise click.BadParameter(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    overrides = given.pop("overrides", {})
    for row in table.OPTIONS:
        if row.kind.many and row.kind.is_table and row.name in given:
            given[row.name] = list(given[row.name].items())
    if "to" in given:
        given["to"] = [given["to"]]
    ctx.default_map = given
    return tuple(overrides.items())


# --- what a command line must have --------------------------------------------------------------


def needs(paths: tuple[str, ...], name: str, value: object, why: str | None = None) -> None:
    """Refuse a command line without paths or without an option; `why` explains the latter."""
    context = click.get_current_context()
    given = {"paths": bool(paths), name: value is not None}
    for param in context.command.params:
        if not given.get(param.name or "", True):
            message = why if param.name == name else None
            raise click.MissingParameter(message, ctx=context, param=param)


class OpenModel(NamedTuple):
    """Opens a model by its path and the options."""

    opening: dict[str, Any]
    choice: dict[str, Any]

    @contextmanager
    def __call__(self, path: str) -> Iterator[Model]:
        """Open a model for the time of a `with` statement."""
        import gc

        from anamnesis.cli.errors import complain
        from anamnesis.cli.inputs import misnomer
        from anamnesis.cli.progress import waiting
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
    try:
        return model.select(*only, exclude=exclude)
    except ValueError:
        raise UnsupportedError(f"none of the {n:,} weights is selected") from None


def _fitting(name: str, globs: Sequence[str], model: Model, path: str) -> Sequence[str]:
    """Return the globs that match a name; another one is an error, in a batch a warning."""
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
