"""GGUF's block types: Q4_K, IQ2_XXS, MXFP4 and all the others that ggml has.

    blocks  Q4_0 | … | Q2_0  [..., n elements], of which a block holds 32 to 256 and all they need

    result = round(what ggml's dequantize_row_* gives in float32)

A block is independent of others, so a weight is one stored tensor, and a band any run of blocks.
"""

from __future__ import annotations

from anamnesis import _core
from anamnesis.base.dtypes import DType
from anamnesis.schemes.claim.facts import QuantFacts
from anamnesis.schemes.claim.ledger import Ledger
from anamnesis.schemes.core.weight import Band, Bands, Scratch, Weight, cut

__all__ = ["GgmlWeight", "find_all"]


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


def find_all(ledger: Ledger, facts: QuantFacts) -> None:
    """Take every stored tensor of a block type: its dtype says all."""
    for stored in ledger.free():
        if stored.dtype.kind == "block":
            ledger.take(GgmlWeight(stored.name, stored.shape, (stored,)))
