"""Blocks of 32 values taken apart: words or bytes of codes, and F16 scales.

    Q4_0  d, 16 bytes of codes        (code - 8) * d
    Q4_1  d, m, 16 bytes of codes     code * d + m
    Q8_0  d, 32 bytes of codes        code * d

Of 4-bit codes, a block has the first 16 in the low nibbles and the others in the high ones.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import anamnesis._core as _core
from anamnesis.base.dtypes import DTYPES
from anamnesis.base.lazy import NDArray, np
from anamnesis.base.levels import resolve_level
from anamnesis.base.stored import Part, StoredTensor
from anamnesis.schemes.views.kinds import Integers, Rows, Words
from anamnesis.schemes.views.nibbles import paired
from anamnesis.schemes.views.views import made_of

_BLOCK = 32


class _Kind(NamedTuple):
    """How integers of a block type are seen as codes with numbers."""

    bits: int
    zero: int
    scale: int = 0
    bias: int | None = None


_KINDS = {
    "Q4_0": _Kind(4, 8),
    "Q4_1": _Kind(4, 0, bias=2),
    "Q5_0": _Kind(5, 16),
    "Q5_1": _Kind(5, 0, bias=2),
    "Q8_0": _Kind(8, 128),
    "TQ1_0": _Kind(2, 1, scale=52),
    "TQ2_0": _Kind(2, 1, scale=64),
}
_ONE = b"\x00\x3c"  # 1 as a half float


def seen(name: str, blocks: StoredTensor, kind: type) -> Words | Rows | Integers | None:
    """Return codes and scales of blocks as one of these kinds, if they are of it."""
    shape, type = blocks.shape, blocks.dtype.name
    if kind is Integers:
        return _integers(name, blocks, _KINDS[type]) if type in _KINDS else None
    if kind is Words and type in ("Q4_0", "Q8_0"):
        four = type == "Q4_0"
        codes = _codes(blocks, "I32", 2) if four else _offset(_bytes(blocks))
        scales, bits = _numbers(blocks, 0), 4 if four else 8
        return Words(name, shape, "rows", codes, scales, None, False, None, _BLOCK, True, bits)
    if kind is Rows and type == "Q4_1":
        parts = _codes(blocks, "U32", 4), _numbers(blocks, 0), _numbers(blocks, 2)
        return Rows(name, shape, 4, False, 0, _BLOCK, *parts)
    return None


def _integers(name: str, blocks: StoredTensor, kind: _Kind) -> Integers:
    """Return blocks of any type of integers; their kernel gives codes, with a scale of 1."""
    type, level = blocks.dtype.name, resolve_level(None)
    size, cols = blocks.dtype.block_elements, blocks.shape[-1]

    def spread(units: range, given: NDArray[Any]) -> NDArray[Any]:
        plain = given.copy()
        plain[:, kind.scale : kind.scale + 2] = np.frombuffer(_ONE, np.uint8)
        if kind.bias is not None:
            plain[:, kind.bias : kind.bias + 2] = 0
        values = np.empty(len(units) * size, np.float32)
        out = values.view(np.uint8).data
        _core.dequantize_blocks(
            _core.BLOCKS[type], _core.OUTPUTS["F32"], plain.reshape(-1).data, out, level
        )
        return (values + np.float32(kind.zero)).astype(np.uint8)

    part, n = Part(blocks.name, DTYPES["U8"], blocks.shape), prod(blocks.shape) // size
    codes = made_of(part, [blocks], n, spread)

    def numbers(first: int) -> StoredTensor:
        part = Part(blocks.name, DTYPES["F16"], (*blocks.shape[:-1], cols // size))
        return made_of(part, [blocks], n, lambda _, given: given[:, first : first + 2])

    biases = None if kind.bias is None else numbers(kind.bias)
    return Integers(
        *(name, blocks.shape, kind.bits, codes, size, numbers(kind.scale), kind.zero, None, biases)
    )


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
