"""Blocks of GGUF as weights: which bytes a band of them needs."""

from __future__ import annotations

from collections.abc import Sequence

import anamnesis._core as _core
from anamnesis.base.dtypes import DType
from anamnesis.schemes.core.bands import Band, Bands, cut
from anamnesis.schemes.core.weight import Scratch, Weight
from anamnesis.sources.gathered import RowOrder


class GgmlWeight(Weight):
    """A stored tensor of whole blocks."""

    __slots__ = ()

    @property
    def id(self) -> str:
        return self.parts[0].dtype.name.lower()

    @property
    def scheme(self) -> str:
        return self.parts[0].dtype.name

    def seen_as(self, kind: type) -> object:
        from anamnesis.schemes.families.ggml.split import seen

        return seen(self.name, self.parts[0], kind)

    def with_rows(
        self, name: str, shape: tuple[int, ...], pieces: Sequence[Weight], rows: RowOrder
    ) -> Weight | None:
        if any(type(piece) is not GgmlWeight for piece in pieces):
            return None
        stored = rows.taken_alone([piece.parts[0] for piece in pieces], name, shape)
        return None if stored is None else GgmlWeight(name, shape, (stored,))

    def bands(self, dtype: DType, n_bytes: int) -> Bands:
        per_band = n_bytes // dtype.n_bytes(1)
        return cut(1, self.n_elements, per_band, step=self.parts[0].dtype.block_elements)

    def decode(self, band: Band, dtype: DType, scratch: Scratch, out: memoryview) -> int:
        stored = self.parts[0]
        start, stop = (stored.dtype.n_bytes(n) for n in band)
        blocks = scratch.read(0, stored, start, stop - start)
        return _core.dequantize_blocks(
            _core.BLOCKS[stored.dtype.name], _core.OUTPUTS[dtype.name], blocks, out, scratch.level
        )
