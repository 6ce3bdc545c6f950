"""Blocks of 32 values taken apart: words or bytes of codes, and F16 scales.

    Q4_0  d, 16 bytes of codes        (code - 8) * d
    Q4_1  d, m, 16 bytes of codes     code * d + m
    Q8_0  d, 32 bytes of codes        code * d

Of 4-bit codes, a block has the first 16 in the low nibbles and the others in the high ones.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from anamnesis.base.dtypes import DTYPES
from anamnesis.base.stored import Part, StoredTensor
from anamnesis.schemes.parts.codes import Rows, Words
from anamnesis.schemes.parts.nibbles import paired
from anamnesis.schemes.parts.views import made_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["seen"]

_BLOCK = 32


def seen(name: str, blocks: StoredTensor, kind: type) -> Words | Rows | None:
    """Return codes and scales of blocks as one of these kinds, if they are of it.

    Parameters
    ----------
    name : str
        Of the weight.
    blocks : StoredTensor
    kind : type
        `Words` or `Rows`.
    """
    shape, type = blocks.shape, blocks.dtype.name
    if kind is Words and type in ("Q4_0", "Q8_0"):
        four = type == "Q4_0"
        codes = _codes(blocks, "I32", 2) if four else _offset(_bytes(blocks))
        scales, bits = _numbers(blocks, 0), 4 if four else 8
        return Words(name, shape, "rows", codes, scales, None, False, None, _BLOCK, True, bits)
    if kind is Rows and type == "Q4_1":
        parts = _codes(blocks, "U32", 4), _numbers(blocks, 0), _numbers(blocks, 2)
        return Rows(name, shape, 4, False, 0, _BLOCK, *parts)
    return None


def _codes(blocks: StoredTensor, dtype: str, first: int) -> StoredTensor:
    """Return words [..., rows, cols / 8] of codes of 4 bits in order."""
    return _taken(blocks, blocks.shape[-1] // 8, dtype, first, 16, nibbles=True)


def _bytes(blocks: StoredTensor) -> StoredTensor:
    """Return words [..., rows, cols / 4] of codes of 8 bits."""
    return _taken(blocks, blocks.shape[-1] // 4, "I32", 2, _BLOCK)


def _numbers(blocks: StoredTensor, first: int) -> StoredTensor:
    """Return F16 [..., rows, cols / 32]: scales or biases."""
    return _taken(blocks, blocks.shape[-1] // _BLOCK, "F16", first, 2)


def _taken(
    blocks: StoredTensor,
    last: int,
    dtype: str,
    first: int,
    n_bytes: int,
    *,
    nibbles: bool = False,
) -> StoredTensor:
    """Return some bytes of each block, in rows of `last` items."""
    part = Part(blocks.name, DTYPES[dtype], (*blocks.shape[:-1], last))

    def taken(units: range, given: NDArray[Any]) -> NDArray[Any]:
        some = given[:, first : first + n_bytes]
        return paired(some) if nibbles else some

    return made_of(part, [blocks], prod(blocks.shape) // _BLOCK, taken)


def _offset(codes: StoredTensor) -> StoredTensor:
    """Return signed bytes plus 128, as words of compressed-tensors have them."""
    return made_of(Part(*codes[:3]), [codes], codes.n_bytes, lambda _, lines: lines ^ 128)
