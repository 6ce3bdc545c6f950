"""`amn remember`: write the weights at full precision."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from anamnesis.cli.options import (
    OpenModel,
    described,
    json_option,
    opens_models,
    paths_argument,
    recursive_option,
    size,
    to_option,
    whole_number,
)

if TYPE_CHECKING:
    from anamnesis.base.dtypes import DTypeName
    from anamnesis.cli.narration import Narrator
    from anamnesis.convert.naming import OutputNames
    from anamnesis.convert.result import Report
    from anamnesis.convert.sinks import Writable
    from anamnesis.model import Model

__all__ = ["WRITING", "command"]

WRITING = "anamnesis.writing"  # what a context keeps the output under that is being written

_DEFAULT: DTypeName = "bf16"


@click.command(
    "remember",
    epilog=described(
        "amn remember model-fp8.safetensors",
        "amn remember Qwen3-8B-FP8/ -o Qwen3-8B/ --max-shard-size 5GB",
        "cat model-Q4_K_M.gguf | amn remember - --to f16 -o - > model-f16.safetensors",
        "amn remember -r loras/ -o plain/ --skip-existing",
    ),
)
@paths_argument
@click.option(
    "-o",
    "--output",
    "out",
    metavar="OUT",
    type=click.Path(),
    help="Output file or directory, or - for standard output. A file's extension sets its format: "
    ".safetensors, .gguf, .npz or .pth. [default: beside the input, model-fp8.safetensors as "
    "model-bf16.safetensors]",
)
@to_option
@click.option(
    "--threads", type=whole_number, metavar="N", help="Threads. [default: all CPUs, up to 8]"
)
@click.option("--force", is_flag=True, help="Replace an output that exists.")
@click.option("--skip-existing", is_flag=True, help="Skip inputs whose output exists.")
@click.option("--resume", is_flag=True, help="Finish a run that was killed, with the same result.")
@click.option("--sync", is_flag=True, help="Flush to disk before exiting (slower).")
@click.option("--cast-all", is_flag=True, help="Also cast floats that are not quantised.")
@click.option(
    "--max-shard-size",
    type=size,
    metavar="SIZE",
    help="Re-shard a directory into files of at most SIZE, such as 5GB.",
)
@recursive_option
@opens_models
@click.option(
    "--allow-unknown",
    is_flag=True,
    help="Copy tensors that cannot be decoded, as they are stored, and list them.",
)
@json_option
@click.option("-q", "--quiet", is_flag=True, help="Print only warnings and errors.")
def command(
    paths: tuple[str, ...],
    out: str | None,
    dtype: DTypeName | None,
    recursive: bool,
    skip_existing: bool,
    as_json: bool,
    quiet: bool,
    open_model: OpenModel,
    **options: Any,
) -> None:
    """Dequantise: write weights at full precision, exactly."""
    from anamnesis.base.printable import abbreviate
    from anamnesis.cli.batch import finish, run_batch
    from anamnesis.cli.errors import complain
    from anamnesis.cli.narration import Narrator
    from anamnesis.cli.streams import data_stdout, is_stdout
    from anamnesis.convert.naming import OutputNames

    _check_level()
    models = _models(paths, recursive=recursive)
    stream = None
    if is_stdout(out):
        if as_json or len(models) > 1:
            raise click.UsageError("standard output takes one model, and no --json beside it")
        stream, out = data_stdout(), None
    names = OutputNames(dtype or _DEFAULT, out, list(models), models if recursive else None)
    own = {} if stream else names.leave_out_outputs()
    if own:
        complain(f"left out, as outputs of other inputs: {abbreviate(own)}", "warning")
    inputs = [path for path in models if path not in own]
    narrator = Narrator(
        sys.stderr if stream else sys.stdout,
        silent=as_json or quiet,
        brief=len(inputs) > 1,
        asked=dtype,
    )
    run = _Run(names, out, stream, narrator, dtype or _DEFAULT, len(models) > 1, options)

    def work(path: str) -> dict[str, Any]:
        with open_model(path) as model:
            try:
                report = run.convert(model, path, skip_existing=skip_existing)
            except _Skipped as skipped:
                narrator.skipped(path, str(skipped))
                return {"skipped": str(skipped)}
        if quiet and not as_json:
            for warning in narrator.warnings(report):
                complain(f"{path}: {warning}" if len(inputs) > 1 else warning, "warning")
        return _report_dict(report)

    failures = run_batch(inputs, work, as_json=as_json)
    narrator.summary(len(inputs), failures)
    finish(failures)


def _models(paths: tuple[str, ...], *, recursive: bool) -> dict[str, str]:
    """Return the inputs, each with the folder below the one named that it was found in."""
    if not recursive:
        return dict.fromkeys(paths, "")
    from anamnesis.cli.inputs import models_below

    return models_below(paths)


@dataclass(frozen=True, slots=True)
class _Run:
    """What all conversions of one command have in common."""

    names: OutputNames
    out: str | None
    stream: Writable | None
    narrator: Narrator
    dtype: DTypeName
    several: bool
    options: dict[str, Any]

    def convert(self, model: Model, path: str, *, skip_existing: bool) -> Report:
        """Convert one model; raise `_Skipped` if nothing is to be written."""
        output = None
        if self.stream is None:
            output = self._output(model, path, skip_existing=skip_existing)
            click.get_current_context().meta[WRITING] = output
        return self.narrator.convert(
            model, path, self.stream or output, dtype=self.dtype, **self.options
        )

    def _output(self, model: Model, path: str, *, skip_existing: bool) -> str:
        from anamnesis.cli.streams import is_nameless
        from anamnesis.convert.naming import any_of_dtype

        if is_nameless(path) and self.names.planned(path) != self.out:
            raise click.UsageError("standard input has no name; name the output file with -o")
        if self.several and _is_as_it_would_be(model, self.options):
            raise _Skipped("nothing in it is quantised")
        weights = model._claim.weights.values()
        has_dtype = any_of_dtype(weights, self.dtype, cast_all=self.options["cast_all"])
        output = self.names.planned(path, has_dtype=has_dtype)
        if skip_existing and _is_there(output):
            raise _Skipped(f"{output} exists")
        return self.names.of(path, has_dtype=has_dtype)


class _Skipped(Exception):
    """Why an input is left as it is."""


def _is_as_it_would_be(model: Model, options: dict[str, Any]) -> bool:
    """Tell whether the output would be a mere copy."""
    changes = options["cast_all"] or options["max_shard_size"] or model.problems
    plain = not any(tensor.is_quantized for tensor in model.values())
    return model.format_id == "safetensors" and plain and not changes


def _is_there(output: str) -> bool:
    """Tell whether an output exists: a file, or a directory that holds anything."""
    return os.path.isfile(output) or (os.path.isdir(output) and bool(os.listdir(output)))


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
