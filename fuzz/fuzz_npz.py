"""One NPZ archive or NPY file in memory.

An input that starts with `S` chooses an archive, one with `A` an array; any other is a file as it
stands, behind the magic of one or the other.
"""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
from exercise import exercise
from structured import Choices
from structured_zip import npy_file, zip_file
from traced import fuzz

import anamnesis as an
from anamnesis.base.stored import StoredTensor

Array = npt.NDArray[Any]


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
    if model is None:
        return
    for name in model:
        if name in model.problems:
            continue
        stored = model.stored[name]
        try:
            ours = stored.read()
        except an.AnamnesisError:
            continue
        if stored.dtype.name not in ("BF16", "F8_E5M2"):  # ml_dtypes'
            _compare(stored, ours, _numpys(raw, name))


def _numpys(raw: bytes, name: str) -> Array:
    """Return what numpy loads, which it must where anything was read here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of headers by Python 2
        loaded = np.load(io.BytesIO(raw))
        return loaded[name] if isinstance(loaded, np.lib.npyio.NpzFile) else loaded


def _compare(stored: StoredTensor, ours: bytes, want: Array) -> None:
    assert want.shape == stored.shape
    assert want.astype(want.dtype.newbyteorder("<")).tobytes() == ours


if __name__ == "__main__":
    fuzz(check)
