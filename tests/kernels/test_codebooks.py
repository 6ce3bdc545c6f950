"""The codebooks of the IQ types are gguf-py's, and no scale of a block is a special case."""

from __future__ import annotations

import ggml_c
import numpy as np
import pytest

from anamnesis import _core
from anamnesis.base.dtypes import BLOCK_DTYPES
from helpers.kernel_calls import OUTPUTS, PROJECT, SUPPORTED, Blocks, Bytes, load_by_path, run

# Where the half floats of a block lie.
SCALES_AT = {
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "IQ1_S": (0,),
    "IQ2_XXS": (0,),
    "IQ2_XS": (0,),
    "IQ2_S": (0,),
    "IQ3_XXS": (0,),
    "IQ3_S": (0,),
    "IQ4_NL": (0,),
    "IQ4_XS": (0,),
}
HALVES = np.concatenate([np.arange(0, 1 << 16, 37), [0x8000, 0x7C00, 0xFC00, 0x7C01, 0xFFFF]])


def test_derived_file_is_current() -> None:
    derived = load_by_path("tools/derive_grids.py").derive()
    assert (PROJECT / "csrc" / "kernels" / "iq_grids.c").read_text("utf-8") == derived


def with_scales(name: str, rng: np.random.Generator) -> Bytes:
    """Blocks of random codes whose scales are half floats of every kind."""
    halves = rng.permutation(HALVES).astype(np.uint16)
    shape = len(halves), BLOCK_DTYPES[name].block_bytes
    blocks = rng.integers(0, 256, shape, dtype=np.uint8)
    if name == "IQ1_M":  # a nibble of the half float in the top of each 16 bits
        for i in range(4):
            nibble = (halves >> (4 * i) & 15).astype(np.uint8)
            blocks[:, 49 + 2 * i] = blocks[:, 49 + 2 * i] & 15 | nibble << 4
    for at in SCALES_AT.get(name, ()):
        blocks[:, at : at + 2] = rng.permutation(halves).view(np.uint8).reshape(-1, 2)
    return blocks.reshape(-1)


@pytest.mark.parametrize("out", OUTPUTS)
@pytest.mark.parametrize("name", [*SCALES_AT, "IQ1_M"])
def test_every_kind_of_scale(name: str, out: str, rng: np.random.Generator) -> None:
    blocks = with_scales(name, rng)
    case = Blocks(name, out, blocks.size // BLOCK_DTYPES[name].block_bytes)
    scalar = run(case, "scalar", (blocks,))
    for level in SUPPORTED[1:]:
        assert run(case, level, (blocks,)) == scalar, level
    if out == "F32":
        values = ggml_c.ggml().to_float(_core.BLOCKS[name], blocks).reshape(-1)
        truth = values.view(np.uint32).copy()
        truth[np.isnan(values)] = 0x7FC00000
        assert np.frombuffer(scalar[0], np.uint32).tobytes() == truth.tobytes()
