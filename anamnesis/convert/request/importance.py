"""The importance matrix that a conversion quantises by."""

from __future__ import annotations

import os
from typing import TypeAlias

from anamnesis.base.limits import ParseLimits
from anamnesis.formats.imatrix import ImatrixFile, read_imatrix
from anamnesis.schemes.families.ggml.encode import Imatrix

Given: TypeAlias = "str | os.PathLike[str] | ImatrixFile | Imatrix"


def importance_of(given: Given, limits: ParseLimits | None = None) -> Imatrix:
    """Return an importance matrix, read if it is a path."""
    if isinstance(given, Imatrix):
        return given
    found = given if isinstance(given, ImatrixFile) else read_imatrix(given, limits)
    entries = {name: entry.values.view("u1").data for name, entry in found.entries.items()}
    unused = {
        n: sum(count <= 0 for count in e.counts)
        for n, e in found.entries.items()
        if found.kind == "gguf"
    }
    return Imatrix(found.file, entries, found.datasets, found.n_chunks, unused)
