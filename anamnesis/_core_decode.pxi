# The part of _core.pyx that decodes, rotates and adds products.

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
