"""A weight: one or more stored tensors, and the way back to its values.

A weight is decoded in bands, never whole. A band is a run of consecutive elements of the row-major
result: some whole rows, or a piece of one row that is too long.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from mmap import mmap
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import anamnesis._core as _core
import anamnesis._io as _io
from anamnesis.base.dtypes import DType
from anamnesis.base.levels import resolve_level
from anamnesis.base.source import Source
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.bands import Band, Bands, Cut, Run, band_bytes, places
from anamnesis.schemes.core.settings import Shown
from anamnesis.sources.gathered import RowOrder
from anamnesis.sources.memory import mapped_memory

V = TypeVar("V")

# Of a buffer that is mapped: malloc keeps some of what was as large, when another thread needs it.
_LARGE = 1 << 20

TILE_STEP = 32  # tiles begin at multiples of it, where packed words of any width begin too


class Stretch(NamedTuple):
    """Bytes `offset` to `offset` + `n_bytes` of a stored tensor, which a slot reads from."""

    slot: int
    tensor: StoredTensor
    offset: int
    n_bytes: int


# The slots of a worker's scratch for what is decoded with what is wanted, and for what is kept.
_PIECE, _WHOLE, _KEPT = -2, -3, -4
_AHEAD = -16  # and below: the slots of stretches that are read ahead


class Scratch:
    """What one worker decodes with: its kernels, and a buffer for each stored tensor and others."""

    def __init__(self, level: int | None = None) -> None:
        self.level = resolve_level() if level is None else level
        self.reads_ahead = True
        self._slots: dict[int, bytearray | mmap] = {}
        self._rows: dict[int, tuple[Source, int, int, int, int]] = {}  # that slots have read
        self._ahead: dict[int, tuple[Source, Run, memoryview]] = {}  # that slots gather rows from
        self._beneath: Scratch | None = None

    @property
    def beneath(self) -> Scratch:
        """The buffers of the parts of a weight that is seen as another one."""
        if self._beneath is None:
            self._beneath = Scratch(self.level)
            self._beneath.reads_ahead = False  # it is decoded in another order
        return self._beneath

    def read(self, slot: int, tensor: StoredTensor, offset: int, n_bytes: int) -> memoryview:
        """Read `n_bytes` of `tensor` from `offset` on; valid until the slot is used again."""
        # What lies in memory is returned as it lies, and may change there meanwhile.
        held = tensor.source.held(tensor.offset + offset, n_bytes)
        return self.copy(slot, tensor, offset, n_bytes) if held is None else held

    def copy(self, slot: int, tensor: StoredTensor, offset: int, n_bytes: int) -> memoryview:
        """Read bytes that will be checked into the slot, where nothing else can change them."""
        view = self.room(slot, n_bytes)
        tensor.source.read_into(tensor.offset + offset, view)
        return view

    def read_rows(
        self, slot: int, tensor: StoredTensor, offset: int, stride: int, row_bytes: int, n_rows: int
    ) -> memoryview:
        """Read `n_rows` pieces of `row_bytes` each that lie `stride` apart."""
        # What the slot holds already is not read again.
        n_bytes = n_rows * row_bytes
        if row_bytes == stride:
            held = tensor.source.held(tensor.offset + offset, n_bytes)
            if held is not None:
                return held
        first = tensor.offset + offset
        wanted = (tensor.source, first, stride, row_bytes, n_rows)
        if self._rows.get(slot) != wanted:
            view = self.room(slot, n_bytes)
            span = Run(first, first + max(n_rows - 1, 0) * stride + row_bytes)
            ahead = self._held_ahead(slot, tensor.source, span)
            if ahead is None:
                tensor.source.read_rows_into(first, stride, row_bytes, view)
            else:
                _io.copy_rows(ahead, 0, stride, row_bytes, view)
            self._rows[slot] = wanted
        return memoryview(self._slots[slot])[:n_bytes]

    def read_tile(self, slot: int, tensor: StoredTensor, rows: Run, cols: Run) -> memoryview:
        """Read rows x cols of a stored matrix, or of several, one below the other."""
        item = tensor.dtype.n_bytes(1)
        stride = tensor.shape[-1] * item
        first = rows.start * stride + cols.start * item
        return self.read_rows(slot, tensor, first, stride, cols.n * item, rows.n)

    def read_whole(self, slot: int, tensor: StoredTensor) -> memoryview:
        """Read a small tensor, once for all bands."""
        return self.read_rows(slot, tensor, 0, tensor.n_bytes, tensor.n_bytes, 1)

    def read_ahead(self, slot: int, tensor: StoredTensor, offset: int, n_bytes: int) -> None:
        """Read a stretch, of which `read_rows` then finds this slot's rows in memory."""
        span = Run(tensor.offset + offset, tensor.offset + offset + n_bytes)
        if tensor.source.held(span.start, n_bytes) is not None:
            return
        if self._held_ahead(slot, tensor.source, span) is None:
            self._ahead.pop(slot, None)
            view = self.room(_AHEAD - slot, n_bytes)
            tensor.source.read_into(span.start, view)
            self._ahead[slot] = tensor.source, span, view

    def _held_ahead(self, slot: int, source: Source, span: Run) -> memoryview | None:
        """Return bytes of a source if they are in what the slot has read ahead."""
        if slot not in self._ahead:
            return None
        held_of, held, data = self._ahead[slot]
        if held_of is not source or span.start < held.start or span.stop > held.stop:
            return None
        return data[span.start - held.start : span.stop - held.start]

    def convert(self, values: Any, dtype: DType, out: Any, *, of: str = "F32") -> int:
        """Round floats to `dtype`; return how many became infinite."""
        return _core.convert(_core.FLOATS[of], _core.OUTPUTS[dtype.name], values, out, self.level)

    def convert_columns(
        self, values: memoryview, first: int, stride: int, n: int, dtype: DType, out: memoryview
    ) -> int:
        """Round the n float32 from `first` on, and from each `stride` values later on."""
        kept = self.room(_KEPT, len(out) // dtype.n_bytes(1) * 4)
        _io.copy_rows(values, 4 * first, 4 * stride, 4 * n, kept)
        return self.convert(kept, dtype, out)

    def room(self, slot: int, n_bytes: int) -> memoryview:
        """Return a slot's bytes, to be written; valid until the slot is used again."""
        self._rows.pop(slot, None)
        if len(self._slots.get(slot, b"")) < n_bytes:
            self._slots.pop(slot, None)  # before the larger one is made
            is_large = n_bytes >= _LARGE
            self._slots[slot] = mapped_memory(n_bytes) if is_large else bytearray(n_bytes)
        return memoryview(self._slots[slot])[:n_bytes]


@dataclass(slots=True, eq=False)
class Weight(ABC):
    """One weight of a model. (Not frozen, which would take twice the time to make.)"""

    has_ranges: ClassVar[bool] = False
    # What its values are stored in; None of codes. It is asked so often that no call is made.
    own_dtype: ClassVar[DType | None] = None

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
        return prod(self.shape)

    @property
    def n_bytes(self) -> int:
        """The size of all of its parts."""
        return sum(part.n_bytes for part in self.parts)

    @property
    def shown(self) -> Shown | None:
        """What its parts show of its encoding; None where nothing else could say it."""
        return None

    def expect_symmetric(self, by: str, *, reads: bool) -> None:  # noqa: B027 -- others have none
        """Take it from `by` that all zero points are the middle code."""

    @property
    def made_of(self) -> tuple[Weight, ...]:
        """The weights of the model that it is: others than itself, where several are joined."""
        return (self,)

    def view(self, kind: type[V]) -> V | None:
        """Return its own codes seen as a kind of them, where they lie; None if they are none."""
        seen = self.seen_as(kind)
        return seen if isinstance(seen, kind) else None

    def seen_as(self, kind: type) -> object:
        """Return what `view` does, or codes of another kind."""
        return None

    def cut_out(self, name: str, rows: Cut) -> Weight | None:
        """Return some rows of a matrix of this stack, in its own codes where they lie."""
        # None if they cannot be cut so.
        return None

    def stacked(
        self, name: str, pieces: Sequence[Weight], per_matrix: int, *, alternates: bool
    ) -> Weight | None:
        """Return matrices, this one the first of them, as one stack in their own codes."""
        # None if that cannot be, as of codes whose settings differ.
        return None

    def with_rows(
        self, name: str, shape: tuple[int, ...], pieces: Sequence[Weight], rows: RowOrder
    ) -> Weight | None:
        """Return rows of weights, this one the first of them, in their own codes where they lie."""
        # None if that cannot be, as of codes in blocks of several rows.
        return None

    @abstractmethod
    def bands(self, dtype: DType, n_bytes: int) -> Bands:
        """Cut it into bands of at most about `n_bytes` of output each."""

    def by_reference(self, dtype: DType) -> Self:
        """Return it as its own library decodes it to `dtype`, with what that rounds in between."""
        # Itself, where that library gives what float32 gives, rounded once.
        return self

    @property
    def is_held(self) -> bool:
        """Whether all of its parts lie in memory."""
        return all(p.source.held(p.offset, p.n_bytes) is not None for p in self.parts)

    @abstractmethod
    def decode(self, band: Band, dtype: DType, scratch: Scratch, out: memoryview) -> int:
        """Decode a band into `out`; return how many values became infinite by the rounding."""

    @property
    def column_step(self) -> int:
        """Tiles whose columns begin and end at multiples of it are decoded fastest."""
        return TILE_STEP

    def stretches(self, rows: Run) -> list[Stretch]:
        """Return where whole rows are stored, if tiles of theirs are taken from there by rows."""
        return []

    def decode_tile(
        self, rows: Run, cols: Run, dtype: DType, scratch: Scratch, out: memoryview
    ) -> int:
        """Decode rows x cols into `out`, row-major; return how many values became infinite."""
        # `rows` count through all matrices. Here all columns of them are decoded. Nothing takes
        # more memory than a few times the tile in float32, or that of a band.
        width, item, overflows = self.shape[-1], dtype.n_bytes(1), 0
        at_once = max(band_bytes() // (item * width), TILE_STEP)
        for some, place in places(rows, at_once, cols.n * item, out):
            room = scratch.room(_WHOLE, some.n * width * item)
            band = Band(some.start * width, some.stop * width)
            overflows += decode_run(self, band, dtype, scratch.beneath, room)
            _io.copy_rows(room, cols.start * item, width * item, cols.n * item, place)
        return overflows


def decode_run(weight: Weight, band: Band, dtype: DType, scratch: Scratch, out: memoryview) -> int:
    """Decode any consecutive elements, also such as are none of the weight's own bands."""
    # They are decoded in pieces of its own bands, with what is beside them where they cannot be cut
    # out. Returns how many values became infinite by the rounding, these included.
    own, least = weight.bands(dtype, band_bytes()), weight.bands(dtype, 1)
    overflows = 0
    for around in own.touching(*band):
        wanted = Band(max(around.start, band.start), min(around.stop, band.stop))
        piece = least.holding(wanted)
        first, last = (dtype.n_bytes(n - band.start) for n in wanted)
        if piece == wanted:
            overflows += weight.decode(piece, dtype, scratch, out[first:last])
            continue
        room = scratch.room(_PIECE, dtype.n_bytes(piece.stop - piece.start))
        overflows += weight.decode(piece, dtype, scratch, room)
        skipped = dtype.n_bytes(wanted.start - piece.start)
        out[first:last] = room[skipped : skipped + last - first]
    return overflows


class TiledWeight(Weight):
    """A matrix of which tiles can be decoded without what lies beside them."""

    # Where there are several matrices, rows of a tile are of one. They begin at a multiple of
    # `TILE_STEP`, and end at one or at the last row.

    __slots__ = ()

    always_as_linear: ClassVar[bool] = True


class DecodedByTiles(TiledWeight):
    """A matrix, or several, whose bands are decoded as tiles: whole rows, or a piece of one."""

    __slots__ = ()

    def decode(self, band: Band, dtype: DType, scratch: Scratch, out: memoryview) -> int:
        return self.decode_tile(*band.tile(self.shape[-1]), dtype, scratch, out)
