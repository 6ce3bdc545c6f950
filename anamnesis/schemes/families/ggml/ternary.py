"""GGUF's blocks of ternary codes, which other layouts' codes are moved into.

    TQ1_0  48 bytes of five digits, 4 of four, d    (digit - 1) * d
    TQ2_0  64 bytes of four codes, d                (code - 1) * d

A block is 256 values of a row. Its scale d is a half float; it is 0 where all values are, as ggml's
own quantisation has it. A byte of digits of base 3 is a fraction of 256, rounded up.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from anamnesis.base.dtypes import BLOCK_DTYPES
from anamnesis.base.lazy import NDArray, np
from anamnesis.base.stored import Part, StoredTensor
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.core.layout import Repack
from anamnesis.schemes.families.ggml.layouts import Blocks
from anamnesis.schemes.views.integer_casts import in_dtype, in_groups, with_zeros
from anamnesis.schemes.views.kinds import Integers, Rows
from anamnesis.schemes.views.views import forbidding, made_of

TERNARY = ("TQ1_0", "TQ2_0")

_BLOCK = 256
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
        view = with_zeros(view)
        if view.zeros is not None or view.zero != 1:
            raise view.refused("its codes are not 1 above what they stand for")
        return Repack((encoding,), (self._packed(in_groups(view, _BLOCK)),))

    def _packed(self, view: Integers) -> StoredTensor:
        scales = in_dtype(view.scales, "F16")
        if scales is None:
            why = f"its scales are {view.scales.dtype}, and F16 in {self.block_type}"
            raise view.refused(why)
        codes, pack = view.codes, _twos
        if self.block_type == "TQ1_0":
            codes, pack = forbidding(codes, _TOO_LARGE, "which is no ternary digit"), _digits

        def packed(units: range, lines: NDArray[Any], scales: NDArray[Any]) -> NDArray[Any]:
            some = (lines != 1).any(1, keepdims=True)
            return np.concatenate((*pack(lines), np.where(some, scales, 0)), axis=1, dtype=np.uint8)

        part = Part(view.name, BLOCK_DTYPES[self.block_type], view.shape)
        return made_of(part, [codes, scales], prod(view.shape) // _BLOCK, packed)


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
