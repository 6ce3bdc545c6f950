"""Integers with F16 scales, repacked as ggml's blocks and back.

    Q4_0  d, 16 bytes of codes        (code - 8) * d    compressed-tensors' symmetric 4 bits
    Q4_1  d, m, 16 bytes of codes     code * d + m      MLX's affine 4 bits
    Q8_0  d, 32 bytes of codes        code * d          compressed-tensors' symmetric 8 bits

A block is 32 values of a row. Groups of 64, of 128 or of a whole row repeat their scale in each
block. Of 4-bit codes, a block has the first 16 in the low nibbles and the others in the high ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from anamnesis.base.dtypes import BLOCK_DTYPES, DTYPES
from anamnesis.base.errors import UnsupportedError
from anamnesis.base.stored import Part, StoredTensor
from anamnesis.schemes.core.encoding import Repack, RepackOnly
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.ggml.read import GgmlWeight
from anamnesis.schemes.integers.weight import IntegerWeight
from anamnesis.schemes.parts.nibbles import halved, paired
from anamnesis.schemes.parts.views import made_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["GgmlRepack", "affine_of_q4_1", "bytes_of_q8_0", "rows_of_q4_0"]

_BLOCK = 32
_F16 = DTYPES["F16"]


class _Kind(NamedTuple):
    """What a block type is made of.

    Attributes
    ----------
    kernels : tuple of (str, int)
        Of `IntegerWeight`: how the codes may be stored, and the zero point that they have then.
    bits : int
    has_biases : bool
    """

    kernels: tuple[tuple[str, int], ...]
    bits: int
    has_biases: bool


_KINDS = {
    "Q4_0": _Kind((("PACKED4", 8), ("PADDED4", 8)), 4, False),
    "Q4_1": _Kind((("PACKED4", 0),), 4, True),
    "Q8_0": _Kind((("INT8", 0), ("PACKED8", 128), ("PADDED8", 128)), 8, False),
}


@dataclass(frozen=True)
class GgmlRepack(RepackOnly):
    """A block type of GGUF that takes the codes of integers which are there already.

    Attributes
    ----------
    type : str
        `Q4_0`, `Q4_1` or `Q8_0`.
    """

    type: str

    @property
    def id(self) -> str:
        """For instance `gguf-q8_0`."""
        return f"gguf-{self.type.lower()}"

    def repack(self, weight: Weight) -> Repack | None:
        """Return the codes of integers as blocks, with F16 scales."""
        if isinstance(weight, GgmlWeight) and weight.parts[0].dtype.name == self.type:
            return Repack((self,), (weight.parts[0]._replace(name=weight.name),))
        kind = _KINDS[self.type]
        if not isinstance(weight, IntegerWeight) or not _is_of(weight, kind):
            return None
        return Repack((self,), (_blocks(weight, self.type),))


def _is_of(weight: IntegerWeight, kind: _Kind) -> bool:
    if type(weight) is not IntegerWeight:  # one whose codes are put in order as they are read
        return False
    is_plain = weight.zeros is None and weight.groups is None and weight.planes is None
    is_plain = is_plain and weight.matrix is None and weight.block[0] == 1
    return (
        is_plain
        and (weight.kernel, weight.constant) in kind.kernels
        and (weight.biases is not None) == kind.has_biases
    )


def _blocks(weight: IntegerWeight, type: str) -> StoredTensor:
    codes, scales = weight.parts[:2]
    kind, cols = _KINDS[type], weight.shape[-1]
    group = min(weight.block[1], cols)
    if scales.dtype.name != "F16":
        raise _refused(weight, f"its scales are {scales.dtype}, and F16 in {type}")
    if group % _BLOCK or cols % group:
        raise _refused(weight, f"groups of {group} of {cols:,} columns are no blocks of {_BLOCK}")
    is_offset = kind.bits == 8 and weight.constant != 0
    n_bytes, repeats = _BLOCK * kind.bits // 8, group // _BLOCK

    def joined(units: range, *given: NDArray[Any]) -> NDArray[Any]:
        import numpy as np

        blocks = given[0].reshape(-1, n_bytes)
        blocks = halved(blocks) if kind.bits == 4 else blocks ^ np.uint8(128 * is_offset)
        numbers = [np.repeat(one, repeats, axis=0) for one in given[1:]]
        return np.concatenate((*numbers, blocks), axis=1)

    part = Part(weight.name, BLOCK_DTYPES[type], weight.shape)
    inputs = [codes, scales, *([weight.biases] if weight.biases is not None else [])]
    return made_of(part, inputs, prod(weight.shape) // group, joined)


def _refused(weight: Weight, why: str) -> UnsupportedError:
    return UnsupportedError(
        f"{weight.parts[0].source.name}: {weight.name} {list(weight.shape)} cannot be repacked: "
        f"{why}; exclude this weight, so that it is written as values"
    )


# --- and back ---------------------------------------------------------------------------------


def _split(
    weight: GgmlWeight, name: str, last: int, dtype: str, first: int, n_bytes: int, *, codes: bool
) -> StoredTensor:
    """Return some bytes of each block, in rows of `last` items; codes of 4 bits in order."""
    (stored,) = weight.parts
    part = Part(name, DTYPES[dtype], (*weight.shape[:-1], last))

    def taken(units: range, blocks: NDArray[Any]) -> NDArray[Any]:
        some = blocks[:, first : first + n_bytes]
        return paired(some) if codes else some

    return made_of(part, [stored], prod(weight.shape) // _BLOCK, taken)


def rows_of_q4_0(weight: GgmlWeight) -> tuple[StoredTensor, StoredTensor]:
    """Return words I32 [..., rows, cols / 8] and scales F16 [..., rows, cols / 32] of Q4_0."""
    cols, name = weight.shape[-1], weight.name
    codes = _split(weight, name, cols // 8, "I32", 2, 16, codes=True)
    return codes, _split(weight, name, cols // _BLOCK, "F16", 0, 2, codes=False)


def affine_of_q4_1(weight: GgmlWeight) -> tuple[StoredTensor, StoredTensor, StoredTensor]:
    """Return words U32 [..., rows, cols / 8], and F16 scales and biases [..., rows, cols / 32]."""
    cols, module = weight.shape[-1], weight.name.removesuffix("weight")
    return (
        _split(weight, f"{module}weight", cols // 8, "U32", 4, 16, codes=True),
        _split(weight, f"{module}scales", cols // _BLOCK, "F16", 0, 2, codes=False),
        _split(weight, f"{module}biases", cols // _BLOCK, "F16", 2, 2, codes=False),
    )


def bytes_of_q8_0(weight: GgmlWeight) -> tuple[StoredTensor, StoredTensor]:
    """Return words I32 [..., rows, cols / 4] of codes plus 128, and scales F16 [..., cols / 32]."""
    cols, name = weight.shape[-1], weight.name
    codes = _split(weight, name, cols // 4, "I32", 2, _BLOCK, codes=False)
    return _offset(codes), _split(weight, name, cols // _BLOCK, "F16", 0, 2, codes=False)


def _offset(codes: StoredTensor) -> StoredTensor:
    """Return signed bytes plus 128, which is what compressed-tensors stores."""

    return made_of(Part(*codes[:3]), [codes], codes.n_bytes, lambda _, lines: lines ^ 128)
