"""The commands. They hold no logic: each calls the library, and a module that words its answer."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from anamnesis.base.version import __version__
from anamnesis.cli.batch import complain, describe_error, run_batch, wants_traceback

if TYPE_CHECKING:
    from anamnesis.base.dtypes import DTypeName
    from anamnesis.convert.result import Report
    from anamnesis.model import Model

    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType  # generic only since click 8.2

__all__ = ["cli", "main"]

INTERRUPTED = 130  # what shells report of a process that SIGINT ended

_ALIASES = {"info": "inspect", "dequantize": "remember"}


class _Commands(click.Group):
    """A group whose commands have second names, and whose failures are one line each."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, _ALIASES.get(cmd_name, cmd_name))

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)  # as declared, not by the alphabet

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        aliases = {name: f"{name}, {alias}" for alias, name in _ALIASES.items()}
        rows = [
            (aliases.get(name, name), self.commands[name].get_short_help_str(limit=70))
            for name in self.list_commands(ctx)
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            remedy = "; the same command with --resume finishes it"
            resumable = ctx.invoked_subcommand in ("remember", "dequantize")
            print(f"amn: interrupted{remedy if resumable else ''}", file=sys.stderr)
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:
            _forget_stdout()
            ctx.exit(1)
        except (click.ClickException, click.exceptions.Exit):
            raise
        except Exception as error:
            if wants_traceback():
                raise
            complain(describe_error(error))
            _forget_stdout()
            ctx.exit(1)


def _flush_stdout() -> None:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OSError(error.errno, error.strerror, "stdout") from None


def _forget_stdout() -> None:
    """Let nothing more go to a pipe that is closed or a disk that is full, not even at exit."""
    with suppress(OSError):
        sys.stdout.flush()
        return
    with suppress(OSError, ValueError):
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, sys.stdout.fileno())
        os.close(devnull)


class _Parsed(_ParamType):
    """An option whose text a function turns into a value, or refuses with ValueError."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _dtype(text: str) -> str:
    """Return the short name of an output dtype, also for the names that other tools have for it."""
    from anamnesis.base.dtypes import OUTPUT_DTYPES, output_dtype

    wanted = output_dtype(text.lower().replace("fp", "f"))
    return next(short for short, dtype in OUTPUT_DTYPES.items() if dtype is wanted)


def _void(text: str) -> str:
    from anamnesis.base.dtypes import stored_dtype

    return stored_dtype(text).name


def _size(text: str) -> int:
    from anamnesis.base.sizes import parse_size

    return parse_size(text)


def _block(text: str) -> tuple[int, int]:
    sides = text.lower().split("x")
    if len(sides) != 2 or not all(
        s.isdecimal() and 0 < int(s) < 2**31 for s in sides if len(s) < 11
    ):
        raise ValueError(f"{text!r} is not rows x columns, like 128x128")
    return int(sides[0]), int(sides[1])


_paths = click.argument("paths", metavar="PATH...", nargs=-1, required=True)
_to = click.option(
    "--to",
    "dtype",
    type=_Parsed("dtype", _dtype),
    default="bf16",
    metavar="bf16|f16|f32",
    help="Dtype of dequantised weights. [default: bf16]",
)
_json = click.option(
    "--json", "as_json", is_flag=True, help="Write JSON to stdout; NaN and infinities are strings."
)
_block_size = click.option(
    "--block-size",
    type=_Parsed("block size", _block),
    metavar="RxC",
    help="Rows and columns that share a scale, where neither shapes nor config tell.",
)
_conv1d = click.option(
    "--conv1d/--no-conv1d",
    default=None,
    help="Whether layers called as GPT-2's are Conv1D, where no config.json tells.",
)


_select = click.option(
    "--select", metavar="PREFIX", help="Take only the tensors below this name: model_state, ..."
)
_allow_foreign = click.option(
    "--allow-foreign", is_flag=True, help="Read pickles that refer to other code; it never runs."
)

_void_dtype = click.option(
    "--void-dtype",
    type=_Parsed("dtype", _void),
    metavar="DTYPE",
    help="What NumPy arrays of raw bytes (V1, V2) hold: F8_E4M3, ...",
)


def _opening(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say how an input is opened."""
    return _select(_allow_foreign(_void_dtype(command)))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", message="anamnesis %(version)s")
