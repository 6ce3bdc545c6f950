"""An NPZ archive that is written, or an NPY file, and read back; see structured_write.py."""

from __future__ import annotations

import io
import zipfile

import ml_dtypes  # noqa: F401 -- numpy knows its names then
import numpy as np
from structured import Choices
from structured_write import check_written, model
from traced import fuzz

import anamnesis as an
from anamnesis.formats.written import make_writer
from helpers.written import written


def check(data: bytes) -> None:
    """Raise whatever an input brings out that should not come out."""
    parts = model(Choices(data), "npz")
    raw = check_written("npz", parts, {})
    if raw is not None:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            assert archive.testzip() is None
        with np.load(io.BytesIO(raw)) as loaded:
            assert {name: loaded[name].tobytes() for name in loaded.files} == {
                made.part.name: made.data for made in parts
            }
    for made in parts[:1]:
        try:
            raw = written(make_writer("npy"), [made])
        except an.UnsupportedError:
            continue
        assert np.load(io.BytesIO(raw)).tobytes() == made.data


if __name__ == "__main__":
    fuzz(check)
