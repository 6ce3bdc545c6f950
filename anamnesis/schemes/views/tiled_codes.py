"""Floats in groups whose scales are written in tiles, as they are encoded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anamnesis.schemes.core.blockwise import Groups, Item
from anamnesis.schemes.core.codes import Loss, Out, Task
from anamnesis.schemes.views.tiles import COLS, ROWS, in_tiles


@dataclass(frozen=True)
class TiledGroups(Groups):
    """Floats of 4 or 8 bits whose scales are in tiles; rows and columns are of whole groups."""

    def items(self, shape: tuple[int, ...]) -> tuple[Item, ...]:
        return self.item, Item("scales", self.scale_dtype, ROWS, COLS * self.group, ROWS * COLS)

    def outs(self, shape: tuple[int, ...], found: bytes = b"") -> tuple[Out, ...]:
        codes, scales = (item.out(shape) for item in self.items(shape))
        tall, wide = -(-shape[-2] // ROWS), -(-shape[-1] // (COLS * self.group))
        return codes, scales._replace(shape=(tall * ROWS, wide * COLS))

    def refuses(self, shape: tuple[int, ...]) -> str | None:
        if len(shape) != 2:
            return "not a matrix"
        if shape[0] % self.group:
            return f"columns are not in whole groups of {self.group}"
        return super().refuses(shape)

    def encode(self, values: memoryview, task: Task, outs: Sequence[memoryview]) -> Loss:
        rows, cols = task.matrix
        scales = bytearray(rows * (cols // self.group))
        loss = super().encode(values, task, (outs[0], memoryview(scales), *outs[2:]))
        self.settle(outs[0], scales)
        outs[1][:] = in_tiles(scales, rows, cols // self.group)
        return loss

    def settle(self, codes: memoryview, scales: bytearray) -> None:
        """Make of a kernel's codes what is stored; scales are row by row."""
