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


include "_core_decode.pxi"
include "_core_encode.pxi"
include "_core_measure.pxi"
