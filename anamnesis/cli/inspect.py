"""`amn inspect`: what a model is, and how large it would come out."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from anamnesis.cli.options import verb

if TYPE_CHECKING:
    from anamnesis.base.dtypes import DTypeName
    from anamnesis.cli.opening import OpenModel
    from anamnesis.model import Model

_HEAD_BYTES = 256  # a name fits in them


@verb(
    "inspect",
    "amn inspect model-fp8.safetensors",
    "amn inspect ollama:llama3.2:1b --to f16",
    "amn inspect upload.pth --untrusted --json",
)
def command(
    paths: tuple[str, ...], to: DTypeName | None, as_json: bool, open_model: OpenModel
) -> None:
    """Show the format, schemes and sizes; only headers are read.

    Of an importance matrix of llama.cpp's (.gguf or .dat), show what it says of each weight.
    """
    from dataclasses import replace

    from anamnesis.cli.batch import run_each
    from anamnesis.cli.errors import in_options

    def imatrix(path: str) -> dict[str, Any]:
        from anamnesis.cli.imatrix_table import imatrix_dict, imatrix_lines
        from anamnesis.formats.imatrix import read_imatrix

        found = read_imatrix(path, open_model.limits)
        if as_json:
            return imatrix_dict(found)
        for line in imatrix_lines(found):
            print(line)
        return {}

    def work(path: str) -> dict[str, Any]:
        if _is_dat(path):
            return imatrix(path)
        with open_model(path) as model:
            if _is_imatrix(model):
                return imatrix(path)
            inspection = model.inspect(to or "bf16")
        problems = {name: in_options(why) for name, why in inspection.problems.items()}
        notes = tuple(map(in_options, inspection.notes))
        inspection = replace(inspection, problems=problems, notes=notes)
        if as_json:
            return inspection.to_dict()
        print(inspection)
        return {}

    run_each(paths, work, as_json=as_json)


def _is_dat(path: str) -> bool:
    """Whether a file is an importance matrix in the older format."""
    from anamnesis.formats.imatrix import is_dat

    if not os.path.isfile(path):  # a pipe can be read only once
        return False
    with open(path, "rb") as file:
        return is_dat(file.read(_HEAD_BYTES))


def _is_imatrix(model: Model) -> bool:
    if model.format_id != "gguf" or not any(key.startswith("imatrix.") for key in model.metadata):
        return False
    from anamnesis.formats.imatrix import is_imatrix

    return is_imatrix(model.metadata)
