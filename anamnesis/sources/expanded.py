"""Sparse matrices, stored with a mask, read as if they were dense."""

from __future__ import annotations

from array import array
from typing import NamedTuple

import anamnesis._io as _io
from anamnesis.base.errors import ParseError
from anamnesis.base.source import DerivedSource
from anamnesis.base.stored import StoredTensor

_AT_ONCE = 1 << 20  # bytes of the result
_MASK_AT_ONCE = 1 << 16
_OFFSET_BYTES = 8


class Sparse(NamedTuple):
    """A matrix of `rows` x `cols`, as it is stored."""

    rows: int
    cols: int
    values: StoredTensor
    mask: StoredTensor
    starts: StoredTensor | None
    per_row: int = 0


class ExpandedSource(DerivedSource):
    """The row-major bytes of a sparse matrix. What they are made of is checked as it is read."""

    def __init__(self, matrix: Sparse) -> None:
        parts = (matrix.values, matrix.mask, matrix.starts)
        super().__init__(*(part.source for part in parts if part is not None))
        self._matrix = matrix
        self._item = matrix.values.dtype.n_bytes(1)
        self._mask_row = -(-matrix.cols // 8)
        self._counted = (0, 0, 0)  # ones before a column of a row, as counted last
        self.size = matrix.rows * matrix.cols * self._item

    def _read_some(self, offset: int, view: memoryview) -> int:
        if offset >= self.size:
            return 0
        item, cols = self._item, self._matrix.cols
        n = min(len(view), self.size - offset) // item
        if offset % item or not n:  # a part of one
            whole = bytearray(item)
            self._expand_piece(offset // item, 1, memoryview(whole))
            part = memoryview(whole)[offset % item :][: len(view)]
            view[: len(part)] = part
            return len(part)
        row, col = divmod(offset // item, cols)
        if col or n < cols or cols * item > _AT_ONCE:
            n = min(n, cols - col, _AT_ONCE // item)
            self._expand_piece(offset // item, n, view[: n * item])
            return n * item
        n_rows = min(n // cols, max(1, _AT_ONCE // (cols * item)))
        n_bytes = n_rows * cols * item
        bounds = self._bounds(row, n_rows)
        mask = self._read_mask(row * self._mask_row, n_rows * self._mask_row)
        ends = array("Q", (end - bounds[0] for end in bounds[1:]))
        values = self._read_values(bounds[0], bounds[-1])
        found = _io.expand_rows(mask, 0, cols, values, ends, item, view[:n_bytes])
        if found < n_rows:
            n_ones = _io.count_bits(mask[found * self._mask_row :], 0, cols)
            raise self._unlike(row + found, n_ones, bounds[found + 1] - bounds[found])
        return n_bytes

    def _expand_piece(self, start: int, n: int, view: memoryview) -> None:
        """Expand columns of one row; where they are the last, all of its ones have been counted."""
        row, col = divmod(start, self._matrix.cols)
        first, last = self._bounds(row, 1)
        before = self._ones_before(row, col)
        at, phase = divmod(col, 8)
        mask = self._read_mask(row * self._mask_row + at, -(-(phase + n) // 8))
        count = _io.count_bits(mask, phase, n)
        self._counted = (row, col + n, before + count)
        end = first + before + count
        if end > last or (col + n == self._matrix.cols and end < last):
            raise self._unlike(row, before + count, last - first)
        values = self._read_values(first + before, end)
        _io.expand_rows(mask, phase, n, values, array("Q", [count]), self._item, view)

    def _ones_before(self, row: int, col: int) -> int:
        """Count the ones of a row before a column, from where they were counted last."""
        counted_row, done, count = self._counted
        if counted_row != row or done > col:
            done = count = 0
        while done < col:
            at, phase = divmod(done, 8)
            n = min(col - done, 8 * _MASK_AT_ONCE - phase)
            mask = self._read_mask(row * self._mask_row + at, -(-(phase + n) // 8))
            count += _io.count_bits(mask, phase, n)
            done += n
        return count

    def _bounds(self, row: int, n_rows: int) -> list[int]:
        """Return where the values of some rows start, and where the last row's end."""
        matrix = self._matrix
        starts = matrix.starts
        if starts is None:
            return [i * matrix.per_row for i in range(row, row + n_rows + 1)]
        stop = min(row + n_rows + 1, matrix.rows)
        raw = bytearray((stop - row) * _OFFSET_BYTES)
        starts.source.read_into(starts.offset + row * _OFFSET_BYTES, memoryview(raw))
        bounds = [*array("q", raw), *([matrix.values.n_elements] if stop == matrix.rows else [])]
        bounds = bounds[: n_rows + 1]
        n_values = matrix.values.n_elements
        for i in range(n_rows):
            first, last = bounds[i : i + 2]
            fits = 0 <= first <= last <= min(n_values, first + matrix.cols)
            if not fits or (row + i == 0 and first):
                raise ParseError(
                    f"{starts.name}: row {row + i:,} would have the values {first:,} to {last:,} "
                    f"of {n_values:,}, in {matrix.cols:,} columns",
                    offset=starts.offset + (row + i) * _OFFSET_BYTES,
                    source=self.name,
                )
        return bounds

    def _unlike(self, row: int, ones: int, values: int) -> ParseError:
        mask = self._matrix.mask
        return ParseError(
            f"{mask.name}: row {row:,} has {ones:,} ones, but {values:,} values are stored for it",
            offset=mask.offset + row * self._mask_row,
            source=self.name,
        )

    def _read_mask(self, start: int, n_bytes: int) -> memoryview:
        mask = self._matrix.mask
        raw = memoryview(bytearray(n_bytes))
        mask.source.read_into(mask.offset + start, raw)
        return raw

    def _read_values(self, first: int, last: int) -> memoryview:
        values = self._matrix.values
        raw = memoryview(bytearray((last - first) * self._item))
        values.source.read_into(values.offset + first * self._item, raw)
        return raw
