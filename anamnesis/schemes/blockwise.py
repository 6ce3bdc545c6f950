"""Encodings whose codes share a scale in each block of a weight: FP8, INT8, INT4.

    weight         F8_E4M3 | F8_E5M2 | I8  [rows, cols]      weight_packed  I32 [rows, cols / 8]
    its scales     F32 | F8_E8M0, or the weight's own dtype   [grid rows, grid cols]
    zero points    I32 [rows / 8, groups], of asymmetric INT4 only

Each is what one library writes, byte for byte: "transformers" is `Fp8Quantize` of its
integrations/finegrained_fp8.py, in float32; "compressed-tensors" is its min-max calibration and
compression as llm-compressor runs them, where every operation rounds to the weight's own dtype.
Both write nonsense for an infinity or a NaN, which is refused here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import lcm, prod
from typing import Any, ClassVar

from anamnesis import _core
from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.errors import UnsupportedError
from anamnesis.base.stored import Part, StoredTensor
from anamnesis.schemes.base import (
    Band,
    Bands,
    Scratch,
    Weight,
)
from anamnesis.schemes.compressed_config import (
    config_of,
    input_arguments,
    pack_quantized,
    weight_arguments,
)
from anamnesis.schemes.encoding import (
    VALUES_SLOT,
    Encoding,
    Extent,
    Loss,
    Repack,
    Survey,
    Task,
    as_matrix,
    not_finite,
)
from anamnesis.schemes.linear import linear_refusal, with_head
from anamnesis.schemes.long_rows import Place, Tile, Tiles, decode_tile
from anamnesis.schemes.stacks import Stacks, is_stack, stacks_of

__all__ = ["Blockwise", "Fp8", "Int4", "Int8"]

_BF16 = DTYPES["BF16"]
# Bytes of values and their codes: what a thread holds at once is bounded.
_LARGEST_BLOCK = 12 << 20
_LARGEST_BAND = 8 << 20  # else it is cut between columns, into tiles
_TILE = 4 << 20
_NOTHING = memoryview(bytearray())


class _Amax(Survey):
    """The largest magnitude of a weight, in float32; a NaN if one is not finite."""

    def __init__(self, source: int) -> None:
        self._source = source
        self._seen: list[float] = []  # appended to by several threads

    def see(self, values: memoryview, band: Band, level: int) -> None:
        """Take the largest of a band."""
        amax = _core.amax(self._source, values, level)
        self._seen.append(float("nan") if amax is None else amax)

    def found(self) -> bytes:
        """Return the largest of all: 4 bytes."""
        import struct

        is_finite = all(amax == amax for amax in self._seen)
        return struct.pack("<f", max(self._seen, default=0.0) if is_finite else float("nan"))


@dataclass(frozen=True)
class Blockwise(Encoding):
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

    def fitted(self, dtype: DType) -> Blockwise:
        """Return the same for a weight of a dtype."""
        return replace(self, dtype=dtype) if dtype.name in _core.SOURCES else self

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
        why = linear_refusal(name, shape, dtype)
        if why is None and not self.has_one_scale and self._too_much(shape):
            return f"{self.block(shape)[1]:,} values of a row depend on each other"
        return why

    def _too_much(self, shape: tuple[int, ...]) -> bool:
        """Tell whether what shares a scale does not fit a thread's memory."""
        rows, cols = self.block(shape)
        return self._bytes(rows * cols) > _LARGEST_BLOCK

    def survey(self, shape: tuple[int, ...]) -> Survey | None:
        """Look for the largest magnitude of all, where one scale is for all."""
        return self._amax() if self.has_one_scale else None

    def _amax(self) -> Survey:
        return _Amax(_core.SOURCES[self.dtype.name])

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
        if cols == shape[-1] or self._bytes(self.grain(shape)) <= _LARGEST_BAND:
            return None
        rows = self.grain(shape) // shape[-1]
        step = lcm(cols, 8)  # whole words of INT4
        n_cols = max(_TILE // self._bytes(rows) // step, 1) * step
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
            piece = task._replace(band=whole, shape=(tile.rows, tile.cols))
            loss = self.encode(values, piece, outs)
        except UnsupportedError:
            raise not_finite(weight.name, self.id, self.unencodable) from None
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


# --- 8-bit floats -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Fp8(Blockwise):
    """8-bit floats with a scale for each block, each row ("channel") or in all ("tensor").

    Attributes
    ----------
    kind : str
        `block`, `channel` or `tensor`.
    flavour : str
        Whose bytes they are: `transformers` (F32 scales under `weight_scale_inv`; it has no
        `channel`) or `compressed-tensors` (scales in the weight's dtype under `weight_scale`).
    format : str
        `E4M3`, or `E5M2` in the arithmetic of transformers, which has only the former.
    block_size : (int, int)
        Rows and columns that share a scale.
    powers_of_two : bool
        Whether transformers' scales are powers of two, stored as E8M0 (`scale_fmt` "ue8m0").
    """

    kind: str = "block"
    flavour: str = "transformers"
    format: str = "E4M3"
    block_size: tuple[int, int] = (128, 128)
    powers_of_two: bool = False

    def __post_init__(self) -> None:
        """Check that the settings go together.

        Raises
        ------
        ValueError
            If they do not.
        """
        is_ct = self.flavour == "compressed-tensors"
        if self.kind not in ("block", "channel", "tensor"):
            raise ValueError(f"kind must be block, channel or tensor; got {self.kind!r}")
        if not is_ct and self.flavour != "transformers":
            raise ValueError(f"there is no flavour {self.flavour!r}")
        if self.format not in ("E4M3", "E5M2"):
            raise ValueError(f"format must be E4M3 or E5M2; got {self.format!r}")
        if is_ct and (self.powers_of_two or self.format != "E4M3"):
            raise ValueError("compressed-tensors has neither E5M2 nor powers of two as scales")
        if min(self.block_size) < 1:
            raise ValueError(f"block_size must be positive; got {self.block_size}")

    @property
    def id(self) -> str:
        """`fp8-block`, `fp8-channel`, `fp8-tensor`; with what is not usual behind it.

        That is `-ct` where compressed-tensors writes them (a channel's are always its own, or
        `-float`), `-64x64` for blocks other than 128x128, `-e5m2`, `-ue8m0`.
        """
        size = "x".join(map(str, self.block_size)) if self.kind == "block" else "128x128"
        is_ct = self.flavour == "compressed-tensors"
        suffixes = {
            "-ct": is_ct and self.kind != "channel",
            "-float": not is_ct and self.kind == "channel",
            f"-{size}": size != "128x128",
            "-e5m2": self.format == "E5M2",
            "-ue8m0": self.powers_of_two,
        }
        return f"fp8-{self.kind}" + "".join(s for s, is_there in suffixes.items() if is_there)

    @property
    def code(self) -> str:  # type: ignore[override]
        """The kernel of the format."""
        return f"F8_{self.format}"

    @property
    def rule(self) -> str:
        """By division, in compressed-tensors; else by a reciprocal."""
        if self.flavour == "compressed-tensors":
            return "divided"
        return "power of two" if self.powers_of_two else "reciprocal"

    @property
    def has_one_scale(self) -> bool:
        """Whether one scale is for all of a weight."""
        return self.kind == "tensor"

    def block(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """Return the block's size, a row's, or that of all."""
        rows, cols = shape[-2:]
        if self.kind == "block":
            return min(self.block_size[0], rows), min(self.block_size[1], cols)
        return (1, cols) if self.kind == "channel" else (rows, cols)

    def refuses(self, name: str, shape: tuple[int, ...], dtype: DType) -> str | None:
        """Leave also what transformers leaves: a matrix that is not of whole blocks."""
        is_own = self.kind == "block" and self.flavour == "transformers"
        if is_own and is_stack(name, shape) and not name.endswith(".weight"):
            why = None if dtype.kind == "float" else dtype.name
        else:
            why = Blockwise.refuses(self, name, shape, dtype)
        return why or (self._refuses_blocks(shape) if is_own else None)

    def _refuses_blocks(self, shape: tuple[int, ...]) -> str | None:
        if shape[-2] % self.block_size[0] or shape[-1] % self.block_size[1]:
            return "not in whole blocks of " + "x".join(map(str, self.block_size))
        return "no values" if 0 in shape else None

    def leaves(
        self, shapes: Mapping[str, tuple[int, ...]], config: Mapping[str, Any]
    ) -> Mapping[str, str]:
        """Return the stacks of experts that transformers' `FP8Experts` does not take.

        That is one class for all of a module's, so that they stay as they are together.
        """
        if self.kind != "block" or self.flavour != "transformers":
            return {}
        found = {}
        for stacks in stacks_of(shapes).values():
            why = self._why_not_experts(stacks, shapes)
            found.update(dict.fromkeys(stacks.names, why) if why else {})
        return found

    def _why_not_experts(self, stacks: Stacks, shapes: Mapping[str, tuple[int, ...]]) -> str | None:
        if stacks.has_biases:
            return "experts with biases"
        if stacks.orientation != "linear":
            told = stacks.orientation == "transposed"
            return f"experts that {'are' if told else 'may be'} [in, out]"
        for name in stacks.names:
            why = self._refuses_blocks(shapes[name])
            if why is None and name.endswith("gate_up_proj"):
                halves = shapes[name][-2] >= 2 * self.block_size[0]
                why = None if halves else "experts whose gate and up projections share blocks"
            if why:
                return why
        return None

    def parts(self, name: str, shape: tuple[int, ...], found: bytes = b"") -> tuple[Part, ...]:
        """Return the codes and the scales.

        transformers saves the one scale of a weight as [1, 1], and does not load it so, for its
        layers have a scalar. It is a scalar here.
        """
        is_ct = self.flavour == "compressed-tensors"
        lone = (1,) if is_ct else ()
        scale = f"{name}_scale" if is_ct else f"{name}_scale_inv"
        grid = lone if self.has_one_scale else (*shape[:-2], *self.grid(shape[-2:]))
        return Part(name, DTYPES[self.code], shape), Part(scale, self.scale_dtype, grid)

    def declare(self, plain: Sequence[str]) -> dict[str, Any]:
        """Return transformers' `FineGrainedFP8Config`, or compressed-tensors' config.

        No program reads E5M2 by either, so that its `quant_method` is one that all refuse.
        """
        block = list(self.block_size) if self.kind == "block" else None
        if self.flavour == "compressed-tensors":
            more = {"block_structure": block} if block else {}
            weights = weight_arguments(8, "float", self.kind, **more)
            inputs = (
                input_arguments("float", "group", 128)
                if block
                else input_arguments("float", "token")
            )
            return config_of(weights, inputs, "float-quantized", plain)
        return {
            "quant_method": "fp8" if self.format == "E4M3" else "fp8_e5m2",
            "modules_to_not_convert": with_head(plain),
            "modules_to_convert": None,
            "activation_scheme": "dynamic",
            "weight_block_size": block,
            "dequantize": False,
            "scale_fmt": "ue8m0" if self.powers_of_two else "float",
            "expert_dtype": "fp8",
        }

    def reopen(self, name: str, shape: tuple[int, ...], parts: tuple[StoredTensor, ...]) -> Weight:
        """Return codes and scales as they are read."""
        from anamnesis.schemes.fp8 import Fp8Weight
        from anamnesis.schemes.grid import ScaleGrid

        if self.has_one_scale:
            grid = ScaleGrid("tensor", 1, 1, prod(shape), 1, max(prod(shape), 1))
        else:
            rows, cols = shape[-2:]
            grid = ScaleGrid(self.kind, prod(shape[:-2]), rows, cols, *self.block(shape))
        return Fp8Weight(name, shape, parts, grid)


# --- integers ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Int8(Blockwise):
    """8-bit integers with a scale for each row, as compressed-tensors' `int-quantized` has them."""

    code: ClassVar[str] = "INT8"

    @property
    def id(self) -> str:
        """`int8`."""
        return "int8"

    @property
    def rule(self) -> str:
        """By division."""
        return "divided"

    def block(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """Return a row."""
        return 1, shape[1]

    def parts(self, name: str, shape: tuple[int, ...], found: bytes = b"") -> tuple[Part, ...]:
        """Return the codes and a scale for each row."""
        scales = Part(f"{name}_scale", self.scale_dtype, (shape[0], 1))
        return Part(name, DTYPES["I8"], shape), scales

    def declare(self, plain: Sequence[str]) -> dict[str, Any]:
        """Return compressed-tensors' config of W8A8: activations are quantised as they come."""
        weights, inputs = weight_arguments(8, "int", "channel"), input_arguments("int", "token")
        return config_of(weights, inputs, "int-quantized", plain)

    def reopen(self, name: str, shape: tuple[int, ...], parts: tuple[StoredTensor, ...]) -> Weight:
        """Return codes and scales as they are read."""
        from anamnesis.schemes.integers import IntegerWeight

        return IntegerWeight(name, shape, parts, "INT8", (1, shape[1]))


@dataclass(frozen=True)
class Int4(Blockwise):
    """4-bit integers in words, as compressed-tensors' `pack-quantized` has them.

    Attributes
    ----------
    group_size : int or None
        Columns that share a scale; None for all of a row.
    is_symmetric : bool
        Whether there are no zero points.
    is_act_order : bool
        Whether groups are no runs of columns; only codes that are there already have that.
    """

    group_size: int | None = 128
    is_symmetric: bool = True
    is_act_order: bool = False

    code: ClassVar[str] = "INT4"

    def __post_init__(self) -> None:
        """Check the group size.

        Raises
        ------
        ValueError
            If it is not positive.
        """
        if self.group_size is not None and self.group_size < 1:
            raise ValueError(f"group_size must be positive; got {self.group_size}")

    @property
    def id(self) -> str:
        """For instance `int4-128`, `int4-channel`, `int4-32-asym`."""
        more = ("" if self.is_symmetric else "-asym") + ("-actorder" if self.is_act_order else "")
        return f"int4-{self.group_size or 'channel'}{more}"

    @property
    def rule(self) -> str:
        """By division, of the largest magnitude or of the range."""
        return "divided" if self.is_symmetric else "asymmetric"

    def block(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """Return a group, or a row."""
        return 1, min(self.group_size or shape[1], shape[1])

    def grain(self, shape: tuple[int, ...]) -> int:
        """Return whole rows, as many as a word of zero points is for."""
        return (1 if self.is_symmetric else 8) * shape[1]

    def refuses(self, name: str, shape: tuple[int, ...], dtype: DType) -> str | None:
        """Leave also what compressed-tensors cannot quantise: a row that is not of whole groups."""
        why = Blockwise.refuses(self, name, shape, dtype)
        if why is None and self.group_size and shape[1] % self.group_size:
            return f"rows are not in whole groups of {self.group_size}"
        return why

    def parts(self, name: str, shape: tuple[int, ...], found: bytes = b"") -> tuple[Part, ...]:
        """Return words of codes, scales, words of zero points if there are any, and the shape."""
        rows, cols = shape
        groups = self.grid(shape)[1]
        packed = [Part(f"{name}_packed", DTYPES["I32"], (rows, -(-cols // 8)))]
        packed += [Part(f"{name}_scale", self.scale_dtype, (rows, groups))]
        if not self.is_symmetric:
            packed += [Part(f"{name}_zero_point", DTYPES["I32"], (-(-rows // 8), groups))]
        return (*packed, Part(f"{name}_shape", DTYPES["I64"], (2,)))

    def constants(self, name: str, shape: tuple[int, ...], found: bytes = b"") -> dict[int, bytes]:
        """Return the shape."""
        place = len(self.parts(name, shape)) - 1
        return {place: b"".join(n.to_bytes(8, "little") for n in shape)}

    def extents(self, shape: tuple[int, ...], band: Band) -> tuple[Extent, ...]:
        """Return words, scales and zero points of some rows, and nothing of the shape."""
        row_bytes = 4 * -(-shape[1] // 8)
        if isinstance(band, Tile):
            tile = band.place(shape, self.grain(shape) // shape[1])
            begin = tile.top * row_bytes + tile.left // 2
            found = [Extent(begin, 4 * -(-tile.cols // 8), row_bytes, tile.rows)]
            found += [self._tile_scales(shape, tile, 1, self.scale_dtype)]
            if not self.is_symmetric:
                found += [self._tile_scales(shape, tile, 8, DTYPES["I32"])]
            return (*found, Extent(0, 0))
        first, last = band.start // shape[1], band.stop // shape[1]
        found = [Extent(first * row_bytes, (last - first) * row_bytes)]
        found += [self._scale_extent(shape, band, 1, self.scale_dtype.n_bytes(1))]
        if not self.is_symmetric:
            found += [self._scale_extent(shape, band, 8, 4)]
        return (*found, Extent(0, 0))

    def declare(self, plain: Sequence[str]) -> dict[str, Any]:
        """Return compressed-tensors' config of W4A16."""
        more = {"actorder": "group"} if self.is_act_order else {}
        return pack_quantized(4, plain, self.group_size, symmetric=self.is_symmetric, **more)

    def repack(self, weight: Weight) -> Repack | None:
        """Return the words of 4-bit integers as compressed-tensors stores them."""
        from anamnesis.schemes.packed.layouts import of_weight, to_compressed_tensors

        words = of_weight(weight)
        if words is None:
            return None
        own = replace(self, is_symmetric=words.zeros is None, is_act_order=words.listed is not None)
        encodings = (replace(own, group_size=n) for n in words.group_sizes(self.group_size, None))
        return Repack(tuple(encodings), tuple(to_compressed_tensors(words)))

    def reopen(self, name: str, shape: tuple[int, ...], parts: tuple[StoredTensor, ...]) -> Weight:
        """Return words, scales and zero points as they are read."""
        from anamnesis.schemes.integers import IntegerWeight

        zeros = None if self.is_symmetric else parts[2]
        return IntegerWeight(name, shape, parts, "PACKED4", (1, self.block(shape)[1]), zeros, 8)
