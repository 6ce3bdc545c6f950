"""The whole boundary between Python and the C core: bytes in, bytes out, the GIL released."""

from libc.errno cimport EINTR
from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t, uint64_t

import os
from typing import NamedTuple


cdef extern from "amn_bytes.h" nogil:
    ctypedef struct amn_bytes:
        const uint8_t *data
        uint64_t n_bytes

    ctypedef struct amn_buffer:
        uint8_t *data
        uint64_t n_bytes


cdef extern from "kernels/kernels.h" nogil:
    ctypedef enum amn_status:
        AMN_OK
        AMN_BAD_LEVEL
        AMN_BAD_DTYPE
        AMN_BAD_BLOCK
        AMN_BAD_SIZE
        AMN_SHORT_SRC
        AMN_SHORT_DST
        AMN_SHORT_SCALES
        AMN_SHORT_STRIDE
        AMN_SHORT_ZEROS
        AMN_SHORT_GROUPS
        AMN_BAD_GROUP
        AMN_BAD_WORDS
        AMN_BAD_ROWS
        AMN_BAD_CODEBOOK

    ctypedef struct amn_kernel:
        const char *family
        const char *name
        int id
        int item_elements
        int item_bytes
        uint32_t native

    ctypedef struct amn_grid:
        amn_bytes data
        int dtype
        uint64_t stride
        uint64_t block_rows
        uint64_t block_cols
        uint64_t row_phase
        uint64_t col_phase

    ctypedef struct amn_groups:
        amn_bytes zeros
        amn_bytes scales
        amn_bytes groups
        int scale_dtype
        bint zeros_less_one
        uint64_t group_size
        uint64_t first_col

    ctypedef struct amn_absmax:
        amn_bytes data
        int dtype
        uint64_t block
        uint64_t phase

    const amn_kernel *amn_kernel_at(int index) noexcept
    const char *amn_level_name(int level) noexcept
    bint amn_level_supported(int level) noexcept
    amn_status amn_dequantize_scaled(
        int level, int code, int out, amn_bytes src, amn_buffer dst, uint64_t rows, uint64_t cols,
        const amn_grid *grid, uint64_t *n_overflow) noexcept
    amn_status amn_dequantize_absmax(
        int level, int code, int out, amn_bytes src, amn_buffer dst, uint64_t n,
        amn_bytes codebook, const amn_absmax *absmax, uint64_t *n_overflow) noexcept
    amn_status amn_recover_absmax(
        amn_bytes src, amn_buffer dst, amn_bytes codebook, const amn_absmax *absmax,
        float offset) noexcept
    amn_status amn_convert(
        int level, int src_dtype, int out, amn_bytes src, amn_buffer dst,
        uint64_t *n_overflow) noexcept
    amn_status amn_dequantize_blocks(
        int level, int type, int out, amn_bytes src, amn_buffer dst,
        uint64_t *n_overflow) noexcept
    uint64_t AMN_STREAMED_BYTES
    int AMN_TILE_ROWS
    int AMN_CACHE_LINE
    amn_status amn_dequantize_packed(
        int level, int packing, int out, amn_bytes src, amn_buffer dst, uint64_t rows,
        uint64_t cols, uint64_t first_row, uint64_t n_rows, const amn_groups *groups,
        uint64_t *n_overflow) noexcept


cdef extern from "parse/parse.h" nogil:
    bint amn_string_at(
        amn_bytes src, uint64_t pos, int length_bytes, bint big_endian, amn_bytes *string) noexcept
    uint64_t amn_skip_strings(
        amn_bytes src, uint64_t *pos, uint64_t count, int length_bytes, bint big_endian,
        uint64_t longest) noexcept


