"""What the kernel tests share: calls described as data, buffers at chosen addresses, checks."""

from __future__ import annotations

import ctypes
import importlib.util
import mmap
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
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
SOURCES = tuple(_core.SOURCES)
QUANTIZERS = tuple(_core.QUANTIZERS)
PACKERS = tuple(_core.PACKERS)
ABSMAX_DTYPES = ("F32", "F16", "BF16", "F64")
SUPPORTED = _core.supported_levels()
FLAT = ("NF4", "FP4", "FP4_ZEROS")
E2M1 = ("E2M1", "E2M1_DOWN")
NV = ("nv divided", "nv multiplied")
MICRO = ("mx", "mx up", *NV)  # rules of groups of a row
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
class Quantize:
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

    @property
    def input_bytes(self) -> tuple[int]:
        return (self.rows * self.cols * item_bytes(self.source),)

    @property
    def output_bytes(self) -> int:
        return sum(self.sizes)

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
                self.mean if self.rule == "nested" or self.rule in NV else b"",
                measure=self.measure,
                level=_core.LEVELS[level],
            )
        )


@dataclass(frozen=True)
class Pack:
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
        return codes, n_groups * 2, n_groups // 2

    @property
    def input_bytes(self) -> tuple[int]:
        return (self.rows * self.cols * item_bytes(self.source),)

    @property
    def output_bytes(self) -> int:
        return sum(self.sizes)

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


Case = Scaled | Convert | Blocks | Packed | Absmax | Integers | Quantize | Pack

# (block_rows, block_cols, row_phase, col_phase); 0 stands for the whole side.
GRIDS = (
    (0, 0, 0, 0),  # one scale
    (1, 0, 0, 0),  # one per row
    (0, 1, 0, 0),  # one per column
    (1, 1, 0, 0),
    (128, 128, 0, 0),
    (128, 128, 100, 77),
    (1, 32, 0, 0),  # MX
    (1, 32, 0, 5),
    (3, 2, 1, 1),
    (1, 7, 0, 3),
    (2, 16, 0, 9),
    (1, 31, 0, 30),
    (5, 40, 4, 39),
    (1, 0, 0, 3),
    (7, 0, 13, 0),  # rows that share their scale, and a phase of more than a block
    (2, 5, 3, 17),
)
SHAPES = (
    (1, 1),
    (1, 7),
    (1, 31),
    (2, 32),
    (3, 33),
    (5, 63),
    (3, 100),
    (2, 1000),
    (1, 4097),
    (137, 131),
)
PACKED_SHAPES = (
    # rows, cols, group size, first column, groups listed
    (8, 1, 1, 0, 0),
    (8, 7, 3, 5, 0),
    (16, 32, 32, 32, 0),
    (32, 64, 64, 0, 0),
    (32, 256, 128, 256, 0),
    (40, 130, 128, 0, 0),
    (64, 200, 32, 33, 0),
    (8, 513, 513, 0, 0),
    (104, 97, 16, 7, 0),
    (32, 300, 1 << 40, 77, 0),
    (40, 160, 1, 0, 7),
    (96, 333, 1, 0, 33),
    (16, 700, 1, 0, 600),
)
# (block, phase) of absmax: those of bitsandbytes, of NVFP4 and MXFP4, and any others.
ABSMAX_BLOCKS = (
    *((16, 0), (16, 32), (32, 16), (48, 16), (80, 64), (112, 0), (16, 8)),
    *((32, 0), (64, 0), (64, 32), (128, 96), (4096, 0), (4096, 1024), (1 << 62, 1 << 61)),
    *((1, 0), (1, 3), (2, 1), (7, 5), (33, 32), (48, 16), (64, 1), (64, 63), (96, 64), (11008, 0)),
)
BLOCK_COUNTS = (1, 2, 3, 4, 5, 7, 31, 32, 33, 64, 65, 1000)
COUNTS = (1, 2, 3, 7, 15, 16, 17, 31, 33, 64, 1000, 1023, 1024, 1025, 4099)


def scaled_cases(code: str, out: str, scale: str = "F32", rounded: str = "F32") -> Iterator[Scaled]:
    for rows, cols in SHAPES:
        for block_rows, block_cols, row_phase, col_phase in GRIDS:
            yield Scaled(
                code,
                out,
                rows,
                cols,
                block_rows or rows + row_phase,
                block_cols or cols + col_phase,
                scale,
                row_phase,
                col_phase,
                spare_scales=cols % 3,
                rounded=rounded,
            )


def packed_cases(packing: str, out: str, scale: str = "F16") -> Iterator[Packed]:
    for i, (rows, cols, group_size, first_col, listed) in enumerate(PACKED_SHAPES):
        odd_rows = rows if packing == "AWQ4" else rows - i % 3
        yield Packed(packing, out, odd_rows, cols, group_size, scale, i % 2 == 1, first_col, listed)


def absmax_cases(code: str, out: str, dtype: str = "F32") -> Iterator[Absmax]:
    for count in (*COUNTS, 65_600):
        for block, phase in ABSMAX_BLOCKS:
            yield Absmax(code, out, count, block, phase, dtype)


