"""Encodings whose codes share a scale in each block, with their names.

Each is what one library writes, byte for byte: transformers computes in float32;
compressed-tensors' min-max calibration and compression, as llm-compressor runs them, round every
operation to the weight's own dtype. All write nonsense for an infinity or a NaN, which is refused
here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import lcm
from typing import TYPE_CHECKING, Any, ClassVar

from anamnesis import _core
from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.schemes.core import blockwise
from anamnesis.schemes.core.encoding import (
    VALUES_SLOT,
    Encoding,
    Extent,
    Layers,
    Loss,
    NotFinite,
    Survey,
    Task,
    as_matrix,
    not_finite,
)
from anamnesis.schemes.core.long_rows import Place, Tile, Tiles, decode_tile
from anamnesis.schemes.core.weight import Band, Bands, Scratch, Weight
from anamnesis.schemes.says.endings import as_patterns
from anamnesis.schemes.says.linear import Tool, left_by_class, linear_refusal

if TYPE_CHECKING:
    from anamnesis.schemes.core.layout import ExpertsTool

__all__ = ["BlockwiseEncoding"]

_BF16 = DTYPES["BF16"]
_NOTHING = memoryview(bytearray())


@dataclass(frozen=True)
class BlockwiseEncoding(Encoding):
    """What all of them share: both libraries take layers whose class is nn.Linear, and no Conv1D.

    Attributes
    ----------
    dtype : DType
        BF16, F16 or F32: what the weight is in, which compressed-tensors computes in.
    """

    dtype: DType = field(default=_BF16, kw_only=True)

    code: ClassVar[str]  # the id of a kernel
    conv1d = "left"

    @property
    def values(self) -> DType:
        """The weight's own dtype."""
        return self.dtype

    def fitted(self, dtype: DType) -> BlockwiseEncoding:
        """Return the same for a weight of a dtype."""
        return replace(self, dtype=dtype) if dtype.name in _core.SOURCES else self

    @property
    def experts_tool(self) -> ExpertsTool | None:
        """What compressed-tensors has its codes from."""
        return "llm-compressor"

    @property
    def tool(self) -> Tool:
        """Whose rule it is which layers are encoded."""
        return "llm-compressor"

    @property
    @abstractmethod
    def rule(self) -> str:
        """How scales come from magnitudes, as `_core.RULES` names it."""

    @property
    def has_one_scale(self) -> bool:
        """Whether one scale is for all of a weight."""
        return False

    @abstractmethod
    def block(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """Return rows and columns that share a scale, no more than there are."""

    @property
    def scale_dtype(self) -> DType:
        """What scales are stored in."""
        named = {"reciprocal": "F32", "power of two": "F8_E8M0"}.get(self.rule)
        return DTYPES[named] if named else self.dtype

    def grid(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """Return rows and columns of a matrix's grid of scales."""
        rows, cols = self.block(shape)
        return -(-shape[0] // rows), -(-shape[1] // cols)

    def refuses(self, name: str, shape: tuple[int, ...], dtype: DType) -> str | None:
        """Leave what no library quantises: all but the matrices of linear layers."""
        why = linear_refusal(name, shape, dtype, self.tool)
        if why is None and not self.has_one_scale and self._too_much(shape):
            return f"{self.block(shape)[1]:,} values of a row depend on each other"
        return why

    def leaves(
        self, shapes: Mapping[str, tuple[int, ...]], config: Mapping[str, Any]
    ) -> Mapping[str, str]:
        """Return what the tool leaves by the classes of layers, as far as names show them."""
        return left_by_class(shapes, self.tool)

    def declare_with(self, layers: Layers) -> dict[str, Any]:
        """Return compressed-tensors' config, by names that fit in transformers, too."""
        plain = as_patterns(layers) if self.tool == "llm-compressor" else layers.plain
        return self.declare(plain)

    def _too_much(self, shape: tuple[int, ...]) -> bool:
        """Tell whether what shares a scale does not fit a thread's memory."""
        rows, cols = self.block(shape)
        return self._bytes(rows * cols) > blockwise._LARGEST_BLOCK

    def survey(self, shape: tuple[int, ...]) -> Survey | None:
        """Look for the largest magnitude of all, where one scale is for all."""
        return self._amax() if self.has_one_scale else None

    def _amax(self) -> Survey:
        return blockwise.Amax(_core.SOURCES[self.dtype.name])

    def constants(self, name: str, shape: tuple[int, ...], found: bytes = b"") -> dict[int, bytes]:
        """Return the one scale.

        Raises
        ------
        UnsupportedError
            If the survey found an infinity or a NaN.
        """
        if not self.has_one_scale:
            return {}
        scale = bytearray(self.scale_dtype.n_bytes(1))
        value = bytes(self.dtype.n_bytes(1))
        if self._encode(value, (1, 1), (1, 1), found, bytearray(4), scale, _NOTHING) is None:
            raise not_finite(name, self.id)
        return {1: bytes(scale)}

    def grain(self, shape: tuple[int, ...]) -> int:
        """Return whole rows of blocks; any values, where one scale is for all."""
        return 1 if self.has_one_scale else self.block(shape)[0] * shape[-1]

    def tiles(self, shape: tuple[int, ...]) -> Bands | None:
        """Cut the rows of a block between columns, where they are long."""
        rows, cols = self.block(shape)
        if cols == shape[-1] or self._bytes(self.grain(shape)) <= blockwise._LARGEST_BAND:
            return None
        rows = self.grain(shape) // shape[-1]
        step = lcm(cols, 8)  # whole words of INT4
        n_cols = max(blockwise._TILE // self._bytes(rows) // step, 1) * step
        return Tiles(*as_matrix(shape), rows, n_cols)

    def _bytes(self, n: int) -> int:
        """Return what so many values take, and their codes."""
        return n * (self.dtype.n_bytes(1) + 1)

    def _scale_extent(self, shape: tuple[int, ...], band: Band, rows: int, item: int) -> Extent:
        """Return the bytes of what there is for every `rows` rows of a band, for each column."""
        across = self.grid(shape)[1] * item
        first, last = band.start // shape[1] // rows, -(-(band.stop // shape[1]) // rows)
        return Extent(first * across, (last - first) * across)

    def extents(self, shape: tuple[int, ...], band: Band) -> tuple[Extent, ...]:
        """Return the codes and the scales of some rows, or of a tile."""
        shape = as_matrix(shape)
        if isinstance(band, Tile):
            tile = band.place(shape, self.grain(shape) // shape[1])
            return self._tile_extents(shape, tile)
        codes = Extent(band.start, band.stop - band.start)
        if self.has_one_scale:
            return codes, Extent(0, 0)
        item = self.scale_dtype.n_bytes(1)
        return codes, self._scale_extent(shape, band, self.block(shape)[0], item)

    def _tile_extents(self, shape: tuple[int, ...], tile: Place) -> tuple[Extent, ...]:
        """Return the codes and the scales of a tile."""
        codes = Extent(tile.top * shape[1] + tile.left, tile.cols, shape[1], tile.rows)
        return codes, self._tile_scales(shape, tile, self.block(shape)[0], self.scale_dtype)

    def _tile_scales(self, shape: tuple[int, ...], tile: Place, rows: int, dtype: DType) -> Extent:
        """Return the bytes of what there is for every `rows` rows of a tile, for each block."""
        width, across = self.block(shape)[1], self.grid(shape)[1]
        first = tile.top // rows * across + tile.left // width
        n = -(-tile.cols // width)
        begin, size, stride = (dtype.n_bytes(count) for count in (first, n, across))
        return Extent(begin, size, stride, -(-tile.rows // rows))

    def take(
        self, weight: Weight, task: Task, scratch: Scratch, outs: Sequence[memoryview]
    ) -> Loss:
        """Decode and encode a band; of a tile, the piece of each row."""
        if not isinstance(task.band, Tile):
            return Encoding.take(self, weight, task, scratch, outs)
        tile = task.band.place(
            as_matrix(weight.shape), self.grain(weight.shape) // weight.shape[-1]
        )
        values = scratch.room(VALUES_SLOT, self.values.n_bytes(tile.rows * tile.cols))
        overflows = decode_tile(weight, tile, self.values, scratch, values, task.level)
        whole = Band(0, tile.rows * tile.cols)
        try:
            piece = task._replace(
                band=whole, shape=(tile.rows, tile.cols), origin=(tile.top, tile.left)
            )
            loss = self.encode(values, piece, outs)
        except NotFinite as error:
            raise error.named(weight.name, self.id) from None
        return loss._replace(overflows=loss.overflows + overflows)

    def encode(self, values: memoryview, task: Task, outs: Sequence[memoryview]) -> Loss:
        """Encode whole rows; any values, where one scale is for all.

        Raises
        ------
        UnsupportedError
            If a value is infinite or a NaN.
        """
        cols = task.shape[-1]
        scales = bytearray(4) if self.has_one_scale else outs[1]
        zeros = outs[2] if self.rule == "asymmetric" else _NOTHING
        # A piece of a row is one of its own; else rows are rows, for the loss is summed by them.
        size = (1, task.n) if task.band.start % cols or task.n % cols else task.matrix
        block = size if self.has_one_scale else self.block(task.shape)
        errors = self._encode(
            *(values, size, block, task.found, outs[0], scales, zeros, task.level, task.measures)
        )
        return task.loss(errors, self.id)

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
        return _core.quantize(
            _core.SOURCES[self.dtype.name],
            _core.QUANTIZERS[self.code],
            _core.RULES[self.rule],
            values,
            *size,
            *block,
            codes,
            scales,
            zeros,
            found if self.has_one_scale else b"",
            measure,
            level,
        )