cdef extern from "io/reads.h" nogil:
    uint64_t AMN_CRC32_SLICE

    uint64_t amn_pread_rows(
        int fd, uint64_t offset, uint64_t stride, uint64_t row_bytes, amn_buffer dst,
        uint64_t done, int *error) noexcept
    void amn_copy_rows(
        amn_bytes src, uint64_t stride, uint64_t row_bytes, amn_buffer dst) noexcept

    int amn_crc32_supported() noexcept
    uint32_t amn_crc32(int bits, uint32_t crc, amn_bytes src) noexcept
    uint64_t amn_pread_crc32(
        int fd, uint64_t offset, amn_buffer dst, uint64_t done, int bits, uint32_t *crc,
        int *error) noexcept


cdef extern from "parse/parse.h" nogil:
    ctypedef struct amn_tensor_entry:
        amn_bytes name
        amn_bytes dtype
        uint64_t *shape
        uint64_t *offsets
        int n_dims
        bint another

    bint amn_tensor_entry_at(
        amn_bytes header, uint64_t *pos, amn_tensor_entry *entry) noexcept

    enum:
        AMN_ZIP_LOCAL_BYTES

    ctypedef struct amn_zip_end:
        uint64_t n_entries
        uint64_t n_bytes
        uint64_t start
        uint64_t stop

    bint amn_zip_end_of(amn_bytes end, uint64_t start, amn_zip_end *found) noexcept

    ctypedef struct amn_zip_member:
        amn_bytes name
        uint32_t crc
        uint64_t n_bytes
        uint64_t offset
        int flags

    bint amn_zip_member_at(
        amn_bytes directory, uint64_t *pos, amn_zip_member *member) noexcept
    uint64_t amn_zip_local_bytes(
        amn_bytes local, const amn_zip_member *member) noexcept

    enum:
        AMN_TORCH_PARTS
        AMN_TORCH_LONGEST

    ctypedef struct amn_torch_tensor:
        amn_bytes name
        amn_bytes kind_name
        amn_bytes key
        amn_bytes location_name
        int rebuild
        int word
        int kind
        int location
        int hooks
        uint64_t n_elements
        uint64_t offset
        uint64_t *sizes
        uint64_t *strides
        int n_dims
        bint requires_grad
        uint32_t memoised
        uint64_t cost
        uint64_t end

    bint amn_torch_tensor_at(
        amn_bytes pickle, uint64_t pos, uint64_t n_memo, const uint16_t *costs,
        amn_torch_tensor *tensor) noexcept


cdef extern from "Python.h":
    int PyErr_CheckSignals() except -1
    str PyUnicode_DecodeUTF8(const char *text, Py_ssize_t n_bytes, const char *errors)
    char *PyBytes_AsString(object)
    bytes PyBytes_FromStringAndSize(const char *data, Py_ssize_t n_bytes)


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


def _table(*families: str) -> dict[str, int]:
    cdef const amn_kernel *row
    cdef int index = 0
    names = {}
    while amn_kernel_at(index) != NULL:
        row = amn_kernel_at(index)
        if row.family.decode("ascii") in families:
            names[row.name.decode("ascii")] = row.id
        index += 1
    return names


LEVELS = _levels()
CODES = _table("scaled")
ABSMAX = _table("absmax")
OUTPUTS = _table("output")
FLOATS = _table("convert")
SCALES = _table("convert", "scale")
BLOCKS = _table("block")
PACKINGS = _table("packed")
STREAMED_BYTES = AMN_STREAMED_BYTES
TILE_ROWS = AMN_TILE_ROWS
CACHE_LINE = AMN_CACHE_LINE
CRC32_SLICE = AMN_CRC32_SLICE
TORCH_LONGEST = AMN_TORCH_LONGEST
USUAL_OPCODES = b"XchqrjKMJ})N\x88\x89(t\x85\x86\x87usRb"

_SUPPORTED = tuple(name for name, level in LEVELS.items() if amn_level_supported(level))
# Levels run from 0 without a gap, and each needs more of the CPU than the one before.
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
    AMN_BAD_WORDS: "rows must fill the words that they are packed into",
    AMN_BAD_ROWS: f"first_row must be a multiple of {TILE_ROWS}, and no row behind the last",
    AMN_BAD_CODEBOOK: "codebook has not as many float32 as there are codes",
}


