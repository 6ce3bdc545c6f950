"""Codes of more than one family, as repacking sees a weight's own ones."""

from __future__ import annotations

from typing import Any, NamedTuple

from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.layout import Unmovable, unmovable
from anamnesis.schemes.parts.grid import ScaleGrid

__all__ = ["Floats", "Integers", "Rows", "Words"]


class Words(NamedTuple):
    """Integers in words of 32 bits, with scales and zero points, as they are stored.

    Attributes
    ----------
    name : str
    shape : tuple of int
        [out, in]; more dimensions of stacked experts.
    kind : str
        `rows`, `columns` or `across`: the order of words that `integers/order.py` describes.
    codes, scales : StoredTensor
    zeros : StoredTensor or None
        None where all are the middle code.
    less_one : bool
        Whether zero points are stored less 1.
    listed : StoredTensor or None
        The group of each in feature, where groups may be no runs.
    group : int
        In features that share a scale.
    is_symmetric : bool
        Whether zero points say nothing: there are none, or all were found to be the middle code.
    bits : int
    run : int or None
        The length of runs that a list of groups may be, and then says nothing.
    is_cast : bool
        Whether codes were others before, that stood for the same values.
    """

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
        """Return why it cannot be repacked."""
        return unmovable(self.codes, self.name, self.shape, why, is_cast=self.is_cast)


class Rows(NamedTuple):
    """Integers in rows, with a scale, and perhaps a bias, for each group of a row.

    Attributes
    ----------
    name : str
    shape : tuple of int
        [..., rows, columns].
    bits : int
    is_signed : bool
        Whether codes are two's complement.
    zero : int
        The code that stands for 0.
    group : int
        Columns that share a scale.
    codes, scales : StoredTensor
        Codes are a dense stream of bits in each row.
    biases : StoredTensor or None
        What is added.
    is_cast : bool
        Whether codes were others before, that stood for the same values.
    """

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
        """Return why it cannot be repacked."""
        return unmovable(self.codes, self.name, self.shape, why, is_cast=self.is_cast)


class Integers(NamedTuple):
    """Integers of any layout alike: a byte each, in rows, with numbers for each group of a row.

    value = (code - zero) * scale + bias, each step rounded to float32

    Attributes
    ----------
    name : str
    shape : tuple of int
        [..., rows, columns].
    bits : int
        Codes are 0 to 2^bits - 1.
    codes : StoredTensor
        U8 [..., rows, columns].
    group : int
        Columns that share their numbers.
    scales : StoredTensor
        F32, F16 or BF16 [..., rows, groups].
    zero : int
        The code that stands for 0, where all have the same.
    zeros : StoredTensor or None
        That of each group otherwise: U8 or, of any numbers, F32.
    biases : StoredTensor or None
        What is added: F32, F16 or BF16.
    listed : StoredTensor or None
        The group of each column, where groups may be no runs.
    unit : float
        A float32 that products with scales are multiplied by: one 127th in bitsandbytes.
    signed : StoredTensor or None
        Codes less 128, where they are stored so.
    is_cast : bool
        Whether codes were others before, that stood for the same values.
    is_exact : bool
        Whether float32 is what it was before; else only BF16 and F16 are.
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
        """Of a row."""
        return self.scales.shape[-1]

    def refused(self, why: str) -> Unmovable:
        """Return why it cannot be repacked, as others of its kind can."""
        return unmovable(self.codes, self.name, self.shape, why, is_cast=True)


class Floats(NamedTuple):
    """Small floats with a scale for each block, as they are stored.

    Attributes
    ----------
    name : str
    shape : tuple of int
        [..., rows, columns].
    element : str
        What a code is: `F8_E4M3`, `F8_E5M2`, … or `E2M1`.
    codes : StoredTensor
        A byte each; of E2M1 two to a byte, the first in the low bits.
    scales : StoredTensor or None
        What codes are multiplied by, one for each block of `grid` in its order: F32, F16, BF16,
        F8_E8M0 (never U8) or, of NVFP4, F8_E4M3. None if codes are values themselves.
    grid : ScaleGrid
    factors : tuple of float
        What scales are multiplied by: one number, or one for each matrix. Powers of two; other
        second scales are not seen so.
    has_minus_zero : bool
        Whether the code of -0 stands for -0; it stands for 0 else.
    """

    name: str
    shape: tuple[int, ...]
    element: str
    codes: StoredTensor
    scales: StoredTensor | None
    grid: ScaleGrid
    factors: tuple[float, ...] = (1.0,)
    has_minus_zero: bool = True

    def refused(self, why: str) -> Unmovable:
        """Return why it cannot be repacked."""
        return unmovable(self.codes, self.name, self.shape, why)
