"""Matrices of stacks, and stacks of matrices, in their codes where these lie."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.weight import Cut, Weight
from anamnesis.sources.gathered import RowOrder, RowRun


def rows_of(stored: StoredTensor, n_experts: int, per_matrix: int, rows: Cut) -> StoredTensor:
    """Return some rows of one matrix of a stack, whose shape is [rows, the rest]."""
    row_bytes = stored.n_bytes // (n_experts * per_matrix)
    rest = stored.shape[2:] if stored.shape[:2] == (n_experts, per_matrix) else (row_bytes,)
    offset = stored.offset + (rows.matrix * per_matrix + rows.first) * row_bytes
    order = RowOrder((RowRun(0, 1, rows.step),), rows.n)
    made = order.taken([stored._replace(offset=offset)], row_bytes)
    return made._replace(shape=(rows.n, *(rest or (1,))))


def stack_order(n: int, per_matrix: int, rows: int, *, alternates: bool) -> RowOrder:
    """Return the order of a stack's rows, which are those of pieces of `rows` each."""
    height = per_matrix * rows
    in_turn = [i * rows + row for row in range(rows) for i in range(per_matrix)]
    return RowOrder.of(in_turn if alternates else range(height), height, n)


def stack_of(
    tensors: Sequence[StoredTensor], per_matrix: int, *, alternates: bool = False
) -> StoredTensor:
    """Return matrices [rows, the rest] as [matrices, rows, the rest]."""
    n, (rows, *rest) = len(tensors) // per_matrix, tensors[0].shape
    order = stack_order(n, per_matrix, rows, alternates=alternates)
    made = order.taken(tensors, tensors[0].n_bytes // rows)
    return made._replace(shape=(n, per_matrix * rows, *rest))


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
