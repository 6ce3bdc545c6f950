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
from anamnesis.schemes.views.bits import paired
from anamnesis.schemes.views.kinds import Integers, Rows, Words
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
        bits, scales = int(type[1]), _taken(blocks, _BLOCK, "F16", 0, 2)
        if bits == 4:
            codes = _taken(blocks, 8, "I32", 2, 16, nibbles=True)
        else:  # signed bytes, which words of compressed-tensors have plus 128
            own = _taken(blocks, 4, "I32", 2, _BLOCK)
            codes = made_of(Part(*own[:3]), [own], own.n_bytes, lambda _, lines: lines ^ 128)
        return Words(name, shape, "rows", codes, scales, None, False, None, _BLOCK, True, bits)
    if kind is Rows and type == "Q4_1":
        codes = _taken(blocks, 8, "U32", 4, 16, nibbles=True)
        scales, biases = (_taken(blocks, _BLOCK, "F16", first, 2) for first in (0, 2))
        return Rows(name, shape, 4, False, 0, _BLOCK, codes, scales, biases)
    return None


def _integers(name: str, blocks: StoredTensor, kind: _Kind) -> Integers:
    """Return blocks of any type of integers; their kernel gives codes, with a scale of 1."""
    type, level = blocks.dtype.name, resolve_level(None)
    size = blocks.dtype.block_elements

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
    codes, scales = made_of(part, [blocks], n, spread), _taken(blocks, size, "F16", kind.scale, 2)
    biases = None if kind.bias is None else _taken(blocks, size, "F16", kind.bias, 2)
    return Integers(*(name, blocks.shape, kind.bits, codes, size, scales, kind.zero, None, biases))


def _taken(
    blocks: StoredTensor,
    per_item: int,
    dtype: str,
    first: int,
    n_bytes: int,
    *,
    nibbles: bool = False,
) -> StoredTensor:
    """Return some bytes of each block, in rows with an item for so many values."""
    part = Part(blocks.name, DTYPES[dtype], (*blocks.shape[:-1], blocks.shape[-1] // per_item))

    def taken(units: range, given: NDArray[Any]) -> NDArray[Any]:
        some = given[:, first : first + n_bytes]
        return paired(some) if nibbles else some

    return made_of(part, [blocks], prod(blocks.shape) // blocks.dtype.block_elements, taken)