def supported_levels() -> tuple[str, ...]:
    """The levels this CPU can run, slowest first; the last is the default everywhere."""
    return _SUPPORTED


def kernels() -> tuple[Kernel, ...]:
    """Every kernel of this build, with the levels whose code for it is their own."""
    cdef const amn_kernel *row
    cdef int index = 0
    rows = []
    while amn_kernel_at(index) != NULL:
        row = amn_kernel_at(index)
        rows.append(Kernel(
            row.family.decode("ascii"), row.name.decode("ascii"), _native(row.native)))
        index += 1
    return tuple(rows)


def block_types() -> tuple[BlockType, ...]:
    """Every GGUF block type, in the order of their ids."""
    cdef const amn_kernel *row
    cdef int index = 0
    rows = []
    while amn_kernel_at(index) != NULL:
        row = amn_kernel_at(index)
        if row.family == b"block":
            rows.append(BlockType(
                row.id, row.name.decode("ascii"), row.item_elements, row.item_bytes,
                _native(row.native)))
        index += 1
    return tuple(rows)


cdef tuple _native(uint32_t bits):
    return tuple([name for name, level in LEVELS.items() if bits >> <int>level & 1])


cdef uint64_t _size(object value, str name) except? 0:
    """An int of any size from a file's header as 64 bits."""
    if not 0 <= value < 1 << 64:
        raise ValueError(f"{name} must be between 0 and 2**64 - 1, not {value}")
    return value


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
    return result


def dequantize_scaled(
    code, out, const uint8_t[::1] src, uint8_t[::1] dst, rows, cols,
    const uint8_t[::1] scales, scale, scale_stride, block_rows, block_cols,
    row_phase=0, col_phase=0, level=None,
) -> int:
    """dst = out(float32(src) * float32(scale)): 8-bit floats times a grid of scales.

    Element (r, c) has the scale at ((r + row_phase) // block_rows, (c + col_phase) // block_cols)
    of a grid whose rows are `scale_stride` long. Returns how many finite float32 products the
    rounding to `out` made infinite. Raises ValueError for a buffer too short for these sizes.
    """
    cdef int level_id = _level(level), code_id = _id(code), out_id = _id(out)
    cdef uint64_t n_rows = _size(rows, "rows"), n_cols = _size(cols, "cols")
    cdef amn_bytes src_bytes = _bytes(src)
    cdef amn_buffer dst_buffer = _buffer(dst)
    cdef amn_grid grid
    cdef amn_status status
    cdef uint64_t n_overflow = 0
    grid.data = _bytes(scales)
    grid.dtype = _id(scale)
    grid.stride = _size(scale_stride, "scale_stride")
    grid.block_rows = _size(block_rows, "block_rows")
    grid.block_cols = _size(block_cols, "block_cols")
    grid.row_phase = _size(row_phase, "row_phase")
    grid.col_phase = _size(col_phase, "col_phase")
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
    cdef uint64_t n = _size(count, "count")
    cdef amn_bytes src_bytes = _bytes(src), codebook_bytes = _bytes(codebook)
    cdef amn_buffer dst_buffer = _buffer(dst)
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
    result.block = _size(block, "block")
    result.phase = _size(phase, "phase")
    return result


def convert(src_dtype, out, const uint8_t[::1] src, uint8_t[::1] dst, level=None) -> int:
    """dst = out(float32(src)), for every element of src.

    Returns how many finite elements became infinite. Raises ValueError if src is not a whole number
    of elements or dst is too short.
    """
    cdef int level_id = _level(level), src_id = _id(src_dtype), out_id = _id(out)
    cdef amn_bytes src_bytes = _bytes(src)
    cdef amn_buffer dst_buffer = _buffer(dst)
    cdef amn_status status
    cdef uint64_t n_overflow = 0
    with nogil:
        status = amn_convert(level_id, src_id, out_id, src_bytes, dst_buffer, &n_overflow)
    _check(status)
    return n_overflow


