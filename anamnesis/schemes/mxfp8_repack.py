"""MXFP8 repacked: E4M3 codes with a power of two for each 32 of a row, whoever wrote them.

compressed-tensors, ModelOpt, torchao and ComfyUI have the codes as E4M3, MLX as words of four.
"""

from __future__ import annotations

from math import prod

from anamnesis.base.errors import UnsupportedError
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.base import Weight
from anamnesis.schemes.encoding import Encoding, Repack
from anamnesis.schemes.fp8 import Fp8Weight
from anamnesis.schemes.names import sibling
from anamnesis.schemes.views import retyped

__all__ = ["repack", "repack_to_mlx"]

_GROUP = 32
_SCALES = ("U8", "F8_E8M0")


def repack(weight: Weight, encoding: Encoding) -> Repack | None:
    """Return codes and scales as compressed-tensors and ModelOpt store them; None if it has none.

    Raises
    ------
    UnsupportedError
        If rows end within a group.
    """
    found = _found(weight)
    if found is None:
        return None
    codes, scales = found
    parts = (
        retyped(codes, weight.name, "F8_E4M3", weight.shape),
        retyped(scales, f"{weight.name}_scale", "U8", _grid(weight)),
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


def _grid(weight: Weight) -> tuple[int, ...]:
    return (*weight.shape[:-1], weight.shape[-1] // _GROUP)


def repack_to_mlx(weight: Weight, encoding: Encoding) -> Repack | None:
    """Return codes in words, and scales, as MLX stores them; None if it has none.

    Raises
    ------
    UnsupportedError
        If rows end within a group.
    """
    found = _found(weight)
    if found is None:
        return None
    codes, scales = found
    words = (*weight.shape[:-1], weight.shape[-1] // 4)
    parts = (
        retyped(codes, weight.name, "U32", words),
        retyped(scales, sibling(weight.name, "scales"), "U8", _grid(weight)),
    )
    return Repack((encoding,), parts)
