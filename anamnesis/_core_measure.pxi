# The part of _core.pyx that looks values through: how large, how different, what sum.

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