def dequantize_blocks(type, out, const uint8_t[::1] src, uint8_t[::1] dst, level=None) -> int:
    """dst = out(float32 value), for every element of the GGUF blocks in src; `type` is ggml's id.

    Returns how many finite values became infinite. Raises ValueError if src is not a whole number
    of blocks or dst is too short.
    """
    cdef int level_id = _level(level), type_id = _id(type), out_id = _id(out)
    cdef amn_bytes src_bytes = _bytes(src)
    cdef amn_buffer dst_buffer = _buffer(dst)
    cdef amn_status status
    cdef uint64_t n_overflow = 0
    with nogil:
        status = amn_dequantize_blocks(
            level_id, type_id, out_id, src_bytes, dst_buffer, &n_overflow)
    _check(status)
    return n_overflow


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
    cdef uint64_t all_rows = _size(rows, "rows"), n_cols = _size(cols, "cols")
    cdef uint64_t row = _size(first_row, "first_row")
    cdef uint64_t n_decoded = _size(rows - first_row if n_rows is None else n_rows, "n_rows")
    cdef amn_bytes src_bytes = _bytes(codes)
    cdef amn_buffer dst_buffer = _buffer(dst)
    cdef amn_groups of
    cdef amn_status status
    cdef uint64_t n_overflow = 0
    of.zeros = _bytes(zeros)
    of.scales = _bytes(scales)
    of.groups = _bytes(groups)
    of.scale_dtype = _id(scale)
    of.zeros_less_one = zeros_less_one
    of.group_size = _size(group_size, "group_size")
    of.first_col = _size(first_col, "first_col")
    with nogil:
        status = amn_dequantize_packed(
            level_id, packing_id, out_id, src_bytes, dst_buffer, all_rows, n_cols, row, n_decoded,
            &of, &n_overflow)
    _check(status)
    return n_overflow


cdef int _length_bytes(object value) except -1:
    if value not in (4, 8):
        raise ValueError(f"length_bytes must be 4 or 8, not {value}")
    return value


def skip_strings(
    const uint8_t[::1] src, pos, count, length_bytes, bint big_endian, longest
) -> tuple[int, int]:
    """Step over up to `count` of GGUF's strings from `pos` on.

    Returns where that ends, and how many they were. It stops before a string that is longer than
    `longest` or whose length `src` does not wholly hold, and after one that ends beyond `src`.
    """
    cdef uint64_t at = _size(pos, "pos"), n = _size(count, "count"), done
    cdef uint64_t most = min(_size(longest, "longest"), <uint64_t>1 << 62)
    cdef int width = _length_bytes(length_bytes)
    cdef amn_bytes src_bytes = _bytes(src)
    with nogil:
        done = amn_skip_strings(src_bytes, &at, n, width, big_endian, most)
    return at, done


def read_strings(
    const uint8_t[::1] src, pos, count, length_bytes, bint big_endian
) -> tuple[list[str], int]:
    """Return up to `count` of GGUF's strings from `pos` on, and where they end.

    There are fewer if `src` ends before. Bytes that are not UTF-8 become lone surrogates, as
    `surrogateescape` has it.
    """
    cdef uint64_t at = _size(pos, "pos"), left = _size(count, "count")
    cdef int width = _length_bytes(length_bytes)
    cdef amn_bytes src_bytes = _bytes(src)
    cdef amn_bytes string
    cdef list strings = []
    while left and amn_string_at(src_bytes, at, width, big_endian, &string):
        if string.n_bytes > src_bytes.n_bytes - at - <uint64_t>width:
            break
        strings.append(PyUnicode_DecodeUTF8(
            <const char *>string.data, <Py_ssize_t>string.n_bytes, "surrogateescape"))
        at += <uint64_t>width + string.n_bytes
        left -= 1
    return strings, at


cdef int _check_rows(uint64_t row_bytes, uint64_t n_bytes) except -1:
    if row_bytes == 0 or n_bytes % row_bytes:
        raise ValueError("dst must be a whole number of rows of at least one byte")
    return 0


