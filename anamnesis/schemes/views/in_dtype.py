"""A weight whose values are rounded to a dtype before all else."""

from __future__ import annotations

from dataclasses import dataclass

import anamnesis._core as _core
from anamnesis.base.dtypes import DType
from anamnesis.base.lazy import np
from anamnesis.schemes.core.bands import Band, Bands, cut
from anamnesis.schemes.core.seen import Seen
from anamnesis.schemes.core.weight import Scratch, Weight, decode_run

_SLOT = 20  # of a worker's scratch: what is rounded, or numbers as they are stored


@dataclass(slots=True, eq=False)
class InDtype(Seen[Weight]):
    """A weight of floats, or of whole numbers, as if it were stored in another float's dtype."""

    rounded: DType

    @property
    def way(self) -> str:
        return f"as {self.rounded.name.lower()}"

    @property
    def own_dtype(self) -> DType | None:  # type: ignore[override]
        return self.rounded

    def bands(self, dtype: DType, n_bytes: int) -> Bands:
        return cut(1, self.n_elements, n_bytes // dtype.n_bytes(1), step=4)

    def decode(
        self, band: Band, dtype: DType, scratch: Scratch, out: memoryview, level: int
    ) -> int:
        if dtype is self.rounded:
            return self._round(band, scratch, out, level)
        room = scratch.room(_SLOT, self.rounded.n_bytes(band.stop - band.start))
        overflows = self._round(band, scratch, room, level)
        own, wanted = _core.FLOATS[self.rounded.name], _core.OUTPUTS[dtype.name]
        return overflows + _core.convert(own, wanted, room, out, level)

    def _round(self, band: Band, scratch: Scratch, out: memoryview, level: int) -> int:
        stored = self.stored.own_dtype
        if stored is None or stored.kind == "float":
            return decode_run(self.stored, band, self.rounded, scratch.beneath, out, level)
        raw = scratch.beneath.room(_SLOT, stored.n_bytes(band.stop - band.start))
        self.stored.decode(band, stored, scratch.beneath, raw, level)
        values = np.frombuffer(raw, stored.numpy_name).astype(np.float32).view(np.uint8).data
        output = _core.OUTPUTS[self.rounded.name]
        return _core.convert(_core.FLOATS["F32"], output, values, out, level)
