"""How a command shows its options: the usual ones by -h, all by --help."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import click

from anamnesis.cli.app import Formatter

ARGUMENTS = "anamnesis.arguments"  # key of a command's own words, in a context
_OUTTYPE = re.compile(r"(^|\0)--outtype[=\0](gguf-)?")
_GROUPS = ("Input", "Output", "What is encoded", "Quality", "GGUF", "Limits", "Run")


class Option(click.Option):
    """An option of a group."""

    def __init__(
        self,
        *args: Any,
        group: str,
        brief: str | None = None,
        quiet: Sequence[str] = (),
        **settings: Any,
    ) -> None:
        super().__init__(*args, **settings)
        self.group = group
        self.brief = brief
        self.quiet = quiet

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        shown = self.opts
        self.opts = [*shown, *self.quiet]
        try:
            super().add_to_parser(parser, ctx)
        finally:
            self.opts = shown


class Command(click.Command):
    """A command whose options are shown in groups."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **{"add_help_option": False, **settings})
        shown = Option(
            ["-h/--help", "help"],
            group="Run",
            default=None,
            is_eager=True,
            expose_value=False,
            callback=_show_help,
            help="Show the usual options; or all of them, and examples.",
            brief="Show this; or all options, and examples.",
        )
        self.params.append(shown)

    def get_help(self, ctx: click.Context) -> str:
        formatter = Formatter()
        self.format_help(ctx, formatter)
        return formatter.getvalue().rstrip("\n")

    def usual_help(self, ctx: click.Context) -> str:
        """Return the short help, on one screen."""
        formatter = Formatter()
        self.format_usage(ctx, formatter)
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text((self.help or "").partition("\n")[0])
        self._write_groups(ctx, formatter, briefly=True)
        return formatter.getvalue().rstrip("\n")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self._write_groups(ctx, formatter, briefly=False)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.epilog:
            formatter.write_paragraph()
            formatter.write_text(self.epilog)

    def _write_groups(self, ctx: click.Context, formatter: Any, *, briefly: bool) -> None:
        rows = {
            title: [row for each in options if (row := _row(each, ctx, briefly=briefly))]
            for title, options in self.groups()
        }
        names = [len(name) for group in rows.values() for name, _ in group]
        width = min(formatter.most_for_words, max(names))  # one for all groups
        for title, group in rows.items():
            if group:
                with formatter.section(title):
                    padded = [(name.ljust(width), text) for name, text in group]
                    formatter.write_dl(padded, col_max=width)

    def groups(self) -> Iterator[tuple[str, list[Option]]]:
        """Yield the groups of options in the order of help."""
        options = [param for param in self.params if isinstance(param, Option)]
        for title in _GROUPS:
            yield title, [each for each in options if each.group == title]

    def names(self) -> list[str]:
        """Return the names of all options that help shows."""
        options = [option for _, group in self.groups() for option in group if not option.hidden]
        return [name for option in options for name in (*option.opts, *option.secondary_opts)]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[ARGUMENTS] = list(args)
        if any(word.startswith("--outtype") for word in args):  # as llama.cpp's converter has it
            args = _OUTTYPE.sub(r"\1--to=gguf-", "\0".join(args)).split("\0")
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            from anamnesis.base.nearest import did_you_mean
            from anamnesis.cli.hints import OPTIONS

            name, others = error.option_name, _verbs_with(error.option_name, ctx.parent)
            what = f", which {others} has" if others else ""
            if not others and name in OPTIONS:
                what = f": {OPTIONS[name]}"
            what = what or did_you_mean(name, self.names(), marks="-")
            raise click.UsageError(f"No such option {name!r}{what}", ctx) from None


def _verbs_with(name: str, ctx: click.Context | None) -> str:
    """Return the other commands that have an option, as text; empty if none has."""
    if ctx is None or not isinstance(ctx.command, click.Group):
        return ""
    group = ctx.command
    commands = {verb: group.get_command(ctx, verb) for verb in group.list_commands(ctx)}
    found = [
        f"{ctx.command_path} {verb}"
        for verb, command in commands.items()
        if isinstance(command, Command) and name in command.names()
    ]
    return " or ".join(", ".join(found).rsplit(", ", 1))


def _show_help(ctx: click.Context, _: click.Parameter, usual: bool | None) -> None:
    if usual is None or ctx.resilient_parsing:
        return
    command = ctx.command
    assert isinstance(command, Command)
    click.echo(command.usual_help(ctx) if usual else command.get_help(ctx))
    ctx.exit()


def _row(option: Option, ctx: click.Context, *, briefly: bool) -> tuple[str, str] | None:
    """Return an option's names and help; None if it is not shown."""
    record = option.get_help_record(ctx)
    if record is None or (briefly and option.brief is None):
        return None
    return record[0], option.brief if briefly and option.brief else record[1]
