"""One call of each kind of kernel: its sizes, and how it is made."""

from __future__ import annotations

import importlib.util
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
import numpy.typing as npt

from anamnesis import _core
from anamnesis.base.dtypes import BLOCK_DTYPES, DTYPES

Bytes = npt.NDArray[np.uint8]


CODES = tuple(_core.CODES)


OUTPUTS = tuple(_core.OUTPUTS)


SCALES = tuple(_core.SCALES)


FLOATS = tuple(_core.FLOATS)


BLOCKS = tuple(_core.BLOCKS)


PACKINGS = tuple(_core.PACKINGS)


ABSMAX = tuple(_core.ABSMAX)


INTEGERS = tuple(_core.INTEGERS)


TRELLISES = tuple(_core.TRELLISES)


SOURCES = tuple(_core.SOURCES)


QUANTIZERS = tuple(_core.QUANTIZERS)


PACKERS = tuple(_core.PACKERS)


ENCODERS = tuple(_core.ENCODERS)


# By what encoders of GGUF blocks make of the importance of columns: 0 if they ignore it, 2 if they
# need it, else 1.
WEIGHED = {0: (False, True), 1: (False, True), 2: (True,)}


ABSMAX_DTYPES = ("F32", "F16", "BF16", "F64")


SUPPORTED = _core.supported_levels()


FLAT = ("NF4", "FP4", "FP4_ZEROS")
E2M1 = ("E2M1", "E2M1_SIGNED", "E2M1_DOWN", "E2M1_FIRST", "E2M1_AWAY")


NV = ("nv divided", "nv multiplied", "nv quotient")


MX = ("mx", "mx up", "mx power", "mx own power")


MICRO = (*MX, *NV, "nv alone")  # rules of groups of a row


MEAN = np.float32(0.0371).tobytes()  # of the largest magnitudes of blocks


POISON = 0xA5


PROJECT = Path(__file__).parents[2]


def item_bytes(dtype: str) -> int:
    return DTYPES[dtype].bits // 8


@dataclass(frozen=True)
class Scaled:
    """One call of dequantize_scaled, but for its buffers."""

    code: str
    out: str
    rows: int
    cols: int
    block_rows: int
    block_cols: int
    scale: str = "F32"
    row_phase: int = 0
    col_phase: int = 0
    spare_scales: int = 0  # more scales in a grid row than the tensor has columns for
    rounded: str = "F32"

    @property
    def grid_rows(self) -> int:
        return (self.rows + self.row_phase - 1) // self.block_rows + 1

    @property
    def grid_cols(self) -> int:
        return (self.cols + self.col_phase - 1) // self.block_cols + 1 + self.spare_scales

    @property
    def input_bytes(self) -> tuple[int, int]:
        n_scales = self.grid_rows * self.grid_cols - self.spare_scales
        return self.rows * self.cols, n_scales * item_bytes(self.scale)

    @property
    def output_bytes(self) -> int:
        return self.rows * self.cols * item_bytes(self.out)

    def run(self, level: str, dst: Bytes, inputs: tuple[Bytes, ...]) -> int:
        return _core.dequantize_scaled(
            _core.CODES[self.code],
            _core.OUTPUTS[self.out],
            inputs[0],
            dst,
            self.rows,
            self.cols,
            inputs[1],
            _core.SCALES[self.scale],
            self.grid_cols,
            self.block_rows,
            self.block_cols,
            self.row_phase,
            self.col_phase,
            level=_core.LEVELS[level],
            rounded=_core.OUTPUTS[self.rounded],
        )


@dataclass(frozen=True)
class Convert:
    """One call of convert, but for its buffers."""

    src: str
    out: str
    count: int

    @property
    def input_bytes(self) -> tuple[int]:
        return (self.count * item_bytes(self.src),)

    @property
    def output_bytes(self) -> int:
        return self.count * item_bytes(self.out)

    def run(self, level: str, dst: Bytes, inputs: tuple[Bytes, ...]) -> int:
        return _core.convert(
            _core.FLOATS[self.src],
            _core.OUTPUTS[self.out],
            inputs[0],
            dst,
            level=_core.LEVELS[level],
        )


@dataclass(frozen=True)
class Blocks:
    """One call of dequantize_blocks, but for its buffers."""

    type: str
    out: str
    count: int

    @property
    def input_bytes(self) -> tuple[int]:
        return (self.count * BLOCK_DTYPES[self.type].block_bytes,)

    @property
    def output_bytes(self) -> int:
        return self.count * BLOCK_DTYPES[self.type].block_elements * item_bytes(self.out)

    def run(self, level: str, dst: Bytes, inputs: tuple[Bytes, ...]) -> int:
        return _core.dequantize_blocks(
            _core.BLOCKS[self.type],
            _core.OUTPUTS[self.out],
            inputs[0],
            dst,
            level=_core.LEVELS[level],
        )


