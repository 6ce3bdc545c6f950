"""compressed-tensors' sparse matrices: what a mask has a bit for is stored, of any dtype.

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
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from anamnesis.base.dtypes import DType
from anamnesis.base.errors import AnamnesisError, ParseError, UnsupportedError
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.claim.facts import QuantFacts
from anamnesis.schemes.claim.ledger import Ledger
from anamnesis.schemes.core.plain import Plain
from anamnesis.schemes.core.settings import Shown
from anamnesis.schemes.core.weight import Band, Bands, Scratch, Weight
from anamnesis.schemes.fp8 import read as fp8
from anamnesis.schemes.integers import read as integers
from anamnesis.sources.expanded import ExpandedSource, Sparse

__all__ = ["SparsePlain", "SparseWeight", "find_all"]

_24 = 4  # columns of which two are stored
_ITEMS = (1, 2, 4, 8)
_SIZES = {"I64": "q", "I32": "i"}
_BESIDE = ("_scale", "_zero_point")  # of a quantised weight, after its name


@dataclass(slots=True, eq=False)
class SparsePlain(Plain):
    """A matrix of numbers; `dense` is what it would be stored as otherwise."""

    dense: StoredTensor

    @property
    def id(self) -> str:
        """For instance `sparse-bf16`."""
        return f"sparse-{self.dense.dtype.name.lower()}"

    @property
    def scheme(self) -> str:
        """For instance `sparse BF16`."""
        return f"sparse {self.dense.dtype.name}"

    def decode(
        self, band: Band, dtype: DType, scratch: Scratch, out: memoryview, level: int
    ) -> int:
        """Copy or cast what is read of the dense matrix."""
        dense = Plain(self.name, self.shape, (self.dense,))
        return dense.decode(band, dtype, scratch, out, level)


@dataclass(slots=True, eq=False)
class SparseWeight(Weight):
    """A quantised matrix; `dense` is the weight that it would be otherwise."""

    dense: Weight

    has_ranges: ClassVar[bool] = True

    @property
    def id(self) -> str:
        """For instance `sparse-fp8-channel-1x4096`."""
        return f"sparse-{self.dense.id}"

    @property
    def scheme(self) -> str:
        """For instance `sparse per-channel FP8 (E4M3)`."""
        return f"sparse {self.dense.scheme}"

    @property
    def shown(self) -> Shown | None:
        """That of what is dense."""
        return self.dense.shown

    @property
    def family(self) -> str:
        """That of the dense one."""
        return self.dense.family

    def bands(self, dtype: DType, n_bytes: int) -> Bands:
        """Cut as the dense one is."""
        return self.dense.bands(dtype, n_bytes)

    def decode(
        self, band: Band, dtype: DType, scratch: Scratch, out: memoryview, level: int
    ) -> int:
        """Decode what is read of the dense matrix."""
        return self.dense.decode(band, dtype, scratch, out, level)


class _Parts(NamedTuple):
    name: str  # of the weight
    values: StoredTensor
    mask: StoredTensor
    shape: StoredTensor
    starts: StoredTensor | None

    @property
    def stored(self) -> tuple[StoredTensor, ...]:
        return tuple(part for part in self[1:] if isinstance(part, StoredTensor))


# --- claiming ---------------------------------------------------------------------------------


def find_all(ledger: Ledger, facts: QuantFacts) -> None:
    """Take all sparse matrices with what belongs to them."""
    for parts in _gather(ledger):
        try:
            weight, dropped = _weight(parts, ledger, facts)
        except AnamnesisError as error:
            ledger.refuse([part.name for part in parts.stored], error)
            continue
        ledger.take(weight)
        for name in dropped:
            ledger.drop(name, dropped[name])


def _gather(ledger: Ledger) -> Iterator[_Parts]:
    """Yield what has all of its parts; what lacks one is refused by its names later on."""
    for mask in ledger.free():
        module, _, last = mask.name.rpartition(".")
        if last != "bitmask":
            continue
        values, shape, starts = (
            ledger.find(f"{module}.{part}") for part in ("compressed", "shape", "row_offsets")
        )
        if values is None:
            continue
        if shape is None:
            error = UnsupportedError(
                f"{values.source.name}: {values.name} ({values.describe()}) has no {module}.shape: "
                "it may be in another shard; pass the directory"
            )
            names = (part.name for part in (values, mask, starts) if part is not None)
            ledger.refuse(names, error)
            continue
        yield _Parts(module if starts else f"{module}.weight", values, mask, shape, starts)


def _weight(parts: _Parts, ledger: Ledger, facts: QuantFacts) -> tuple[Weight, dict[str, str]]:
    """Return a sparse weight, and what is dropped with it and why."""
    if parts.name in ledger.stored:
        raise UnsupportedError(
            f"{parts.values.source.name}: {parts.values.name} is {parts.name}, but that is stored "
            "as well"
        )
    shape = _read_shape(parts)
    dense = _dense(parts, shape)
    beside = [ledger.find(parts.name + end) for end in _BESIDE]
    within = Ledger({part.name: part for part in (dense, *beside) if part is not None})
    fp8.find_all(within, facts)
    integers.find_all(within, facts)
    for error in within.problems.values():
        raise error
    found = within.weights.get(parts.name)
    if found is not None:
        rest = tuple(part for part in found.parts if part is not dense)
        return SparseWeight(parts.name, found.shape, (*parts.stored, *rest), found), {
            drop.name: drop.reason for drop in within.dropped
        }
    if any(part is not None for part in beside):
        raise UnsupportedError(
            f"{parts.values.source.name}: {parts.values.name} ({parts.values.describe()}) has a "
            "scale or a zero point, but no dtype of codes that have one"
        )
    return SparsePlain(parts.name, shape, parts.stored, dense), {}


def _read_shape(parts: _Parts) -> tuple[int, int]:
    """Return the shape, of which the other parts are a proof."""
    shape, mask, values = parts.shape, parts.mask, parts.values
    kind = _SIZES.get(shape.dtype.name)
    if kind is None or shape.shape not in ((2,), (2, 1)):
        raise _misshapen(shape, "I64 [2]")
    rows, cols = struct.unpack(f"<2{kind}", shape.read())
    if rows < 1 or cols < 1:
        raise ParseError(
            f"{shape.name}: {rows} x {cols} is no shape of a matrix",
            offset=shape.offset,
            source=shape.source.name,
        )
    if mask.dtype.name != "U8" or mask.shape != (rows, -(-cols // 8)):
        raise _misshapen(mask, f"U8 [{rows}, {-(-cols // 8)}]")
    if values.dtype.bits not in [8 * n for n in _ITEMS] or values.dtype.kind == "block":
        raise _misshapen(values, "a dtype of whole bytes")
    if parts.starts is None:
        if cols % _24 or values.shape != (rows, cols // 2):
            raise _misshapen(values, f"two of every four of {rows} x {cols}")
        return rows, cols
    if (parts.starts.dtype.name, parts.starts.shape) != ("I64", (rows,)):
        raise _misshapen(parts.starts, f"I64 [{rows}]")
    if len(values.shape) != 1 or values.shape[0] > rows * cols:
        raise _misshapen(values, f"[at most {rows * cols}]")
    return rows, cols


def _misshapen(part: StoredTensor, expected: str) -> ParseError:
    return ParseError(
        f"{part.name} is {part.describe()}; {expected} is expected",
        offset=part.offset,
        source=part.source.name,
    )


def _dense(parts: _Parts, shape: tuple[int, int]) -> StoredTensor:
    """Return the matrix as if it were stored dense."""
    matrix = Sparse(*shape, parts.values, parts.mask, parts.starts, shape[1] // 2)
    source = ExpandedSource(matrix)
    return StoredTensor(parts.name, parts.values.dtype, shape, source.size, 0, source)
