"""csrc/io/reads.h, as Cython sees it."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from anamnesis._bytes cimport amn_buffer, amn_bytes


cdef extern from "io/reads.h" nogil:
    uint64_t AMN_CRC32_SLICE

    uint64_t amn_pread_rows(
        int fd, uint64_t offset, uint64_t stride, uint64_t row_bytes, amn_buffer dst,
        uint64_t done, int *error) noexcept
    void amn_copy_rows(
        amn_bytes src, uint64_t stride, uint64_t row_bytes, amn_buffer dst) noexcept
    uint64_t amn_count_bits(const uint8_t *mask, uint64_t first, uint64_t n) noexcept
    uint64_t amn_expand_rows(
        const uint8_t *mask, uint64_t first, uint64_t cols, const uint8_t *values,
        const uint64_t *ends, uint64_t item, uint64_t rows, uint8_t *dst) noexcept
    void amn_order_gemv_fast(
        const uint8_t *src, uint64_t rows, uint64_t cols, uint8_t *dst) noexcept
    void amn_order_marlin(
        const uint8_t *src, unsigned bits, uint64_t rows, uint64_t cols, uint8_t *dst) noexcept
    uint64_t amn_order_marlin_24(
        const uint8_t *src, const uint8_t *meta, unsigned bits, uint64_t rows, uint64_t cols,
        uint8_t *dst) noexcept

    int amn_take_columns(
        const uint8_t *src, uint64_t rows, uint64_t cols, uint64_t item, const uint8_t *order,
        uint64_t n, uint8_t *dst) noexcept
    int amn_look_up_pairs(
        const uint8_t *src, uint64_t group, const uint8_t *lines, uint64_t n_groups,
        const uint8_t *table, uint64_t n_lines, uint8_t *dst) noexcept

    ctypedef struct amn_dim:
        uint64_t n
        uint64_t src_step
        uint64_t dst_step

    void amn_copy_strided(
        const amn_dim *dims, int n_dims, uint64_t item, const uint8_t *src, uint8_t *dst) noexcept

    void amn_swap(uint8_t *number, uint64_t n, uint64_t stride, uint64_t width) noexcept

    int amn_crc32_widths() noexcept
    uint32_t amn_crc32(int bits, uint32_t crc, amn_bytes src) noexcept
    uint64_t amn_pread_crc32(
        int fd, uint64_t offset, amn_buffer dst, uint64_t done, int bits, uint32_t *crc,
        int *error) noexcept
