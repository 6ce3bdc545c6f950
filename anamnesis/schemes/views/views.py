"""Stored tensors made of others where they lie: moves are only described."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

from anamnesis.base.errors import UnsupportedError
from anamnesis.base.lazy import NDArray, np
from anamnesis.base.source import Source
from anamnesis.base.stored import Part, StoredTensor
from anamnesis.sources.altered import Input, MappedSource
from anamnesis.sources.strided import strided

_MOST = 4 << 20  # bytes of a unit: a thread holds some of them at once
_EXCLUDE = "exclude this weight"


class Undone(NamedTuple):
    """What a view is made from, so that who would undo it takes that."""

    way: object
    stored: StoredTensor


def pieces(stored: StoredTensor, at_once: int) -> Iterator[NDArray[np.uint8]]:
    """Yield the bytes of a tensor, some at a time."""
    for at in range(0, stored.n_bytes, at_once):
        yield stored_bytes(stored, at, min(at + at_once, stored.n_bytes))


def stored_bytes(stored: StoredTensor, start: int, stop: int) -> NDArray[np.uint8]:
    """Read some bytes of a tensor."""
    return np.frombuffer(stored.source.read(stored.offset + start, stop - start), np.uint8)


def made_of(
    part: Part,
    inputs: Sequence[StoredTensor],
    n_units: int,
    make: Callable[..., NDArray[Any]],
    like: Source | None = None,
    undone: Undone | None = None,
) -> StoredTensor:
    """Return a tensor of which each unit is made of a unit of every input, as `MappedSource` says.

    The inputs have as many units as the result, whose lengths their bytes tell.
    """
    given = [Input(t.source, t.offset, t.n_bytes // max(n_units, 1), n_units) for t in inputs]
    made = _mapped(part, inputs, given, n_units, make, like)
    made.source.undone = undone
    return made


def made_from(stored: StoredTensor) -> Undone | None:
    """Return what all of a tensor is made from, if somebody would undo that."""
    was, is_whole = stored.source.undone, stored.n_bytes == stored.source.size
    return was if is_whole and isinstance(was, Undone) else None


def _mapped(
    part: Part,
    inputs: Sequence[StoredTensor],
    given: Sequence[Input],
    n_units: int,
    make: Callable[..., NDArray[Any]],
    like: Source | None = None,
) -> StoredTensor:
    unit_bytes = part.n_bytes // max(n_units, 1)
    longest = max([unit_bytes, *(i.unit_bytes for i in given)])
    if longest > _MOST:
        raise UnsupportedError(
            f"{part.name}: {longest:,} bytes would be moved together, and {_MOST:,} are the most",
            remedy=_EXCLUDE,
        )
    source = MappedSource(like or inputs[0].source, given, n_units, unit_bytes, make)
    return StoredTensor(*part, part.n_bytes, 0, source)


def reordered(
    stored: StoredTensor, shape: Sequence[int], strides: Sequence[int], item_bytes: int
) -> StoredTensor:
    """Return items of 1 to 16 bytes in another order; strides count items."""
    # The result has the name, the dtype and the shape of what is given.
    source, offset = strided(stored.source, stored.offset, shape, strides, item_bytes)
    return stored._replace(source=source, offset=offset, n_bytes=prod(shape) * item_bytes)


def padded(stored: StoredTensor, rows: int, cols: int) -> StoredTensor:
    """Return a matrix of bytes with zeros behind its rows and columns."""
    if stored.shape == (rows, cols):
        return stored
    n_rows, n_cols = stored.shape
    given = [Input(stored.source, stored.offset, n_cols, n_rows)]

    def widened(units: range, lines: NDArray[Any]) -> NDArray[Any]:
        made = np.zeros((len(units), cols), np.uint8)
        made[:, :n_cols] = lines
        return made

    part = Part(stored.name, stored.dtype, (rows, cols))
    return _mapped(part, [stored], given, rows, widened)


def constant(part: Part, raw: bytes, like: StoredTensor) -> StoredTensor:
    """Return a small tensor of these bytes, as if it lay in the file of another."""

    def given(units: range) -> NDArray[Any]:
        return np.frombuffer(raw, np.uint8)

    source = MappedSource(like.source, (), 1, len(raw), given)
    return StoredTensor(*part, len(raw), 0, source)


def completed(
    parts: Sequence[StoredTensor], beside: Sequence[tuple[Part, bytes]]
) -> tuple[StoredTensor, ...]:
    """Return parts, and what a layout has beside them."""
    return (*parts, *(constant(part, raw, parts[0]) for part, raw in beside))


def repeated(part: Part, pattern: bytes, like: StoredTensor) -> StoredTensor:
    """Return a tensor of a few bytes over and over."""

    def given(units: range) -> NDArray[Any]:
        return np.tile(np.frombuffer(pattern, np.uint8), len(units))

    n_units = part.n_bytes // len(pattern)
    source = MappedSource(like.source, (), n_units, len(pattern), given)
    return StoredTensor(*part, part.n_bytes, 0, source)


def forbidding(stored: StoredTensor, forbidden: bytes, why: str) -> StoredTensor:
    """Return a tensor of bytes, some of which stop the run when they are read."""
    if not forbidden:
        return stored
    from_name = stored.source.name

    def checked(units: range, lines: NDArray[Any]) -> NDArray[Any]:
        table = np.zeros(256, bool)
        table[list(forbidden)] = True
        found = table[lines.reshape(-1)]
        if found.any():
            at = units.start + int(found.argmax())
            value = int(lines.reshape(-1)[at - units.start])
            raise UnsupportedError(
                f"{from_name}: {stored.name}: byte {at:,} is {value}, {why}", remedy=_EXCLUDE
            )
        return lines

    return made_of(Part(*stored[:3]), [stored], stored.n_bytes, checked)
