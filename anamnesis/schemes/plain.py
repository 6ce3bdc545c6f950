"""Weights that are stored as they stand."""

from __future__ import annotations

from anamnesis import _core
from anamnesis.base.dtypes import DType
from anamnesis.schemes.base import Band, Bands, Scratch, Weight, cut

__all__ = ["Plain"]


class Plain(Weight):
    """A stored tensor that is a weight as it stands."""

    __slots__ = ()

    @property
    def scheme(self) -> str:
        """The dtype."""
        return self.parts[0].dtype.name

    def target(self, wanted: DType, cast_all: bool) -> DType:
        """Its own dtype, or `wanted` for floats under `cast_all`."""
        own = self.parts[0].dtype
        return wanted if cast_all and own.kind == "float" else own

    def bands(self, target: DType, n_bytes: int) -> Bands:
        """Cut anywhere; packed sub-byte types at multiples of four elements (whole bytes)."""
        return cut(1, self.n_elements, n_bytes * 8 // target.bits, step=4)

    def decode(
        self, band: Band, target: DType, scratch: Scratch, out: memoryview, level: int
    ) -> int:
        """Copy or cast."""
        stored = self.parts[0]
        start, stop = (stored.dtype.n_bytes(n) for n in band)
        if target is stored.dtype:
            stored.source.read_into(stored.offset + start, out)
            return 0
        values = scratch.read(0, stored, start, stop - start)
        return _core.convert(
            _core.FLOATS[stored.dtype.name], _core.OUTPUTS[target.name], values, out, level
        )