@dataclass(frozen=True)
class Packed:
    """One call of dequantize_packed, but for its buffers."""

    packing: str
    out: str
    rows: int
    cols: int
    group_size: int
    scale: str = "F16"
    zeros_less_one: bool = False
    first_col: int = 0
    listed_groups: int = 0  # so many groups, in any order, in place of group_size
    first_row: int = 0
    n_rows: int | None = None  # all from first_row on

    def __post_init__(self) -> None:
        """Planes are of 32 values: rows and columns are rounded up."""
        if self.packing.startswith("GPTQP"):
            object.__setattr__(self, "rows", -(-self.rows // 32) * 32)
            object.__setattr__(self, "cols", -(-self.cols // 32) * 32)

    @property
    def bits(self) -> int:
        return int(self.packing[-1])

    @property
    def n_groups(self) -> int:
        phase = self.first_col % self.group_size
        return self.listed_groups or (phase + self.cols - 1) // self.group_size + 1

    def words(self, count: int) -> int:
        """Words that hold a line of `count` values."""
        return -(-count * self.bits // 32)

    @property
    def input_bytes(self) -> tuple[int, int, int, int]:
        by_rows = self.packing == "AWQ4"
        lines, packed = (self.cols, self.rows) if by_rows else (self.rows, self.cols)
        return (
            4 * lines * self.words(packed),
            4 * self.n_groups * self.words(self.rows),
            self.n_groups * self.rows * item_bytes(self.scale),
            4 * self.cols * bool(self.listed_groups),
        )

    @property
    def output_bytes(self) -> int:
        n_rows = self.rows - self.first_row if self.n_rows is None else self.n_rows
        return n_rows * self.cols * item_bytes(self.out)

    def run(self, level: str, dst: Bytes, inputs: tuple[Bytes, ...]) -> int:
        codes, zeros, scales, groups = inputs
        return _core.dequantize_packed(
            _core.PACKINGS[self.packing],
            _core.OUTPUTS[self.out],
            codes,
            dst,
            self.rows,
            self.cols,
            zeros,
            scales,
            _core.SCALES[self.scale],
            self.zeros_less_one,
            self.group_size,
            self.first_col,
            groups,
            level=_core.LEVELS[level],
            first_row=self.first_row,
            n_rows=self.n_rows,
        )


@dataclass(frozen=True)
class Absmax:
    """One call of dequantize_absmax, but for its buffers."""

    code: str
    out: str
    count: int
    block: int
    phase: int = 0
    dtype: str = "F32"

    @property
    def n_absmax(self) -> int:
        return (self.count + self.phase - 1) // self.block + 1

    @property
    def input_bytes(self) -> tuple[int, int, int]:
        is_four_bit = self.code.startswith("CODEBOOK4")
        n_codes = (self.count + 1) // 2 if is_four_bit else self.count
        return n_codes, 64 * is_four_bit, self.n_absmax * item_bytes(self.dtype)

    @property
    def output_bytes(self) -> int:
        return self.count * item_bytes(self.out)

    def run(self, level: str, dst: Bytes, inputs: tuple[Bytes, ...]) -> int:
        return _core.dequantize_absmax(
            _core.ABSMAX[self.code],
            _core.OUTPUTS[self.out],
            inputs[0],
            dst,
            self.count,
            inputs[1],
            inputs[2],
            _core.FLOATS[self.dtype],
            self.block,
            self.phase,
            level=_core.LEVELS[level],
        )


@dataclass(frozen=True)
class Integers:
    """One call of dequantize_integers, but for its buffers."""

    code: str
    out: str
    rows: int
    cols: int
    block: int
    scale: str = "BF16"
    zeros: str = "constant"
    col_phase: int = 0
    zeros_phase: int = 0
    phase: int = 0
    block_rows: int = 1
    row_phase: int = 0
    has_biases: bool = False
    listed_groups: int = 0
    planes: tuple[int, int, int, int, int] = (0, 0, 1, 0, 1)
    rounded: str = "F32"
    roundings: int = 0

    @property
    def unit(self) -> tuple[int, int]:
        return _core.INTEGER_UNITS[self.code]

    @property
    def row_bytes(self) -> int:
        codes, n_bytes = self.unit
        return -(-(self.cols + self.phase) // codes) * n_bytes * self.planes[4]

    @property
    def stride(self) -> int:
        return self.row_bytes + 3

    @property
    def groups(self) -> int:
        return self.listed_groups or (self.cols + self.col_phase - 1) // self.block + 1

    @property
    def n_scales(self) -> int:
        return ((self.rows + self.row_phase - 1) // self.block_rows + 1) * self.groups

    @property
    def input_bytes(self) -> tuple[int, ...]:
        rows, item = self.rows + self.zeros_phase, item_bytes(self.scale)
        codes, n_bytes = self.unit
        words = (
            -(-rows // codes) if n_bytes * 8 != codes * self.bits else -(-rows * self.bits // 32)
        )
        zeros = {"constant": 0, "int8": self.n_scales, "float": item * self.n_scales}
        zeros["words"] = 4 * words * self.groups
        return (
            (self.rows - 1 + self.planes[3]) // self.planes[2] * self.stride + self.row_bytes,
            self.n_scales * item,
            zeros[self.zeros],
            self.n_scales * item * self.has_biases,
            4 * self.cols * (self.listed_groups > 0),
        )

    @property
    def bits(self) -> int:
        return int(self.code[-1])

    @property
    def output_bytes(self) -> int:
        return self.rows * self.cols * item_bytes(self.out)

    def run(self, level: str, dst: Bytes, inputs: tuple[Bytes, ...]) -> int:
        return _core.dequantize_integers(
            _core.INTEGERS[self.code],
            _core.OUTPUTS[self.out],
            inputs[0],
            dst,
            self.rows,
            self.cols,
            self.stride,
            inputs[1],
            _core.SCALES[self.scale],
            self.groups,
            self.block_rows,
            self.block,
            _core.ZEROS[self.zeros],
            inputs[2],
            3,
            self.zeros_phase,
            inputs[3],
            inputs[4],
            self.row_phase,
            self.col_phase,
            self.phase,
            self.planes,
            level=_core.LEVELS[level],
            rounded=_core.OUTPUTS[self.rounded],
            roundings=self.roundings,
        )


@dataclass(frozen=True)
class Trellis:
    """One call of dequantize_trellis, but for its buffers."""

    code: str
    out: str
    bits: int
    cols: int
    first_row: int = 0
    n_rows: int = 128
    first_col: int = 0
    n_cols: int | None = None  # all from first_col on

    @property
    def input_bytes(self) -> tuple[int, int, int]:
        return 16 * self.bits * self.cols, 2 * self.cols, 256

    @property
    def output_bytes(self) -> int:
        n_cols = self.cols - self.first_col if self.n_cols is None else self.n_cols
        return self.n_rows * n_cols * item_bytes(self.out)

    def run(self, level: str, dst: Bytes, inputs: tuple[Bytes, ...]) -> int:
        return _core.dequantize_trellis(
            _core.TRELLISES[self.code],
            _core.OUTPUTS[self.out],
            inputs[0],
            dst,
            self.bits,
            self.cols,
            inputs[1],
            inputs[2],
            self.first_row,
            self.n_rows,
            self.first_col,
            self.n_cols,
            level=_core.LEVELS[level],
        )


class Encodes(ABC):
    """What calls of encoders have in common: matrices in; codes, scales and what else out."""

    source: str
    rows: int
    cols: int

    @property
    @abstractmethod
    def sizes(self) -> tuple[int, int, int]:
        """Bytes of codes, of scales, and of zero points or biases."""

    @property
    def input_bytes(self) -> tuple[int]:
        return (self.rows * self.cols * item_bytes(self.source),)

    @property
    def output_bytes(self) -> int:
        return sum(self.sizes)


@dataclass(frozen=True)
class Quantize(Encodes):
    """One call of quantize, but for its buffers; `dst` takes codes, scales and zero points.

    The result is what it measured, or that a value is not finite.
    """

    code: str
    source: str
    rule: str
    rows: int
    cols: int
    block_rows: int
    block_cols: int
    measure: bool = True
    mean: bytes = MEAN  # of the largest magnitudes; nested ones are stored less it
    given: bytes = b""  # the largest magnitude of all, where it is known

    out: str = "U8"  # which is aligned as bytes are

    @property
    def is_flat(self) -> bool:
        """Of one row, in blocks of an even size."""
        return self.code in FLAT

    @property
    def sizes(self) -> tuple[int, int, int]:
        grid_rows, grid_cols = -(-self.rows // self.block_rows), -(-self.cols // self.block_cols)
        row_bytes = 4 * -(-self.cols // 8) if self.code == "INT4" else self.cols
        if self.is_flat or self.code in E2M1:
            row_bytes = -(-self.cols // 2)
        own = item_bytes(self.source)
        items = {"reciprocal": 4, "power of two": 1, "absmax": 4, "nested": 1}
        items |= dict.fromkeys(MICRO, 1)
        item = items.get(self.rule, own)
        zeros = 4 * -(-grid_rows // 8) * grid_cols if self.rule == "asymmetric" else 0
        if self.rule == "nested":
            zeros = 4 * -(-grid_cols // 256)
        return self.rows * row_bytes, grid_rows * grid_cols * item, zeros

    def run(self, level: str, dst: Bytes, inputs: tuple[Bytes, ...]) -> str:
        codes, scales, _ = self.sizes
        return repr(
            _core.quantize(
                _core.SOURCES[self.source],
                _core.QUANTIZERS[self.code],
                _core.RULES[self.rule],
                inputs[0],
                self.rows,
                self.cols,
                self.block_rows,
                self.block_cols,
                dst[:codes],
                dst[codes : codes + scales],
                dst[codes + scales :],
                self.mean if self.rule == "nested" or self.rule in NV else self.given,
                measure=self.measure,
                level=_core.LEVELS[level],
            )
        )


@dataclass(frozen=True)
class Pack(Encodes):
    """One call of pack, but for its buffers; `dst` takes codes, scales, biases or zero points.

    The result is what it measured, or that a value is not finite.
    """

    code: str
    source: str
    rule: str
    rows: int
    cols: int
    group: int
    measure: bool = True

    out: str = "U8"  # which is aligned as bytes are

    @property
    def sizes(self) -> tuple[int, int, int]:
        n_groups = self.rows * self.cols // self.group
        codes = self.rows * self.cols // 8 * int(self.code[-1])
        if self.rule == "edge":
            return codes, n_groups * item_bytes(self.source), n_groups * item_bytes(self.source)
        return codes, n_groups * 2, n_groups * int(self.code[-1]) // 8

    def run(self, level: str, dst: Bytes, inputs: tuple[Bytes, ...]) -> str:
        codes, scales, _ = self.sizes
        return repr(
            _core.pack(
                _core.SOURCES[self.source],
                _core.PACKERS[self.code],
                _core.PACKING_RULES[self.rule],
                inputs[0],
                self.rows,
                self.cols,
                self.group,
                dst[:codes],
                dst[codes : codes + scales],
                dst[codes + scales :],
                measure=self.measure,
                level=_core.LEVELS[level],
            )
        )


@dataclass(frozen=True)
class EncodeBlocks:
    """One call of encode_blocks, but for its buffers; `blocks` are those of a row.

    The result is what it measured, or where what has no code is. Then nothing else counts.
    """

    type: str
    rows: int
    blocks: int
    is_weighed: bool
    measure: bool = True

    out = "U8"  # which is aligned as bytes are

    @property
    def cols(self) -> int:
        return self.blocks * BLOCK_DTYPES[self.type].block_elements

    @property
    def input_bytes(self) -> tuple[int, int]:
        return 4 * self.rows * self.cols, 4 * self.cols * self.is_weighed

    @property
    def output_bytes(self) -> int:
        return self.rows * self.blocks * BLOCK_DTYPES[self.type].block_bytes

    def run(self, level: str, dst: Bytes, inputs: tuple[Bytes, ...]) -> str:
        src, weights = inputs
        result = _core.encode_blocks(
            _core.ENCODERS[self.type],
            src,
            self.rows,
            self.cols,
            weights,
            dst,
            measure=self.measure,
            level=_core.LEVELS[level],
        )
        if isinstance(result, int):
            dst[:] = 0
        return repr(result)


Case = (
    Scaled
    | Convert
    | Blocks
    | Packed
    | Absmax
    | Integers
    | Trellis
    | Quantize
    | Pack
    | EncodeBlocks
)


def as_rows(values: npt.NDArray[np.generic]) -> Bytes:
    return values.view(np.uint8).reshape(values.size, -1)


def run(case: Case, level: str, inputs: tuple[Bytes, ...]) -> tuple[bytes, int | str]:
    dst = np.full(case.output_bytes, POISON, np.uint8)
    n_overflow = case.run(level, dst, inputs)
    return dst.tobytes(), n_overflow


def load_by_path(path: str) -> ModuleType:
    """A Python file of the project that is not in a package on sys.path."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, PROJECT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module  # where its classes look each other up
    spec.loader.exec_module(module)
    return module
