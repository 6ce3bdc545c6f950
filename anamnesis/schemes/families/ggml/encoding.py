"""Each block type as an encoding."""

from __future__ import annotations

from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.families.ggml.encode import BlockCodes
from anamnesis.schemes.families.ggml.integers import INTEGERS, TERNARY, IntegerBlocks, Ternary
from anamnesis.schemes.families.ggml.layouts import Blocks


def encoding(type: str) -> Encoding:
    """Return a block type, by ggml's name, with its encoder and without importance."""
    layout = IntegerBlocks if type in INTEGERS else Ternary if type in TERNARY else Blocks
    return Encoding(f"gguf-{type.lower()}", layout(type), BlockCodes(type))
