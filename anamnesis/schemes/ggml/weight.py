"""Blocks of GGUF as weights: which bytes a band of them needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from anamnesis import _core
from anamnesis.base.dtypes import DType
from anamnesis.schemes.core.taken_rows import TakenRows
from anamnesis.schemes.core.weight import Band, Bands, Scratch, Weight, cut

__all__ = ["GgmlWeight"]

V = TypeVar("V")


class GgmlWeight(Weight):
    """A stored tensor of whole blocks."""

    __slots__ = ()

    @property
    def id(self) -> str:
        """The block type: `q4_k`."""
        return self.parts[0].dtype.name.lower()

    @property
    def scheme(self) -> str:
        """ggml's name of the type."""
        return self.parts[0].dtype.name

    def view(self, kind: type[V]) -> V | None:
        """Return the codes of Q4_0 and Q8_0 as words, of Q4_1 as rows with biases."""
        from anamnesis.schemes.ggml.split import seen  # only here, for the sake of a quick start

        view = seen(self.name, self.parts[0], kind)
        return view if isinstance(view, kind) else None

    def with_rows(
        self, name: str, shape: tuple[int, ...], pieces: Sequence[Weight], rows: TakenRows
    ) -> Weight | None:
        """Take them from stored tensors of one type, whose rows are whole blocks."""
        if any(type(piece) is not GgmlWeight for piece in pieces):
            return None
        stored = rows.of_lone([piece.parts[0] for piece in pieces], name, shape)
        return None if stored is None else GgmlWeight(name, shape, (stored,))

    def bands(self, dtype: DType, n_bytes: int) -> Bands:
        """Cut between any two blocks."""
        per_band = n_bytes // dtype.n_bytes(1)
        return cut(1, self.n_elements, per_band, step=self.parts[0].dtype.block_elements)

    def decode(
        self, band: Band, dtype: DType, scratch: Scratch, out: memoryview, level: int
    ) -> int:
        """Read the band's blocks and decode them."""
        stored = self.parts[0]
        start, stop = (stored.dtype.n_bytes(n) for n in band)
        blocks = scratch.read(0, stored, start, stop - start)
        return _core.dequantize_blocks(
            _core.BLOCKS[stored.dtype.name], _core.OUTPUTS[dtype.name], blocks, out, level
        )
