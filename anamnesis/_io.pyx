"""Reads in C: rows that lie apart, items in another order, CRC-32."""

cimport cython
from cpython.buffer cimport PyBuffer_Release
from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EINTR
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcmp

from anamnesis._bytes cimport amn_buffer, amn_bytes, held, held_to_write, size_of
from anamnesis._reads cimport (
    AMN_CRC32_SLICE, amn_dim, amn_pread_rows, amn_copy_rows, amn_count_bits, amn_expand_rows,
    amn_order_gemv_fast, amn_order_marlin, amn_order_marlin_24, amn_take_columns, amn_look_up_pairs,
    amn_copy_strided, amn_swap, amn_crc32_widths, amn_crc32, amn_pread_crc32,
)

import os


@cython.final
@cython.auto_pickle(False)
cdef class _Held:
    """The buffers that a call holds, until it ends."""

    cdef Py_buffer _views[4]
    cdef int _n

    cdef amn_bytes to_read(self, object data) except *:
        cdef amn_bytes found = held(data, &self._views[self._n])
        self._n += 1
        return found

    cdef amn_buffer to_write(self, object data) except *:
        cdef amn_buffer found = held_to_write(data, &self._views[self._n])
        self._n += 1
        return found

    def __dealloc__(self):
        while self._n:
            self._n -= 1
            PyBuffer_Release(&self._views[self._n])


# ---- rows that lie apart ----

def pread_rows(int fd, offset, stride, row_bytes, dst) -> int:
    """Fill dst with rows of `row_bytes` bytes that lie `stride` apart in a file, from `offset` on.

    Returns how many bytes of dst there were before the file ended. Raises OSError; not on Windows.
    """
    cdef uint64_t first = size_of(offset, "offset"), step = size_of(stride, "stride")
    cdef uint64_t length = size_of(row_bytes, "row_bytes"), done = 0
    cdef _Held of = _Held()
    cdef amn_buffer buffer = of.to_write(dst)
    cdef int error = EINTR
    _check_rows(length, buffer.n_bytes)
    while error == EINTR:
        with nogil:
            done = amn_pread_rows(fd, first, step, length, buffer, done, &error)
        _heed(error)
    return done


