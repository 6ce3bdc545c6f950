"""The kernels: bytes in, bytes out, the GIL released."""

cimport cython
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memset

from anamnesis._bytes cimport amn_buffer, amn_bytes, size_of
from anamnesis._kernels cimport (
    amn_status, amn_kernel, amn_grid, amn_groups, amn_absmax, amn_integers, amn_quantization,
    amn_loss, amn_kernel_at, amn_kernel_is_native, amn_level_name, amn_level_supported,
    amn_streamed_from,
    amn_dequantize_scaled, amn_dequantize_absmax, amn_recover_absmax, amn_convert,
    amn_add_product, AMN_PANEL,
    amn_dequantize_blocks, AMN_STREAMED_BYTES, AMN_STAGE_BYTES, AMN_TILE_ROWS, AMN_CACHE_LINE,
    AMN_SUM_LANES, amn_dequantize_packed, amn_dequantize_integers, amn_quantize, amn_pack,
    amn_packing_plan, AMN_PACKING_EDGE, AMN_PACKING_MIRRORED, AMN_PACKING_HALF, amn_amax,
    amn_encoding, amn_encode_blocks, amn_encoder_weights, AMN_BAD_ALIGNMENT, AMN_BAD_WEIGHTS,
    amn_rotate, amn_rotation, amn_dequantize_rotated, amn_w4a8_fit, amn_w4a8_code, AMN_W4A8_SIZE,
    amn_trellis, amn_dequantize_trellis, AMN_TRELLIS_BLOCK, AMN_TRELLIS_WORK,
    amn_comparison, amn_compare, AMN_COMPARE_ABSOLUTE, AMN_COMPARE_ERROR, AMN_COMPARE_A,
    AMN_COMPARE_B,
    AMN_COMPARE_PRODUCT, amn_words, amn_check, amn_check_values,
    amn_blocks_amax, amn_sum, amn_sum_rows, amn_sum_end, amn_bnb_codebook, AMN_OK, AMN_BAD_LEVEL,
    AMN_BAD_DTYPE, AMN_BAD_BLOCK, AMN_BAD_SIZE, AMN_SHORT_SRC, AMN_SHORT_DST, AMN_SHORT_SCALES,
    AMN_SHORT_STRIDE, AMN_SHORT_ZEROS, AMN_SHORT_GROUPS, AMN_BAD_GROUP, AMN_BAD_WORDS,
    AMN_BAD_ROWS, AMN_BAD_CODEBOOK, AMN_BAD_RULE, AMN_NOT_FINITE, AMN_ZEROS_CONSTANT,
    AMN_ZEROS_INT8, AMN_ZEROS_FLOAT, AMN_ZEROS_WORDS, AMN_RULE_RECIPROCAL, AMN_RULE_POWER_OF_TWO,
    AMN_RULE_DIVIDED, AMN_RULE_ASYMMETRIC, AMN_RULE_ABSMAX, AMN_RULE_NESTED, AMN_RULE_MX,
    AMN_RULE_MX_UP, AMN_RULE_MX_POWER, AMN_RULE_MX_OWN_POWER, AMN_RULE_NV_DIVIDED,
    AMN_RULE_NV_MULTIPLIED, AMN_RULE_NV_QUOTIENT, AMN_RULE_NV_ALONE, AMN_RULE_LATTICE,
    AMN_RULE_WHOLE,
    AMN_ROUND_DIFFERENCES, AMN_ROUND_PRODUCTS, AMN_ROUND_BIASES, AMN_ROUND_SUMS,
)

import os
from typing import NamedTuple


class Kernel(NamedTuple):
    """One kernel: what it decodes, and the levels that have their own code for it."""

    family: str
    name: str
    native: tuple[str, ...]


class BlockType(NamedTuple):
    """One GGUF block type: ggml's id and name, what a block holds, and its native levels."""

    id: int
    name: str
    elements: int
    bytes: int
    native: tuple[str, ...]


class Compared(NamedTuple):
    """How two arrays differ: places are None where there is none; sums are of finite pairs."""

    n_different: int  # in bits
    first_different: int | None
    n_not_finite: int  # pairs of which one is infinite or a NaN
    largest: float  # |a - b| of finite pairs, rounded to float32
    largest_at: int | None  # its first place
    absolute: float  # the sum of |a - b|
    error: float  # of (a - b)**2
    power_a: float  # of a**2
    power_b: float
    product: float  # of a * b


class Checked(NamedTuple):
    """What words say of a tensor; places are None where there is none."""

    n_nan: int
    first_nan: int | None
    n_infinite: int
    first_infinite: int | None
    n_zero: int  # of both signs
    largest: int  # finite magnitude, in bits
    is_constant: bool  # whether all words are the same
    n_zero_rows: int
    first_zero_row: int | None


def _levels() -> dict[str, int]:
    cdef int level = 0
    names = {}
    while amn_level_name(level) != NULL:
        names[amn_level_name(level).decode("ascii")] = level
        level += 1
    return names


def _codebook(int index) -> bytes:
    cdef amn_bytes codebook = amn_bnb_codebook(index)
    return (<const char *>codebook.data)[:codebook.n_bytes]


def _table(*families: str) -> dict[str, int]:
    return {row[1]: row[2] for row in _ROWS if row[0] in families}


