"""Codes that share a scale in each block of a weight: FP8, INT8, INT4, groups.

Each is what one library writes, byte for byte: transformers computes in float32;
compressed-tensors' min-max calibration and compression, as llm-compressor runs them, round every
operation to the weight's own dtype. All write nonsense for an infinity or a NaN, which is refused
here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import lcm, prod
from typing import ClassVar, NamedTuple, Self

import anamnesis._core as _core
from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.schemes.core.bands import Band, Bands, Run
from anamnesis.schemes.core.codes import (
    VALUES_SLOT,
    Codes,
    Extent,
    FloatCodes,
    Loss,
    NotFinite,
    Out,
    Survey,
    Task,
    as_matrix,
)
from anamnesis.schemes.core.weight import TILE_STEP, Scratch, TiledWeight, Weight, decode_run


class Tile(Band):
    """A tile as a band: elements are counted through all tiles, in each by rows."""

    __slots__ = ()

    def place(self, shape: tuple[int, ...], n_rows: int) -> tuple[Run, Run]:
        """Return its rows and columns, all tiles being of `n_rows` rows but the last."""
        top = self.start // (n_rows * shape[1]) * n_rows
        rows = min(n_rows, shape[0] - top)
        left = (self.start - top * shape[1]) // rows
        return Run(top, top + rows), Run(left, left + (self.stop - self.start) // rows)


class Tiles(Bands):
    """`rows` x `cols` in tiles of at most `band_rows` x `band_cols`, all whole but at the edges."""

    __slots__ = ()

    def runs(self) -> Iterator[list[Band]]:
        for top in range(0, self.rows, self.band_rows):
            rows, first = min(self.band_rows, self.rows - top), top * self.cols
            for left in range(0, self.cols, self.band_cols):
                right = min(left + self.band_cols, self.cols)
                yield [Tile(first + rows * left, first + rows * right)]


def decode_tile(
    weight: Weight, rows: Run, cols: Run, dtype: DType, scratch: Scratch, out: memoryview
) -> int:
    """Decode a tile, row-major; return how many values became infinite."""
    # Runs of rows such as a weight's own `decode_tile` takes, else one row after the other.
    overflows = done = 0
    top, n_rows = rows.start, prod(weight.shape[:-1])
    while top < rows.stop:
        last = min(top + TILE_STEP, rows.stop)
        is_step = top % TILE_STEP == 0 and (last - top == TILE_STEP or last == n_rows)
        if not (is_step and isinstance(weight, TiledWeight)):
            last = top + 1
        n_bytes = dtype.n_bytes((last - top) * cols.n)
        place = out[done : done + n_bytes]
        if isinstance(weight, TiledWeight) and last - top > 1:
            overflows += weight.decode_tile(Run(top, last), cols, dtype, scratch, place)
        else:
            start = top * weight.shape[-1] + cols.start
            run = Band(start, start + cols.n)
            overflows += decode_run(weight, run, dtype, scratch, place)
        done, top = done + n_bytes, last
    return overflows


# Bytes of values and their codes: what a thread holds at once is bounded.
_LARGEST_BLOCK = 12 << 20
_LARGEST_BAND = 8 << 20  # else it is cut between columns, into tiles
_TILE = 4 << 20
_NOTHING = memoryview(bytearray())
_INFINITE = "an infinity or a NaN is in it"


class Amax(Survey):
    """The largest magnitude of a weight, in float32; a NaN if one is not finite."""

    def __init__(self, dtype: DType) -> None:
        self._source = _core.SOURCES[dtype.name]
        self._seen: list[float] = []  # appended to by several threads

    def see(self, values: memoryview, band: Band, level: int) -> None:
        amax = _core.amax(self._source, values, level)
        self._seen.append(float("nan") if amax is None else amax)

    def found(self) -> bytes:
        import struct

        is_finite = all(amax == amax for amax in self._seen)
        return struct.pack("<f", max(self._seen, default=0.0) if is_finite else float("nan"))


class Item(NamedTuple):
    """What there is for some rows and columns of a weight: a code, a word of codes, a scale."""

    role: str
    dtype: DType
    rows: int = 1
    cols: int = 1
    n: int = 1

    @property
    def n_bytes(self) -> int:
        return self.dtype.n_bytes(self.n)

    def out(self, shape: tuple[int, ...]) -> Out:
        *lead, rows, cols = shape
        grid = (*lead, -(-rows // self.rows), -(-cols // self.cols) * self.n)
        return Out(self.role, self.dtype, grid)

    def of_rows(self, first: int, last: int, cols: int) -> Extent:
        across = -(-cols // self.cols) * self.n_bytes
        first, last = first // self.rows, -(-last // self.rows)
        return Extent(first * across, (last - first) * across)

    def of_tile(self, rows: Run, cols: Run, width: int) -> Extent:
        """Return where the items of a tile lie, in rows of `width` columns."""
        across = -(-width // self.cols) * self.n_bytes
        begin = rows.start // self.rows * across + cols.start // self.cols * self.n_bytes
        return Extent(
            begin, -(-cols.n // self.cols) * self.n_bytes, across, -(-rows.n // self.rows)
        )


# What codes are stored as, alone or packed; two E2M1 are in a byte. And what scales are, by how the
# name of their rule begins; those of others are in the dtype that is computed in.
_ITEMS = {
    "INT8": Item("codes", DTYPES["I8"]),
    "INT4": Item("codes", DTYPES["I32"], 1, 8),
    **{code: Item("codes", DTYPES[code]) for code in ("F8_E4M3", "F8_E5M2")},
}
_PAIR = Item("codes", DTYPES["U8"], 1, 2)
_SCALES = {"reciprocal": "F32", "power of two": "F8_E8M0", "mx": "U8", "nv": "F8_E4M3"}


@dataclass(frozen=True)
class Blockwise(FloatCodes):
    """Codes of some rows and columns with a scale, and a zero point where the rule has one."""

    code: str  # what values become, as `_core.QUANTIZERS` names it
    rule: str  # how scales come from magnitudes, as `_core.RULES` names it
    tall: int = 1  # rows that share a scale; of 0, all
    wide: int = 0  # columns, likewise
    is_fitted: bool = field(default=True, kw_only=True)  # whether it computes in a weight's dtype

    may_end_within: ClassVar[bool] = False  # whether rows may be of no whole blocks

    def fitted(self, dtype: DType) -> Self:
        return super().fitted(dtype) if self.is_fitted else self

    @property
    def has_one_scale(self) -> bool:
        return not self.tall

    @property
    def unencodable(self) -> str:
        if self.rule == "nv alone":
            return _INFINITE
        if self.rule != "mx own power":
            return super().unencodable
        most = 448 if self.code == "F8_E4M3" else 6
        return (
            f"{_INFINITE}, or a group whose largest magnitude, divided by {most}, is below 2^-127"
        )

    def block(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """Return rows and columns that share a scale, no more than there are."""
        rows, cols = shape[-2:]
        return min(self.tall or rows, rows), min(self.wide or cols, cols)

    @property
    def item(self) -> Item:
        """A code, or what several are packed into."""
        return _ITEMS.get(self.code, _PAIR)

    @property
    def scale_dtype(self) -> DType:
        named = (name for rule, name in _SCALES.items() if self.rule.startswith(rule))
        return DTYPES[next(named, self.dtype.name)]

    def items(self, shape: tuple[int, ...]) -> tuple[Item, ...]:
        """Return what a weight is encoded as, in the order of its kernel's outputs."""
        rows, cols = self.block(shape)
        scale = Item("scales", self.scale_dtype, max(rows, 1), max(cols, 1))
        if self.rule != "asymmetric":
            return self.item, scale
        return self.item, scale, Item("zeros", DTYPES["U8"], 8, max(cols, 1), 4)  # in words

    def outs(self, shape: tuple[int, ...], found: bytes = b"") -> tuple[Out, ...]:
        if self.has_one_scale:
            return self.item.out(shape), Out("scales", self.scale_dtype, ())
        return tuple([item.out(shape) for item in self.items(shape)])

    def refuses(self, shape: tuple[int, ...]) -> str | None:
        if len(shape) < 2:
            return "not a matrix"
        rows, cols = self.block(shape)
        if not self.has_one_scale and self._bytes(rows * cols) > _LARGEST_BLOCK:
            return f"{cols:,} values of a row depend on each other"
        if self.wide and shape[-1] % self.wide and not self.may_end_within:
            return f"rows are not in whole groups of {self.wide}"
        return None

    def survey(self, shape: tuple[int, ...]) -> Survey | None:
        return Amax(self.dtype) if self.has_one_scale else None

    def constants(self, shape: tuple[int, ...], found: bytes = b"") -> dict[str, bytes]:
        if not self.has_one_scale:
            return {}
        scale = bytearray(self.scale_dtype.n_bytes(1))
        value = bytes(self.dtype.n_bytes(1))
        if self._encode(value, (1, 1), (1, 1), found, bytearray(4), scale, _NOTHING) is None:
            raise NotFinite()
        return {"scales": bytes(scale)}

    def grain(self, shape: tuple[int, ...]) -> int:
        if self.has_one_scale:
            return 1
        return lcm(*(item.rows for item in self.items(shape))) * shape[-1]

    def tiles(self, shape: tuple[int, ...]) -> Bands | None:
        cols = self.block(shape)[1]
        if cols == shape[-1] or self._bytes(self.grain(shape)) <= _LARGEST_BAND:
            return None
        rows = self.grain(shape) // shape[-1]
        step = lcm(8, *(item.cols for item in self.items(shape)))  # whole words of INT4
        n_cols = max(_TILE // self._bytes(rows) // step, 1) * step
        return Tiles(*as_matrix(shape), rows, n_cols)

    def _bytes(self, n: int) -> int:
        """Return what so many values take, and their codes."""
        return n * (self.dtype.n_bytes(1) + 1)

    def extents(self, shape: tuple[int, ...], band: Band) -> tuple[Extent, ...]:
        rows, cols = as_matrix(shape)
        if self.has_one_scale:
            return Extent(band.start, band.stop - band.start), Extent(0, 0)
        if isinstance(band, Tile):
            tile = band.place((rows, cols), self.grain(shape) // cols)
            return tuple([item.of_tile(*tile, cols) for item in self.items(shape)])
        first, last = band.start // cols, band.stop // cols
        return tuple([item.of_rows(first, last, cols) for item in self.items(shape)])

    def take(
        self, weight: Weight, task: Task, scratch: Scratch, outs: Sequence[memoryview]
    ) -> Loss:
        if not isinstance(task.band, Tile):
            return Codes.take(self, weight, task, scratch, outs)
        n_rows = self.grain(weight.shape) // weight.shape[-1]
        rows, cols = task.band.place(as_matrix(weight.shape), n_rows)
        values = scratch.room(VALUES_SLOT, self.values.n_bytes(rows.n * cols.n))
        overflows = decode_tile(weight, rows, cols, self.values, scratch, values)
        whole, origin = Band(0, rows.n * cols.n), (rows.start, cols.start)
        piece = task._replace(band=whole, shape=(rows.n, cols.n), origin=origin)
        loss = self.encode(values, piece, outs)
        return loss._replace(overflows=loss.overflows + overflows)

    def encode(self, values: memoryview, task: Task, outs: Sequence[memoryview]) -> Loss:
        cols = task.shape[-1]
        scales = bytearray(4) if self.has_one_scale else outs[1]
        zeros = outs[2] if self.rule == "asymmetric" else _NOTHING
        # A piece of a row is one of its own; else rows are rows, for the loss is summed by them.
        size = (1, task.n) if task.band.start % cols or task.n % cols else task.matrix
        block = size if self.has_one_scale else self.block(task.shape)
        errors = self._encode(
            *(values, size, block, task.found, outs[0], scales, zeros, task.level, task.measures)
        )
        return task.measured(errors, self.unencodable)

    def _encode(
        self,
        values: memoryview | bytes,
        size: tuple[int, int],
        block: tuple[int, int],
        found: bytes,
        codes: memoryview | bytearray,
        scales: memoryview | bytearray,
        zeros: memoryview,
        level: int | None = None,
        measure: bool = False,
    ) -> tuple[float, float, float, float] | None:
        dtype, code, rule = self.dtype.name, self.code, self.rule
        kernel = _core.SOURCES[dtype], _core.QUANTIZERS[code], _core.RULES[rule]
        outs, known = (codes, scales, zeros), self._known(found)
        return _core.quantize(*kernel, values, *size, *block, *outs, known, measure, level)

    def _known(self, found: bytes) -> bytes:
        """Return the kernel's arguments from a survey."""
        return found if self.has_one_scale else b""
