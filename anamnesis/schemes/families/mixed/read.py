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

import struct
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

from anamnesis.base.dtypes import DType
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.bands import Band
from anamnesis.schemes.core.plain import Plain
from anamnesis.schemes.core.seen import Seen
from anamnesis.schemes.core.weight import Scratch, Weight
from anamnesis.schemes.detect.config_facts import QuantFacts
from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.schemes.families.fp8 import read as fp8
from anamnesis.schemes.families.integers import read as integers
from anamnesis.sources.expanded import ExpandedSource, Sparse

_BESIDE = ("_scale", "_zero_point")  # of a quantised weight, after its name


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


class _Parts(NamedTuple):
    name: str  # of the weight
    values: StoredTensor
    mask: StoredTensor
    shape: StoredTensor
    starts: StoredTensor | None

    @property
    def stored(self) -> tuple[StoredTensor, ...]:
        return tuple(part for part in self[1:] if isinstance(part, StoredTensor))


def find_all(ledger: Ledger, facts: QuantFacts) -> None:
    """Take all sparse matrices with what belongs to them."""
    for mask in ledger.free():
        module, _, last = mask.name.rpartition(".")
        if last != "bitmask":
            continue
        values, shape, starts = (
            ledger.find(f"{module}.{part}") for part in ("compressed", "shape", "row_offsets")
        )
        if values is None:  # it is refused by its name later on
            continue
        if shape is None:
            error = values.unsupported(
                f"{values} has no {module}.shape: it may be in another shard; pass the directory"
            )
            names = (part.name for part in (values, mask, starts) if part is not None)
            ledger.refuse(names, error)
            continue
        parts = _Parts(module if starts else f"{module}.weight", values, mask, shape, starts)
        with ledger.refusing(part.name for part in parts.stored):
            weight, dropped = _weight(parts, ledger, facts)
            ledger.take(weight)
            for name in dropped:
                ledger.drop(name, dropped[name])


def _weight(parts: _Parts, ledger: Ledger, facts: QuantFacts) -> tuple[Weight, dict[str, str]]:
    """Return a sparse weight, and what is dropped with it and why."""
    if parts.name in ledger.stored:
        values = parts.values
        raise values.unsupported(f"{values.name} is {parts.name}, but that is stored as well")
    shape = _read_shape(parts)
    matrix = Sparse(*shape, parts.values, parts.mask, parts.starts, shape[1] // 2)
    source = ExpandedSource(matrix)
    dense = StoredTensor(parts.name, parts.values.dtype, shape, source.size, 0, source)
    beside = [ledger.find(parts.name + end) for end in _BESIDE]
    within = Ledger({part.name: part for part in (dense, *beside) if part is not None})
    fp8.find_all(within, facts)
    integers.find_in_rows(within, facts)
    for error in within.problems.values():
        raise error
    found = within.weights.get(parts.name)
    if found is not None:
        rest = tuple(part for part in found.parts if part is not dense)
        return SparseWeight(parts.name, found.shape, (*parts.stored, *rest), (found,)), {
            drop.name: drop.reason for drop in within.dropped
        }
    if any(part is not None for part in beside):
        raise parts.values.unsupported(
            f"{parts.values} has a scale or a zero point, but no dtype of codes that have one"
        )
    return SparsePlain(parts.name, shape, parts.stored, dense), {}


def _read_shape(parts: _Parts) -> tuple[int, int]:
    shape, mask, values = parts.shape, parts.mask, parts.values
    kind = {"I64": "q", "I32": "i"}.get(shape.dtype.name)
    if kind is None or shape.shape not in ((2,), (2, 1)):
        raise shape.misshapen("I64 [2]")
    rows, cols = struct.unpack(f"<2{kind}", shape.read())
    if rows < 1 or cols < 1:
        raise shape.malformed(f"{shape.name}: {rows} x {cols} is no shape of a matrix")
    if mask.dtype.name != "U8" or mask.shape != (rows, -(-cols // 8)):
        raise mask.misshapen(f"U8 [{rows}, {-(-cols // 8)}]")
    if values.dtype.bits not in (8, 16, 32, 64) or values.dtype.kind == "block":
        raise values.misshapen("a dtype of whole bytes")
    if parts.starts is None:
        if cols % 4 or values.shape != (rows, cols // 2):
            raise values.misshapen(f"two of every four of {rows} x {cols}")
        return rows, cols
    if (parts.starts.dtype.name, parts.starts.shape) != ("I64", (rows,)):
        raise parts.starts.misshapen(f"I64 [{rows}]")
    if len(values.shape) != 1 or values.shape[0] > rows * cols:
        raise values.misshapen(f"[at most {rows * cols}]")
    return rows, cols