cdef list _rows():
    """Every kernel: its family, name and id, what an item holds, and its native levels."""
    cdef const amn_kernel *row
    cdef int index = 0
    rows = []
    while amn_kernel_at(index) != NULL:
        row = amn_kernel_at(index)
        rows.append((
            row.family.decode("ascii"), row.name.decode("ascii"), row.id, row.item_elements,
            row.item_bytes,
            tuple([name for name, level in LEVELS.items() if amn_kernel_is_native(index, level)])))
        index += 1
    return rows


LEVELS = _levels()
_ROWS = _rows()
CODES = _table("scaled")
ABSMAX = _table("absmax")
OUTPUTS = _table("output")
FLOATS = _table("convert")
SCALES = _table("convert", "scale")
BLOCKS = _table("block")
PACKINGS = _table("packed")
INTEGERS = _table("integers")
INTEGER_UNITS = {row[1]: (row[3], row[4]) for row in _ROWS if row[0] == "integers"}
ZEROS = {
    "constant": AMN_ZEROS_CONSTANT, "int8": AMN_ZEROS_INT8, "float": AMN_ZEROS_FLOAT,
    "words": AMN_ZEROS_WORDS,
}
ROUNDINGS = {
    "differences": AMN_ROUND_DIFFERENCES, "products": AMN_ROUND_PRODUCTS,
    "biases": AMN_ROUND_BIASES, "sums": AMN_ROUND_SUMS,
}
TRELLISES = _table("trellis")
SOURCES = _table("amax")
QUANTIZERS = _table("quantize")
RULES = {
    "reciprocal": AMN_RULE_RECIPROCAL, "power of two": AMN_RULE_POWER_OF_TWO,
    "divided": AMN_RULE_DIVIDED, "asymmetric": AMN_RULE_ASYMMETRIC,
    "lattice": AMN_RULE_LATTICE,
    "absmax": AMN_RULE_ABSMAX, "nested": AMN_RULE_NESTED,
    "mx": AMN_RULE_MX, "mx up": AMN_RULE_MX_UP,
    "mx power": AMN_RULE_MX_POWER, "mx own power": AMN_RULE_MX_OWN_POWER,
    "nv divided": AMN_RULE_NV_DIVIDED, "nv multiplied": AMN_RULE_NV_MULTIPLIED,
    "nv quotient": AMN_RULE_NV_QUOTIENT, "nv alone": AMN_RULE_NV_ALONE,
    "whole": AMN_RULE_WHOLE,
}
PACKERS = _table("pack")
ENCODERS = _table("encode")
PACKING_RULES = {
    "edge": AMN_PACKING_EDGE, "mirrored": AMN_PACKING_MIRRORED, "half": AMN_PACKING_HALF,
}
# Of what check_values looks through: bytes of a word; the magnitudes from which on it is infinite,
# and a NaN, which are the same where there is no infinity; a word that is a NaN in any case.
FLOAT_WORDS = {
    "F32": (4, 0x7F800000, 0x7F800001, 0xFFFFFFFF), "F16": (2, 0x7C00, 0x7C01, 0xFFFF),
    "BF16": (2, 0x7F80, 0x7F81, 0xFFFF), "F8_E5M2": (1, 0x7C, 0x7D, 0xFF),
    "F8_E4M3": (1, 0x7F, 0x7F, 0xFF), "F8_E5M2FNUZ": (1, 0x80, 0x80, 0x80),
    "F8_E4M3FNUZ": (1, 0x80, 0x80, 0x80),
}
BNB_CODEBOOKS = {name: _codebook(i) for i, name in enumerate(("NF4", "FP4", "dynamic"))}
STREAMED_BYTES = AMN_STREAMED_BYTES
# From how many bytes on results of 2 and of 4 bytes each, but of packed integers, are stored past
# the caches, or 0. Only a test sets the variable; anything but a number is ignored.
_streamed = os.environ.get("ANAMNESIS_STREAMED_FROM", "")
STREAMED_FROM = tuple([
    int(_streamed) if _streamed.isdecimal() else amn_streamed_from(item) for item in (2, 4)
])
cdef uint64_t _streamed_from_of_2 = STREAMED_FROM[0], _streamed_from_of_4 = STREAMED_FROM[1]
cdef int _f32 = OUTPUTS["F32"]
TILE_ROWS = AMN_TILE_ROWS
PANEL = AMN_PANEL
W4A8_SIZE = AMN_W4A8_SIZE
CACHE_LINE = AMN_CACHE_LINE
TRELLIS_BLOCK = AMN_TRELLIS_BLOCK

# Levels run from 0 without a gap, and each needs more of the CPU than the one before. The variable
# names the last to use: those above are hidden, as on a CPU that lacks them.
_SUPPORTED = tuple(name for name, level in LEVELS.items() if amn_level_supported(level))
_SUPPORTED = _SUPPORTED[:LEVELS.get(os.environ.get("ANAMNESIS_LEVEL"), len(LEVELS)) + 1]
cdef int _best = len(_SUPPORTED) - 1

