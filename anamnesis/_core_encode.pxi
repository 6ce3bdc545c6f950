# The part of _core.pyx that encodes.

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
