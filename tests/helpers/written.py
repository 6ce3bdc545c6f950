"""Files written by a Writer and the bytes of its parts, as a conversion does it band by band."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import anamnesis as an
from anamnesis.base.crc import combined
from anamnesis.base.dtypes import ALL_DTYPES, BLOCK_DTYPES, DType
from anamnesis.base.stored import Part
from anamnesis.formats.base import Writer

EVERY_DTYPE = {**ALL_DTYPES, **BLOCK_DTYPES}
SHAPES: tuple[tuple[int, ...], ...] = (
    *((), (0,), (1,), (3,), (2, 3), (0, 4), (5, 0), (3, 1, 2), (5, 0, 3), (1, 2, 3, 4)),
    *((2, 1, 2, 1, 3), (1, 1, 1, 1, 1, 2), (1,) * 9, (300,), (257, 129)),
)


class Stored(NamedTuple):
    """A part and its bytes; None for zeros that are not written."""

    part: Part
    data: bytes | None


def stored(name: str, dtype: DType, shape: Sequence[int], seed: int = 0) -> Stored:
    """Return a part of random bytes, which for bools are 0 and 1; shapes are made whole blocks."""
    dims = tuple(shape)
    if dtype.block_elements > 1:
        dims = (*dims[:-1], (dims[-1] if dims else 1) * dtype.block_elements)
    part = Part(name, dtype, dims)
    data = random.Random(repr((seed, name))).randbytes(part.n_bytes)
    return Stored(part, bytes(b & 1 for b in data) if dtype.kind == "bool" else data)


def every_part(writer: Writer) -> list[Stored]:
    """Return parts of all dtypes and shapes that a writer takes."""
    parts = [
        stored(f"{dtype.name} {'x'.join(map(str, shape))}", dtype, shape)
        for dtype in EVERY_DTYPE.values()
        for shape in SHAPES
    ]
    return [made for made in parts if writer.refuses(made.part) is None]


def placed(
    writer: Writer, model: Sequence[Stored], metadata: Mapping[str, Any] | None = None
) -> tuple[list[tuple[int, bytes]], int]:
    """Return all pieces of a file in their order, and its length; they meet nowhere."""
    layout = writer.lay_out([made.part for made in model], metadata or {})
    patches = writer.finish([_crc(made) for made in model])
    data = [(at, made.data or b"") for at, made in zip(layout.offsets, model, strict=True)]
    holes = [(at, at + made.part.n_bytes) for at, made in zip(layout.offsets, model, strict=True)]
    around = [(at, at + len(raw)) for at, raw in (*layout.fixed, *patches)]
    end = 0
    for start, stop in sorted(span for span in (*holes, *around) if span[1] > span[0]):
        assert start >= end, "two pieces overlap"
        end = stop
    assert end <= layout.n_bytes
    return sorted(piece for piece in (*layout.fixed, *data, *patches) if piece[1]), layout.n_bytes


def written(
    writer: Writer, model: Sequence[Stored], metadata: Mapping[str, Any] | None = None
) -> bytes:
    """Return a file."""
    pieces, n_bytes = placed(writer, model, metadata)
    out = bytearray(n_bytes)
    for at, raw in pieces:
        out[at : at + len(raw)] = raw
    return bytes(out)


def write_sparse(
    path: Path, writer: Writer, model: Sequence[Stored], metadata: Mapping[str, Any] | None = None
) -> None:
    """Write a file with holes in it."""
    pieces, n_bytes = placed(writer, model, metadata)
    with path.open("wb") as file:
        file.truncate(n_bytes)
        for at, raw in pieces:
            file.seek(at)
            file.write(raw)


def _crc(made: Stored) -> int:
    return _crc_of_zeros(made.part.n_bytes) if made.data is None else zlib.crc32(made.data)


def _crc_of_zeros(n: int) -> int:
    if n < 2:
        return zlib.crc32(bytes(n))
    half = _crc_of_zeros(n // 2)
    return combined(combined(half, half, n // 2), zlib.crc32(bytes(n % 2)), n % 2)


def assert_read_back(model: an.Model, wanted: Iterable[Stored]) -> None:
    """Compare all names, dtypes, shapes and bytes."""
    expected = {made.part.name: made for made in wanted}
    assert sorted(model.stored) == sorted(expected)
    for name, (part, data) in expected.items():
        found = model.stored[name]
        shape = part.shape
        if not shape and model.inspect().format_id == "gguf":
            shape = (1,)  # it has no scalars
        assert (found.dtype.name, found.shape) == (part.dtype.name, shape), name
        assert found.n_bytes == part.n_bytes == part.dtype.n_bytes(prod(part.shape))
        if data is not None:
            assert found.read() == data, name