_MESSAGES = {
    AMN_BAD_LEVEL: "level: not one this build knows and this CPU can run",
    AMN_BAD_DTYPE: "dtype: an id that is not in the table of its parameter",
    AMN_BAD_BLOCK: "a block must have at least one row, column or code",
    AMN_BAD_SIZE: "the counts and strides: their product overflows 64 bits",
    AMN_SHORT_SRC: "src is too short, or not a whole number of elements or blocks",
    AMN_SHORT_DST: "dst is too short for the result",
    AMN_SHORT_SCALES: "scales or absmax is too short for the blocks or groups that there are",
    AMN_SHORT_STRIDE: "scale_stride is less than the scales that a row needs",
    AMN_SHORT_ZEROS: "zeros is too short for the groups that rows and cols need",
    AMN_SHORT_GROUPS: "groups is too short: it has an int32 for each column, or nothing",
    AMN_BAD_GROUP: "groups: an index of no group that zeros and scales hold, or a group_size of 0",
    AMN_BAD_WORDS: "rows and cols must fill the words that they are packed into, and planes a byte",
    AMN_BAD_ROWS: f"first_row must be a multiple of {TILE_ROWS}, and no row behind the last",
    AMN_BAD_RULE: "rule: there is no such, or these codes and blocks cannot follow it",
    AMN_BAD_ALIGNMENT: "src and weights must lie at multiples of 4 bytes",
    AMN_BAD_WEIGHTS: "weights must be a float32 for each column; this type cannot be without them",
    AMN_BAD_CODEBOOK: "codebook has not as many float32 as there are codes",
}


def supported_levels() -> tuple[str, ...]:
    """The levels this CPU can run, slowest first; the last is the default everywhere."""
    return _SUPPORTED


def kernels() -> tuple[Kernel, ...]:
    """Every kernel of this build, with the levels whose code for it is their own."""
    return tuple([Kernel(row[0], row[1], row[5]) for row in _ROWS])


def encoder_weights(type) -> int:
    """Return 0 if the encoder of ggml's type `type` ignores weights, 2 if it needs them, else 1."""
    return amn_encoder_weights(_id(type))


def block_types() -> tuple[BlockType, ...]:
    """Every GGUF block type, in the order of their ids."""
    return tuple([
        BlockType(row[2], row[1], row[3], row[4], row[5]) for row in _ROWS if row[0] == "block"])


cdef int _level(object level) except -1:
    if level is None:
        return _best
    if not 0 <= level <= _best:
        raise ValueError(_MESSAGES[AMN_BAD_LEVEL])
    return level


cdef int _id(object value) except? -1:
    if not 0 <= value < 1 << 15:
        raise ValueError(_MESSAGES[AMN_BAD_DTYPE])
    return value


cdef int _check(amn_status status) except -1:
    if status != AMN_OK:
        raise ValueError(_MESSAGES[status])
    return 0


cdef inline amn_bytes _bytes(const uint8_t[::1] view) noexcept:
    cdef amn_bytes result
    result.n_bytes = <uint64_t>view.shape[0]
    result.data = &view[0] if view.shape[0] > 0 else NULL
    return result


cdef inline amn_buffer _buffer(uint8_t[::1] view) noexcept:
    cdef amn_buffer result
    result.n_bytes = <uint64_t>view.shape[0]
    result.data = &view[0] if view.shape[0] > 0 else NULL
    result.is_streamed = False
    return result


cdef inline amn_buffer _decoded(uint8_t[::1] view, int out) noexcept:
    """The same, for what is decoded: how it leaves depends on its size and the CPU."""
    cdef amn_buffer result = _buffer(view)
    cdef uint64_t least = _streamed_from_of_4 if out == _f32 else _streamed_from_of_2
    result.is_streamed = 0 < least <= result.n_bytes
    return result


cdef amn_grid _grid(
    const uint8_t[::1] scales, object scale, object stride, object block_rows, object block_cols,
    object row_phase, object col_phase, object rounded,
) except *:
    cdef amn_grid grid
    grid.data = _bytes(scales)
    grid.dtype = _id(scale)
    grid.rounded = OUTPUTS["F32"] if rounded is None else _id(rounded)
    grid.stride = size_of(stride, "scale_stride")
    grid.block_rows = size_of(block_rows, "block_rows")
    grid.block_cols = size_of(block_cols, "block_cols")
    grid.row_phase = size_of(row_phase, "row_phase")
    grid.col_phase = size_of(col_phase, "col_phase")
    return grid


def dequantize_scaled(
    code, out, const uint8_t[::1] src, uint8_t[::1] dst, rows, cols,
    const uint8_t[::1] scales, scale, scale_stride, block_rows, block_cols,
    row_phase=0, col_phase=0, level=None, rounded=None,
) -> int:
    """dst = out(float32(src) * float32(scale)): 8-bit floats times a grid of scales.

    Element (r, c) has the scale at ((r + row_phase) // block_rows, (c + col_phase) // block_cols)
    of a grid whose rows are `scale_stride` long; scales are first rounded to the output `rounded`,
    if that is given. Returns how many finite float32 products the rounding to `out` made infinite,
    and codes whose scale the other one did. Raises ValueError for a buffer too short for these
    sizes.
    """
    cdef int level_id = _level(level), code_id = _id(code), out_id = _id(out)
    cdef uint64_t n_rows = size_of(rows, "rows"), n_cols = size_of(cols, "cols")
    cdef amn_bytes src_bytes = _bytes(src)
    cdef amn_buffer dst_buffer = _decoded(dst, out_id)
    cdef amn_grid grid = _grid(
        scales, scale, scale_stride, block_rows, block_cols, row_phase, col_phase, rounded)
    cdef amn_status status
    cdef uint64_t n_overflow = 0
    with nogil:
        status = amn_dequantize_scaled(
            level_id, code_id, out_id, src_bytes, dst_buffer, n_rows, n_cols, &grid, &n_overflow)
    _check(status)
    return n_overflow


