"""Codes of more than one family, as repacking sees a weight's own ones."""

from __future__ import annotations

from typing import Any, NamedTuple

from anamnesis.base.errors import UnsupportedError
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.layout import unmovable

__all__ = ["Rows", "Words"]


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

    def refused(self, why: str) -> UnsupportedError:
        """Return why it cannot be repacked."""
        return unmovable(self.codes, self.name, self.shape, why)


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

    def refused(self, why: str) -> UnsupportedError:
        """Return why it cannot be repacked."""
        return unmovable(self.codes, self.name, self.shape, why)
