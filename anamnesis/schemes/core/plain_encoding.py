"""Values as they are, as an encoding: BF16, F16, F32, or copied as stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import anamnesis._core as _core
from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.stored import Part, StoredTensor
from anamnesis.schemes.core.bands import Band
from anamnesis.schemes.core.codes import Codes, Extent, Loss, Out, Task
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.core.layout import Field, Layout
from anamnesis.schemes.core.plain import Plain
from anamnesis.schemes.core.weight import Scratch, Weight


@dataclass(frozen=True)
class PlainCodes(Codes):
    """Values of a dtype: BF16, F16, F32, or what is copied as it is stored."""

    dtype: DType

    def outs(self, shape: tuple[int, ...], found: bytes = b"") -> tuple[Out, ...]:
        return (Out("values", self.dtype, shape),)

    def grain(self, shape: tuple[int, ...]) -> int:
        return self.dtype.block_elements

    def extents(self, shape: tuple[int, ...], band: Band) -> tuple[Extent, ...]:
        begin, end = (self.dtype.n_bytes(n) for n in band)
        return (Extent(begin, end - begin),)

    def encode(self, values: memoryview, task: Task, outs: Sequence[memoryview]) -> Loss:
        output = _core.OUTPUTS[self.dtype.name]
        return Loss(_core.convert(_core.FLOATS["F32"], output, values, outs[0], task.level))

    def take(
        self, weight: Weight, task: Task, scratch: Scratch, outs: Sequence[memoryview]
    ) -> Loss:
        return Loss(weight.decode(task.band, self.dtype, scratch, outs[0]))


class PlainLayout(Layout):
    """One tensor, row-major, under the name of the weight."""

    fields = (Field("values", "{weight}"),)

    def weight(self, name: str, shape: tuple[int, ...], parts: tuple[StoredTensor, ...]) -> Weight:
        return Plain(name, shape, parts)


@dataclass(frozen=True)
class PlainEncoding(Encoding):
    """Values as they are, in a dtype."""

    dtype: DType = DTYPES["F32"]

    def parts(self, name: str, shape: tuple[int, ...], found: bytes = b"") -> tuple[Part, ...]:
        return (Part(name, self.dtype, shape),)


@cache
def plain_encoding(dtype: DType) -> PlainEncoding:
    """Return the encoding of values in a dtype; its id is that: `bf16`."""
    return PlainEncoding(dtype.name.lower(), PlainLayout(), PlainCodes(dtype), dtype)