def dequantize_absmax(
    code, out, const uint8_t[::1] src, uint8_t[::1] dst, count, const uint8_t[::1] codebook,
    const uint8_t[::1] absmax, absmax_dtype, block, phase=0, level=None,
) -> int:
    """dst = out(float32(code or its codebook entry) * float32(absmax)), for `count` codes.

    Code i has the absmax at (i + phase) // block. Returns how many finite float32 products the
    rounding to `out` made infinite. Raises ValueError for a buffer too short for these sizes.
    """
    cdef int level_id = _level(level), code_id = _id(code), out_id = _id(out)
    cdef uint64_t n = size_of(count, "count")
    cdef amn_bytes src_bytes = _bytes(src), codebook_bytes = _bytes(codebook)
    cdef amn_buffer dst_buffer = _decoded(dst, out_id)
    cdef amn_absmax blocks = _absmax(absmax, absmax_dtype, block, phase)
    cdef amn_status status
    cdef uint64_t n_overflow = 0
    with nogil:
        status = amn_dequantize_absmax(
            level_id, code_id, out_id, src_bytes, dst_buffer, n, codebook_bytes, &blocks,
            &n_overflow)
    _check(status)
    return n_overflow


def recover_absmax(
    const uint8_t[::1] src, uint8_t[::1] dst, const uint8_t[::1] codebook,
    const uint8_t[::1] absmax, block, double offset, phase=0,
) -> None:
    """dst = codebook[code] * absmax + offset in float32, for every byte of src.

    Code i has the absmax at (i + phase) // block. Raises ValueError for a buffer too short.
    """
    cdef amn_bytes src_bytes = _bytes(src), codebook_bytes = _bytes(codebook)
    cdef amn_buffer dst_buffer = _buffer(dst)
    cdef amn_absmax blocks = _absmax(absmax, FLOATS["F32"], block, phase)
    cdef amn_status status
    with nogil:
        status = amn_recover_absmax(
            src_bytes, dst_buffer, codebook_bytes, &blocks, <float>offset)
    _check(status)


cdef amn_absmax _absmax(const uint8_t[::1] data, object dtype, object block, object phase) except *:
    cdef amn_absmax result
    result.data = _bytes(data)
    result.dtype = _id(dtype)
    result.block = size_of(block, "block")
    result.phase = size_of(phase, "phase")
    return result


def convert(src_dtype, out, const uint8_t[::1] src, uint8_t[::1] dst, level=None) -> int:
    """dst = out(float32(src)), for every element of src.

    Returns how many finite elements became infinite. Raises ValueError if src is not a whole number
    of elements or dst is too short.
    """
    cdef int level_id = _level(level), src_id = _id(src_dtype), out_id = _id(out)
    cdef amn_bytes src_bytes = _bytes(src)
    cdef amn_buffer dst_buffer = _decoded(dst, out_id)
    cdef amn_status status
    cdef uint64_t n_overflow = 0
    with nogil:
        status = amn_convert(level_id, src_id, out_id, src_bytes, dst_buffer, &n_overflow)
    _check(status)
    return n_overflow


def add_product(
    float[::1] values, const float[::1] left, const float[::1] right, float scale, size_t cols,
    size_t inner, size_t first=0, level=None,
) -> None:
    """values += scale * (left @ right), for rows of `cols` values, from column `first` on.

    `left` is rows x inner; `right` is inner x columns, in panels of PANEL columns, the last of
    which ends with zeros. Raises ValueError if one of them is too short.
    """
    cdef int level_id = _level(level)
    cdef size_t rows = 0 if cols == 0 else values.shape[0] // cols
    cdef size_t panels = (first + cols + AMN_PANEL - 1) // AMN_PANEL
    cdef amn_status status
    if <size_t>left.shape[0] < rows * inner or <size_t>right.shape[0] < panels * AMN_PANEL * inner:
        raise ValueError("the factors are too short")
    if rows == 0 or inner == 0:
        return
    with nogil:
        status = amn_add_product(
            level_id, &left[0], &right[0], scale, &values[0], rows, cols, inner, first)
    _check(status)


def dequantize_blocks(type, out, const uint8_t[::1] src, uint8_t[::1] dst, level=None) -> int:
    """dst = out(float32 value), for every element of the GGUF blocks in src; `type` is ggml's id.

    Returns how many finite values became infinite. Raises ValueError if src is not a whole number
    of blocks or dst is too short.
    """
    cdef int level_id = _level(level), type_id = _id(type), out_id = _id(out)
    cdef amn_bytes src_bytes = _bytes(src)
    cdef amn_buffer dst_buffer = _decoded(dst, out_id)
    cdef amn_status status
    cdef uint64_t n_overflow = 0
    with nogil:
        status = amn_dequantize_blocks(
            level_id, type_id, out_id, src_bytes, dst_buffer, &n_overflow)
    _check(status)
    return n_overflow


