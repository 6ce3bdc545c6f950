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
from typing import TYPE_CHECKING, Any

from anamnesis.base.dtypes import DType
from anamnesis.base.errors import ParseError, UnsupportedError
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.claim.facts import QuantFacts, VptqLayer
from anamnesis.schemes.claim.ledger import Ledger
from anamnesis.schemes.claim.unread import refuse_encoding
from anamnesis.schemes.codebooks.weight import FLOATS, CodebookWeight, check_size, misshapen
from anamnesis.schemes.core.weight import Run, Scratch

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["VptqWeight", "find"]

_WORD_BITS = 32
_INDICES, _RES_INDICES, _CENTROIDS, _RES_CENTROIDS, _PERM, _SCALE, _BIAS = range(7)  # slots
_REST = ("outlier_indices", "outlier_centroids.weight")
_MAX_COLUMNS = 1 << 18  # of which the indices of a vector are unpacked together


@dataclass(slots=True, eq=False)
class VptqWeight(CodebookWeight):
    """Codes and centroids, and what else there is.

    Attributes
    ----------
    length : int
        Rows of a vector.
    res_indices, res_centroids, perm, scale, bias : StoredTensor, optional
    """

    length: int
    centroids: StoredTensor
    res_indices: StoredTensor | None
    res_centroids: StoredTensor | None
    perm: StoredTensor | None
    scale: StoredTensor | None
    bias: StoredTensor | None

    @property
    def id(self) -> str:
        """For instance `vptq-v6-64-16`: a vector's rows, entries, and those of the correction."""
        rounded = "-rounded" if self.is_rounded else ""
        return f"vptq-v{self.length}-{self._entries(self.centroids)}-{self._corrections}{rounded}"

    @property
    def scheme(self) -> str:
        """For instance `VPTQ, vectors of 6, 64 centroids and 16`."""
        more = f" and {self._corrections}" if self._corrections else ""
        return f"VPTQ, vectors of {self.length}, {self._entries(self.centroids)} centroids{more}"

    @property
    def family(self) -> str:
        """Always `VPTQ`."""
        return "VPTQ"

    @property
    def codebook_dtype(self) -> DType:
        """The dtype of the centroids."""
        return self.centroids.dtype

    @property
    def _rows_of_code(self) -> int:
        return self.length

    @property
    def _corrections(self) -> int:
        return 0 if self.res_centroids is None else self._entries(self.res_centroids)

    def _entries(self, centroids: StoredTensor) -> int:
        return centroids.shape[1] // self.length

    def _values(self, rows: Run, cols: Run, scratch: Scratch) -> NDArray[Any]:
        import numpy as np

        vectors = Run(rows.start // self.length, -(-rows.stop // self.length))
        columns = self._columns(cols, scratch)
        main, more = self._indices(vectors, scratch)
        values = self._gather(self.centroids, main, columns, _CENTROIDS, vectors, scratch)
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
        import numpy as np

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
            raise ParseError(
                f"{self.perm.name}: no permutation of {n:,} columns, {missing:,} is missing",
                offset=self.perm.offset,
                source=self.perm.source.name,
            )
        return inverse[cols.start : cols.stop]

    def _indices(self, vectors: Run, scratch: Scratch) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Return the indices of some vectors, and of their corrections: [vectors, columns]."""
        import numpy as np

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
        first, second = _bits(self._entries(self.centroids)), _bits(self._corrections)
        places = np.arange(per_group) * (first + second)
        words = np.pad(raw.view(np.uint32).astype(np.uint64), ((0, 0), (0, 0), (0, 1)))
        at, shift = places // _WORD_BITS, (places % _WORD_BITS).astype(np.uint64)
        both = (words[..., at] | words[..., at + 1] << np.uint64(_WORD_BITS)) >> shift
        mask = np.uint64((1 << first) - 1)
        main = self._side_by_side((both & mask).astype(np.int64))
        if not second:
            return main, main * 0 if self._corrections else None
        rest = both >> np.uint64(first) & np.uint64((1 << second) - 1) & mask
        return main, self._side_by_side(rest.astype(np.int64))

    def _lines(
        self, stored: StoredTensor, vectors: Run, slot: int, scratch: Scratch
    ) -> NDArray[Any]:
        """Read the lines of some vectors, of all groups."""
        import numpy as np

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
        import numpy as np

        entries = self._entries(centroids)
        books = self._read(scratch, slot, centroids).reshape(-1, self.length)
        if indices.size and int(indices.max()) >= entries:
            vector, column = np.unravel_index(int(np.argmax(indices >= entries)), indices.shape)
            stored = self.parts[_INDICES]
            raise ParseError(
                f"{stored.name}: vector {vectors.start + int(vector):,} of column {int(column):,}"
                f" is number {int(indices[vector, column]):,} of {entries:,} in {centroids.name}",
                offset=stored.offset,
                source=stored.source.name,
            )
        per_group = self.shape[1] // centroids.shape[0]
        chosen = indices[:, columns] + columns // per_group * entries
        found: NDArray[Any] = books[chosen].astype(np.float32)
        return found


def _bits(entries: int) -> int:
    """Return `ceil(log2(entries))`, and 0 where there are none."""
    return (entries - 1).bit_length() if entries else 0


# --- claiming ---------------------------------------------------------------------------------


def find(codes: StoredTensor, module: str, ledger: Ledger, facts: QuantFacts) -> VptqWeight | None:
    """Return the weight that codes are of, None if it has no centroids.

    Raises
    ------
    UnsupportedError, ParseError
        If its parts do not fit, or the config does not describe them.
    LimitExceeded
        If its centroids have more than `CODEBOOKS_MAX_BYTES`.
    """
    centroids = ledger.find(f"{module}centroids.weight")
    if centroids is None:
        return None
    if len(codes.shape) != 3:
        raise misshapen(codes, "[groups, vectors, words]")
    if any(f"{module}{other}" in ledger.stored for other in _REST):
        raise refuse_encoding(codes, "VPTQ with outliers", facts)
    layer = facts.vptq_layers.get(module.removesuffix("."))
    if layer is None:
        raise UnsupportedError(
            f"{codes.source.name}: {codes.name} ({codes.describe()}): how long VPTQ's vectors are "
            "is in config_for_layers of config.json; pass the directory that has it"
        )
    res_indices, res_centroids, perm, scale, bias = (
        ledger.find(f"{module}{part}")
        for part in ("res_indices", "res_centroids.weight", "perm", "weight_scale", "weight_bias")
    )
    length, rows, cols = layer
    for part in (centroids, res_centroids):
        if part is not None:
            _check_centroids(part, codes, length)
    check_size(centroids, res_centroids)
    entries = centroids.shape[1] // length
    corrections = 0 if res_centroids is None else res_centroids.shape[1] // length
    _check_indices(codes, res_indices, layer, _bits(entries) + _bits(corrections))
    if codes.dtype.name == "I16" and (res_indices is None) != (res_centroids is None):
        raise misshapen(codes, "res_indices beside res_centroids")
    for part, dtypes in ((perm, ("I16", "I64")), (scale, FLOATS), (bias, FLOATS)):
        if part is not None and (part.dtype.name not in dtypes or part.shape != (cols,)):
            raise misshapen(part, f"{' or '.join(dtypes)} [{cols}]")
    optional = (res_indices, res_centroids, perm, scale, bias)
    parts = (codes, centroids, *(part for part in optional if part is not None))
    return VptqWeight(f"{module}weight", (rows, cols), parts, length, centroids, *optional)


def _check_centroids(part: StoredTensor, codes: StoredTensor, length: int) -> None:
    if part.dtype.name not in FLOATS or len(part.shape) != 2 or 0 in part.shape:
        raise misshapen(part, "floats [groups, entries * rows]")
    if part.shape[0] != codes.shape[0] or part.shape[1] % length:
        raise misshapen(part, f"[{codes.shape[0]}, entries * {length}]")


def _check_indices(
    codes: StoredTensor, res_indices: StoredTensor | None, layer: VptqLayer, bits: int
) -> None:
    """Compare the indices with what the config says of the matrix."""
    length, rows, cols = layer
    n_groups = codes.shape[0] if len(codes.shape) == 3 else 0
    if not n_groups or cols % n_groups or cols > _MAX_COLUMNS:
        raise misshapen(codes, f"[groups, vectors, words] of {rows} x {cols}")
    vectors, per_group = -(-rows // length), cols // n_groups
    words = -(-per_group * bits // _WORD_BITS)
    shapes = {"I16": (n_groups, vectors, per_group)}
    if 0 < bits <= _WORD_BITS:  # one centroid takes none, and so has no words
        shapes = {"I32": (n_groups, vectors, words), **shapes}
    if codes.shape != shapes.get(codes.dtype.name):
        raise misshapen(codes, " or ".join(f"{k} {list(shape)}" for k, shape in shapes.items()))
    if res_indices is not None and (res_indices.dtype, res_indices.shape) != (
        codes.dtype,
        shapes["I16"],
    ):
        raise misshapen(res_indices, f"I16 {list(shapes['I16'])}")