# Rows and columns, and those of a block.
QUANTIZED_SHAPES = (
    *((1, 1, 1, 1), (1, 31, 1, 31), (3, 33, 1, 8), (5, 64, 2, 16), (9, 100, 9, 100)),
    *((10, 130, 1, 7), (17, 300, 5, 128), (8, 1100, 1, 1100), (2, 2100, 1, 2), (3, 513, 1, 257)),
    *((3, 1040, 1, 16), (2, 2112, 1, 32), (5, 75, 1, 16), (4, 85, 1, 32), (1, 16_500, 1, 16)),
)
FLAT_SHAPES = (
    *((1, 1, 1, 64), (1, 31, 1, 32), (1, 64, 1, 64), (1, 203, 1, 2), (1, 1000, 1, 66)),
    *((1, 2049, 1, 512), (1, 9000, 1, 4096), (1, 17_000, 1, 64), (1, 40_001, 1, 38)),
)


def rules_of(code: str, block_rows: int) -> list[str]:
    """Those that a kernel can follow."""
    if code in FLAT:
        return ["absmax", "nested"]
    if code == "INT8_ABSMAX":
        return ["absmax"]
    if code in E2M1:
        return list(MICRO) if block_rows == 1 else []
    rules = ["reciprocal", "power of two", "divided"] if code[0] == "F" else ["divided"]
    rules += ["mx", "mx up"] if code == "F8_E4M3" and block_rows == 1 else []
    return rules + ["asymmetric"] * (code == "INT4" and block_rows == 1)


def quantize_cases(code: str, source: str) -> Iterator[Quantize]:
    for i, shape in enumerate(FLAT_SHAPES if code in FLAT else QUANTIZED_SHAPES):
        for rule in rules_of(code, shape[2]):
            yield Quantize(code, source, rule, *shape, measure=i % 3 != 0)


# Rows, columns, and those of a group: of more groups, and of wider ones, than are done at a time.
PACK_SHAPES = (
    *((8, 32, 32), (8, 64, 32), (16, 96, 32), (72, 320, 64), (8, 2144, 32), (136, 1152, 128)),
    *((8, 1536, 512), (64, 1024, 1024)),
)


def pack_rules_of(code: str) -> list[str]:
    """Those that a kernel can follow."""
    return list(_core.PACKING_RULES) if code == "PACKED4" else ["edge"]


def pack_cases(code: str, source: str) -> Iterator[Pack]:
    for i, (rows, cols, group) in enumerate(PACK_SHAPES):
        for rule in pack_rules_of(code):
            odd_rows = rows - i % 3 if rule == "edge" else rows
            yield Pack(code, source, rule, odd_rows, cols, group, measure=i % 3 != 1)


def finite_inputs(case: Quantize | Pack, rng: np.random.Generator) -> tuple[Bytes, ...]:
    """Any bits but infinities and NaNs, in blocks of about one magnitude or of all."""
    (data,) = random_inputs(case, rng)
    top = data[item_bytes(case.source) - 1 :: item_bytes(case.source)]
    if rng.random() < 0.7:  # so that codes are not all zeros
        top[:] = top & 0x83 | (rng.integers(0, 0x78) & 0x7C)
    else:
        top &= 0xBB if case.source == "F16" else 0xBF
    return (data,)


def integers_cases(code: str, out: str, scale: str = "BF16") -> Iterator[Integers]:
    for i, (rows, cols, block_rows, block) in enumerate(QUANTIZED_SHAPES):
        for j, zeros in enumerate(_core.ZEROS):
            yield Integers(
                code,
                out,
                rows,
                cols,
                block,
                scale,
                zeros,
                i * 3 % block,
                7 * i % 35,
                (0, 0, 1, 9)[(i + j) % 4],
                block_rows if zeros != "words" else 1,
                i % block_rows if zeros != "words" else 0,
                (i + j) % 2 == 0,
                5 if i % 3 == 2 else 0,
            )


def rounded_cases(out: str, rounded: str) -> Iterator[Integers]:
    """Integers by all roundings together and each by itself, in blocks of all kinds."""
    for i, code in enumerate(_core.INTEGERS):
        for j, roundings in enumerate(range(1 << len(_core.ROUNDINGS))):
            for case in islice(integers_cases(code, out, "F32"), (i + j) % 7, None, 7):
                yield replace(case, rounded=rounded, roundings=roundings)


PLANES = (
    *((4, 0, 2, 0, 1), (4, 0, 2, 1, 1), (4, 4, 1, 0, 1), (2, 6, 1, 0, 1), (2, 0, 4, 3, 1)),
    *((1, 5, 1, 0, 1), (3, 27, 1, 0, 4), (3, 0, 10, 7, 4), (8, 24, 1, 0, 4)),
)


# Of groups, or a single one, that go straight to 16 bits; padded words may begin anywhere.
STRAIGHT_SHAPES = (
    *((2, 1, 64, 0), (3, 31, 64, 0), (3, 64, 32, 0), (2, 333, 32, 0), (2, 300, 96, 64)),
    *((3, 1300, 1300, 0), (2, 4200, 128, 32), (1, 2100, 3000, 77)),
)