def encode_blocks(
    type, const uint8_t[::1] src, rows, cols, const uint8_t[::1] weights, uint8_t[::1] dst,
    bint measure=False, level=None,
) -> tuple[float, float, float, float] | int:
    """dst = GGUF blocks of `rows` x `cols` float32 numbers in src; `type` is ggml's id.

    `weights` are a float32 for each column, by how important it is, or nothing. Returns the sum and
    the largest of the absolute errors and the sums of squared errors and values, all 0 if not
    measured; or, of numbers that have no code, where the first is: a number that is infinite or a
    NaN, or a block whose scale would be. Raises ValueError for a buffer too short for these sizes,
    and for weights that do not fit.
    """
    cdef int level_id = _level(level)
    cdef amn_encoding how
    cdef amn_bytes src_bytes = _bytes(src)
    cdef amn_buffer dst_buffer = _buffer(dst)
    cdef amn_loss loss
    cdef amn_status status
    cdef uint64_t where = 0
    loss.absolute = loss.largest = loss.squared = loss.power = 0
    how.type, how.weights = _id(type), _bytes(weights)
    how.rows, how.cols = size_of(rows, "rows"), size_of(cols, "cols")
    with nogil:
        status = amn_encode_blocks(
            level_id, &how, src_bytes, dst_buffer, &loss if measure else NULL, &where)
    if status == AMN_NOT_FINITE:
        return where
    _check(status)
    return loss.absolute, loss.largest, loss.squared, loss.power


def dequantize_packed(
    packing, out, const uint8_t[::1] codes, uint8_t[::1] dst, rows, cols,
    const uint8_t[::1] zeros, const uint8_t[::1] scales, scale, bint zeros_less_one,
    group_size, first_col, const uint8_t[::1] groups, level=None, first_row=0, n_rows=None,
) -> int:
    """dst[r, c] = out(float32(code[c, r] - zero[g, r]) * float32(scale[g, r])): packed integers.

    `rows` are out features, `cols` in features; codes are packed along in features (GPTQ) or out
    features (AWQ), zeros along out features. If zeros are stored less 1, they get it back as
    GPTQModel's v1-to-v2 conversion gives it. Element c of a row has group g = groups[c]; or, if
    `groups` is empty, (first_col + c) // group_size, counted from the group of first_col. dst takes
    `n_rows` of the rows, or all, from `first_row`, a multiple of TILE_ROWS, on. Returns how many
    finite float32 products the rounding to `out` made infinite. Raises ValueError for a buffer too
    short for these sizes, or a group or row that is not there.
    """
    cdef int level_id = _level(level), packing_id = _id(packing), out_id = _id(out)
    cdef uint64_t all_rows = size_of(rows, "rows"), n_cols = size_of(cols, "cols")
    cdef uint64_t row = size_of(first_row, "first_row")
    cdef uint64_t n_decoded = size_of(rows - first_row if n_rows is None else n_rows, "n_rows")
    cdef amn_bytes src_bytes = _bytes(codes)
    cdef amn_buffer dst_buffer = _buffer(dst)
    cdef amn_groups of
    cdef amn_buffer stage
    cdef amn_status status
    cdef uint64_t n_overflow = 0
    of.zeros = _bytes(zeros)
    of.scales = _bytes(scales)
    of.groups = _bytes(groups)
    of.scale_dtype = _id(scale)
    of.zeros_less_one = zeros_less_one
    of.group_size = size_of(group_size, "group_size")
    of.first_col = size_of(first_col, "first_col")
    stage = _stage(dst_buffer.n_bytes)
    with nogil:
        status = amn_dequantize_packed(
            level_id, packing_id, out_id, src_bytes, dst_buffer, all_rows, n_cols, row, n_decoded,
            &of, stage, &n_overflow)
    PyMem_Free(stage.data)
    _check(status)
    return n_overflow


def dequantize_integers(
    code, out, const uint8_t[::1] src, uint8_t[::1] dst, rows, cols, stride,
    const uint8_t[::1] scales, scale, scale_stride, block_rows, block_cols,
    zeros_kind, const uint8_t[::1] zeros, constant=0, zeros_phase=0,
    const uint8_t[::1] biases=b"", const uint8_t[::1] groups=b"",
    row_phase=0, col_phase=0, phase=0, planes=(0, 0, 1, 0, 1), level=None, rounded=None,
    roundings=0,
) -> int:
    """dst = out((float32(src) - zero) * float32(scale) + bias): integers with a grid of scales.

    Rows of codes lie `stride` bytes apart, and begin with code `phase` of src. Scales lie as those
    of dequantize_scaled; if `groups` holds an int32 for each column, that is the column of its
    scale. Zeros are all `constant`; an int8, or a float of the scales' dtype, beside each scale; or
    words that hold consecutive rows as codes are packed, of which the first is code `zeros_phase`.
    `planes` are the bits of codes that share items with those of other rows, the lowest of them,
    how many rows one after the other do, the place of the first, and the bytes of an item, 1 or 4;
    the codes are then bytes.
    Biases lie as the scales and are of their dtype. Where `rounded` is an output, scales, zeros and
    biases are rounded to it, and what the sum of some ROUNDINGS says. Returns how many values a
    rounding made infinite. Raises ValueError for a buffer too short.
    """
    cdef int level_id = _level(level), code_id = _id(code), out_id = _id(out)
    cdef amn_integers integers
    cdef amn_buffer dst_buffer = _decoded(dst, out_id)
    cdef amn_status status
    cdef uint64_t n_overflow = 0
    integers.codes = _bytes(src)
    integers.rows, integers.cols = size_of(rows, "rows"), size_of(cols, "cols")
    integers.stride, integers.phase = size_of(stride, "stride"), size_of(phase, "phase")
    integers.scales = _grid(
        scales, scale, scale_stride, block_rows, block_cols, row_phase, col_phase, rounded)
    integers.biases, integers.groups, integers.zeros = _bytes(biases), _bytes(groups), _bytes(zeros)
    integers.zeros_kind, integers.constant = _id(zeros_kind), constant
    integers.zeros_phase = size_of(zeros_phase, "zeros_phase")
    integers.roundings = _id(roundings)
    integers.planes.bits, integers.planes.shift = planes[0], planes[1]
    integers.planes.stacked = size_of(planes[2], "planes")
    integers.planes.phase = size_of(planes[3], "planes")
    integers.planes.width = planes[4]
    with nogil:
        status = amn_dequantize_integers(
            level_id, code_id, out_id, &integers, dst_buffer, &n_overflow)
    _check(status)
    return n_overflow