def cli() -> None:
    """Parse any tensor format, recover any precision.

    A PATH is a model file, a directory of shards as it is on the hub, or ollama:NAME[:TAG].
    """


@cli.command()
@_paths
@click.option("--metadata", is_flag=True, help="List also what the file says of itself.")
@_opening
@_json
def parse(paths: tuple[str, ...], metadata: bool, as_json: bool, **opening: Any) -> None:
    """List the tensors of a model as they are stored."""
    from anamnesis.cli.listing import listing, listing_dict

    width = _terminal_width()

    def work(path: str) -> dict[str, Any]:
        with _open(path, **opening) as model:
            if as_json:
                return listing_dict(model)
            for line in listing(model, path, width, metadata=metadata):
                print(line)
        return {}

    _finish(run_batch(paths, work, as_json=as_json, headings=True))


def _terminal_width() -> int | None:
    """Return the columns of the terminal; None where nothing is to be folded."""
    if not sys.stdout.isatty():
        return None
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except OSError:
        return None


@cli.command()
@_paths
@_to
@_block_size
@_conv1d
@_opening
@_json
def inspect(paths: tuple[str, ...], dtype: DTypeName, as_json: bool, **opening: Any) -> None:
    """Show the format, schemes and sizes; only headers are read."""

    def work(path: str) -> dict[str, Any]:
        with _open(path, **opening) as model:
            inspection = model.inspect(dtype)
        if as_json:
            return inspection.to_dict()
        print(inspection)
        return {}

    _finish(run_batch(paths, work, as_json=as_json, headings=True))


