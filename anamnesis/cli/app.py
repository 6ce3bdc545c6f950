"""The group of all commands, where exceptions become exit codes.

Each command lies in a file of its own, which is imported when it runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from anamnesis.base.version import __version__
from anamnesis.cli.exit_codes import FAILED, INTERRUPTED, ON_FAILURE, WRONG_USAGE

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# In the order of `amn --help`, which imports none of them: the first line of each one's own help.
COMMANDS = {
    "parse": "List the tensors of a model as they are stored.",
    "inspect": "Show the format, schemes and sizes; only headers are read.",
    "remember": "Dequantise: write weights at full precision, exactly.",
    "forget": "Quantise: write weights in FP8, INT8, ...; the loss is measured.",
    "convert": "Write another container, another encoding, or both.",
    "merge": "Add low-rank adapters (LoRA) to the weights of a model.",
    "diff": "Compare two models, in any formats and encodings.",
    "report": "Write a page about a model, or about two side by side.",
    "check": "Check whether a model is whole and sane.",
    "plan": "Show what convert would write: its size, its loss, and what loads it.",
    "commit": "Finish an output whose files were made in parts.",
    "edit": "Change the metadata of files; tensors stay as they lie.",
    "scan": "Show what pickles refer to, and whether that is safe.",
    "demo": "Make a small model to try things with.",
    "env": "Show versions, processor and settings, for bug reports.",
    "completion": "Print the script by which a shell completes words of amn.",
    "help": "Show the help of a command, or of all.",
}
ALIASES = {"ls": "parse", "info": "inspect", "dequantise": "remember", "quantise": "forget"}
ENVIRONMENT = {
    "ANAMNESIS_LEVEL": "the best kernels to use: scalar, avx2, avx512 or neon",
    "ANAMNESIS_TRACEBACK": "1 shows where an error was raised",
    "NO_COLOR": "1 switches colours off, as --color never does",
    "OLLAMA_MODELS": "where Ollama keeps its models",
}
_SPELLINGS = {"dequantize": "dequantise", "quantize": "quantise"}

# Shows help; click before 8.2 has no such error.
_NO_ARGUMENTS = getattr(click.exceptions, "NoArgsIsHelpError", ())

NESTED = "run by another command"  # the `obj` of such a command's context


_MOST_COLUMNS = 80
_NARROW = 60  # columns, below which what a word means stands under it
_WORDS_BESIDE, _WORDS_BELOW = 27, 6  # the columns that words take


class Formatter(click.HelpFormatter):
    """Writes help as wide as the terminal, at most 80 columns."""

    def __init__(self) -> None:
        import shutil

        columns = min(shutil.get_terminal_size().columns, _MOST_COLUMNS)
        super().__init__(width=max(columns - 2, 20))
        self.most_for_words = _WORDS_BELOW if self.width < _NARROW else _WORDS_BESIDE

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int | None = None, col_spacing: int = 2
    ) -> None:
        super().write_dl([*rows], self.most_for_words if col_max is None else col_max, col_spacing)


class _Commands(click.Group):
    """A group whose commands have aliases, and whose failures are one line each."""

    def get_help(self, ctx: click.Context) -> str:
        formatter = Formatter()
        self.format_help(ctx, formatter)
        return formatter.getvalue().rstrip("\n")

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = _SPELLINGS.get(cmd_name, cmd_name)
        name = ALIASES.get(name, name)
        if name in COMMANDS and name not in self.commands:
            self.add_command(import_module(f"anamnesis.cli.{name}").command, name)
        return self.commands.get(name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        is_option = name.startswith("-") and name != "-"
        if not (is_option or ctx.resilient_parsing or self.get_command(ctx, name)):
            if not _is_path(name):
                raise no_such_command(name, ctx)
            args = ["inspect", *args]
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = []
        for name, help in COMMANDS.items():
            names = [name, *(alias for alias, of in ALIASES.items() if of == name)]
            rows.append((", ".join(names), help))
        with formatter.section("Commands"):
            formatter.write_dl(rows)
        with formatter.section("Environment"):
            formatter.write_dl(list(ENVIRONMENT.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        aliases = [name for name in ALIASES if name.startswith(incomplete)]
        return [*super().shell_complete(ctx, incomplete), *map(CompletionItem, aliases)]

    def main(  # type: ignore[override]  # click's has overloads that tell nobody anything
        self, args: Sequence[str] | None = None, *, standalone_mode: bool = True, **extra: Any
    ) -> Any:
        try:
            code = super().main(args, standalone_mode=False, **extra)
        except click.UsageError as error:
            if not standalone_mode:
                raise
            if isinstance(error, _NO_ARGUMENTS):
                error.show()
            else:
                _complain_of_usage(error)
            code = WRONG_USAGE
        except click.Abort:  # Ctrl-C before a command runs
            if not standalone_mode:
                raise
            print("amn: interrupted", file=sys.stderr)
            code = INTERRUPTED
        if standalone_mode:
            sys.exit(code or 0)
        return code

    def invoke(self, ctx: click.Context) -> Any:
        from anamnesis.cli.streams import named_stdout  # not for help

        try:
            with named_stdout():
                done = super().invoke(ctx)
                sys.stdout.flush()  # while a closed pipe is still an error that can be caught
            return done
        except KeyboardInterrupt:
            print(f"amn: interrupted{_left_behind(ctx)}", file=sys.stderr)
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:
            _forget_stdout()
            if ctx.obj is NESTED:  # nobody reads the outer command either
                raise
            ctx.exit(FAILED)
        except (click.ClickException, click.exceptions.Exit):
            raise
        except Exception as error:
            from anamnesis.cli.errors import complain, error_dict, wants_traceback
            from anamnesis.cli.streams import StdoutError, print_json

            if wants_traceback():
                raise
            shown = error_dict(error)
            complain(shown["message"])
            code, as_json = ctx.meta.get(ON_FAILURE, (FAILED, False))
            if as_json and not isinstance(error, StdoutError):
                with suppress(OSError):  # stderr and the exit code say that it fails
                    print_json({"path": shown["file"], "error": shown}, as_json)
            _forget_stdout()
            ctx.exit(code)


def _is_path(word: str) -> bool:
    """Whether a word in the place of a command names a model."""
    from anamnesis.checkpoint.file_names import OLLAMA_PREFIX
    from anamnesis.formats.written import promised_format

    is_path = word == "-" or os.sep in word or "/" in word or word.startswith(OLLAMA_PREFIX)
    return is_path or promised_format(word) is not None or os.path.lexists(word)


def no_such_command(name: str, ctx: click.Context) -> click.UsageError:
    """Return the error for an unknown command, with what does it, or the most similar one."""
    from anamnesis.base.nearest import did_you_mean, mistyped
    from anamnesis.cli.hints import USUAL, VERBS

    hint = VERBS.get(name.lower().replace("_", "-"))
    verbs = () if hint else (*COMMANDS, *ALIASES, *_SPELLINGS)
    alike = [verb for verb in verbs if mistyped(name, [verb])]
    nearest = did_you_mean(name, alike, 1)
    return click.UsageError(f"No such command {name!r}{nearest or f': {hint or USUAL}'}", ctx)


def _left_behind(ctx: click.Context) -> str:
    """Return what an interrupted conversion leaves behind, and what to do with it."""
    from anamnesis.base.printable import printable
    from anamnesis.checkpoint.file_names import UNFINISHED
    from anamnesis.cli.errors import WRITING

    output = (ctx.meta.get(WRITING) or "").rstrip("/")
    partial = next((output + suffix for suffix in UNFINISHED if os.path.isdir(output + suffix)), "")
    if not output or not partial:
        return ""
    return f"; {printable(partial)} has what is done, the same command with --resume finishes it"


def _complain_of_usage(error: click.UsageError) -> None:
    from anamnesis.cli.errors import complain

    if type(error) is click.BadParameter:  # it says itself what to do, of an option that is named
        flag = f"{max(error.param.opts, key=len)}: " if error.param else ""
        complain(" ".join(f"{flag}{error.message}".split()).rstrip("."))
        return
    message = " ".join(error.format_message().split()).rstrip(".").replace(". (", " (")
    command = error.ctx.command_path if error.ctx else "amn"
    complain(f"{message}; see {command} --help")


def _forget_stdout() -> None:
    """Discard further output: the pipe is closed, or the disk is full."""
    with suppress(OSError):
        sys.stdout.flush()
        return
    with suppress(OSError, ValueError):
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, sys.stdout.fileno())
        os.close(devnull)


def _install_completion(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    from anamnesis.cli.completion_scripts import install

    try:
        click.echo(install())
    except OSError as error:
        raise click.UsageError(f"{error.filename}: {error.strerror}", ctx) from None
    ctx.exit()


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="amn COMMAND -h shows the usual options of a command, and --help all, with examples.",
)
@click.option(
    "--install-completion",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_install_completion,
    help="Let your shell complete commands, options and targets.",
)
@click.version_option(__version__, "-V", "-v", "--version", message="anamnesis %(version)s")
def cli() -> None:
    """Parse any tensor format, recover any precision, write any of them.

    A PATH is a model file, a directory of shards as it is on the hub, ollama:NAME[:TAG], or - for
    standard input, which is copied to memory or, above 16 MB, to a temporary file.
    """


def main(args: Sequence[str] | None = None) -> None:
    """Run `amn`; the entry point."""
    import gc

    gc.set_threshold(50_000)  # what is imported is no garbage, and walked again and again
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by whoever started us
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 -- as long as the process
            continue
        # Names may hold what the terminal's encoding has not, or what no encoding has.
        with suppress(AttributeError):
            stream.reconfigure(errors="backslashreplace")
    cli.main(args, prog_name="amn")
