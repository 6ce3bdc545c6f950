"""`amn inspect`: what a model is, and how large it would come out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from anamnesis.cli.grouped import Command
from anamnesis.cli.options import (
    OpenModel,
    described,
    json_option,
    opens_models,
    paths_argument,
    to_option,
)

if TYPE_CHECKING:
    from anamnesis.base.dtypes import DTypeName

__all__ = ["command"]


@click.command(
    "inspect",
    cls=Command,
    epilog=described(
        "amn inspect model-fp8.safetensors",
        "amn inspect ollama:llama3.2:1b --to f16",
        "amn inspect upload.pth --untrusted --json",
    ),
)
@paths_argument
@to_option
@opens_models
@json_option
def command(
    paths: tuple[str, ...], dtype: DTypeName | None, as_json: bool, open_model: OpenModel
) -> None:
    """Show the format, schemes and sizes; only headers are read."""
    from dataclasses import replace

    from anamnesis.cli.batch import finish, run_batch
    from anamnesis.cli.errors import in_options
    from anamnesis.cli.inputs import with_components

    def work(path: str) -> dict[str, Any]:
        with open_model(path) as model:
            inspection = model.inspect(dtype or "bf16")
        problems = {name: in_options(why) for name, why in inspection.problems.items()}
        notes = tuple(map(in_options, inspection.notes))
        inspection = replace(inspection, problems=problems, notes=notes)
        if as_json:
            return inspection.to_dict()
        print(inspection)
        return {}

    finish(run_batch(with_components(paths), work, as_json=as_json, headings=True))
