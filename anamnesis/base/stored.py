"""Stored tensors: one in a file, one to be written, and what is left out."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.errors import ParseError, UnsupportedError
from anamnesis.base.lazy import NDArray
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
        return self.source.read(self.offset, self.n_bytes)

    def numpy(self) -> NDArray[Any]:
        """Return it as it is stored; bytes where values share them, blocks of a GGUF among them."""
        import numpy as np

        seen = self.in_bytes()
        array = np.empty(seen.shape, seen.dtype.numpy())
        self.source.read_into(self.offset, array.reshape(-1).view(np.uint8).data)
        return array

    def in_bytes(self) -> StoredTensor:
        """Return it as bytes, along its last axis, where it is of values that share bytes."""
        per = self.dtype.block_elements
        if per == 1:
            return self
        *lead, last = self.shape or (1,)
        shape = (self.n_bytes,) if last % per else (*lead, self.dtype.n_bytes(last))
        return self._replace(dtype=DTYPES["U8"], shape=shape)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}, {self.describe()}>"

    def __str__(self) -> str:
        """Return what error messages call it: `a.weight (F8_E4M3 [256, 128])`."""
        return f"{self.name} ({self.describe()})"

    def describe(self) -> str:
        """Return dtype and shape as error messages show them: `F8_E4M3 [256, 128]`."""
        return f"{self.dtype.name} {list(self.shape)}"

    def malformed(self, what: str, *, at: int = 0, remedy: str | None = None) -> ParseError:
        """Return the error for bytes of it, or what a header says of it, that cannot be right.

        Parameters
        ----------
        what : str
            Names it, and says what is wrong.
        at : int, optional
            The byte of it where that was noticed.
        remedy : str, optional
        """
        return self.source.error(what, self.offset + at, remedy=remedy)

    def misshapen(self, expected: str, beside: StoredTensor | None = None) -> ParseError:
        """Return the error for another dtype or shape than is expected, or than goes with codes."""
        is_other = f"is {self.describe()}" if beside is None else f"does not fit {beside}"
        name = self.name if beside is None else str(self)
        return self.malformed(f"{name} {is_other}; {expected} is expected")

    def unsupported(self, what: str, *, remedy: str | None = None) -> UnsupportedError:
        """Return the error for something in it that is not handled; `what` names it."""
        return self.source.unsupported(what, remedy=remedy)


class Part(NamedTuple):
    """A stored tensor to be written: all that a header says of it, before there is any data."""

    name: str
    dtype: DType
    shape: tuple[int, ...]

    @property
    def n_bytes(self) -> int:
        return self.dtype.n_bytes(prod(self.shape))


ASKED = "as asked"
OUTSIDE = "outside the selection"


@dataclass(frozen=True, slots=True)
class Dropped:
    """Something that is left out of the output, and why."""

    name: str
    reason: str
