"""compressed-tensors' sparse matrices: a mask says which values are stored.

    compressed   any dtype [rows, cols / 2], or [values]
    bitmask      U8 [rows, cols / 8], the lowest bit of a byte for the first of its columns
    row_offsets  I64 [rows], where the values of each row start; `sparse-bitmask` only
    shape        I64 [2] or [2, 1]

`sparse-24-bitmask` keeps two of every four values, under the name of the module; `sparse-bitmask`
any number of them, under that of the weight. What is not stored is zero. The dense matrix may be
quantised: it is read as it would be if it were stored as such.

Canonical: `sparse24_bitmask_decompress` and `bitmask_decompress` of compressed-tensors 0.14.0.1,
the last one to have them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from anamnesis.base.dtypes import DType
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.bands import Band
from anamnesis.schemes.core.plain import Plain
from anamnesis.schemes.core.seen import Seen
from anamnesis.schemes.core.weight import Scratch, Weight


@dataclass(slots=True, eq=False)
class SparsePlain(Plain):
    """A matrix of numbers; `dense` is what it would be stored as otherwise."""

    dense: StoredTensor

    @property
    def id(self) -> str:
        return f"sparse-{self.dense.dtype.name.lower()}"

    @property
    def scheme(self) -> str:
        return f"sparse {self.dense.dtype.name}"

    def decode(self, band: Band, dtype: DType, scratch: Scratch, out: memoryview) -> int:
        dense = Plain(self.name, self.shape, (self.dense,))
        return dense.decode(band, dtype, scratch, out)


class SparseWeight(Seen[Weight]):
    """A quantised matrix, seen as the weight that it would be otherwise."""

    __slots__ = ()

    has_ranges: ClassVar[bool] = True

    @property
    def id(self) -> str:
        return f"sparse-{self.stored.id}"

    @property
    def scheme(self) -> str:
        return f"sparse {self.stored.scheme}"

    def by_reference(self, dtype: DType) -> Self:
        return self
