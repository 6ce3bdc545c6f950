"""`amn remember`: write the weights at full precision."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from anamnesis.cli.options import (
    OpenModel,
    json_option,
    opens_models,
    paths_argument,
    size,
    to_option,
)

if TYPE_CHECKING:
    from anamnesis.convert.result import Report
    from anamnesis.model import Model

__all__ = ["command"]


@click.command("remember")
@paths_argument
@click.option(
    "-o",
    "--output",
    "out",
    metavar="OUT",
    help="Output file, or directory. If not given it lies beside the input: "
    "model-fp8.safetensors becomes model-bf16.safetensors.",
)
@to_option
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
    type=size,
    metavar="SIZE",
    help="Re-shard a directory into files of at most SIZE, such as 5GB.",
)
@opens_models
@click.option(
    "--allow-unknown",
    is_flag=True,
    help="Copy tensors that cannot be decoded as they are stored, and list them.",
)
@json_option
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but warnings and errors.")
def command(
    paths: tuple[str, ...],
    out: str | None,
    dtype: str,
    as_json: bool,
    quiet: bool,
    open_model: OpenModel,
    **options: Any,
) -> None:
    """Dequantise: write weights at full precision, exactly."""
    from anamnesis.cli.batch import finish, run_batch
    from anamnesis.cli.errors import complain
    from anamnesis.cli.narration import warnings
    from anamnesis.convert.naming import OutputNames

    _check_level()
    names = OutputNames(dtype, out, paths)

    def work(path: str) -> dict[str, Any]:
        with open_model(path) as model:
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
    finish(n_failed)


def _remember_aloud(model: Model, output: str, dtype: str, options: dict[str, Any]) -> Report:
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
