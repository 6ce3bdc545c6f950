"""What weights of codebooks share: bands, and codebooks once for each worker."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, Self

from anamnesis.base.dtypes import DType
from anamnesis.base.errors import LimitExceeded
from anamnesis.base.lazy import NDArray, np
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.bands import Band, Bands, Run, band_bytes, cut
from anamnesis.schemes.core.weight import Scratch, Weight

CODEBOOKS_MAX_BYTES = 8 << 20  # of one weight: each worker holds them
_SHARE = 2  # of a usual band: values are in float32 more than once on their way
FLOATS = ("F16", "BF16", "F32")


@dataclass(slots=True, eq=False)
class CodebookWeight(Weight):
    """A matrix whose values are made in float32, some rows and columns at a time."""

    length: int  # rows that a code has values of
    is_rounded: bool = field(default=False, kw_only=True)

    @property
    def books(self) -> StoredTensor:
        """The codebooks, whose dtype is the library's."""
        return self.parts[1]

    def by_reference(self, dtype: DType) -> Self:
        return self if self.books.dtype.name == "F32" else replace(self, is_rounded=True)

    def _rounded(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return float32 values, rounded where the library rounds them."""
        if not self.is_rounded:
            return values
        return values.astype(self.books.dtype.numpy()).astype(np.float32)

    def bands(self, dtype: DType, n_bytes: int) -> Bands:
        (rows, cols), step = self.shape, self.length
        n_elements = min(n_bytes, band_bytes()) // dtype.n_bytes(1) // _SHARE
        if step * cols <= 4 * n_elements:
            return cut(rows, cols, max(n_elements // (step * cols), 1) * step * cols)
        return cut(rows, cols, n_elements, step=64)

    def decode(self, band: Band, dtype: DType, scratch: Scratch, out: memoryview) -> int:
        with np.errstate(all="ignore"):
            values = self._values(*band.tile(self.shape[1]), scratch)
            values = np.ascontiguousarray(values, np.float32)
        return scratch.convert(values.reshape(-1).view(np.uint8).data, dtype, out)

    @abstractmethod
    def _values(self, rows: Run, cols: Run, scratch: Scratch) -> NDArray[Any]:
        """Return float32 values of rows x cols."""

    @staticmethod
    def _read(scratch: Scratch, slot: int, stored: StoredTensor) -> NDArray[Any]:
        raw = scratch.read_whole(slot, stored)
        return np.frombuffer(raw, stored.dtype.numpy()).reshape(stored.shape)


def check_size(*codebooks: StoredTensor | None) -> None:
    """Raise LimitExceeded if the codebooks of a weight are too large to be held."""
    held = [part for part in codebooks if part is not None]
    n_bytes = sum(part.n_bytes for part in held)
    if n_bytes > CODEBOOKS_MAX_BYTES:
        raise LimitExceeded(
            "CODEBOOKS_MAX_BYTES", f"{held[0].name}: codebooks of {n_bytes:,} bytes"
        )
