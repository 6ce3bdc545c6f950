"""Arrays of every dtype, order and header version, as numpy itself writes them."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]

DTYPES = ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")
SHAPES = ((), (0,), (5,), (3, 4), (4, 0, 2), (1, 6), (2, 3, 4), (3, 1, 2, 2))


def array(shape: tuple[int, ...], dtype: str, order: str = "<", seed: int = 1) -> Array:
    """Return random bits as an array of a dtype, in a byte order; bools are 0 and 1."""
    wanted = np.dtype(dtype)
    n = int(np.prod(shape))
    raw = np.random.default_rng(seed).integers(0, 256, n * wanted.itemsize, "u1")
    values = (raw & 1 if dtype == "?" else raw).view(wanted).reshape(shape)
    return values.astype(wanted.newbyteorder(">")) if order == ">" else values


def npy(values: Array, version: tuple[int, int] = (1, 0)) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, values, version)
    return stream.getvalue()


def with_header(text: str, data: bytes = b"", version: int = 1) -> bytes:
    """Return a file of this header, whatever it says."""
    raw = text.encode("utf-8" if version == 3 else "latin-1")
    length = len(raw).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes((version, 0)) + length + raw + data


def header(descr: object, shape: object, *, fortran: object = False) -> str:
    return f"{{'descr': {descr!r}, 'fortran_order': {fortran!r}, 'shape': {shape!r}, }}"


def npz(arrays: Mapping[str, Array], *, compressed: bool = False) -> bytes:
    stream = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(stream, **arrays)  # type: ignore[arg-type]
    return stream.getvalue()


def archive(members: Mapping[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as out:
        for name, data in members.items():
            out.writestr(name, data)
    return stream.getvalue()


def every_array() -> dict[str, Array]:
    """Return arrays of every dtype, shape, byte order and order of dimensions."""
    return {
        f"{dtype}{'x'.join(map(str, shape))}{order}{'F' if fortran else 'C'}": np.asarray(
            array(shape, dtype, order), order="F" if fortran else "C"
        )
        for dtype in DTYPES
        for shape in SHAPES
        for order in "<>"
        for fortran in (False, True)
    }


def ml_array(name: str) -> Array:
    return array((3, 5), "u1" if "8" in name else "u2").view(getattr(ml_dtypes, name))
