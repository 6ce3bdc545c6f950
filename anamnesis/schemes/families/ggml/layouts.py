"""GGUF's blocks, some of integers, which other layouts' codes are moved into.

    Q4_0  d, 16 bytes of codes        (code - 8) * d    compressed-tensors' symmetric 4 bits
    Q4_1  d, m, 16 bytes of codes     code * d + m      MLX's affine 4 bits
    Q8_0  d, 32 bytes of codes        code * d          compressed-tensors' symmetric 8 bits

A block is 32 values of a row. Groups of 64, of 128 or of a whole row repeat their F16 scale in each
block. Ternary codes are in blocks of 256:

    TQ1_0  48 bytes of five digits, 4 of four, d    (digit - 1) * d
    TQ2_0  64 bytes of four codes, d                (code - 1) * d

Their scale d is 0 where all values are, as ggml's own quantisation has it. A byte of digits of base
3 is a fraction of 256, rounded up.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, NamedTuple

from anamnesis.base.dtypes import BLOCK_DTYPES
from anamnesis.base.lazy import NDArray, np
from anamnesis.base.stored import Part, StoredTensor
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.core.layout import Field, Layout, Repack
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.families.ggml.encode import BlockCodes
from anamnesis.schemes.families.ggml.weight import GgmlWeight
from anamnesis.schemes.views import integer_casts
from anamnesis.schemes.views.bits import halved
from anamnesis.schemes.views.kinds import Integers, Rows
from anamnesis.schemes.views.views import forbidding, made_of

_BLOCK = 32


@dataclass(frozen=True)
class Blocks(Layout):
    """Blocks of one type, under the name of the weight."""

    block_type: str

    fields: ClassVar[tuple[Field, ...]] = (Field("codes", "{weight}"),)

    def view(self, weight: Weight) -> Any:
        if isinstance(weight, GgmlWeight) and weight.parts[0].dtype.name == self.block_type:
            return weight.parts[0]._replace(name=weight.name)
        return super().view(weight)

    def write(self, view: Any, encoding: Encoding) -> Repack | None:
        return Repack((encoding,), (view,)) if isinstance(view, StoredTensor) else None

    def weight(self, name: str, shape: tuple[int, ...], parts: tuple[StoredTensor, ...]) -> Weight:
        return GgmlWeight(name, shape, parts)


class _Kind(NamedTuple):
    """What a block type is made of."""

    codes: set[tuple[bool, int]]
    bits: int
    has_biases: bool = False


INTEGERS = {
    "Q4_0": _Kind({(False, 8)}, 4),
    "Q4_1": _Kind({(False, 0)}, 4, True),
    "Q8_0": _Kind({(True, 0), (False, 128)}, 8),
}


@dataclass(frozen=True)
class IntegerBlocks(Blocks):
    """Blocks of integers: `Q4_0`, `Q4_1` or `Q8_0`."""

    takes: ClassVar[type[Any] | None] = Rows

    def view(self, weight: Weight) -> Rows | Integers | StoredTensor | None:
        kind = INTEGERS[self.block_type]
        rows: Rows | StoredTensor | None = super().view(weight)
        if isinstance(rows, StoredTensor):
            return rows
        if rows is not None:
            has_biases = rows.biases is not None
            if (rows.bits, has_biases) == kind[1:] and (rows.is_signed, rows.zero) in kind.codes:
                return rows
        return weight.view(Integers)

    def write(self, view: Rows | Integers | StoredTensor, encoding: Encoding) -> Repack | None:
        if isinstance(view, StoredTensor):
            return super().write(view, encoding)
        if isinstance(view, Integers):
            _, bits, has_biases = INTEGERS[self.block_type]
            if view.bits > bits:
                return None
            if view.listed is not None:
                raise view.refused(f"its groups are in act-order, which {self.block_type} has not")
            if has_biases:
                view = integer_casts.with_biases(view, "F16")
            else:
                view = integer_casts.centred(view, bits)
            view = integer_casts.as_rows(view, bits)
        return Repack((encoding,), (self._joined(view),), is_cast=view.is_cast)

    def _joined(self, rows: Rows) -> StoredTensor:
        bits, cols = rows.bits, rows.shape[-1]
        group = min(rows.group, cols)
        scales = integer_casts.in_dtype(rows.scales, "F16")
        biases = None if rows.biases is None else integer_casts.in_dtype(rows.biases, "F16")
        if scales is None or (biases is None and rows.biases is not None):
            raise rows.refused(f"its scales are {rows.scales.dtype}, and F16 in {self.block_type}")
        if not cols or group % _BLOCK or cols % group:
            raise rows.refused(f"groups of {group} of {cols:,} columns are no blocks of {_BLOCK}")
        is_offset = bits == 8 and rows.zero != 0
        n_bytes, repeats = _BLOCK * bits // 8, group // _BLOCK

        def joined(units: range, *given: NDArray[Any]) -> NDArray[Any]:
            blocks = given[0].reshape(-1, n_bytes)
            blocks = halved(blocks) if bits == 4 else blocks ^ np.uint8(128 * is_offset)
            numbers = [np.repeat(one, repeats, axis=0) for one in given[1:]]
            return np.concatenate((*numbers, blocks), axis=1)

        part = Part(rows.name, BLOCK_DTYPES[self.block_type], rows.shape)
        inputs = [rows.codes, scales, *([] if biases is None else [biases])]
        return made_of(part, inputs, prod(rows.shape) // group, joined)


_TERNARY_BLOCK = 256
_TOO_LARGE = b"\x03"  # what two bits hold, and a digit does not


@dataclass(frozen=True)
class Ternary(Blocks):
    """Blocks of ternary codes: `TQ1_0` or `TQ2_0`."""

    takes = Integers

    def write(self, view: Rows | Integers | StoredTensor, encoding: Encoding) -> Repack | None:
        if isinstance(view, StoredTensor):
            return super().write(view, encoding)
        if isinstance(view, Rows) or view.bits > 2:
            return None
        view = integer_casts.with_zeros(view)
        if view.zeros is not None or view.zero != 1:
            raise view.refused("its codes are not 1 above what they stand for")
        return Repack((encoding,), (self._packed(integer_casts.in_groups(view, _TERNARY_BLOCK)),))

    def _packed(self, view: Integers) -> StoredTensor:
        scales = integer_casts.in_dtype(view.scales, "F16")
        if scales is None:
            raise view.refused(f"its scales are {view.scales.dtype}, and F16 in {self.block_type}")
        codes, pack = view.codes, _twos
        if self.block_type == "TQ1_0":
            codes, pack = forbidding(codes, _TOO_LARGE, "which is no ternary digit"), _digits

        def packed(units: range, lines: NDArray[Any], scales: NDArray[Any]) -> NDArray[Any]:
            some = (lines != 1).any(1, keepdims=True)
            return np.concatenate((*pack(lines), np.where(some, scales, 0)), axis=1, dtype=np.uint8)

        part = Part(view.name, BLOCK_DTYPES[self.block_type], view.shape)
        return made_of(part, [codes, scales], prod(view.shape) // _TERNARY_BLOCK, packed)


def _twos(codes: NDArray[Any]) -> list[NDArray[Any]]:
    """Return four codes to a byte: 32 bytes hold 128 of them, the first 32 lowest."""
    four = codes.reshape(-1, 2, 4, 32)
    made = four[:, :, 0] | four[:, :, 1] << 2 | four[:, :, 2] << 4 | four[:, :, 3] << 6
    return [made.reshape(-1, 64)]


def _digits(codes: NDArray[Any]) -> list[NDArray[Any]]:
    """Return 160 codes in 32 bytes, 80 in 16 and 16 in 4."""
    found = []
    for first, n_bytes, n_digits in ((0, 32, 5), (160, 16, 5), (240, 4, 4)):
        digits = codes[:, first : first + n_bytes * n_digits].reshape(-1, n_digits, n_bytes)
        number = np.zeros((len(codes), n_bytes), np.uint16)
        for i in range(5):
            number *= 3
            if i < n_digits:
                number += digits[:, i]
        found.append((number.astype(np.uint32) * 256 + 242) // 243)
    return [one.astype(np.uint8) for one in found]


def encoding(type: str) -> Encoding:
    """Return a block type, by ggml's name, with its encoder and without importance."""
    is_ternary = type in ("TQ1_0", "TQ2_0")
    layout = IntegerBlocks if type in INTEGERS else Ternary if is_ternary else Blocks
    return Encoding(f"gguf-{type.lower()}", layout(type), BlockCodes(type))
