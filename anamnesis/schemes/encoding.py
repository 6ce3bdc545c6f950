"""An encoding is a way to write a weight, with its settings: the mirror of `Weight`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.stored import Part, StoredTensor
from anamnesis.schemes.base import Band, Scratch, Weight

__all__ = ["Encoding", "Extent", "Loss"]

_VALUES = -1  # the slot of a worker's scratch for values on their way to an encoder
_F32 = DTYPES["F32"]


class Extent(NamedTuple):
    """Which bytes of a part a band fills: one piece, or several of one length.

    Attributes
    ----------
    offset, n_bytes : int
        Of the first piece, in the part.
    stride : int
        From the begin of one piece to that of the next.
    pieces : int
        How many there are.
    """

    offset: int
    n_bytes: int
    stride: int = 0
    pieces: int = 1


class Loss(NamedTuple):
    """What writing a band took.

    Attributes
    ----------
    overflows : int
        Finite values that became infinite.
    """

    overflows: int = 0


class Encoding(ABC):
    """A way to write a weight; a value, without state."""

    @property
    @abstractmethod
    def id(self) -> str:
        """Its stable name, with its settings: what plans and runs are compared by."""

    def refuses(self, name: str, shape: tuple[int, ...], dtype: DType) -> str | None:
        """Return why a weight cannot be written so; None if it can."""
        return None

    @abstractmethod
    def parts(self, name: str, shape: tuple[int, ...]) -> tuple[Part, ...]:
        """Return the tensors that a weight is written as, so that headers go before data."""

    @abstractmethod
    def grain(self, shape: tuple[int, ...]) -> int:
        """Return what bands are multiples of, in elements."""

    @abstractmethod
    def extents(self, shape: tuple[int, ...], band: Band) -> tuple[Extent, ...]:
        """Return which bytes of each part a band fills."""

    @abstractmethod
    def encode(
        self, values: memoryview, band: Band, outs: Sequence[memoryview], level: int
    ) -> Loss:
        """Encode a band of float32 values into one buffer for each part."""

    def take(
        self, weight: Weight, band: Band, scratch: Scratch, outs: Sequence[memoryview], level: int
    ) -> Loss:
        """Decode a band of a weight, and encode it."""
        values = scratch.room(_VALUES, _F32.n_bytes(band.stop - band.start))
        weight.decode(band, _F32, scratch, values, level)
        return self.encode(values, band, outs, level)

    @abstractmethod
    def reopen(self, name: str, shape: tuple[int, ...], parts: tuple[StoredTensor, ...]) -> Weight:
        """Return what was written as a weight, to be decoded again."""
