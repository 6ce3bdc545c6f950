"""Integers of rows as a weight: what it is called, and seen otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from anamnesis.base.dtypes import DType
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.settings import Shown
from anamnesis.schemes.families.integers.rows import IntegerRows, bits_of
from anamnesis.schemes.views.kinds import Integers, Rows, Words
from anamnesis.schemes.views.stacks import InRows

_SCALES = 1  # among the parts
_HALF = 8  # the code that stands for 0, of symmetric ones of 4 bits


@dataclass(slots=True, eq=False)
class IntegerWeight(InRows, IntegerRows):
    """Integers of rows."""

    @property
    def id(self) -> str:
        extras = [
            name
            for name, part in (("zeros", self.zeros), ("biases", self.biases))
            if part is not None
        ]
        if self.groups is not None:
            extras.append("listed")
        extras += [] if self.planes is None else ["planes", *map(str, map(int, self.planes))]
        if self.rounded is not None and self.reference is not None:
            extras += ["in", self.rounded.name.lower(), *self.reference.steps]
        whose = [self.producer.lower().replace(" ", "-"), self.coding]
        whose = [word for word in whose if word]
        return "-".join([*whose, self.kernel.lower(), f"{self.block[0]}x{self.block[1]}", *extras])

    @property
    def scheme(self) -> str:
        words = [self.family, self._grouping()]
        words += ["zero points"] if self.zeros is not None else []
        words += ["biases"] if self.biases is not None else []
        words += ["act-order"] if self.groups is not None else []
        return ", ".join(words) + (f" ({self.producer})" if self.producer else "")

    def _grouping(self) -> str:
        rows, cols = self.block
        if rows > 1:
            return "one scale" if self.block == self._stored[-2:] else f"blocks of {rows}x{cols}"
        return "per channel" if cols >= self.shape[-1] else f"groups of {cols}"

    @property
    def family(self) -> str:
        return f"INT{self.bits}"

    @property
    def shown(self) -> Shown:
        rows, cols = self._stored[-2:]
        grid = (-(-rows // self.block[0]), self.places)
        return Shown("int", self.bits, (rows, cols), grid)

    @property
    def n_by_rows(self) -> int:
        # Each row has codes, scales and biases of its own, and nothing else.
        known = [self.parts[0], self.parts[1], *([] if self.biases is None else [self.biases])]
        others = (self.zeros, self.groups, self.planes, self.matrix)
        is_by_rows = (
            self.block[0] == 1
            and 0 not in self.shape
            and others == (None,) * 4
            and list(self.parts) == known
            and all(part.shape[:-1] == self.shape[:-1] for part in self.parts)
        )
        return len(known) if is_by_rows else 0

    def remade(self, name: str, shape: tuple[int, ...], parts: Sequence[StoredTensor]) -> Self:
        made = super(IntegerWeight, self).remade(name, shape, parts)  # a class with slots is new
        return made if self.biases is None else replace(made, biases=parts[2])

    def by_reference(self, dtype: DType) -> Self:
        rule = self.reference
        rounded = None if rule is None else rule.dtype(self.parts[_SCALES].dtype, dtype)
        return self if rounded is None else replace(self, rounded=rounded)

    def seen_as(self, kind: type) -> Integers | Words | Rows | None:
        if kind is Integers:
            from anamnesis.schemes.families.integers.seen import of_rows

            return of_rows(self)
        return self._words() if kind is Words else self._rows() if kind is Rows else None

    def _words(self) -> Words | None:
        is_ours = self.kernel in ("PACKED4", "PADDED4") and not self.producer
        if not is_ours or self.biases is not None or self.constant != _HALF:
            return None
        group, is_symmetric = self.block[1], self.zeros is None
        if self.groups is not None:
            group = -(-self.shape[-1] // max(self.places, 1))
        codes, scales = self.parts[:2]
        return Words(
            *(self.name, self.shape, "rows", codes, scales, self.zeros, False),
            *(self.groups, group, is_symmetric),
        )

    def _rows(self) -> Rows | None:
        if not self.is_in_order:  # one whose codes are put in order as they are read
            return None
        beside = (self.zeros, self.groups, self.planes, self.matrix)
        is_dense = not self.kernel.startswith("PADDED") or 8 % bits_of(self.kernel) == 0
        if any(part is not None for part in beside) or self.block[0] != 1 or not is_dense:
            return None
        codes, scales = self.parts[:2]
        bits, is_signed = bits_of(self.kernel), self.kernel.startswith("INT")
        return Rows(
            *(self.name, self.shape, bits, is_signed, self.constant, self.block[1]),
            *(codes, scales, self.biases),
        )
