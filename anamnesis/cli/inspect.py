"""`amn inspect`: what a model is, and how large it would come out."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from anamnesis.base.printable import printable, shortened
from anamnesis.cli.verbs import verb

if TYPE_CHECKING:
    from anamnesis.base.dtypes import DTypeName
    from anamnesis.cli.verbs import OpenModel
    from anamnesis.formats.imatrix import Entry, ImatrixFile
    from anamnesis.model import Model

_HEAD_BYTES = 256  # a name fits in them
_KINDS = {"gguf": "GGUF", "dat": ".dat, as llama-imatrix wrote before 2025"}
_HEADS = ("columns", "matrices", "used", "mean", "largest")
_FIGURES = "{:>8}  {:>8}  {:>6}  {:>8}  {:>8}"


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

    from anamnesis.cli.errors import in_options
    from anamnesis.cli.inputs import run_each

    def imatrix(path: str) -> dict[str, Any]:
        from anamnesis.formats.imatrix import read_imatrix

        found = read_imatrix(path, open_model.opening["limits"])
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


def imatrix_dict(found: ImatrixFile) -> dict[str, Any]:
    """Return the file's content as JSON."""
    return {
        "format_id": f"imatrix-{found.kind}",
        "datasets": list(found.datasets),
        "n_chunks": found.n_chunks,
        "chunk_size": found.chunk_size,
        "n_entries": len(found.entries),
        "entries": [
            {"name": name, **_figures(entry), "counts": list(entry.counts)}
            for name, entry in found.entries.items()
        ],
    }


def imatrix_lines(found: ImatrixFile) -> Iterator[str]:
    """Yield facts of the file, and a row for each weight; long names are cut."""
    yield f"Format:      importance matrix, {_KINDS[found.kind]}"
    datasets = ", ".join(map(printable, found.datasets))
    yield f"Datasets:    {datasets or 'not said'}"
    tokens = f" of {found.chunk_size:,} tokens" if found.chunk_size else ""
    yield f"Chunks:      {found.n_chunks:,}{tokens}"
    n_unused = sum(count <= 0 for entry in found.entries.values() for count in entry.counts)
    matrices = "matrix" if n_unused == 1 else "matrices"
    unused = f"; {n_unused:,} {matrices} never used" if n_unused else ""
    yield f"Weights:     {len(found.entries):,}{unused}"
    yield ""
    longest = max(map(len, found.entries))
    if sys.stdout.isatty():
        beside = len(_FIGURES.format(*_HEADS)) + 2
        longest = min(longest, max(shutil.get_terminal_size().columns - beside - 2, 20))
    yield f"  {'weight':<{longest}}  {_FIGURES.format(*_HEADS)}"
    for name, entry in found.entries.items():
        said = [*_figures(entry).values()]
        cells = (*(f"{n:,}" for n in said[:3]), *(f"{x:.3g}" for x in said[3:]))
        yield f"  {printable(shortened(name, longest)):<{longest}}  {_FIGURES.format(*cells)}"


def _figures(entry: Entry) -> dict[str, float]:
    """Return the figures of an entry; a matrix that was never used has importance 1."""
    import numpy as np

    return {
        "n_columns": entry.values.size // len(entry.counts),
        "n_matrices": len(entry.counts),
        "n_used": sum(count > 0 for count in entry.counts),
        "mean": float(np.mean(entry.values, dtype=np.float64)),
        "largest": float(entry.values.max()),
    }
