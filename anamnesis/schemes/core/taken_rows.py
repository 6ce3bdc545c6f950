"""Rows of stored tensors, taken where they lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from anamnesis.base.stored import StoredTensor
from anamnesis.sources.gathered import GatheredSource
from anamnesis.sources.joined import JoinedSource
from anamnesis.sources.row_order import RowOrder


class TakenRows(NamedTuple):
    """Rows of some weights, whose own rows follow each other."""

    order: RowOrder

    def of(self, parts: Sequence[StoredTensor], row_bytes: int) -> StoredTensor:
        """Return these rows of parts, one of each weight, that have as many rows as it.

        The result has name, dtype and shape of the first.
        """
        stored, n_bytes = parts[0], self.order.n_rows * row_bytes
        if len(parts) > 1:
            joined = JoinedSource(parts)
            stored = stored._replace(offset=0, n_bytes=joined.size, source=joined)
        start = self.order.start
        if start is not None:
            return stored._replace(offset=stored.offset + start * row_bytes, n_bytes=n_bytes)
        source = GatheredSource(stored, row_bytes, self.order)
        return stored._replace(offset=0, n_bytes=n_bytes, source=source)

    def of_lone(
        self, tensors: Sequence[StoredTensor], name: str, shape: tuple[int, ...]
    ) -> StoredTensor | None:
        """Return these rows of weights that are a stored tensor each, as one of that shape.

        None if they are not of one dtype, or blocks are of two rows.
        """
        dtype, cols = tensors[0].dtype, shape[-1] if len(shape) > 1 else 1
        if cols % dtype.block_elements or any(tensor.dtype is not dtype for tensor in tensors):
            return None
        return self.of(tensors, dtype.n_bytes(cols))._replace(name=name, shape=shape)

    def keeps_matrices(self, n: int) -> bool:
        """Tell whether the rows of each of n matrices are of that matrix, in their order."""
        runs, n_groups = self.order.runs, self.order.n_groups
        step = runs[0].step if runs else 0
        are_within = all(run.step == step and run.first + run.n <= step for run in runs)
        return are_within and n > 0 and n_groups % n == 0
