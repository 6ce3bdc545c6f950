"""Matrices of stacks, and stacks of matrices, in their codes where these lie."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.bands import Cut
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.views.views import reordered
from anamnesis.sources.gathered import JoinedSource


def rows_of(stored: StoredTensor, n_experts: int, per_matrix: int, rows: Cut) -> StoredTensor:
    """Return some rows of one matrix of a stack, whose shape is [rows, the rest]."""
    row_bytes = stored.n_bytes // (n_experts * per_matrix)
    rest = stored.shape[2:] if stored.shape[:2] == (n_experts, per_matrix) else (row_bytes,)
    offset = stored.offset + (rows.matrix * per_matrix + rows.first) * row_bytes
    made = stored._replace(n_bytes=rows.n * row_bytes, offset=offset)
    if rows.step > 1:
        made = _apart(made, row_bytes, (rows.n,), (rows.step,))
    return made._replace(shape=(rows.n, *(rest or (1,))))


def stack_of(
    tensors: Sequence[StoredTensor], per_matrix: int, *, alternates: bool = False
) -> StoredTensor:
    """Return matrices [rows, the rest] as [matrices, rows, the rest]."""
    first, source, n = tensors[0], JoinedSource(tensors), len(tensors) // per_matrix
    rows, *rest = first.shape
    made = first._replace(n_bytes=source.size, offset=0, source=source)
    if alternates:
        shape, steps = (n, rows, per_matrix), (per_matrix * rows, 1, rows)
        made = _apart(made, first.n_bytes // rows, shape, steps)
    return made._replace(shape=(n, per_matrix * rows, *rest))


def _apart(
    stored: StoredTensor, row_bytes: int, shape: tuple[int, ...], steps: tuple[int, ...]
) -> StoredTensor:
    """Return rows; `steps` says how far neighbours of a dimension lie apart."""
    item = next(size for size in (16, 8, 4, 2, 1) if row_bytes % size == 0)
    n = row_bytes // item
    return reordered(stored, (*shape, n), (*(step * n for step in steps), 1), item)


def are_alike(pieces: Sequence[Weight]) -> bool:
    """Return whether matrices are in one encoding, and their parts of one dtype and shape."""
    first = pieces[0]
    return prod(first.shape) > 0 and all(
        type(piece) is type(first)
        and piece.id == first.id
        and piece.shape == first.shape
        and [part[1:3] for part in piece.parts] == [part[1:3] for part in first.parts]
        for piece in pieces
    )
