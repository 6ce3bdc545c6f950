"""Codes of more than one family, as repacking sees a weight's own ones."""

from __future__ import annotations

from typing import Any, NamedTuple

from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.layout import Unmovable, unmovable
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.views.grid import ScaleGrid


class Words(NamedTuple):
    """Integers in words of 32 bits, with scales and zero points, as they are stored."""

    name: str
    shape: tuple[int, ...]
    kind: str
    codes: StoredTensor
    scales: StoredTensor
    zeros: StoredTensor | None
    less_one: bool
    listed: StoredTensor | None
    group: int
    is_symmetric: bool
    bits: int = 4
    run: int | None = None
    is_cast: bool = False

    @property
    def n_groups(self) -> int:
        """Scales of an out feature."""
        return self.scales.shape[-1] if self.kind == "rows" else self.scales.shape[0]

    def group_sizes(self, asked: int | None, all_of_a_row: int | None) -> list[Any]:
        """Return its group size; of one group, also the larger ones that say it as well."""
        if self.n_groups > 1:
            return [self.group]
        larger = [asked] if asked is not None and asked > self.group else []
        return [self.group, *larger, all_of_a_row]

    def refused(self, why: str) -> Unmovable:
        return unmovable(self.codes, self.name, self.shape, why, is_cast=self.is_cast)


class Rows(NamedTuple):
    """Integers in rows, with a scale, and perhaps a bias, for each group of a row."""

    name: str
    shape: tuple[int, ...]
    bits: int
    is_signed: bool
    zero: int
    group: int
    codes: StoredTensor
    scales: StoredTensor
    biases: StoredTensor | None = None
    is_cast: bool = False

    def refused(self, why: str) -> Unmovable:
        return unmovable(self.codes, self.name, self.shape, why, is_cast=self.is_cast)


class Integers(NamedTuple):
    """Integers of any layout alike: a byte each, in rows, with numbers for each group of a row.

    value = (code - zero) * scale + bias, each step rounded to float32
    """

    name: str
    shape: tuple[int, ...]
    bits: int
    codes: StoredTensor
    group: int
    scales: StoredTensor
    zero: int = 0
    zeros: StoredTensor | None = None
    biases: StoredTensor | None = None
    listed: StoredTensor | None = None
    unit: float = 1.0
    signed: StoredTensor | None = None
    is_cast: bool = False
    is_exact: bool = True

    @property
    def n_groups(self) -> int:
        return self.scales.shape[-1]

    def refused(self, why: str) -> Unmovable:
        """Return why it cannot be repacked, as others of its kind can."""
        return unmovable(self.codes, self.name, self.shape, why, is_cast=True)


def worded(weight: Weight, bits: int) -> Words | Integers | None:
    """Return a weight's words of so many bits; else what may be cast to them."""
    words = weight.view(Words)
    if words is not None and words.bits >= bits:
        return words
    return weight.view(Integers)


class Rotated(NamedTuple):
    """Integers of rows that are rotated in groups of columns: as stored, and spread to a byte."""

    name: str
    shape: tuple[int, ...]
    group: int
    bits: int
    codes: StoredTensor
    spread: StoredTensor
    scales: StoredTensor

    def refused(self, why: str) -> Unmovable:
        return unmovable(self.codes, self.name, self.shape, why)


class Floats(NamedTuple):
    """Small floats with a scale for each block, as they are stored."""

    name: str
    shape: tuple[int, ...]
    element: str
    codes: StoredTensor
    scales: StoredTensor | None
    grid: ScaleGrid
    factors: tuple[float, ...] = (1.0,)
    has_minus_zero: bool = True

    def refused(self, why: str) -> Unmovable:
        return unmovable(self.codes, self.name, self.shape, why)