def rotate(const uint8_t[::1] src, uint8_t[::1] dst, group, level=None) -> None:
    """dst = float32 numbers of src in groups of `group`, a power of 4, times H / sqrt(group).

    H is the regular Hadamard matrix of ConvRot, whose fourth order is 1 and, where the digits of
    row and column are 3 together, -1. Raises ValueError for a group of another size, for numbers
    that are not in whole groups, for a dst too short and where either is not aligned.
    """
    cdef int level_id = _level(level)
    cdef uint64_t group_size = size_of(group, "group")
    cdef amn_bytes src_bytes = _bytes(src)
    cdef amn_buffer dst_buffer = _buffer(dst)
    cdef amn_status status
    with nogil:
        status = amn_rotate(level_id, src_bytes, dst_buffer, group_size)
    _check(status)


def dequantize_rotated(
    out, const uint8_t[::1] src, uint8_t[::1] dst, rows, cols, const uint8_t[::1] scales, group,
    level=None,
) -> int:
    """dst = out(rotated(float32(src) * scale)): int8 codes with a float32 scale for each row.

    Columns are rotated in groups, as `rotate` does it. Returns how many finite values the rounding
    to `out` made infinite. Raises ValueError as `rotate` does, and for a buffer too short.
    """
    cdef int level_id = _level(level), out_id = _id(out)
    cdef amn_rotation how
    cdef amn_buffer dst_buffer = _buffer(dst)
    cdef amn_status status
    cdef uint64_t n_overflow = 0
    how.codes, how.scales = _bytes(src), _bytes(scales)
    how.rows, how.cols = size_of(rows, "rows"), size_of(cols, "cols")
    how.group = size_of(group, "group")
    with nogil:
        status = amn_dequantize_rotated(level_id, out_id, &how, dst_buffer, &n_overflow)
    _check(status)
    return n_overflow


