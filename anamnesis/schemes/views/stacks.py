"""Matrices of stacks, and stacks of matrices, in their codes where these lie."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Self

from anamnesis.base.dtypes import DType
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.bands import Cut
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.views.views import reordered
from anamnesis.sources.gathered import JoinedSource, RowOrder


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


class InRows(Weight):
    """A weight of which each row is stored by itself, in the first few of its parts."""

    # Others, if any, have a float32 for each matrix, or one for all.

    __slots__ = ()

    @property
    @abstractmethod
    def n_by_rows(self) -> int:
        """How many parts are of rows; 0 if what is stored cannot be cut between these."""

    def remade(self, name: str, shape: tuple[int, ...], parts: Sequence[StoredTensor]) -> Self:
        return replace(self, name=name, shape=shape, parts=tuple(parts))

    def cut_out(self, name: str, rows: Cut) -> Self | None:
        if len(self.shape) != 3 or not self.n_by_rows:
            return None
        (n, height, width), parts = self.shape, []
        for part in self.parts[: self.n_by_rows]:
            own = rows_of(part, n, height, rows)
            parts.append(own._replace(shape=(rows.n, part.n_elements // (n * height))))
        for part in self.parts[self.n_by_rows :]:
            one = rows_of(part, n, 1, Cut(rows.matrix, 0, 1)) if part.n_elements > 1 else part
            parts.append(one._replace(shape=()))
        return self.remade(name, (rows.n, width), parts)

    def stacked(
        self, name: str, pieces: Sequence[Weight], per_matrix: int, *, alternates: bool
    ) -> Self | None:
        own = [p.parts for p in pieces if isinstance(p, InRows) and p.n_by_rows]
        if len(own) < len(pieces) or not are_alike(pieces) or len(self.shape) != 2:
            return None
        n, parts = len(pieces) // per_matrix, []
        for i, some in enumerate(zip(*own, strict=True)):
            if i < self.n_by_rows:
                parts.append(stack_of(some, per_matrix, alternates=alternates))
                continue
            numbers = [part._replace(shape=(1,)) for part in some]
            if not _are_of_matrices(numbers, per_matrix):
                return None
            parts.append(stack_of(numbers[::per_matrix], 1)._replace(shape=(n,)))
        return self.remade(name, (n, per_matrix * self.shape[0], self.shape[1]), parts)

    def with_rows(
        self, name: str, shape: tuple[int, ...], pieces: Sequence[Weight], rows: RowOrder
    ) -> Self | None:
        own = [p.parts for p in pieces if isinstance(p, InRows) and self._is_like(p)]
        if len(own) < len(pieces) or min(len(self.shape), len(shape)) < 2:
            return None
        numbers = self.parts[self.n_by_rows :]
        for n in [number.n_elements for number in numbers]:  # which belong to the same rows
            is_kept = n == prod(shape[:-2]) == prod(self.shape[:-2]) and rows.keeps_matrices(n)
            if len(own) > 1 or not (n == 1 or is_kept):
                return None
        n_rows, parts = prod(self.shape[:-1]), []
        for some in [*zip(*own, strict=True)][: self.n_by_rows]:
            taken = rows.taken(some, some[0].n_bytes // n_rows)
            parts.append(taken._replace(shape=(*shape[:-1], some[0].n_elements // n_rows)))
        return self.remade(name, shape, (*parts, *numbers))

    def _is_like(self, other: InRows) -> bool:
        """Return whether a row of another weight is stored as those of this one are."""
        if not self.n_by_rows or not other.n_by_rows:
            return False
        is_one_kind = type(self) is type(other) and self.id == other.id
        return is_one_kind and self._row() == other._row()

    def _row(self) -> tuple[int, list[tuple[DType, int]]]:
        """Return how many values a row has, and what of each part."""
        n_rows, own = prod(self.shape[:-1]), self.n_by_rows
        found = [(part.dtype, part.n_bytes // n_rows) for part in self.parts[:own]]
        return self.shape[-1], found + [(part.dtype, 0) for part in self.parts[own:]]


def _are_of_matrices(numbers: Sequence[StoredTensor], per_matrix: int) -> bool:
    """Return whether the pieces of each matrix have the same number."""
    if any(number.dtype.name != "F32" or number.n_bytes != 4 for number in numbers):
        return False
    found = [number.read() for number in numbers] if per_matrix > 1 else []
    return all(len(set(found[i : i + per_matrix])) == 1 for i in range(0, len(found), per_matrix))
