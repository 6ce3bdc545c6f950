"""VPTQ: a vector down the rows for each column, and another that corrects it.

    indices           I32 [groups, vectors, words]: a row's bits run on, the index first, then that
                      of the correction; or I16 [groups, vectors, columns of a group]
    res_indices       I16, as the latter, of the correction
    centroids.weight  F16 | BF16 | F32 [groups, entries * rows of a vector]; `res_centroids.weight`
    perm              I16 | I64 [columns], where each column of what is stored belongs
    weight_scale, weight_bias  F16 | BF16 | F32 [columns]

    result = round((centroid + correction) * float32(scale) + float32(bias))

In that order, as `dequant` of vptq's ops/quant_gemm.py has it, here in float32; with
`math="reference"` each result is rounded to the dtype of the centroids, as there. How long a vector
is, and how many rows there are, `config_for_layers` alone tells. The index of a correction has no
more bits than that of the vector: `unpack_index_tensor` cuts it so. Outliers are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from anamnesis.base.lazy import NDArray, np
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.bands import Run
from anamnesis.schemes.core.weight import Scratch
from anamnesis.schemes.families.codebooks.weight import CodebookWeight

WORD_BITS = 32
_INDICES, _RES_INDICES, _CENTROIDS, _RES_CENTROIDS, _PERM, _SCALE, _BIAS = range(7)  # slots


@dataclass(slots=True, eq=False)
class VptqWeight(CodebookWeight):
    """Codes and centroids, and what else there is."""

    res_indices: StoredTensor | None
    res_centroids: StoredTensor | None
    perm: StoredTensor | None
    scale: StoredTensor | None
    bias: StoredTensor | None

    family: ClassVar[str] = "VPTQ"

    @property
    def id(self) -> str:
        rounded = "-rounded" if self.is_rounded else ""
        return f"vptq-v{self.length}-{self._entries(self.books)}-{self._corrections}{rounded}"

    @property
    def scheme(self) -> str:
        more = f" and {self._corrections}" if self._corrections else ""
        return f"VPTQ, vectors of {self.length}, {self._entries(self.books)} centroids{more}"

    @property
    def _corrections(self) -> int:
        return 0 if self.res_centroids is None else self._entries(self.res_centroids)

    def _entries(self, centroids: StoredTensor) -> int:
        return centroids.shape[1] // self.length

    def _values(self, rows: Run, cols: Run, scratch: Scratch) -> NDArray[Any]:
        vectors = Run(rows.start // self.length, -(-rows.stop // self.length))
        columns = self._columns(cols, scratch)
        main, more = self._indices(vectors, scratch)
        values = self._gather(self.books, main, columns, _CENTROIDS, vectors, scratch)
        if self.res_centroids is not None and more is not None:
            part = self._gather(self.res_centroids, more, columns, _RES_CENTROIDS, vectors, scratch)
            values = self._rounded(values + part)
        top = rows.start - vectors.start * self.length
        values = values.swapaxes(1, 2).reshape(-1, cols.n)[top : top + rows.n]
        for slot, stored in ((_SCALE, self.scale), (_BIAS, self.bias)):
            if stored is not None:
                of = self._read(scratch, slot, stored)[cols.start : cols.stop].astype(np.float32)
                values = self._rounded(values * of if slot == _SCALE else values + of)
        return values

    def _columns(self, cols: Run, scratch: Scratch) -> NDArray[Any]:
        """Return where in what is stored some columns of the result are."""
        if self.perm is None:
            return np.arange(cols.start, cols.stop)
        perm = self._read(scratch, _PERM, self.perm)
        placed = perm.view(np.uint16) if perm.dtype == np.int16 else perm
        n = self.shape[1]
        inverse = np.full(n, -1)
        inside = (placed >= 0) & (placed < n)
        inverse[placed[inside].astype(np.int64)] = np.flatnonzero(inside)
        if (inverse < 0).any():
            missing = int(np.argmin(inverse))
            raise self.perm.malformed(
                f"{self.perm.name}: no permutation of {n:,} columns, {missing:,} is missing",
            )
        return inverse[cols.start : cols.stop]

    def _indices(self, vectors: Run, scratch: Scratch) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Return the indices of some vectors, and of their corrections: [vectors, columns]."""
        stored = self.parts[_INDICES]
        raw = self._lines(stored, vectors, _INDICES, scratch)
        n_groups = stored.shape[0]
        per_group = self.shape[1] // n_groups
        if stored.dtype.name == "I16":
            more = None
            if self.res_indices is not None:
                more = self._lines(self.res_indices, vectors, _RES_INDICES, scratch)
                more = self._side_by_side(more.view(np.uint16).astype(np.int64))
            return self._side_by_side(raw.view(np.uint16).astype(np.int64)), more
        first, second = index_bits(self._entries(self.books)), index_bits(self._corrections)
        places = np.arange(per_group) * (first + second)
        words = np.pad(raw.view(np.uint32).astype(np.uint64), ((0, 0), (0, 0), (0, 1)))
        at, shift = places // WORD_BITS, (places % WORD_BITS).astype(np.uint64)
        both = (words[..., at] | words[..., at + 1] << np.uint64(WORD_BITS)) >> shift
        mask = np.uint64((1 << first) - 1)
        main = self._side_by_side((both & mask).astype(np.int64))
        if not second:
            return main, main * 0 if self._corrections else None
        rest = both >> np.uint64(first) & np.uint64((1 << second) - 1) & mask
        return main, self._side_by_side(rest.astype(np.int64))

    def _lines(
        self, stored: StoredTensor, vectors: Run, slot: int, scratch: Scratch
    ) -> NDArray[Any]:
        n_groups, n_vectors, width = stored.shape
        n_bytes = width * stored.dtype.n_bytes(1)
        first, stride = vectors.start * n_bytes, n_vectors * n_bytes
        raw = scratch.read_rows(slot, stored, first, stride, vectors.n * n_bytes, n_groups)
        return np.frombuffer(raw, stored.dtype.numpy()).reshape(n_groups, vectors.n, width)

    @staticmethod
    def _side_by_side(indices: NDArray[Any]) -> NDArray[Any]:
        """Put groups beside each other: [vectors, groups * columns]."""
        return indices.swapaxes(0, 1).reshape(indices.shape[1], -1)

    def _gather(
        self,
        centroids: StoredTensor,
        indices: NDArray[Any],
        columns: NDArray[Any],
        slot: int,
        vectors: Run,
        scratch: Scratch,
    ) -> NDArray[Any]:
        """Return the vectors of some columns in float32: [vectors, columns, rows of each]."""
        entries = self._entries(centroids)
        books = self._read(scratch, slot, centroids).reshape(-1, self.length)
        if indices.size and int(indices.max()) >= entries:
            vector, column = np.unravel_index(int(np.argmax(indices >= entries)), indices.shape)
            stored = self.parts[_INDICES]
            raise stored.malformed(
                f"{stored.name}: vector {vectors.start + int(vector):,} of column {int(column):,} "
                f"is number {int(indices[vector, column]):,} of {entries:,} in {centroids.name}",
            )
        per_group = self.shape[1] // centroids.shape[0]
        chosen = indices[:, columns] + columns // per_group * entries
        found: NDArray[Any] = books[chosen].astype(np.float32)
        return found


def index_bits(entries: int) -> int:
    """Return `ceil(log2(entries))`, and 0 where there are none."""
    return (entries - 1).bit_length() if entries else 0
