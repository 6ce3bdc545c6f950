"""MXFP8 repacked: E4M3 codes with a power of two for each 32 of a row, whoever wrote them.

compressed-tensors, ModelOpt, torchao and ComfyUI have the codes as E4M3, MLX as words of four.
"""

from __future__ import annotations

from math import prod

from anamnesis.base.errors import UnsupportedError
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.claim.names import sibling
from anamnesis.schemes.core.encoding import Encoding, Repack
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.fp8.read import Fp8Weight
from anamnesis.schemes.parts.views import retyped

__all__ = ["repack"]

_GROUP = 32
_SCALES = ("U8", "F8_E8M0")


def repack(weight: Weight, encoding: Encoding, *, in_words: bool = False) -> Repack | None:
    """Return codes and scales as compressed-tensors and ModelOpt store them; None if it has none.

    Parameters
    ----------
    weight : Weight
    encoding : Encoding
        That the result is of.
    in_words : bool
        As MLX stores them instead: four codes to a word, and another name for the scales.

    Raises
    ------
    UnsupportedError
        If rows end within a group.
    """
    found = _found(weight)
    if found is None:
        return None
    codes, scales = found
    *rows, cols = weight.shape
    dtype, width = ("U32", cols // 4) if in_words else ("F8_E4M3", cols)
    beside = sibling(weight.name, "scales") if in_words else f"{weight.name}_scale"
    parts = (
        retyped(codes, weight.name, dtype, (*rows, width)),
        retyped(scales, beside, "U8", (*rows, cols // _GROUP)),
    )
    return Repack((encoding,), parts)


def _found(weight: Weight) -> tuple[StoredTensor, StoredTensor] | None:
    if not isinstance(weight, Fp8Weight) or len(weight.parts) < 2:
        return None
    codes, scales = weight.parts[:2]
    block = (weight.grid.block_rows, weight.grid.block_cols)
    is_mx = block == (1, _GROUP) and scales.dtype.name in _SCALES
    if not is_mx or codes.dtype.name != "F8_E4M3":
        return None
    if weight.shape[-1] % _GROUP or codes.n_bytes != prod(weight.shape):
        raise UnsupportedError(
            f"{codes.source.name}: {weight.name} {list(weight.shape)} cannot be repacked: rows end "
            f"within a group of {_GROUP}; exclude this weight, so that it is written as values"
        )
    return codes, scales
