"""GGUF's NVFP4 with the second scale that llama.cpp keeps beside it.

    NAME.weight  NVFP4  [..., out features, in features]
    NAME.scale   F32    one, or one for each matrix of a stack of experts

llama.cpp multiplies what a layer gives by it. Here it is multiplied with each scale of the blocks,
as in ModelOpt, whose codes and scales these are: so the values are ModelOpt's, too. Where there
is none, the blocks are ggml's own.
"""

from __future__ import annotations

from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.seen import Seen
from anamnesis.schemes.families.fp4.formats import FORMATS
from anamnesis.schemes.families.fp4.view import of_blocks
from anamnesis.schemes.families.fp4.weight import Fp4Weight
from anamnesis.schemes.views.views import forbidding

_SIGNED = bytes(range(127, 256))  # which ggml reads without their sign, and 127 as 0


class ScaledBlocks(Seen[Fp4Weight]):
    """Blocks and a second scale, seen as the codes and scales that have both."""

    __slots__ = ()


def scaled_blocks(blocks: StoredTensor, second: StoredTensor) -> ScaledBlocks:
    """Return the weight of NVFP4's blocks, in rows, and of a second scale that is checked."""
    found = of_blocks(blocks)
    assert found is not None
    scales = forbidding(found.scales, _SIGNED, "which is no scale that ggml writes")
    name, shape, parts = blocks.name, blocks.shape, (found.codes, scales, second)
    values = Fp4Weight(name, shape, parts, FORMATS["gguf-nvfp4"], found.group, shape[-1])
    return ScaledBlocks(blocks.name, blocks.shape, (blocks, second), (values,))