def straight_cases(code: str, out: str, scale: str = "F16") -> Iterator[Integers]:
    for i, (rows, cols, block, col_phase) in enumerate(STRAIGHT_SHAPES):
        for zeros in ("constant", "int8", "float"):
            phase = i * 3 if code.startswith("PADDED") else i % 2 * 8
            case = Integers(code, out, rows, cols, block, scale, zeros, col_phase, phase=phase)
            yield replace(case, has_biases=i % 2 == 0)
            if code in ("INT8", "PACKED8"):
                yield replace(case, phase=0, planes=PLANES[i % len(PLANES)])


def planes_cases(out: str) -> Iterator[Integers]:
    for code in ("INT8", "PACKED8"):
        for planes in PLANES:
            for rows, cols, _, block in QUANTIZED_SHAPES:
                yield Integers(code, out, rows, cols, block, "F16", "float", planes=planes)


def random_inputs(case: Case, rng: np.random.Generator) -> tuple[Bytes, ...]:
    """Raw bytes: NaNs, infinities, zeros and subnormals come by themselves. Groups exist."""
    inputs = [rng.integers(0, 256, n, dtype=np.uint8) for n in case.input_bytes]
    if isinstance(case, (Packed, Integers)) and case.listed_groups:
        inputs[-1] = rng.integers(0, case.listed_groups, case.cols, dtype="<i4").view(np.uint8)
    return tuple(inputs)


def usual_inputs(case: Absmax, rng: np.random.Generator) -> tuple[Bytes, ...]:
    """Random codes, and absmax as models have them, with a few of any bits among them."""
    codes, codebook, absmax = random_inputs(case, rng)
    usual = np.exp(rng.uniform(-9, 2, case.n_absmax)).astype(DTYPES[case.dtype].numpy())
    kept = rng.random(case.n_absmax) < 0.02
    absmax = np.where(kept[:, None], absmax.reshape(case.n_absmax, -1), as_rows(usual))
    entries = rng.uniform(-1, 1, codebook.size // 4).astype(np.float32)
    entries[rng.random(entries.size) < 0.2] = 0.0
    return codes, entries.view(np.uint8), absmax.reshape(-1)


def usual_integers(case: Integers, rng: np.random.Generator) -> tuple[Bytes, ...]:
    """Random codes; scales, zero points and biases of which no result is infinite or a NaN."""
    codes, scales, zeros, biases, listed = random_inputs(case, rng)
    dtype = DTYPES[case.scale].numpy()

    def usual(data: Bytes, largest: float) -> Bytes:
        count = data.size // item_bytes(case.scale)
        return rng.uniform(-largest, largest, count).astype(dtype).view(np.uint8)

    if case.zeros == "float":
        zeros = usual(zeros, 200)
    return codes, usual(scales, 0.5), zeros, usual(biases, 9), listed


def as_rows(values: npt.NDArray[np.generic]) -> Bytes:
    return values.view(np.uint8).reshape(values.size, -1)


def run(case: Case, level: str, inputs: tuple[Bytes, ...]) -> tuple[bytes, int | str]:
    dst = np.full(case.output_bytes, POISON, np.uint8)
    n_overflow = case.run(level, dst, inputs)
    return dst.tobytes(), n_overflow


def assert_levels_agree(case: Case, inputs: tuple[Bytes, ...]) -> None:
    expected = run(case, "scalar", inputs)
    for level in SUPPORTED[1:]:
        assert run(case, level, inputs) == expected, (case, level)


def at_offset(data: Bytes, offset: int) -> Bytes:
    """A copy that starts `offset` bytes after a multiple of 64."""
    room = np.empty(data.size + 128, np.uint8)
    start = -room.ctypes.data % 64 + offset
    view = room[start : start + data.size]
    view[:] = data
    return view


@dataclass
class GuardedPages:
    """Memory between two pages that no access survives."""

    size: int
    _map: mmap.mmap = field(init=False)

    def __post_init__(self) -> None:
        page = mmap.PAGESIZE
        self._inside = -(-max(self.size, 1) // page) * page
        self._map = mmap.mmap(-1, self._inside + 2 * page)
        whole = np.frombuffer(self._map, np.uint8)
        address = whole.ctypes.data
        libc = ctypes.CDLL(None, use_errno=True)
        for at in (address, address + page + self._inside):
            if libc.mprotect(ctypes.c_void_p(at), ctypes.c_size_t(page), 0) != 0:
                raise OSError(ctypes.get_errno(), "mprotect")
        self._usable = whole[page : page + self._inside]

    def view(self, at_end: bool) -> Bytes:
        """`size` bytes that touch the guard page after them, or the one before."""
        return self._usable[self._inside - self.size :] if at_end else self._usable[: self.size]


HAVE_GUARD_PAGES = sys.platform != "win32"


def load_by_path(path: str) -> ModuleType:
    """A Python file of the project that is not in a package on sys.path."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, PROJECT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module  # where its classes look each other up
    spec.loader.exec_module(module)
    return module


ggml_c = load_by_path("tools/ggml_c.py")
