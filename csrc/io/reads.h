/* Reads of files that more happens to than a copy: rows that lie apart, or have gaps; CRC-32. */
#ifndef AMN_READS_H
#define AMN_READS_H

#include "amn_bytes.h"

/* Fill dst with pieces of `row_bytes` bytes, which start at `offset` of a file and lie `stride`
 * apart. dst is a whole number of pieces, of which `done` bytes are there already. Returns how many
 * are there in the end: fewer than all where the file ends, or where *error is not 0 but an errno
 * (EINTR too). */
uint64_t amn_pread_rows(int fd, uint64_t offset, uint64_t stride, uint64_t row_bytes,
                        amn_buffer dst, uint64_t done, int *error);

/* The same from memory; the caller has checked that src holds them all. */
void amn_copy_rows(amn_bytes src, uint64_t stride, uint64_t row_bytes, amn_buffer dst);

/* The ones among n bits of a mask from bit `first` on, the lowest bit of a byte first. */
uint64_t amn_count_bits(const uint8_t *mask, uint64_t first, uint64_t n);

/* Fill dst with rows of `cols` items of 1, 2, 4 or 8 bytes: the next of the values where the mask
 * has a one, else zeros. The values of a row end before value `ends` of it. A row of the mask is
 * whole bytes, and begins with bit `first` of them. Returns the first row that has another number
 * of ones, where it stops, or `rows`. The caller has checked that the buffers hold all that, and
 * that ends never fall. */
uint64_t amn_expand_rows(const uint8_t *mask, uint64_t first, uint64_t cols, const uint8_t *values,
                         const uint64_t *ends, uint64_t item, uint64_t rows, uint8_t *dst);

/* Fill dst with rows of `cols` nibbles, low ones first, of AutoAWQ's GEMV-fast, of which rows are a
 * multiple of 4 and columns of 64. Each side has rows * cols / 2 bytes. */
void amn_order_gemv_fast(const uint8_t *src, uint64_t rows, uint64_t cols, uint8_t *dst);

/* The same with codes of 4 or 8 bits of Marlin, of which rows are a multiple of 64 and columns of
 * 16. */
void amn_order_marlin(const uint8_t *src, unsigned bits, uint64_t rows, uint64_t cols,
                      uint8_t *dst);

/* The same of 2:4 sparse Marlin, of which columns are a multiple of 32; where nothing is stored,
 * dst has the code that stands for 0. src is half as long, and meta has two bytes for 16 columns.
 * Returns the place of the first four columns of which meta says no two in order, where it stops,
 * or rows * cols. */
uint64_t amn_order_marlin_24(const uint8_t *src, const uint8_t *meta, unsigned bits, uint64_t rows,
                             uint64_t cols, uint8_t *dst);

/* Fill dst with rows of n items of 2 or 4 bytes, of which column i is column order[i], a
 * little-endian uint32, of the `cols` that a row of src has. Returns 0, and fills nothing, if there
 * is no such column. The caller has checked that the buffers hold all, and that order does not lie
 * in dst. */
int amn_take_columns(const uint8_t *src, uint64_t rows, uint64_t cols, uint64_t item,
                     const uint8_t *order, uint64_t n, uint8_t *dst);

/* Fill dst with the two bytes that a line of the table, of 256 pairs, has for each byte of src; a
 * group of bytes has the line that `lines` says. Returns 0, and stops, at a line that there is not.
 * The caller has checked that the buffers hold all. */
int amn_look_up_pairs(const uint8_t *src, uint64_t group, const uint8_t *lines, uint64_t n_groups,
                      const uint8_t *table, uint64_t n_lines, uint8_t *dst);

/* A dimension: how many there are, and how many bytes from one to the next on either side. */
typedef struct {
  uint64_t n, src_step, dst_step;
} amn_dim;

/* Copy items of 1, 2, 4, 8 or 16 bytes of one dimension or more, the outermost first. The caller
 * has checked that both sides hold all. */
void amn_copy_strided(const amn_dim *dims, int n_dims, uint64_t item, const uint8_t *src,
                      uint8_t *dst);

/* Turn round n numbers of `width` bytes, 2, 4 or 8, which begin `stride` bytes one after the other.
 */
void amn_swap(uint8_t *number, uint64_t n, uint64_t stride, uint64_t width);

/* How many bits amn_crc32 may take at a time on this CPU, a sum of powers of two: 256 and 128, on
 * aarch64 64; 0 if it had better not run. Slow (cpuid): ask once. */
int amn_crc32_widths(void);

/* The CRC-32 of src, which continues bytes of this CRC-32. */
uint32_t amn_crc32(int bits, uint32_t crc, amn_bytes src);

/* What is read is summed up in slices that stay in the second-level cache. */
#define AMN_CRC32_SLICE ((uint64_t)128 << 10)

/* Fill dst, of which `done` bytes are there already, from `offset` of a file on; what is read
 * continues bytes of the CRC-32 at *crc, which is that of it all in the end. Returns and *error are
 * those of amn_pread_rows. */
uint64_t amn_pread_crc32(int fd, uint64_t offset, amn_buffer dst, uint64_t done, int bits,
                         uint32_t *crc, int *error);

#endif /* AMN_READS_H */
