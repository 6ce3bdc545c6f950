"""Matrices of stacks, and stacks of matrices, in their codes where these lie."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.weight import Cut, Weight
from anamnesis.schemes.views.views import reordered
from anamnesis.sources.joined import JoinedSource


def rows_of(stored: StoredTensor, n_experts: int, per_matrix: int, rows: Cut) -> StoredTensor:
    """Return some rows of one matrix of a stack, whose shape is [rows, the rest]."""
    row_bytes = stored.n_bytes // (n_experts * per_matrix)
    rest = stored.shape[2:] if stored.shape[:2] == (n_experts, per_matrix) else (row_bytes,)
    offset = stored.offset + (rows.matrix * per_matrix + rows.first) * row_bytes
    shape = (rows.n, *(rest or (1,)))
    if rows.step == 1:
        return stored._replace(shape=shape, n_bytes=rows.n * row_bytes, offset=offset)
    item = next(size for size in (16, 8, 4, 2, 1) if row_bytes % size == 0)
    items = row_bytes // item
    apart = stored._replace(offset=offset, n_bytes=((rows.n - 1) * rows.step + 1) * row_bytes)
    return reordered(apart, (rows.n, items), (rows.step * items, 1), item)._replace(shape=shape)


def stack_of(
    tensors: Sequence[StoredTensor], per_matrix: int, *, alternates: bool = False
) -> StoredTensor:
    """Return matrices [rows, the rest] as [matrices, rows, the rest]."""
    first, n = tensors[0], len(tensors) // per_matrix
    rows, *rest = first.shape
    source = JoinedSource(tensors)
    shape = (n, per_matrix * rows, *rest)
    made = first._replace(shape=shape, n_bytes=source.size, offset=0, source=source)
    if not alternates or per_matrix == 1:
        return made
    row_bytes = first.n_bytes // rows
    item = next(size for size in (16, 8, 4, 2, 1) if row_bytes % size == 0)
    items = row_bytes // item
    strides = (per_matrix * rows * items, items, rows * items, 1)
    return reordered(made, (n, rows, per_matrix, items), strides, item)._replace(shape=shape)


def are_alike(pieces: Sequence[Weight]) -> bool:
    """Tell whether matrices are in one encoding, and their parts of one dtype and shape."""
    first = pieces[0]
    return prod(first.shape) > 0 and all(
        type(piece) is type(first)
        and piece.id == first.id
        and piece.shape == first.shape
        and [part[1:3] for part in piece.parts] == [part[1:3] for part in first.parts]
        for piece in pieces
    )


def parts_as_stacks(
    pieces: Sequence[Weight], per_matrix: int, *, alternates: bool
) -> tuple[StoredTensor, ...]:
    """Return each part of some matrices as a stack; all parts have as many rows as values have."""
    return tuple(
        stack_of(parts, per_matrix, alternates=alternates)
        for parts in zip(*(piece.parts for piece in pieces), strict=True)
    )
