"""A weight is what a user thinks of as one tensor: one or more stored tensors and the way back.

A weight is decoded in bands, never whole. A band is a run of consecutive elements of the row-major
result: some whole rows, or a piece of one row that is too long.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import ClassVar, NamedTuple

from anamnesis import _core, _parse
from anamnesis.base.dtypes import DType
from anamnesis.base.source import Source
from anamnesis.base.stored import StoredTensor

__all__ = [
    "BAND_BYTES",
    "TILE_STEP",
    "Band",
    "Bands",
    "Run",
    "Scratch",
    "TiledWeight",
    "Weight",
    "convert_part",
    "cut",
]

# Output of one band: small enough to be in cache still when it is written, large enough that the
# interpreter's part in it does not show.
BAND_BYTES = 1 << 20

TILE_STEP = 32  # tiles begin at multiples of it, where packed words of any width begin too


class Run(NamedTuple):
    """Indices `start` to `stop`."""

    start: int
    stop: int

    @property
    def n(self) -> int:
        """How many there are."""
        return self.stop - self.start


class Band(NamedTuple):
    """Elements `start` to `stop` of a weight's row-major result."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Bands:
    """The bands of a weight: known, and counted, without one of them being made.

    A weight of 10 GB has ten thousand, and a model a hundred thousand such weights.

    Attributes
    ----------
    rows, cols : int
        Of a matrix.
    band_rows, band_cols : int
        Of a band, but for those at the edges. If it has several rows, they are whole.
    batch : int
        Matrices, one after the other.
    stripe : int, optional
        Rows whose bands one thread had better decode one after the other; no band crosses a
        stripe's edge.
    """

    rows: int
    cols: int
    band_rows: int
    band_cols: int
    batch: int = 1
    stripe: int = 0

    def __len__(self) -> int:
        if self.rows * self.cols == 0:
            return 0
        per_row = -(-self.cols // self.band_cols)
        n_full, rest = divmod(self.rows, self.stripe or self.rows)
        down = n_full * -(-(self.stripe or self.rows) // self.band_rows)
        return self.batch * per_row * (down + -(-rest // self.band_rows))

    def __iter__(self) -> Iterator[Band]:
        return (band for run in self.runs() for band in run)

    def runs(self) -> Iterator[list[Band]]:
        """Yield the bands in runs that one thread had better decode, one after the other."""
        if self.rows * self.cols == 0:
            return
        for top in range(0, self.batch * self.rows, self.rows):
            for first in range(top, top + self.rows, self.stripe or self.rows):
                end = min(first + (self.stripe or self.rows), top + self.rows)
                bands = self._between(first, end)
                if self.stripe:
                    yield list(bands)
                else:
                    yield from ([band] for band in bands)

    def _between(self, first: int, end: int) -> Iterator[Band]:
        cols = self.cols
        for row in range(first, end, self.band_rows):
            if self.band_cols >= cols:
                yield Band(row * cols, min(row + self.band_rows, end) * cols)
                continue
            for col in range(0, cols, self.band_cols):
                yield Band(row * cols + col, row * cols + min(col + self.band_cols, cols))


class Scratch:
    """One worker's buffers: a slot for each stored tensor that a band reads from, and others.

    Attributes
    ----------
    reads_ahead : bool
        Whether the rest of a stripe is going to be decoded too, so that it is read at once.
    """

    def __init__(self) -> None:
        self.reads_ahead = True
        self._slots: dict[int, bytearray] = {}
        self._rows: dict[int, tuple[Source, int, int, int, int]] = {}  # that slots have read

    def read(self, slot: int, tensor: StoredTensor, offset: int, n_bytes: int) -> memoryview:
        """Read `n_bytes` of `tensor` from `offset` on; valid until the slot is used again.

        What lies in memory is returned as it lies, and may change there meanwhile.
        """
        held = tensor.source.held(tensor.offset + offset, n_bytes)
        return self.copy(slot, tensor, offset, n_bytes) if held is None else held

    def copy(self, slot: int, tensor: StoredTensor, offset: int, n_bytes: int) -> memoryview:
        """Read what is going to be checked: into the slot, where nobody else changes it."""
        view = self.room(slot, n_bytes)
        tensor.source.read_into(tensor.offset + offset, view)
        return view

    def read_rows(
        self, slot: int, tensor: StoredTensor, offset: int, stride: int, row_bytes: int, n_rows: int
    ) -> memoryview:
        """Read `n_rows` pieces of `row_bytes` each that lie `stride` apart.

        What the slot holds already is not read again.
        """
        n_bytes = n_rows * row_bytes
        if row_bytes == stride:
            held = tensor.source.held(tensor.offset + offset, n_bytes)
            if held is not None:
                return held
        wanted = (tensor.source, tensor.offset + offset, stride, row_bytes, n_rows)
        if self._rows.get(slot) != wanted:
            view = self.room(slot, n_bytes)
            tensor.source.read_rows_into(tensor.offset + offset, stride, row_bytes, view)
            self._rows[slot] = wanted
        return memoryview(self._slots[slot])[:n_bytes]

    def room(self, slot: int, n_bytes: int) -> memoryview:
        """Return a slot's bytes, to be written; valid until the slot is used again."""
        self._rows.pop(slot, None)
        if len(self._slots.get(slot, b"")) < n_bytes:
            self._slots.pop(slot, None)  # before the larger one is made
            self._slots[slot] = bytearray(n_bytes)
        return memoryview(self._slots[slot])[:n_bytes]


@dataclass(slots=True, eq=False)
class Weight(ABC):
    """One weight of a model. (Not frozen, which would take twice the time to make.)

    Attributes
    ----------
    name : str
        Its name in the output.
    shape : tuple of int
    parts : tuple of StoredTensor
        What it is made of; the first holds the codes.
    """

    name: str
    shape: tuple[int, ...]
    parts: tuple[StoredTensor, ...]

    @property
    @abstractmethod
    def id(self) -> str:
        """The encoding with its settings, by a stable name: two of one id are decoded alike."""

    @property
    @abstractmethod
    def scheme(self) -> str:
        """The encoding, in words, as `inspect` lists it."""

    @property
    def family(self) -> str:
        """What people call codes of this kind, in a word."""
        return self.parts[0].dtype.name

    @property
    def n_elements(self) -> int:
        """Product of the shape."""
        return prod(self.shape)

    @abstractmethod
    def bands(self, target: DType, n_bytes: int) -> Bands:
        """Cut it into bands of at most about `n_bytes` of output each."""

    @property
    def is_held(self) -> bool:
        """Whether all of its parts lie in memory."""
        return all(p.source.held(p.offset, p.n_bytes) is not None for p in self.parts)

    @abstractmethod
    def decode(
        self, band: Band, target: DType, scratch: Scratch, out: memoryview, level: int
    ) -> int:
        """Decode a band into `out`; return how many values became infinite by the rounding."""


class TiledWeight(Weight):
    """A matrix that can be decoded in tiles.

    Attributes
    ----------
    always_as_linear : bool
        Whether it is always stored as nn.Linear has it, [out, in], whatever the layer is. Else that
        depends on the program that wrote it.
    """

    __slots__ = ()

    always_as_linear: ClassVar[bool] = True

    @property
    @abstractmethod
    def column_step(self) -> int:
        """Tiles whose columns begin and end at multiples of it are decoded fastest."""

    @abstractmethod
    def decode_tile(
        self, rows: Run, cols: Run, target: DType, scratch: Scratch, out: memoryview, level: int
    ) -> int:
        """Decode rows x cols into `out`, row-major; return how many values became infinite.

        `rows` begin at a multiple of `TILE_STEP`, and end at one or at the last row. Nothing here
        takes more memory than a few times the tile in float32, or that of a band.
        """


def convert_part(
    values: memoryview,
    first: int,
    stride: int,
    n: int,
    target: DType,
    kept: memoryview,
    out: memoryview,
    level: int,
) -> int:
    """Round to `target` the n float32 from `first` on, and from each `stride` values later on.

    `kept` is room for them in between; returns how many became infinite.
    """
    _parse.copy_rows(values, 4 * first, 4 * stride, 4 * n, kept)
    return _core.convert(_core.FLOATS["F32"], _core.OUTPUTS[target.name], kept, out, level)


def cut(rows: int, cols: int, n_elements: int, *, step: int = 1, batch: int = 1) -> Bands:
    """Cut matrices of `rows` x `cols` into bands of at most `n_elements` (but at least `step`).

    Bands are whole rows where a row fits, else pieces of one row whose length is a multiple of
    `step`. Each is of one matrix of the `batch`.
    """
    if cols <= n_elements:
        return Bands(rows, cols, max(1, n_elements // max(cols, 1)), cols, batch)
    return Bands(rows, cols, 1, max(step, n_elements // step * step), batch)
