"""Codes of a codebook from bfloat16, which vectors find by bounds: every number of a block."""

from __future__ import annotations

import numpy as np
import pytest

from anamnesis import _core

# Exponents of the largest magnitude: all kinds, and where blocks are left to the scalar kernel.
EXPONENTS = (0, 1, 2, 24, 27, 28, 100, 119, 127, 142, 143, 144, 200, 254)
MANTISSAS = (*range(0, 128, 9), 127)


def encode(code: str, words: np.ndarray, level: str) -> tuple[bytes, bytes, object]:
    """Codes, scales and the loss of one block."""
    codes, scales = bytearray(words.size // 2 + 1), bytearray(4)
    loss = _core.quantize(
        _core.SOURCES["BF16"],
        _core.QUANTIZERS[code],
        _core.RULES["absmax"],
        words.view(np.uint8),
        *(1, words.size, 1, words.size),
        codes,
        scales,
        bytearray(4),
        b"",
        measure=True,
        level=_core.LEVELS[level],
    )
    return bytes(codes), bytes(scales), loss


@pytest.mark.sampled(3)
@pytest.mark.parametrize("level", [name for name in _core.supported_levels() if name != "scalar"])
@pytest.mark.parametrize("code", ["NF4", "FP4", "FP4_ZEROS"])
@pytest.mark.parametrize("exponent", EXPONENTS)
def test_every_number(exponent: int, code: str, level: str) -> None:
    words = np.arange(1 << 16).astype(np.uint16)
    for mantissa in MANTISSAS:
        block = words[words & 0x7FFF <= (exponent << 7 | mantissa)]
        assert encode(code, block, level) == encode(code, block, "scalar"), mantissa
