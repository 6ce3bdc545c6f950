"""Weights that are stored as plain tensors, or edited: given other values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from anamnesis.base.dtypes import OUTPUT_DTYPES, DType
from anamnesis.base.lazy import np
from anamnesis.schemes.core.bands import Band, Bands, Run, cut
from anamnesis.schemes.core.weight import Scratch, TiledWeight, Weight
from anamnesis.sources.altered import ReplacedSource
from anamnesis.sources.gathered import RowOrder


class Plain(Weight):
    """A stored tensor that is a weight by itself."""

    __slots__ = ()

    @property
    def id(self) -> str:
        return self.parts[0].dtype.name.lower()

    @property
    def scheme(self) -> str:
        return self.parts[0].dtype.name

    @property
    def own_dtype(self) -> DType | None:  # type: ignore[override]
        return self.parts[0].dtype

    def with_rows(
        self, name: str, shape: tuple[int, ...], pieces: Sequence[Weight], rows: RowOrder
    ) -> Weight | None:
        if any(type(piece) not in (Plain, PlainMatrix) for piece in pieces):
            return None
        stored = rows.taken_alone([piece.parts[0] for piece in pieces], name, shape)
        return None if stored is None else Plain(name, shape, (stored,))

    def bands(self, dtype: DType, n_bytes: int) -> Bands:
        unit = dtype.block_elements
        return cut(1, self.n_elements, n_bytes // dtype.block_bytes * unit, step=max(4, unit))

    def decode(self, band: Band, dtype: DType, scratch: Scratch, out: memoryview) -> int:
        stored = self.parts[0]
        start, stop = (stored.dtype.n_bytes(n) for n in band)
        if dtype is stored.dtype:
            stored.source.read_into(stored.offset + start, out)
            return 0
        values = scratch.read(0, stored, start, stop - start)
        return scratch.convert(values, dtype, out, of=stored.dtype.name)


@dataclass(slots=True, eq=False)
class Moved(Plain):
    """A part of a weight that is repacked: a tensor of codes or scales, copied as it is seen."""

    way: str

    @property
    def id(self) -> str:
        return f"{self.parts[0].dtype.name.lower()}, {self.way}"


class PlainMatrix(TiledWeight, Plain):
    """A matrix of floats, or several, stored as plain tensors, that can be decoded in tiles."""

    __slots__ = ()

    column_step: ClassVar[int] = 1

    def decode_tile(
        self, rows: Run, cols: Run, dtype: DType, scratch: Scratch, out: memoryview
    ) -> int:
        values, own = self._tile(rows, cols, scratch), self.parts[0].dtype
        if dtype is own:
            out[:] = values
            return 0
        return scratch.convert(values, dtype, out, of=own.name)

    def _tile(self, rows: Run, cols: Run, scratch: Scratch) -> memoryview:
        width, item = self.shape[-1], self.parts[0].dtype.n_bytes(1)
        first = (rows.start * width + cols.start) * item
        return scratch.read_rows(0, self.parts[0], first, width * item, cols.n * item, rows.n)


@dataclass(slots=True, eq=False)
class PlainColumns(PlainMatrix):
    """Some columns of a stored matrix of floats, which is not read but in tiles."""

    first: int
    step: int

    @property
    def id(self) -> str:
        return f"{self.parts[0].dtype.name.lower()}, columns {self.first}+{self.step}"

    def _tile(self, rows: Run, cols: Run, scratch: Scratch) -> memoryview:
        (stored,) = self.parts
        item, width = stored.dtype.n_bytes(1), stored.shape[-1]
        left = self.first + cols.start * self.step
        span = (cols.n - 1) * self.step + 1
        begin = (rows.start * width + left) * item
        values = scratch.read_rows(0, stored, begin, width * item, span * item, rows.n)
        if self.step == 1:
            return values
        items = np.frombuffer(values, f"u{item}").reshape(rows.n, -1)
        return np.ascontiguousarray(items[:, :: self.step]).reshape(-1).view(np.uint8).data


def plain_dtype(own: DType | None, wanted: DType, *, cast: bool) -> DType:
    """Return the dtype that a weight has when it is plain: `wanted`, where it is quantised."""
    # A weight that is plain already keeps its own, unless it is a float and `cast` is set.
    if own is None:
        return wanted
    return wanted if cast and own.kind == "float" else own


# What values are seen in that have no dtype of their own: float64 goes by way of it anyway.
UNROUNDED = OUTPUT_DTYPES["f32"]
_UNROUNDED = -5  # the slot of values that are not yet rounded


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

    def decode(self, band: Band, dtype: DType, scratch: Scratch, out: memoryview) -> int:
        held = self.parts[0].dtype
        if held.kind == "float" and (dtype is held or held is UNROUNDED):
            return self.values.fill(*band, dtype, out, partial(scratch.room, _UNROUNDED))
        return PlainMatrix.decode(self, band, dtype, scratch, out)
