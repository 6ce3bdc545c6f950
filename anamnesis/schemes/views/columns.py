"""Weights whose columns are multiplied by what inputs of their layer would be."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from anamnesis.base.dtypes import OUTPUT_DTYPES, DType
from anamnesis.base.lazy import np
from anamnesis.schemes.core.bands import Band, Bands
from anamnesis.schemes.core.seen import Seen
from anamnesis.schemes.core.weight import Scratch, Weight

_F32 = OUTPUT_DTYPES["f32"]
_VALUES, _FACTORS, _NARROW = 16, 17, 18  # of a worker's scratch, behind those of what is stored


@dataclass(slots=True, eq=False)
class TimesColumns(Seen[Weight]):
    """`round(float32(stored[o, i]) * float32(factor[i]))`; the last part has the factors."""

    between: DType = _F32

    has_ranges: ClassVar[bool] = True

    @property
    def way(self) -> str:
        rounded = "" if self.between is _F32 else f"-in-{self.between.name.lower()}"
        return f"times-columns{rounded}"

    @property
    def scheme(self) -> str:
        return f"{self.stored.scheme}, times {self.parts[-1].name.rpartition('.')[2]}"

    def by_reference(self, dtype: DType) -> Self:
        found = Seen.by_reference(self, dtype)
        return found if dtype is self.between else replace(found, between=dtype)

    def bands(self, dtype: DType, n_bytes: int) -> Bands:
        return self.stored.bands(_F32, n_bytes)

    def decode(self, band: Band, dtype: DType, scratch: Scratch, out: memoryview) -> int:
        n = band.stop - band.start
        raw = scratch.room(_VALUES, _F32.n_bytes(n))
        if self.between is _F32:
            overflows = self.stored.decode(band, _F32, scratch, raw)
        else:
            narrow = scratch.room(_NARROW, self.between.n_bytes(n))
            overflows = self.stored.decode(band, self.between, scratch, narrow)
            scratch.convert(narrow, _F32, raw, of=self.between.name)
        values = np.frombuffer(raw, np.float32)
        n_infinite = np.count_nonzero(np.isinf(values))
        stored, cols = self.parts[-1], self.parts[-1].n_elements
        wide = bytearray(_F32.n_bytes(cols))
        given = scratch.read(_FACTORS, stored, 0, stored.n_bytes)
        scratch.convert(given, _F32, wide, of=stored.dtype.name)
        factors = np.frombuffer(wide, np.float32)
        head = min(-band.start % cols, n)  # of a row that has begun before; then whole rows
        tail = head + (n - head) // cols * cols
        with np.errstate(all="ignore"):
            values[:head] *= factors[band.start % cols :][:head]
            values[head:tail].reshape(-1, cols)[:] *= factors
            values[tail:] *= factors[: n - tail]
        overflows += int(np.count_nonzero(np.isinf(values)) - n_infinite)
        return overflows + scratch.convert(raw, dtype, out)