def copy_rows(src, offset, stride, row_bytes, dst) -> None:
    """Fill dst with rows of `row_bytes` bytes that lie `stride` apart in src, from `offset` on.

    Raises ValueError if src does not hold them all.
    """
    cdef uint64_t first = size_of(offset, "offset"), step = size_of(stride, "stride")
    cdef uint64_t length = size_of(row_bytes, "row_bytes")
    cdef _Held of = _Held()
    cdef amn_bytes rows = of.to_read(src)
    cdef amn_buffer buffer = of.to_write(dst)
    _check_rows(length, buffer.n_bytes)
    if buffer.n_bytes == 0:
        return
    if offset + (buffer.n_bytes // length - 1) * stride + length > rows.n_bytes:
        raise ValueError("src is too short for the rows that dst takes")
    rows.data += first
    with nogil:
        amn_copy_rows(rows, step, length, buffer)


def count_bits(mask, first, n) -> int:
    """Return how many ones there are among n bits from bit `first` on, low bits first.

    Raises ValueError if mask does not hold them all.
    """
    cdef uint64_t start = size_of(first, "first"), count = size_of(n, "n"), found
    cdef _Held of = _Held()
    cdef amn_bytes bits = of.to_read(mask)
    if first + n > 8 * bits.n_bytes:
        raise ValueError("mask is too short for these bits")
    with nogil:
        found = amn_count_bits(bits.data, start, count)
    return found


def expand_rows(mask, first, cols, values, ends, item, dst) -> int:
    """Fill dst with rows of `cols` items: the next of `values` where mask has a one, else zeros.

    `ends` are uint64, one a row: where its values end, which never falls. A row of the mask is
    whole bytes, and begins with bit `first` of them. Returns the first row whose ones are more or
    fewer than its values, where it stops, or how many rows there are. Raises ValueError for buffers
    that do not go together.
    """
    cdef uint64_t start = size_of(first, "first"), n_cols = size_of(cols, "cols")
    cdef uint64_t size = size_of(item, "item"), rows, found
    cdef _Held of = _Held()
    cdef amn_bytes bits = of.to_read(mask), items = of.to_read(values), places = of.to_read(ends)
    cdef amn_buffer buffer = of.to_write(dst)
    rows = places.n_bytes // 8
    if item not in (1, 2, 4, 8) or places.n_bytes % 8 or (<size_t>places.data) % 8:
        raise ValueError("item must be 1, 2, 4 or 8 bytes, and ends be uint64")
    if rows * cols * item != buffer.n_bytes:
        raise ValueError("dst must be as long as the rows")
    if rows * ((first + cols + 7) // 8) > bits.n_bytes:
        raise ValueError("mask is too short for the rows")
    _check_ends(<const uint64_t *>places.data, rows, items.n_bytes // size)
    if buffer.n_bytes == 0:
        return rows
    with nogil:
        found = amn_expand_rows(
            bits.data, start, n_cols, items.data, <const uint64_t *>places.data, size, rows,
            buffer.data)
    return found


cdef enum:
    GEMV_FAST
    MARLIN
    MARLIN_24


cdef uint64_t order(
    int layout, src, meta, bits, rows, cols, dst, uint64_t tile_rows, uint64_t tile_cols
) except? 0:
    """Check the sizes, and put codes in order; return where that ends."""
    cdef uint64_t n_rows = size_of(rows, "rows"), n_cols = size_of(cols, "cols")
    cdef uint64_t found = n_rows * n_cols
    cdef _Held of = _Held()
    cdef amn_bytes words = of.to_read(src), beside = of.to_read(meta)
    cdef amn_buffer buffer = of.to_write(dst)
    cdef unsigned width
    if bits not in (4, 8):
        raise ValueError("bits must be 4 or 8")
    width = bits
    if n_rows % tile_rows or n_cols % tile_cols:
        raise ValueError("rows and cols must fill whole tiles")
    n_bytes = rows * cols * bits // 8
    is_sparse = layout == MARLIN_24
    if words.n_bytes != (n_bytes // 2 if is_sparse else n_bytes) or buffer.n_bytes != n_bytes:
        raise ValueError("src and dst must be as long as the codes are")
    if beside.n_bytes != (rows * cols // 8 if is_sparse else 0):
        raise ValueError("meta must have two bytes for 16 columns")
    with nogil:
        if layout == GEMV_FAST:
            amn_order_gemv_fast(words.data, n_rows, n_cols, buffer.data)
        elif layout == MARLIN:
            amn_order_marlin(words.data, width, n_rows, n_cols, buffer.data)
        else:
            found = amn_order_marlin_24(
                words.data, beside.data, width, n_rows, n_cols, buffer.data)
    return found


def order_gemv_fast(src, rows, cols, dst) -> None:
    """Fill dst with rows of `cols` nibbles, low ones first, of GEMV-fast.

    Raises ValueError if the sizes are not those of whole tiles, or of the buffers.
    """
    order(GEMV_FAST, src, b"", 4, rows, cols, dst, 4, 64)


def order_marlin(src, bits, rows, cols, dst) -> None:
    """Fill dst with rows of `cols` codes of 4 or 8 bits, low ones first, of Marlin's tiles.

    Raises ValueError as `order_gemv_fast` does.
    """
    order(MARLIN, src, b"", bits, rows, cols, dst, 64, 16)


def order_marlin_24(src, meta, bits, rows, cols, dst) -> int:
    """Fill dst with rows of `cols` codes of 4 or 8 bits, low ones first, of 2:4 sparse Marlin.

    Returns the place of the first four columns of which meta says no two in order, or how many
    codes there are. Raises ValueError as `order_gemv_fast` does.
    """
    return order(MARLIN_24, src, meta, bits, rows, cols, dst, 64, 32)


cdef enum:
    MOST_DIMS = 32


def swap(records, offset, stride, width) -> None:
    """Turn round one number of each record, in place: `width` bytes from `offset` on.

    Records have `stride` bytes, numbers 2, 4 or 8. Raises ValueError if a number would leave its
    record, or if there is a part of a record.
    """
    cdef uint64_t at = size_of(offset, "offset"), step = size_of(stride, "stride")
    cdef uint64_t size = size_of(width, "width")
    cdef _Held of = _Held()
    cdef amn_buffer buffer = of.to_write(records)
    if width not in (2, 4, 8) or offset + width > stride or buffer.n_bytes % step:
        raise ValueError("numbers must have 2, 4 or 8 bytes, and records be whole")
    if buffer.n_bytes:
        with nogil:
            amn_swap(buffer.data + at, buffer.n_bytes // step, step, size)


def are_equal(a, b) -> bool:
    """Return whether two buffers hold the same bytes."""
    cdef _Held of = _Held()
    cdef amn_bytes left = of.to_read(a), right = of.to_read(b)
    cdef bint found
    with nogil:
        found = left.n_bytes == right.n_bytes and (
            memcmp(left.data, right.data, left.n_bytes) == 0)
    return found


def look_up_pairs(src, lines, table, dst) -> None:
    """Fill dst with two bytes for each of src, which a line of 256 pairs of the table has.

    There are as many lines as groups of bytes; each is a byte, the place of a line in the table.
    Raises ValueError for buffers that do not go together, or if there is no such line.
    """
    cdef _Held of = _Held()
    cdef amn_bytes codes = of.to_read(src), places = of.to_read(lines), pairs = of.to_read(table)
    cdef amn_buffer buffer = of.to_write(dst)
    cdef int is_done
    if buffer.n_bytes // 2 != codes.n_bytes or buffer.n_bytes % 2 or pairs.n_bytes % 512:
        raise ValueError("dst must be twice as long as src, and lines of the table be whole")
    if codes.n_bytes % places.n_bytes if places.n_bytes else codes.n_bytes:
        raise ValueError("src must be groups of as many bytes, one for each line")
    if places.n_bytes:
        with nogil:
            is_done = amn_look_up_pairs(
                codes.data, codes.n_bytes // places.n_bytes, places.data, places.n_bytes,
                pairs.data, pairs.n_bytes // 512, buffer.data)
        if not is_done:
            raise ValueError("lines must name lines that the table has")


def take_columns(src, cols, item, order, dst) -> None:
    """Fill dst with rows of items of 2 or 4 bytes, of which column i is column order[i] of src.

    Rows of src have `cols`. `order` are uint32, one a column of dst. Raises ValueError for buffers
    that do not go together, or if there is no such column.
    """
    cdef uint64_t size = size_of(item, "item"), width = size_of(cols, "cols"), n, rows
    cdef _Held of = _Held()
    cdef amn_bytes values = of.to_read(src), places = of.to_read(order)
    cdef amn_buffer buffer = of.to_write(dst)
    cdef int is_done
    n = places.n_bytes // 4
    if size not in (2, 4) or places.n_bytes % 4 or n == 0 or buffer.n_bytes % (n * size):
        raise ValueError("dst must be whole rows of as many columns as order has")
    rows = buffer.n_bytes // (n * size)
    if values.n_bytes != 0 if rows == 0 or width == 0 else (
            values.n_bytes % (rows * size) or values.n_bytes // (rows * size) != width):
        raise ValueError("src must be as many rows of cols items as dst is of its own")
    with nogil:
        is_done = amn_take_columns(values.data, rows, width, size, places.data, n, buffer.data)
    if not is_done:
        raise ValueError("order names a column that there is not")


def copy_strided(src, src_offset, dst, dst_offset, item, dims) -> None:
    """Copy items from one order to another: `dims` has (n, src_step, dst_step), steps in bytes.

    The outermost dimension comes first, of 32 at most. Items have 1, 2, 4, 8 or 16 bytes. Raises
    ValueError if src or dst does not hold all of them.
    """
    cdef uint64_t size = size_of(item, "item"), src_first = size_of(src_offset, "src_offset")
    cdef uint64_t dst_first = size_of(dst_offset, "dst_offset")
    cdef amn_dim each[MOST_DIMS]
    cdef int n_dims = 0
    cdef _Held of = _Held()
    cdef amn_bytes items
    cdef amn_buffer buffer
    if item not in (1, 2, 4, 8, 16) or not 1 <= len(dims) <= MOST_DIMS:
        raise ValueError("items must have 1, 2, 4, 8 or 16 bytes, and 1 to 32 dimensions")
    for n, src_step, dst_step in dims:
        each[n_dims].n = size_of(n, "n")
        each[n_dims].src_step = size_of(src_step, "src_step")
        each[n_dims].dst_step = size_of(dst_step, "dst_step")
        n_dims += 1
    if 0 in [n for n, _, _ in dims]:
        return
    items, buffer = of.to_read(src), of.to_write(dst)
    if src_offset + sum([(n - 1) * step for n, step, _ in dims]) + item > items.n_bytes:
        raise ValueError("src does not hold the items")
    if dst_offset + sum([(n - 1) * step for n, _, step in dims]) + item > buffer.n_bytes:
        raise ValueError("dst does not hold the items")
    with nogil:
        amn_copy_strided(each, n_dims, size, items.data + src_first, buffer.data + dst_first)


cdef int _check_ends(const uint64_t *ends, uint64_t n, uint64_t n_values) except -1:
    cdef uint64_t before = 0, i
    for i in range(n):
        if ends[i] < before or ends[i] > n_values:
            raise ValueError("ends fall, or lie behind the last of values")
        before = ends[i]
    return 0


cdef int _check_rows(uint64_t row_bytes, uint64_t n_bytes) except -1:
    if row_bytes == 0 or n_bytes % row_bytes:
        raise ValueError("dst must be a whole number of rows of at least one byte")
    return 0


cdef int _heed(int error) except -1:
    """Raise what an errno says, or what a signal's handler does if it says that there was one."""
    if error == EINTR:
        PyErr_CheckSignals()
    elif error:
        raise OSError(error, os.strerror(error))
    return 0


# ---- CRC-32 ----

CRC32_SLICE = AMN_CRC32_SLICE
cdef int _crc32_widths = amn_crc32_widths()
CRC32_BITS = tuple([bits for bits in (64, 128, 256) if bits & _crc32_widths])


def crc32(src, uint32_t crc, bits=None) -> int:
    """Return the CRC-32 of src, which continues bytes of this CRC-32.

    `bits` are those taken at a time, one of CRC32_BITS; not to be called where this is empty.
    """
    cdef int at_once = _bits_at_once(bits)
    cdef _Held of = _Held()
    cdef amn_bytes data = of.to_read(src)
    with nogil:
        crc = amn_crc32(at_once, crc, data)
    return crc


def pread_crc32(int fd, offset, dst) -> tuple[int, int]:
    """Fill dst from `offset` of a file on, and sum it up piece by piece, while it is in cache.

    Returns how many bytes there were before the file ended, and their CRC-32. Raises OSError; not
    on Windows, nor where CRC32_BITS is empty.
    """
    cdef uint64_t first = size_of(offset, "offset"), done = 0
    cdef int error = EINTR, at_once = _bits_at_once(None)
    cdef uint32_t crc = 0
    cdef _Held of = _Held()
    cdef amn_buffer buffer = of.to_write(dst)
    while error == EINTR:
        with nogil:
            done = amn_pread_crc32(fd, first, buffer, done, at_once, &crc, &error)
        _heed(error)
    return done, crc


cdef int _bits_at_once(object bits) except -1:
    if bits is None and CRC32_BITS:
        return max(CRC32_BITS)
    if bits not in CRC32_BITS:
        raise ValueError(f"bits must be one of {CRC32_BITS}, got {bits}")
    return bits
