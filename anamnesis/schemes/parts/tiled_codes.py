"""Floats in groups whose scales are written in tiles, as they are encoded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anamnesis.schemes.core.blockwise import Groups, Item
from anamnesis.schemes.core.codes import Loss, Out, Task
from anamnesis.schemes.parts.tiles import COLS, ROWS, in_tiles

__all__ = ["TiledGroups"]


@dataclass(frozen=True)
class TiledGroups(Groups):
    """Floats of 4 or 8 bits whose scales are in tiles; rows and columns are of whole groups."""

    def items(self, shape: tuple[int, ...]) -> tuple[Item, ...]:
        """Return a code, and a tile: there is no less than that of scales."""
        return self.item, Item("scales", self.scale_dtype, ROWS, COLS * self.group, ROWS * COLS)

    def outs(self, shape: tuple[int, ...], found: bytes = b"") -> tuple[Out, ...]:
        """Return codes, and scales with their padding."""
        codes, scales = (item.out(shape) for item in self.items(shape))
        tall, wide = -(-shape[-2] // ROWS), -(-shape[-1] // (COLS * self.group))
        return codes, scales._replace(shape=(tall * ROWS, wide * COLS))

    def refuses(self, shape: tuple[int, ...]) -> str | None:
        """Leave also stacks, and columns that are not of whole groups."""
        if len(shape) != 2:
            return "not a matrix"
        if shape[0] % self.group:
            return f"columns are not in whole groups of {self.group}"
        return super().refuses(shape)

    def encode(self, values: memoryview, task: Task, outs: Sequence[memoryview]) -> Loss:
        """Encode whole rows of tiles.

        Raises
        ------
        NotFinite
            If a value is infinite or a NaN, or has no code.
        """
        rows, cols = task.matrix
        scales = bytearray(rows * (cols // self.group))
        loss = super().encode(values, task, (outs[0], memoryview(scales), *outs[2:]))
        self.settle(outs[0], scales)
        outs[1][:] = in_tiles(scales, rows, cols // self.group)
        return loss

    def settle(self, codes: memoryview, scales: bytearray) -> None:
        """Make of a kernel's codes what is stored; scales are row by row.

        Raises
        ------
        NotFinite
            If they do not stand for what the kernel takes them for.
        """
