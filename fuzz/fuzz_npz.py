"""One NPZ archive or NPY file in memory.

An input that starts with `S` chooses an archive, one with `A` an array; any other is a file as it
stands, behind the magic of one or the other.
"""

from __future__ import annotations

import io
import sys
import warnings

import numpy as np
from exercise import exercise
from structured import Choices
from structured_zip import npy_file, zip_file

import anamnesis as an


def file_from(data: bytes) -> bytes:
    """Return the file that an input stands for; it is never of another format."""
    if data[:1] == b"S":
        return zip_file(Choices(data[1:]), arrays=True)
    if data[:1] == b"A":
        return npy_file(Choices(data[1:]))
    return b"\x93NUMPY" + data[6:] if data[:1] == b"N" else b"PK\3\4\x14" + data[5:]


def check(data: bytes) -> None:
    """Raise whatever an input brings out that should not come out."""
    raw = file_from(data)
    model = exercise(raw)
    if model is not None and model.format == "NPY" and not model.problems:
        _compare(model, raw)


def _compare(model: an.Model, raw: bytes) -> None:
    """Whatever is read here numpy reads too, and it is the same; but for ml_dtypes' dtypes."""
    (stored,) = model.stored.values()
    if stored.dtype.name in ("BF16", "F8_E5M2"):
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of headers by Python 2
        want = np.load(io.BytesIO(raw))
    assert want.shape == stored.shape
    assert want.astype(want.dtype.newbyteorder("<")).tobytes() == stored.read()


def main() -> None:
    """Fuzz until libFuzzer's options say stop."""
    import atheris

    atheris.instrument_all()
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
