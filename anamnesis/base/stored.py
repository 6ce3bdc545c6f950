"""Stored tensors: one that lies in a file, and one that is to be written."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from anamnesis.base.dtypes import DType
from anamnesis.base.source import Source

__all__ = ["Part", "StoredTensor"]


class StoredTensor(NamedTuple):
    """One tensor as it lies in a container, row-major.

    A tuple, for it is made a hundred thousand times in a second.

    Attributes
    ----------
    name : str
    dtype : DType
    shape : tuple of int
        Logical shape, outermost first.
    n_bytes, offset : int
        Its byte range in `source`.
    source : Source
        The file that holds it.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    n_bytes: int
    offset: int
    source: Source

    @property
    def n_elements(self) -> int:
        """Product of the shape; 1 for a scalar."""
        return prod(self.shape)

    def read(self) -> bytes:
        """Return all its bytes, for the small ones."""
        return self.source.read(self.offset, self.n_bytes)

    def __repr__(self) -> str:
        """Return what it is, and not all that its source is."""
        return f"<{type(self).__name__} {self.name!r}, {self.describe()}>"

    def describe(self) -> str:
        """Return dtype and shape as error messages show them: `F8_E4M3 [256, 128]`."""
        return f"{self.dtype.name} {list(self.shape)}"


class Part(NamedTuple):
    """A stored tensor to be written: all that a header says of it, before there is any data."""

    name: str
    dtype: DType
    shape: tuple[int, ...]

    @property
    def n_bytes(self) -> int:
        """Its length in a file."""
        return self.dtype.n_bytes(prod(self.shape))