@cli.command()
@_paths
@click.option(
    "-o",
    "--output",
    "out",
    metavar="OUT",
    help="Output file, or directory. If not given it lies beside the input: "
    "model-fp8.safetensors becomes model-bf16.safetensors.",
)
@_to
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    metavar="N",
    help="Threads. [default: all CPUs, up to 8]",
)
@click.option("--force", is_flag=True, help="Replace an output that exists.")
@click.option(
    "--resume", is_flag=True, help="Finish a run that was killed; the bytes are the same."
)
@click.option("--sync", is_flag=True, help="Flush to disk before exiting (slower).")
@click.option("--cast-all", is_flag=True, help="Cast also floats that are not quantised.")
@click.option(
    "--max-shard-size",
    type=_Parsed("size", _size),
    metavar="SIZE",
    help="Re-shard a directory into files of at most SIZE, such as 5GB.",
)
@_block_size
@_conv1d
@_opening
@click.option(
    "--allow-unknown",
    is_flag=True,
    help="Copy tensors that cannot be decoded as they are stored, and list them.",
)
@_json
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but warnings and errors.")
def remember(
    paths: tuple[str, ...],
    out: str | None,
    dtype: DTypeName,
    block_size: tuple[int, int] | None,
    conv1d: bool | None,
    select: str | None,
    allow_foreign: bool,
    void_dtype: str | None,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Dequantise: write weights at full precision, exactly."""
    from anamnesis.cli.narration import warnings
    from anamnesis.convert.naming import OutputNames

    _check_level()
    names = OutputNames(dtype, out, paths)
    opening = {
        "block_size": block_size,
        "conv1d": conv1d,
        "select": select,
        "allow_foreign": allow_foreign,
        "void_dtype": void_dtype,
    }

    def work(path: str) -> dict[str, Any]:
        with _open(path, **opening) as model:
            output = names.of(path)
            if as_json or quiet:
                report = model.remember(output, dtype, **options)
            else:
                report = _remember_aloud(model, output, dtype, options)
        if quiet and not as_json:
            for warning in warnings(report):
                complain(warning, "warning")
        return _report_dict(report)

    n_failed = run_batch(paths, work, as_json=as_json, headings=not quiet)
    if len(paths) > 1 and not (as_json or quiet):
        failed = f", {n_failed:,} failed" if n_failed else ""
        print(f"\n{len(paths) - n_failed:,} of {len(paths):,} remembered{failed}")
    _finish(n_failed)


def _remember_aloud(model: Model, output: str, dtype: DTypeName, options: dict[str, Any]) -> Report:
    """Convert, and say on stdout what is done; how far it is goes to stderr."""
    from anamnesis.cli import narration
    from anamnesis.cli.progress import metered

    inspection = model.inspect(dtype)
    for line in narration.parsed_lines(inspection):
        print(line, flush=True)
    label = narration.recalling(inspection)
    with metered(label, sys.stderr) as meter:
        report = model.remember(output, dtype, progress=meter, **options)
    print(narration.recalled_line(label, report))
    print(narration.output_line(output, report))
    for line in narration.account_lines(report, model.stored):
        print(line)
    return report


def _report_dict(report: Report) -> dict[str, Any]:
    """Return the report, with the path under a name that leaves `path` to the input."""
    told = report.to_dict()
    return {"output": told.pop("path"), **told}


def _check_level() -> None:
    from anamnesis.base.levels import LEVEL_VARIABLE, resolve_level

    try:
        resolve_level()
    except ValueError as error:
        raise click.UsageError(f"{LEVEL_VARIABLE}: {error}") from None


@cli.command()
@click.argument("paths", metavar="FILE...", nargs=-1, required=True)
@_json
def scan(paths: tuple[str, ...], as_json: bool) -> None:
    """Show what pickles refer to, and whether that is safe.

    Nothing of them is executed. Exit code 0 if all are safe (they rebuild tensors, no more), 1 if
    any is not, 2 if any cannot be read.
    """
    from anamnesis.checkpoint.file_names import OLLAMA_PREFIX
    from anamnesis.checkpoint.ollama import resolve
    from anamnesis.formats.scan.scan import scan as scan_file

    verdicts = set()

    def work(path: str) -> dict[str, Any]:
        result = scan_file(resolve(path) if path.startswith(OLLAMA_PREFIX) else path)
        verdicts.add(result.verdict)
        if as_json:
            return result.to_dict()
        for line in result.lines(path):
            print(line)
        return {}

    n_failed = run_batch(paths, work, as_json=as_json)
    _flush_stdout()
    if n_failed or verdicts - {"safe"}:
        click.get_current_context().exit(2 if n_failed else 1)


@cli.command()
@click.argument("directory", default=".", metavar="[DIRECTORY]")
def demo(directory: str) -> None:
    """Make a small FP8 checkpoint, remember it, check it.

    It writes model-fp8.safetensors and model-bf16.safetensors, and compares every byte with what
    numpy and ml_dtypes compute. Exit code 1 if anything differs.
    """
    from anamnesis.cli.demo import run_demo

    _finish(0 if run_demo(directory) else 1)


def _open(path: str, **opening: Any) -> Model:
    from anamnesis.cli.misnomer import misnomer
    from anamnesis.model import parse

    gc.disable()  # a tenth of the time would go into walking a header that grows
    model = parse(path, **opening)
    gc.enable()
    gc.freeze()  # it lives as long as the command: nothing for the collector to walk, even at exit
    warning = misnomer(path, model.format_id, model.format)
    if warning:
        complain(warning, "warning")
    return model


def _finish(n_failed: int) -> None:
    """Exit with 1 if anything failed; writing to stdout may be what did, so not before it is."""
    _flush_stdout()
    if n_failed:
        click.get_current_context().exit(1)


def main(args: Sequence[str] | None = None) -> None:
    """Run `amn`; the entry point."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by whoever started us
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 -- as long as the process
            continue
        # Names may hold what the terminal's encoding has not, or what no encoding has.
        with suppress(AttributeError):
            stream.reconfigure(errors="backslashreplace")
    cli.main(args, prog_name="amn")
