"""AQLM: sums of vectors, one out of each codebook, times a scale of their rows.

    codes      I8 | I16 | I32  [out groups, in groups, codebooks]
    codebooks  F16 | BF16 | F32  [codebooks, entries, rows of a group, columns of a group]
    scales     F16 | BF16 | F32  [out groups, 1, 1, 1]

    result = round((0 + entry of the 1st + entry of the 2nd + ...) * float32(scale))

All in float32. There are 2^bits entries, and codes are taken modulo that. Canonical:
`_dequantize_weight` and `unpack_int_data` of aqlm's utils.py, which round the sum and the product
to the dtype of the codebooks, as `math="reference"` does. Their sum is torch's `embedding_bag`,
which on a CPU adds in float32 and rounds once: to F16 as everything is, to BF16 half away from 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from anamnesis.base.lazy import NDArray, np
from anamnesis.schemes.core.bands import Run
from anamnesis.schemes.core.weight import Scratch
from anamnesis.schemes.families.codebooks.weight import CodebookWeight

_CODES, _BOOKS, _SCALES = range(3)  # parts, and slots of a worker's scratch


@dataclass(slots=True, eq=False)
class AqlmWeight(CodebookWeight):
    """Codes, codebooks and scales, in this order."""

    family: ClassVar[str] = "AQLM"

    @property
    def id(self) -> str:
        n, entries, rows, cols = self.books.shape
        rounded = "-rounded" if self.is_rounded else ""
        return f"aqlm-{n}x{entries.bit_length() - 1}-{rows}x{cols}{rounded}"

    @property
    def scheme(self) -> str:
        n, entries, rows, cols = self.books.shape
        books = f"{n} codebook{'s' if n > 1 else ''} of {entries.bit_length() - 1} bits"
        return f"AQLM, {books}, groups of {cols if rows == 1 else f'{rows}x{cols}'}"

    def _values(self, rows: Run, cols: Run, scratch: Scratch) -> NDArray[Any]:
        n_books, entries, tall, wide = self.books.shape
        down = Run(rows.start // tall, -(-rows.stop // tall))
        across = Run(cols.start // wide, -(-cols.stop // wide))
        codes = self.parts[_CODES]
        item = codes.dtype.n_bytes(1) * n_books
        width = codes.shape[1] * item
        first = down.start * width + across.start * item
        raw = scratch.read_rows(_CODES, codes, first, width, across.n * item, down.n)
        shape = (down.n, across.n, n_books)
        unsigned = f"u{codes.dtype.n_bytes(1)}"
        indices = np.frombuffer(raw, unsigned).reshape(shape) & (entries - 1)
        books = self._read(scratch, _BOOKS, self.books).reshape(n_books, entries, -1)
        values = np.zeros((down.n, across.n, tall * wide), np.float32)
        for k in range(n_books):
            values += books[k][indices[..., k]].astype(np.float32)
        scales = self.parts[_SCALES]
        scale_item = scales.dtype.n_bytes(1)
        raw = scratch.read(_SCALES, scales, down.start * scale_item, down.n * scale_item)
        values = self._rounded_sum(values)
        values *= np.frombuffer(raw, scales.dtype.numpy()).astype(np.float32)[:, None, None]
        values = self._rounded(values)
        groups = values.reshape(down.n, across.n, tall, wide).swapaxes(1, 2)
        matrix = groups.reshape(down.n * tall, across.n * wide)
        top, left = rows.start - down.start * tall, cols.start - across.start * wide
        return matrix[top : top + rows.n, left : left + cols.n]

    def _rounded_sum(self, sums: NDArray[Any]) -> NDArray[Any]:
        """Return float32 sums, rounded as `embedding_bag` rounds them."""
        if not self.is_rounded or self.books.dtype.name != "BF16":
            return self._rounded(sums)
        away = (sums.view(np.uint32) + np.uint32(1 << 15)) & np.uint32(0xFFFF0000)
        return np.where(np.isnan(sums), sums, away.view(np.float32))
