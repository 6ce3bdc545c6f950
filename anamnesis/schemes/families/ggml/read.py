"""GGUF's block types: Q4_K, IQ2_XXS, MXFP4 and all the others that ggml has.

    blocks  Q4_0 | … | Q2_0  [..., n elements], of which a block holds 32 to 256 and all they need

    result = round(what ggml's dequantize_row_* gives in float32)

A block is independent of others, so a weight is one stored tensor, and a band any run of blocks.
Blocks are written byte for byte as ggml does, with or without the importance of columns; a whole
model becomes a mix of types, such as `gguf-q4_k_m`, by llama-quantize's rules. What ggml does wrong
is kept: of IQ3_S, a run of 32 zeros takes no place among indices and signs, so that what follows in
its block of 256 is decoded from others; the loss that is measured has it.
"""

from __future__ import annotations

from anamnesis.schemes.detect.config_facts import QuantFacts
from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.schemes.families.ggml.weight import GgmlWeight


def find_all(ledger: Ledger, facts: QuantFacts) -> None:
    """Take every stored tensor of a block type: its dtype says all."""
    for stored in ledger.free():
        if stored.dtype.kind == "block":
            ledger.take(GgmlWeight(stored.name, stored.shape, (stored,)))