def w4a8_fit(
    const float[::1] values, cols, const float[::1] numbers, float[::1] scales,
    float[::1] channels, level=None,
) -> None:
    """Fit scales to rows of rotated values: of each 16 of them, and of INT8 for each row.

    `numbers` are the 16 levels of a codebook, ascending, or the 63 whole ones about 0. What is not
    finite makes scales that are not. Raises ValueError for rows not in whole groups, for another
    number of levels, and for a buffer too short.
    """
    cdef int level_id = _level(level)
    cdef size_t n_cols = size_of(cols, "cols")
    cdef size_t rows = 0 if n_cols == 0 else values.shape[0] // n_cols
    cdef size_t n_groups = rows * (n_cols // AMN_W4A8_SIZE)
    cdef amn_status status
    if rows == 0:
        return
    if <size_t>scales.shape[0] < n_groups or <size_t>channels.shape[0] < rows:
        raise ValueError("the scales are too short")
    with nogil:
        status = amn_w4a8_fit(
            level_id, &values[0], rows, n_cols, &numbers[0],
            numbers.shape[0], &scales[0], &channels[0])
    _check(status)


def w4a8_code(
    const float[::1] values, cols, const float[::1] numbers, const float[::1] scales,
    const float[::1] channels, uint8_t[::1] codes, uint8_t[::1] chosen, level=None,
) -> None:
    """Find the codes of rows of rotated values, by the best of several scales of each 16.

    `scales` are all first choices, then all second ones, in units of `channels`, those of rows;
    `chosen` becomes which of them it is. A code is the place of a level in `numbers`, as `w4a8_fit`
    has them. Raises ValueError as that does.
    """
    cdef int level_id = _level(level)
    cdef size_t n_cols = size_of(cols, "cols")
    cdef size_t rows = 0 if n_cols == 0 else values.shape[0] // n_cols
    cdef size_t n_groups = rows * (n_cols // AMN_W4A8_SIZE)
    cdef amn_status status
    if n_groups == 0:
        return
    if (
        <size_t>scales.shape[0] < n_groups or <size_t>channels.shape[0] < rows
        or <size_t>codes.shape[0] < rows * n_cols or <size_t>chosen.shape[0] < n_groups
    ):
        raise ValueError("the scales or codes are too short")
    with nogil:
        status = amn_w4a8_code(
            level_id, &values[0], rows, n_cols, &numbers[0],
            numbers.shape[0], &scales[0], scales.shape[0] // n_groups, &channels[0], &codes[0],
            &chosen[0])
    _check(status)


def dequantize_trellis(
    code, out, const uint8_t[::1] tiles, uint8_t[::1] dst, bits, cols,
    const uint8_t[::1] in_scales, const uint8_t[::1] out_scales,
    first_row=0, n_rows=None, first_col=0, n_cols=None, level=None,
) -> int:
    """dst[o, i] = out(value of EXL3's trellis): TRELLIS_BLOCK out features of `cols` in features.

    `tiles` are those of 16 in features one after the other, then of the next 16. Both scales are
    half floats. dst takes `n_rows` out features from `first_row` on, and `n_cols` in features from
    `first_col` on, or all. Returns how many finite float32 values the rounding to `out` made
    infinite. Raises ValueError for a buffer too short for these sizes.
    """
    cdef int level_id = _level(level), code_id = _id(code), out_id = _id(out)
    cdef amn_trellis trellis
    cdef amn_buffer dst_buffer = _buffer(dst), work
    cdef amn_status status
    cdef uint64_t n_overflow = 0
    trellis.tiles = _bytes(tiles)
    trellis.in_scales, trellis.out_scales = _bytes(in_scales), _bytes(out_scales)
    trellis.bits, trellis.cols = _id(bits), size_of(cols, "cols")
    trellis.first_row = size_of(first_row, "first_row")
    trellis.n_rows = size_of(TRELLIS_BLOCK - first_row if n_rows is None else n_rows, "n_rows")
    trellis.first_col = size_of(first_col, "first_col")
    trellis.n_cols = size_of(cols - first_col if n_cols is None else n_cols, "n_cols")
    work = _allocated(AMN_TRELLIS_WORK)
    with nogil:
        status = amn_dequantize_trellis(
            level_id, code_id, out_id, &trellis, dst_buffer, work, &n_overflow)
    PyMem_Free(work.data)
    _check(status)
    return n_overflow


def quantize(
    source, code, rule, const uint8_t[::1] src, rows, cols, block_rows, block_cols,
    uint8_t[::1] codes, uint8_t[::1] scales, uint8_t[::1] zeros, const uint8_t[::1] found=b"",
    bint measure=False, level=None,
) -> tuple[float, float, float, float] | None:
    """Encode `rows` x `cols` numbers in blocks; csrc/kernels/kernels.h says by which rules.

    `found` is a float32 that says something of all values, or nothing. Returns the sum and the
    largest of the absolute errors and the sums of squared errors and values, all 0 if not measured;
    None if a value is infinite or a NaN, or a scale too small for its type. Raises ValueError for a
    buffer too short for these sizes.
    """
    cdef int level_id = _level(level)
    cdef amn_quantization how
    cdef amn_bytes src_bytes = _bytes(src)
    cdef amn_buffer codes_buffer = _buffer(codes), scales_buffer = _buffer(scales)
    cdef amn_buffer zeros_buffer = _buffer(zeros)
    cdef amn_loss loss
    cdef amn_status status
    loss.absolute = loss.largest = loss.squared = loss.power = 0
    how.source, how.code, how.rule = _id(source), _id(code), _id(rule)
    how.rows, how.cols = size_of(rows, "rows"), size_of(cols, "cols")
    how.block_rows = size_of(block_rows, "block_rows")
    how.block_cols = size_of(block_cols, "block_cols")
    how.found = _bytes(found)
    with nogil:
        status = amn_quantize(
            level_id, &how, src_bytes, codes_buffer, scales_buffer, zeros_buffer,
            &loss if measure else NULL)
    if status == AMN_NOT_FINITE:
        return None
    _check(status)
    return loss.absolute, loss.largest, loss.squared, loss.power


def pack(
    source, code, rule, const uint8_t[::1] src, rows, cols, group, uint8_t[::1] codes,
    uint8_t[::1] scales, uint8_t[::1] shifts, bint measure=False, level=None,
) -> tuple[float, float, float, float] | None:
    """Encode `rows` x `cols` numbers in groups; csrc/kernels/kernels.h says by which rules.

    `shifts` are biases or zero points. Returns what `quantize` does, and None also if a scale is
    infinite that must not be. Raises ValueError for a buffer too short for these sizes.
    """
    cdef int level_id = _level(level)
    cdef amn_packing_plan how
    cdef amn_bytes src_bytes = _bytes(src)
    cdef amn_buffer codes_buffer = _buffer(codes), scales_buffer = _buffer(scales)
    cdef amn_buffer shifts_buffer = _buffer(shifts)
    cdef amn_loss loss
    cdef amn_status status
    loss.absolute = loss.largest = loss.squared = loss.power = 0
    how.source, how.code, how.rule = _id(source), _id(code), _id(rule)
    how.rows, how.cols = size_of(rows, "rows"), size_of(cols, "cols")
    how.group = size_of(group, "group")
    with nogil:
        status = amn_pack(
            level_id, &how, src_bytes, codes_buffer, scales_buffer, shifts_buffer,
            &loss if measure else NULL)
    if status == AMN_NOT_FINITE:
        return None
    _check(status)
    return loss.absolute, loss.largest, loss.squared, loss.power


def amax(source, const uint8_t[::1] src, level=None) -> float | None:
    """Return the largest magnitude in src; None if a value is infinite or a NaN."""
    cdef int level_id = _level(level), source_id = _id(source)
    cdef amn_bytes src_bytes = _bytes(src)
    cdef amn_status status
    cdef float largest = 0
    with nogil:
        status = amn_amax(level_id, source_id, src_bytes, &largest)
    if status == AMN_NOT_FINITE:
        return None
    _check(status)
    return largest


def blocks_amax(source, const uint8_t[::1] src, block, uint8_t[::1] dst, level=None) -> bool:
    """dst = the largest magnitude of each block, in float32; of one not whole, 1e-38 at least.

    Returns whether all values are finite; NaNs may have any payload. Raises ValueError for a buffer
    too short.
    """
    cdef int level_id = _level(level), source_id = _id(source)
    cdef amn_bytes src_bytes = _bytes(src)
    cdef amn_buffer dst_buffer = _buffer(dst)
    cdef uint64_t block_size = size_of(block, "block")
    cdef amn_status status
    with nogil:
        status = amn_blocks_amax(level_id, source_id, src_bytes, block_size, dst_buffer)
    if status == AMN_NOT_FINITE:
        return False
    _check(status)
    return True


def compare(
    const uint8_t[::1] a, const uint8_t[::1] b, level=None, source=SOURCES["F32"],
    source_b=None,
) -> Compared:
    """Compare two arrays of as many numbers, as they are decoded to float32, at any address.

    Both are of one source if only one is given. Levels give the same bits, and so do all sources of
    the same numbers. Raises ValueError if one
    is longer, or not a whole number of elements.
    """
    cdef int level_id = _level(level), of_a = _id(source)
    cdef int of_b = of_a if source_b is None else _id(source_b)
    cdef amn_bytes a_bytes = _bytes(a), b_bytes = _bytes(b)
    cdef amn_comparison found
    cdef amn_status status
    with nogil:
        status = amn_compare(level_id, of_a, of_b, a_bytes, b_bytes, &found)
    _check(status)
    return Compared(
        found.n_different, found.first_different if found.n_different else None,
        found.n_not_finite, found.largest, found.largest_at if found.largest else None,
        found.sums[<int>AMN_COMPARE_ABSOLUTE], found.sums[<int>AMN_COMPARE_ERROR],
        found.sums[<int>AMN_COMPARE_A],
        found.sums[<int>AMN_COMPARE_B], found.sums[<int>AMN_COMPARE_PRODUCT])


def check_values(dtype, const uint8_t[::1] src, cols, level=None) -> Checked:
    """Look through rows of `cols` words, floats of one of the kinds in FLOAT_WORDS, at any address.

    Raises ValueError for another dtype, and if rows are not whole.
    """
    cdef int level_id = _level(level)
    cdef uint64_t n_cols = size_of(cols, "cols")
    cdef amn_words words
    cdef amn_bytes src_bytes = _bytes(src)
    cdef amn_check found
    cdef amn_status status
    if dtype not in FLOAT_WORDS:
        raise ValueError(_MESSAGES[AMN_BAD_DTYPE])
    words.n_bytes, words.infinity, words.nan, words.other_nan = FLOAT_WORDS[dtype]
    with nogil:
        status = amn_check_values(level_id, &words, src_bytes, n_cols, &found)
    _check(status)
    return Checked(
        found.n_nan, found.first_nan if found.n_nan else None,
        found.n_infinite, found.first_infinite if found.n_infinite else None,
        found.n_zero, found.largest, not found.differs,
        found.n_zero_rows, found.first_zero_row if found.n_zero_rows else None)


@cython.final
@cython.auto_pickle(False)
cdef class Sum:
    """The sum of `total` float32 as torch has it on one thread; they are added in order."""

    cdef amn_sum _sum
    cdef uint64_t _total, _row

    def __cinit__(self, total):
        memset(&self._sum, 0, sizeof(amn_sum))
        self._total, self._row = size_of(total, "total"), 0

    def add(self, const float[::1] values) -> float | None:
        """Add whole rows of AMN_SUM_LANES, or all that are left; return the sum at the end."""
        cdef uint64_t n = <uint64_t>values.shape[0], n_rows = n // AMN_SUM_LANES
        cdef uint64_t end = self._row * AMN_SUM_LANES + n
        if n == 0 or end > self._total or (end < self._total and n % AMN_SUM_LANES):
            raise ValueError("values: neither whole rows nor all that are left")
        with nogil:
            amn_sum_rows(&self._sum, self._row, n_rows, &values[0], self._total)
        self._row += n_rows
        if end < self._total:
            return None
        if n % AMN_SUM_LANES == 0:
            return amn_sum_end(&self._sum, NULL, self._total)
        return amn_sum_end(&self._sum, &values[n_rows * AMN_SUM_LANES], self._total)


cdef amn_buffer _stage(uint64_t n_bytes) except *:
    """What a result of so many bytes is staged in; nothing for a small one."""
    if n_bytes >= AMN_STREAMED_BYTES:
        return _allocated(AMN_STAGE_BYTES)
    cdef amn_buffer stage
    stage.data = NULL
    stage.n_bytes = 0
    stage.is_streamed = False
    return stage


cdef amn_buffer _allocated(uint64_t n_bytes) except *:
    """Memory for a call, which is to be freed."""
    cdef amn_buffer memory
    memory.n_bytes = n_bytes
    memory.is_streamed = False
    memory.data = <uint8_t *>PyMem_Malloc(<size_t>n_bytes)
    if memory.data == NULL:
        raise MemoryError
    return memory
