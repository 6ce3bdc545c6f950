"""Weights seen as another one: what all that move, join or transpose share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Generic, Self, TypeVar

from anamnesis.base.dtypes import DType
from anamnesis.base.lazy import np
from anamnesis.schemes.core.bands import Band, Bands, Run, cut
from anamnesis.schemes.core.settings import Shown
from anamnesis.schemes.core.weight import TILE_STEP, Scratch, TiledWeight, Weight, decode_run

W = TypeVar("W", bound=Weight)

_SLOT = 19  # of a worker's scratch: what is decoded with what is wanted


@dataclass(slots=True, eq=False)
class Seen(Weight, Generic[W]):
    """Weights seen as another one, whose parts are theirs."""

    pieces: tuple[W, ...]

    @property
    def stored(self) -> W:
        """The only one, or the first."""
        return self.pieces[0]

    @property
    def way(self) -> str:
        return ""

    @property
    def id(self) -> str:
        ids = dict.fromkeys(piece.id for piece in self.pieces)
        return "-".join([*ids, *filter(None, [self.way])])

    @property
    def scheme(self) -> str:
        return self.stored.scheme

    @property
    def shown(self) -> Shown | None:
        return self.stored.shown

    @property
    def family(self) -> str:
        return self.stored.family

    @property
    def own_dtype(self) -> DType | None:  # type: ignore[override]
        own = self.stored.own_dtype
        return own if all(piece.own_dtype is own for piece in self.pieces) else None

    @property
    def made_of(self) -> tuple[Weight, ...]:
        made = tuple(one for piece in self.pieces for one in piece.made_of)
        return (self,) if made == self.pieces else made

    def by_reference(self, dtype: DType) -> Self:
        pieces = tuple(piece.by_reference(dtype) for piece in self.pieces)
        return self if pieces == self.pieces else replace(self, pieces=pieces)

    def bands(self, dtype: DType, n_bytes: int) -> Bands:
        return self.stored.bands(dtype, n_bytes)

    def decode(self, band: Band, dtype: DType, scratch: Scratch, out: memoryview) -> int:
        return self.stored.decode(band, dtype, scratch, out)


def decode_rows(
    weight: Weight, rows: Run, cols: Run, dtype: DType, scratch: Scratch, out: memoryview
) -> int:
    """Decode columns of any rows, with those beside them that tiles have to begin and end with."""
    if cols.n == weight.shape[-1]:
        band = Band(rows.start * cols.n, rows.stop * cols.n)
        return decode_run(weight, band, dtype, scratch, out)
    whole = rows.around(TILE_STEP, prod(weight.shape[:-1]))
    if whole == rows or not isinstance(weight, TiledWeight):
        return weight.decode_tile(rows, cols, dtype, scratch, out)
    line = dtype.n_bytes(cols.n)
    room = scratch.room(_SLOT, whole.n * line)
    overflows = weight.decode_tile(whole, cols, dtype, scratch, room)
    out[:] = room[(rows.start - whole.start) * line :][: len(out)]
    return overflows


_ROUNDED = 20  # of a worker's scratch: what is rounded, or numbers as they are stored


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

    def decode(self, band: Band, dtype: DType, scratch: Scratch, out: memoryview) -> int:
        if dtype is self.rounded:
            return self._round(band, scratch, out)
        room = scratch.room(_ROUNDED, self.rounded.n_bytes(band.stop - band.start))
        overflows = self._round(band, scratch, room)
        return overflows + scratch.convert(room, dtype, out, of=self.rounded.name)

    def _round(self, band: Band, scratch: Scratch, out: memoryview) -> int:
        stored = self.stored.own_dtype
        if stored is None or stored.kind == "float":
            return decode_run(self.stored, band, self.rounded, scratch.beneath, out)
        raw = scratch.beneath.room(_ROUNDED, stored.n_bytes(band.stop - band.start))
        self.stored.decode(band, stored, scratch.beneath, raw)
        values = np.frombuffer(raw, stored.numpy_name).astype(np.float32).view(np.uint8).data
        return scratch.convert(values, self.rounded, out)
