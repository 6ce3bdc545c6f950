"""A torch file in memory: as the fuzzer's bytes are, or built from them if they start with `S`."""

from __future__ import annotations

from exercise import exercise
from structured import Choices
from structured_pickle import torch_file
from traced import fuzz

import anamnesis as an
from anamnesis.formats.scan.scan import scan


def file_from(data: bytes) -> bytes:
    """Return the file that an input stands for."""
    return torch_file(Choices(data[1:])) if data[:1] == b"S" else data


def check(data: bytes) -> None:
    """Raise whatever an input brings out that should not come out."""
    raw = file_from(data)
    model = exercise(raw)
    try:
        foreign = an.parse(raw, allow_foreign=True)
    except an.AnamnesisError:
        foreign = None
    assert model is None or foreign is not None, "letting globals through refuses nothing"
    scan(raw)


if __name__ == "__main__":
    fuzz(check)
