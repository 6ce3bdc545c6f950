"""A weight whose values are other ones than those that are stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from anamnesis.base.dtypes import OUTPUT_DTYPES, DType
from anamnesis.schemes.core.plain import PlainMatrix
from anamnesis.schemes.core.weight import Band, Scratch, Weight
from anamnesis.sources.replaced import ReplacedSource

__all__ = ["UNROUNDED", "Edited"]

# What values are seen in that have no dtype of their own: float64 goes by way of it anyway.
UNROUNDED = OUTPUT_DTYPES["f32"]


@dataclass(slots=True, eq=False)
class Edited(PlainMatrix):
    """Other values in the place of a weight's; the first part has them, as if they were stored.

    Attributes
    ----------
    was : Weight
        The weight as it is stored, of whose kind it is for all else.
    values : ReplacedSource
        That of the first part.
    token : function
        Returns what tells these values from others.
    is_made : bool
        Whether a function makes them, of the weight's own.
    """

    was: Weight
    values: ReplacedSource
    token: Callable[[], str]
    is_made: bool

    @property
    def id(self) -> str:
        """The dtype, and which values they are."""
        return f"{self.parts[0].dtype.name.lower()}, edited: {self.token()}"

    @property
    def scheme(self) -> str:
        """In words, what the weight is stored in."""
        return self.was.scheme

    @property
    def family(self) -> str:
        """The family that the weight is stored in."""
        return self.was.family

    @property
    def own_dtype(self) -> DType | None:
        """The dtype of what is stored."""
        return self.was.own_dtype

    def decode(
        self, band: Band, dtype: DType, scratch: Scratch, out: memoryview, level: int
    ) -> int:
        """Copy or cast; round once where values are of no dtype of their own."""
        held = self.parts[0].dtype
        if held.kind == "float" and (dtype is held or held is UNROUNDED):
            return self.values.fill(*band, dtype, out)
        return PlainMatrix.decode(self, band, dtype, scratch, out, level)