def pread_rows(int fd, offset, stride, row_bytes, uint8_t[::1] dst) -> int:
    """Fill dst with rows of `row_bytes` bytes that lie `stride` apart in a file, from `offset` on.

    Returns how many bytes of dst there were before the file ended. Raises OSError; not on Windows.
    """
    cdef uint64_t first = _size(offset, "offset"), step = _size(stride, "stride")
    cdef uint64_t length = _size(row_bytes, "row_bytes"), done = 0
    cdef amn_buffer buffer = _buffer(dst)
    cdef int error = EINTR
    _check_rows(length, buffer.n_bytes)
    while error == EINTR:
        with nogil:
            done = amn_pread_rows(fd, first, step, length, buffer, done, &error)
        if error == EINTR:
            PyErr_CheckSignals()
        elif error:
            raise OSError(error, os.strerror(error))
    return done


def copy_rows(const uint8_t[::1] src, offset, stride, row_bytes, uint8_t[::1] dst) -> None:
    """Fill dst with rows of `row_bytes` bytes that lie `stride` apart in src, from `offset` on.

    Raises ValueError if src does not hold them all.
    """
    cdef uint64_t length = _size(row_bytes, "row_bytes"), step = _size(stride, "stride")
    cdef amn_bytes src_bytes = _bytes(src)
    cdef amn_buffer buffer = _buffer(dst)
    _check_rows(length, buffer.n_bytes)
    if buffer.n_bytes == 0:
        return
    if offset + (buffer.n_bytes // length - 1) * stride + length > src_bytes.n_bytes:
        raise ValueError(_MESSAGES[AMN_SHORT_SRC])
    src_bytes.data += <uint64_t>_size(offset, "offset")
    with nogil:
        amn_copy_rows(src_bytes, step, length, buffer)


CRC32_BITS = tuple(bits for bits in (128, 256) if bits <= amn_crc32_supported())
cdef int _crc32_bits = max(CRC32_BITS, default=0)


def crc32(const uint8_t[::1] src, uint32_t crc, bits=None) -> int:
    """Return the CRC-32 of src, which continues bytes of this CRC-32.

    `bits` are those folded at a time, one of CRC32_BITS; not to be called where this is empty.
    """
    cdef int at_once = _bits_at_once(bits)
    cdef amn_bytes src_bytes = _bytes(src)
    with nogil:
        crc = amn_crc32(at_once, crc, src_bytes)
    return crc


def pread_crc32(int fd, offset, uint8_t[::1] dst) -> tuple[int, int]:
    """Fill dst from `offset` of a file on, and sum it up piece by piece, while it is in cache.

    Returns how many bytes there were before the file ended, and their CRC-32. Raises OSError; not
    on Windows, nor where CRC32_BITS is empty.
    """
    cdef uint64_t first = _size(offset, "offset"), done = 0
    cdef amn_buffer buffer = _buffer(dst)
    cdef int error = EINTR, at_once = _bits_at_once(None)
    cdef uint32_t crc = 0
    while error == EINTR:
        with nogil:
            done = amn_pread_crc32(fd, first, buffer, done, at_once, &crc, &error)
        if error == EINTR:
            PyErr_CheckSignals()
        elif error:
            raise OSError(error, os.strerror(error))
    return done, crc


cdef int _bits_at_once(object bits) except -1:
    if bits is None and _crc32_bits:
        return _crc32_bits
    if bits not in CRC32_BITS:
        raise ValueError(f"bits must be one of {CRC32_BITS}, got {bits}")
    return bits


cdef inline str _text(amn_bytes text):
    return PyUnicode_DecodeUTF8(<const char *>text.data, <Py_ssize_t>text.n_bytes, "strict")


cdef amn_bytes _of_bytes(bytes data):
    """What `_bytes` does, in a tenth of the time."""
    cdef amn_bytes view
    view.data = <const uint8_t *>PyBytes_AsString(data)
    view.n_bytes = <uint64_t>len(data)
    return view


def tensor_entries(const uint8_t[::1] header, pos, count) -> tuple[list, int, bool]:
    """Read up to `count` entries of a safetensors header, which is UTF-8, from `pos` on.

    Returns them, where the next would stand, and whether a comma says that there is one. It stops
    before an entry that is not spelt as writers usually do, right or wrong.
    """
    cdef uint64_t at = _size(pos, "pos"), start = at, left = _size(count, "count")
    cdef amn_bytes src = _bytes(header)
    cdef amn_tensor_entry entry
    cdef bint another = True
    cdef list entries = []
    cdef int i
    while left and another and amn_tensor_entry_at(src, &at, &entry):
        shape = tuple([entry.shape[i] for i in range(entry.n_dims)])
        entries.append(
            (_text(entry.name), _text(entry.dtype), shape, entry.offsets[0], entry.offsets[1],
             start))
        another = entry.another
        start = at
        left -= 1
    return entries, at, another


def zip_members(bytes end not None, end_start, make):
    """Read the directory of a ZIP archive of which `end` are the bytes from `end_start` on.

    Returns its length; the members, by name; and where the room of each ends, by header_offset, for
    they follow each other from the archive's first byte to the directory. Members are made as
    `make`, a subclass of tuple, of

        name, method, crc, n_bytes, n_compressed, header_offset, raw_name, flags, header_bytes

    the last of which is the length of the local header if that is in `end`, of the plain kind, and
    says the same as the directory; else 0. None if the directory is not all in `end`, or if it or a
    member is not of the plain kind (stored, small, its name in ASCII, no extra field), right or
    wrong.
    """
    cdef uint64_t at, n = 0, start = _size(end_start, "end_start"), before = 0, filled = 0, n_header
    cdef amn_bytes tail = _of_bytes(end), directory, local
    cdef amn_zip_end told
    cdef amn_zip_member m
    cdef dict members = {}, ends = {}
    new = tuple.__new__
    if not amn_zip_end_of(tail, start, &told):
        return None
    directory.data = tail.data
    directory.n_bytes = told.stop - start
    at = told.start - start
    while n < told.n_entries and amn_zip_member_at(directory, &at, &m):
        if m.offset < filled or (n == 0 and m.offset > 0):
            return None
        if n:
            ends[before] = m.offset
        n_header = 0
        if start <= m.offset and m.offset - start < tail.n_bytes:
            local.data = tail.data + (m.offset - start)
            local.n_bytes = tail.n_bytes - (m.offset - start)
            n_header = amn_zip_local_bytes(local, &m)
        name = _text(m.name)
        members[name] = new(make, (
            name, "stored", m.crc, m.n_bytes, m.n_bytes, m.offset,
            PyBytes_FromStringAndSize(<const char *>m.name.data, <Py_ssize_t>m.name.n_bytes),
            m.flags, n_header))
        before = m.offset
        filled = m.offset + AMN_ZIP_LOCAL_BYTES + m.name.n_bytes + m.n_bytes
        n += 1
    if (n == 0 or n < told.n_entries or at < directory.n_bytes
            or <uint64_t>len(members) < n or filled > told.start):
        return None
    ends[before] = told.start
    return told.n_bytes, members, ends


cdef enum:
    _OPCODES_AT_ONCE = 1 << 16  # so that signals are seen to


cdef enum:  # the bits of amn_torch_tensor.memoised that are looked at
    NAME, REBUILD, WORD, KIND, KEY, LOCATION, SAVED, SIZES, STRIDES, ORDERED


def run_usual(machine, pos, bytes costs not None, types) -> int:
    """Run what usually stands in a torch file's pickle, from `pos` on; return where that ends.

    Tensors as torch.save spells them, with their names, each in one step; and the opcodes that make
    dictionaries of them: constants, short numbers and ASCII, tuples, dictionaries, the memo. All is
    done to the machine's stack, memo and working set that its own handlers would do. It stops
    before whatever else, and before whatever would be an error.

    `costs` are 256 uint16, one for each opcode, and one each for finding a global and for an item
    of a dictionary. `types` are (Builder, rebuild_tensor, dictionary, DTypeGlobal, Storage,
    TorchTensor) of torch_globals.
    """
    cdef amn_torch_tensor t
    cdef amn_bytes src = _of_bytes(machine.data)
    cdef uint64_t at = _size(pos, "pos"), working_set = machine.working_set, length
    cdef uint64_t allowed = machine.allowed, cost, index
    cdef const uint16_t *cost_of = <const uint16_t *>PyBytes_AsString(costs)
    cdef const uint8_t *operand
    cdef Py_ssize_t depth = machine.most_marks, i, n, left = _OPCODES_AT_ONCE
    cdef uint8_t opcode
    cdef dict memo = machine.memo, pairs
    cdef list stack = machine.stack, below = machine.below, items
    if len(costs) != 516:
        raise ValueError("costs must be of 256 opcodes, of a global and of an item")
    if at < src.n_bytes:
        working_set -= cost_of[src.data[at]]  # which the machine has counted
    while at < src.n_bytes and left > 0:
        left -= 1
        opcode = src.data[at]
        if opcode in b"Xch" and len(below) + 2 <= depth and amn_torch_tensor_at(
                src, at, <uint64_t>len(memo), cost_of, &t):
            cost = t.cost + cost_of[256] * (
                (t.memoised >> REBUILD & 1) + (t.memoised >> KIND & 1)
                + (t.memoised >> ORDERED & 1))
            if working_set + cost > allowed or not _push_tensor(machine, memo, stack, &t, types):
                break
            working_set += cost
            at = t.end
            continue
        cost = cost_of[opcode]
        length = _operand_bytes(opcode)
        if working_set + cost > allowed or src.n_bytes - at <= length:
            break
        operand = src.data + at + 1
        n = len(stack)
        if opcode == b"X":
            index = _le(operand, 4)
            if index > AMN_TORCH_LONGEST or src.n_bytes - at - 5 < index:
                break
            if not _is_ascii(operand + 4, index) or working_set + cost + index > allowed:
                break
            stack.append(PyUnicode_DecodeUTF8(<const char *>operand + 4, index, "strict"))
            cost += index
            length += index
        elif opcode in b"qr":
            if n == 0:
                break
            memo[_le(operand, length)] = stack[n - 1]
        elif opcode in b"hj":
            value = memo.get(_le(operand, length), memo)
            if value is memo:
                break
            stack.append(value)
        elif opcode in b"KM":
            stack.append(_le(operand, length))
        elif opcode == b"J":
            stack.append(<int32_t>_le(operand, length))
        elif opcode == b"}":
            stack.append({})
        elif opcode == b")":
            stack.append(())
        elif opcode == b"N":
            stack.append(None)
        elif opcode == 0x88:
            stack.append(True)
        elif opcode == 0x89:
            stack.append(False)
        elif opcode == b"(":
            if len(below) >= depth:
                break
            below.append(stack)
            stack = []
        elif opcode == b"t":
            if len(below) == 0:
                break
            items = stack
            stack = below.pop()
            stack.append(tuple(items))
        elif 0x85 <= opcode <= 0x87:
            i = n - (opcode - 0x84)
            if i < 0:
                break
            stack[i:] = (tuple(stack[i:]),)
        elif opcode == b"u":
            if len(below) == 0 or not below[len(below) - 1]:
                break
            items = below[len(below) - 1]
            target = items[len(items) - 1]
            cost += cost_of[257] * <uint64_t>n
            if type(target) is not dict or n % 2 or working_set + cost > allowed:
                break
            if not _are_names(stack):
                break
            pairs = target
            for i in range(0, n, 2):
                pairs[stack[i]] = stack[i + 1]
            stack = below.pop()
        elif opcode == b"s":
            cost += cost_of[257] * 2
            if n < 3 or type(stack[n - 3]) is not dict or type(stack[n - 2]) is not str:
                break
            if working_set + cost > allowed:
                break
            pairs = stack[n - 3]
            pairs[stack[n - 2]] = stack[n - 1]
            del stack[n - 2:]
        elif opcode == b"R":
            if n < 2 or type(stack[n - 1]) is not tuple or stack[n - 1]:
                break
            target = stack[n - 2]
            if type(target) is not types[0] or target.build is not types[2]:
                break
            stack[n - 2:] = ({},)
        elif opcode == b"b":
            if n < 2 or type(stack[n - 2]) is not dict:
                break
            del stack[n - 1]
        else:
            break
        working_set += cost
        at += 1 + length
    machine.stack = stack
    if at > <uint64_t>pos:
        machine.working_set = working_set
    return at


cdef uint64_t _le(const uint8_t *data, uint64_t n_bytes) noexcept:
    cdef uint64_t value = 0, i
    for i in range(n_bytes):
        value |= <uint64_t>data[i] << (8 * i)
    return value


cdef uint64_t _operand_bytes(uint8_t opcode) noexcept:
    if opcode in b"Khq":
        return 1
    if opcode == b"M":
        return 2
    return 4 if opcode in b"XJjr" else 0


cdef bint _is_ascii(const uint8_t *text, uint64_t n_bytes) noexcept:
    cdef uint8_t every = 0
    cdef uint64_t i
    for i in range(n_bytes):
        every |= text[i]
    return every < 0x80


cdef bint _are_names(list flat):
    """Whether every other value, from the first on, is a string."""
    cdef Py_ssize_t i
    for i in range(0, len(flat), 2):
        if type(flat[i]) is not str:
            return False
    return True


cdef bint _push_tensor(machine, dict memo, list stack, amn_torch_tensor *t, types) except -1:
    """Push one and memoise its parts, all or nothing; whether the opcodes would have, too."""
    cdef uint32_t new = t.memoised
    cdef uint64_t first = <uint64_t>len(memo)
    cdef int i
    builder, rebuild_tensor, dictionary, dtype_global, storage_type, tensor_type = types
    find = machine.find_global
    try:
        rebuild = (
            find("torch._utils", "_rebuild_tensor_v2") if new >> REBUILD & 1 else memo[t.rebuild])
        word = "storage" if new >> WORD & 1 else memo[t.word]
        kind = find("torch", _text(t.kind_name)) if new >> KIND & 1 else memo[t.kind]
        location = _text(t.location_name) if new >> LOCATION & 1 else memo[t.location]
        ordered = find("collections", "OrderedDict") if new >> ORDERED & 1 else memo[t.hooks]
    except Exception:
        return False  # the opcodes raise it again, and say where
    if not (
            type(rebuild) is builder and rebuild.build is rebuild_tensor
            and type(ordered) is builder and ordered.build is dictionary
            and type(kind) is dtype_global and type(word) is str and word == "storage"):
        return False
    make = tuple.__new__
    key = _text(t.key)
    saved = (word, kind, key, location, t.n_elements)
    storage = make(
        storage_type, (machine.folder + key, kind.dtype, t.n_elements * kind.item_bytes, 0))
    sizes = tuple([t.sizes[i] for i in range(t.n_dims)])
    strides = tuple([t.strides[i] for i in range(t.n_dims)])
    hooks = {}
    tensor = make(tensor_type, (storage, kind.element, t.offset, sizes, strides))
    name = None
    if new >> NAME & 1:
        name = _text(t.name)
        stack.append(name)
    stack.append(tensor)
    args = (storage, t.offset, sizes, strides, t.requires_grad, hooks)
    parts = (
        name, rebuild, word, kind, key, location, saved, sizes, strides, ordered, hooks, args,
        tensor)
    for i in range(AMN_TORCH_PARTS):
        if new >> i & 1:
            memo[first] = parts[i]
            first += 1
    return True
