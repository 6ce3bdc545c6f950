"""A weight whose values are other ones than those that are stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from anamnesis.base.dtypes import OUTPUT_DTYPES, DType
from anamnesis.schemes.core.bands import Band
from anamnesis.schemes.core.plain import PlainMatrix
from anamnesis.schemes.core.weight import Scratch, Weight
from anamnesis.sources.altered import ReplacedSource

# What values are seen in that have no dtype of their own: float64 goes by way of it anyway.
UNROUNDED = OUTPUT_DTYPES["f32"]


@dataclass(slots=True, eq=False)
class Edited(PlainMatrix):
    """Other values in the place of a weight's; the first part has them, as if they were stored."""

    was: Weight
    values: ReplacedSource
    token: Callable[[], str]
    is_made: bool

    @property
    def id(self) -> str:
        return f"{self.parts[0].dtype.name.lower()}, edited: {self.token()}"

    @property
    def scheme(self) -> str:
        return self.was.scheme

    @property
    def family(self) -> str:
        return self.was.family

    @property
    def own_dtype(self) -> DType | None:  # type: ignore[override]
        return self.was.own_dtype

    def decode(
        self, band: Band, dtype: DType, scratch: Scratch, out: memoryview, level: int
    ) -> int:
        held = self.parts[0].dtype
        if held.kind == "float" and (dtype is held or held is UNROUNDED):
            return self.values.fill(*band, dtype, out)
        return PlainMatrix.decode(self, band, dtype, scratch, out, level)
