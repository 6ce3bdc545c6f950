"""Codes of 8-bit floats with scales in a grid, and of MXFP8.

transformers' are those of `Fp8Quantize` of its integrations/finegrained_fp8.py, in float32;
compressed-tensors' those of its min-max calibration and compression, as blockwise.py has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anamnesis.base.dtypes import DTYPES
from anamnesis.schemes.core.blockwise import Blockwise, Groups, Item, Kernel
from anamnesis.schemes.core.codes import Loss, NotFinite, Task
from anamnesis.schemes.parts.grid import MX_BLOCK

__all__ = ["MXFP8", "Fp8"]

_ZERO = bytes(4)  # a scale, which is small enough to be none
_NANS = (b"\x7f", b"\xff")  # as torch makes them
_LARGEST = {"E4M3": 448.0, "E5M2": 57344.0}
_LARGEST_F32 = 2.0**128


@dataclass(frozen=True)
class Fp8(Blockwise):
    """8-bit floats with a scale for each block, each row ("channel") or in all ("tensor").

    Attributes
    ----------
    kind : str
        `block`, `channel` or `tensor`.
    scaling : str
        How scales come from magnitudes, as `_core.RULES` names it: `divided`, in the weight's own
        dtype; `reciprocal`, in float32; or `power of two`, as E8M0.
    format : str
        `E4M3` or `E5M2`.
    block_size : (int, int)
        Rows and columns that share a scale.
    """

    kind: str = "block"
    scaling: str = "reciprocal"
    format: str = "E4M3"
    block_size: tuple[int, int] = (128, 128)

    @property
    def code(self) -> str:
        """The kernel of the format."""
        return f"F8_{self.format}"

    @property
    def rule(self) -> str:
        """The scaling."""
        return self.scaling

    @property
    def item(self) -> Item:
        """A byte."""
        return Item("codes", DTYPES[self.code])

    @property
    def has_one_scale(self) -> bool:
        """Whether one scale is for all of a weight."""
        return self.kind == "tensor"

    def block(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """The size of what shares a scale: a block, a row, or all."""
        rows, cols = shape[-2:]
        if self.kind == "block":
            return min(self.block_size[0], rows), min(self.block_size[1], cols)
        return (1, cols) if self.kind == "channel" else (rows, cols)

    def encode(self, values: memoryview, task: Task, outs: Sequence[memoryview]) -> Loss:
        """Encode whole rows; any values, where one scale is for all.

        Raises
        ------
        NotFinite
            If a value is infinite or a NaN, or becomes one: the reciprocal of a scale is infinite
            where all values are next to nothing, and its product with a zero is none.
        """
        loss = super().encode(values, task, outs)
        if self.rule == "reciprocal":
            one = self.constants((), task.found).get("scales")
            if _ZERO in bytes(outs[1] if one is None else one):
                self._check_codes(task, bytes(outs[0]))
        return loss

    def _check_codes(self, task: Task, codes: bytes) -> None:
        """Refuse codes that are NaNs, which values that are finite have become.

        Their scale is zero, so that a look at all codes is seldom needed.
        """
        first = min((at for code in _NANS if (at := codes.find(code)) >= 0), default=None)
        if first is None:
            return
        row, col = divmod(task.band.start + first, task.shape[-1])
        row, col = row + task.origin[0], col + task.origin[1]
        rows, cols = self.block_size
        where = {
            "block": f"block [{row // rows}, {col // cols}]",
            "channel": f"row {row}",
            "tensor": "it",
        }
        least = _LARGEST[self.format] / _LARGEST_F32
        raise NotFinite(
            f"{where[self.kind]} has zeros, and beside them only values below {least:.2g}"
        )


# By whose bytes they are.
MXFP8 = {
    "compressed-tensors": Groups(Kernel("F8_E4M3", "mx"), MX_BLOCK[1]),
    "ModelOpt": Groups(Kernel("F8_E4M3", "mx up"), MX_BLOCK[1]),
    "MLX": Groups(Kernel("F8_E4M3", "mx own power"), MX_BLOCK[1]),
}
